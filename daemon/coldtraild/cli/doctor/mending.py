"""What `doctor --fix` does: only what loses nothing, each step told."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

from coldtrail import durable
from coldtrail.errors import ColdtrailError, LockedError
from coldtrail.settings import Settings, alone, now_ms, open_home
from coldtrail.stage import doctor
from coldtrail.stage.doctor import Finding, Mend
from coldtrail.stage.rebuild import rebuild


@dataclass(frozen=True, slots=True)
class Mended:
    """One thing that was done, or could not be."""

    what: str
    done: bool = True


def mend(settings: Settings, findings: Sequence[Finding]) -> list[Mended]:
    """Mend what can be; gives what was done."""
    wanted = {each.mend for each in findings}
    done: list[Mended] = []
    for kind, act in _ACTS.items():
        if kind in wanted:
            try:
                done += act(settings)
            except (ColdtrailError, OSError) as error:
                done.append(Mended(f"{kind.value}: {error}", done=False))
    return done


def _rights(settings: Settings) -> Iterator[Mended]:
    count, uid = 0, os.geteuid()
    for path in doctor.ours(settings.layout):
        with suppress(FileNotFoundError):
            found = path.lstat()
            wanted = doctor.wanted_mode(found)
            if wanted is not None and found.st_uid == uid:
                path.chmod(wanted, follow_symlinks=os.chmod not in os.supports_follow_symlinks)
                count += 1
    yield Mended(f"{count} files and folders may be read by nobody but you (0600, 0700)")


def _temps(settings: Settings) -> Iterator[Mended]:
    found = list(doctor.temps(settings.layout, now_ms()))
    for path in found:
        durable.remove(path)
    yield Mended(f"{len(found)} unfinished files of interrupted runs are gone")


def _catalog(settings: Settings) -> Iterator[Mended]:
    """Remove the cache and make it again, while nobody else is at work on it."""
    try:
        with alone(settings):
            for path in settings.layout.home.glob("catalog.db*"):
                durable.remove(path)
            yield from _rebuilt(settings, "the catalog was removed, and is made again from store and archive")
    except LockedError:
        yield Mended("the catalog: a daemon is at work on it; stop it first, then `coldtrail doctor --fix`", done=False)


def _files(settings: Settings) -> Iterator[Mended]:
    yield from _rebuilt(settings, "the catalog is what the files say")


def _rebuilt(settings: Settings, what: str) -> Iterator[Mended]:
    mended: list[str] = []
    with open_home(settings) as home:
        errors = rebuild(home, mended=mended.append)
        sessions = len(home.catalog.sessions())
    yield from (Mended(f"{path} was damaged, and is written anew") for path in mended)
    yield from (Mended(f"{error}", done=False) for error in errors)
    yield Mended(f"{what}: {sessions} sessions")


_ACTS: dict[Mend, Callable[[Settings], Iterator[Mended]]] = {
    Mend.RIGHTS: _rights,  # first: with them the rest may be possible
    Mend.TEMPS: _temps,
    Mend.CATALOG: _catalog,
    Mend.FILES: _files,
}
