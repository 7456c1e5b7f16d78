"""Doctor: what is wrong with a home, what that means, and what to do about it. It looks, and changes nothing."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from coldtrail import sweeps
from coldtrail.agents.walk import Source
from coldtrail.catalog import VERSION
from coldtrail.errors import ColdtrailError
from coldtrail.home import Home
from coldtrail.layout import RESTORE_TEMP_PREFIX, TEMP_PREFIX, Layout, is_id
from coldtrail.model import instant_text
from coldtrail.sessions import find_manifest, manifest_label
from coldtrail.stage import drill
from coldtrail.stage.compact import due
from coldtrail.stage.stopped import Stopped
from coldtrail.store import DAMAGED_SUFFIX

STALE_TEMP_MS = 3_600_000
SOON_MS = 7 * 86_400_000
LATE_MS = 86_400_000  # what has been cold for so much longer than it need be should be archived
DRILL_DUE_MS = 14 * 86_400_000
_TOLD_MAX = 20  # of one kind
_SQLITE = b"SQLite format 3\x00"


class Severity(StrEnum):
    """How bad it is."""

    ERROR = "error"  # bytes are, or soon will be, lost or open to others, or nothing is captured
    WARNING = "warning"  # it works, and will not always
    NOTE = "note"  # to know


class Mend(StrEnum):
    """What can be mended without a question, for nothing is lost by it."""

    RIGHTS = "rights"  # only the owner may read what is ours
    TEMPS = "temps"  # unfinished files of interrupted runs go
    CATALOG = "catalog"  # a cache: removed, and made again from store and archive
    FILES = "files"  # a damaged meta.json or manifest is written anew from what else is known


@dataclass(frozen=True, slots=True)
class Finding:
    """Something to be known of; `fix` is what to do about it, empty where that is nothing."""

    severity: Severity
    place: str
    what: str
    means: str = ""
    fix: str = ""
    mend: Mend | None = None


DOCTOR_FIX = "coldtrail doctor --fix"


# ---- the folder, whether or not it can be opened ----------------------------------------------------------------------------


def of_folder(layout: Layout, uid: int, now_ms: int) -> Iterator[Finding]:
    """What is wrong with the files, by their names, rights and owners alone; `uid` is who runs coldtrail."""
    if not layout.home.is_dir():
        yield Finding(Severity.NOTE, str(layout.home), "nothing is kept yet", "", "coldtrail run")
        return
    yield from _rights(layout, uid)
    yield from _temps(layout, now_ms)
    yield from _host_id(layout)
    yield from _catalog_head(layout)
    yield from _set_aside(layout)


def ours(layout: Layout) -> Iterator[Path]:
    """Every file and folder of ours, the home itself first; what waits in `aside` is the agents', with rights of its own."""
    tops = [layout.home] if layout.archive.is_relative_to(layout.home) else [layout.home, layout.archive]
    for top in tops:
        if top.is_dir():
            yield top
        for folder, folders, files in os.walk(top):
            if Path(folder) == layout.aside:
                folders.clear()
                continue
            yield from (Path(folder) / name for name in (*folders, *files))


def wanted_mode(found: os.stat_result) -> int | None:
    """The rights that a file or folder of ours should have and has not; None where all is well, or it is a link."""
    wanted = 0o700 if stat.S_ISDIR(found.st_mode) else 0o600
    if stat.S_ISLNK(found.st_mode) or stat.S_IMODE(found.st_mode) == wanted:
        return None
    plain = stat.S_ISDIR(found.st_mode) or stat.S_ISREG(found.st_mode)  # a socket may lack rights that it does not need
    return wanted if plain or found.st_mode & 0o077 else None


def _rights(layout: Layout, uid: int) -> Iterator[Finding]:
    others, mine, foreign = list[Path](), list[Path](), list[Path]()
    for path in ours(layout):
        with suppress(FileNotFoundError):
            found = path.lstat()
            wanted = wanted_mode(found)
            if found.st_uid != uid:
                foreign.append(path)
            elif wanted is not None:
                (others if found.st_mode & 0o077 else mine).append(path)
    if others:
        means = "logs hold whatever the agent saw, secrets included"
        yield Finding(Severity.ERROR, str(others[0]), f"may be read or changed by others{_more(others)}", means, DOCTOR_FIX, Mend.RIGHTS)
    if mine:
        means = "coldtrail cannot work with it, or believes that it can"
        yield Finding(Severity.ERROR, str(mine[0]), f"has rights that we never give{_more(mine)}", means, DOCTOR_FIX, Mend.RIGHTS)
    if foreign:
        fix = f"sudo chown -R {uid} {layout.home}"
        yield Finding(Severity.ERROR, str(foreign[0]), f"belongs to another user{_more(foreign)}", "it cannot be read or written", fix)


def _more(paths: list[Path]) -> str:
    return f", and {len(paths) - 1} more" if len(paths) > 1 else ""


def temps(layout: Layout, now_ms: int) -> Iterator[Path]:
    """The unfinished files that nobody can be at any more. Those on their way to an agent are told by their locks, and left alone."""
    for path in ours(layout):
        if path.name.startswith(TEMP_PREFIX) and not path.name.startswith(RESTORE_TEMP_PREFIX):
            with suppress(FileNotFoundError):
                if path.is_file() and now_ms - path.stat().st_mtime_ns // 1_000_000 > STALE_TEMP_MS:
                    yield path


def _temps(layout: Layout, now_ms: int) -> Iterator[Finding]:
    found = list(temps(layout, now_ms))
    if found:
        what = f"an unfinished file of an interrupted run{_more(found)}"
        yield Finding(Severity.NOTE, str(found[0]), what, "it takes room, and is of no use", DOCTOR_FIX, Mend.TEMPS)


def _host_id(layout: Layout) -> Iterator[Finding]:
    try:
        text = layout.host_id.read_bytes().decode("ascii", "replace").strip()
    except FileNotFoundError:
        fix = "any command finds it again where what is kept tells it"
        yield Finding(Severity.WARNING, str(layout.host_id), "missing", "this machine's folder in the archive goes by that name", fix)
        return
    except OSError as error:
        yield Finding(Severity.ERROR, str(layout.host_id), f"cannot be read: {error.strerror}", "nothing works without it", DOCTOR_FIX)
        return
    if not is_id(text):
        fix = "any command finds it again where what is kept tells it; else write the name of this machine's folder in the archive there"
        yield Finding(Severity.ERROR, str(layout.host_id), "damaged: not a host id (16 hex digits)", "nothing works without it", fix)


def _catalog_head(layout: Layout) -> Iterator[Finding]:
    """What the catalog's first bytes tell; one that is younger than its WAL tells no version."""
    wal = layout.catalog.with_name(layout.catalog.name + "-wal")
    try:
        with layout.catalog.open("rb") as file:
            head = file.read(100)
        behind = wal.exists() and wal.stat().st_size > 0
    except FileNotFoundError:
        means = "a cache, without which nothing is listed; no session is lost by it"
        yield Finding(Severity.WARNING, str(layout.catalog), "missing", means, "coldtrail rebuild", Mend.CATALOG)
        return
    except OSError as error:
        yield Finding(Severity.ERROR, str(layout.catalog), f"cannot be read: {error.strerror}", "nothing works without it", DOCTOR_FIX)
        return
    version = int.from_bytes(head[60:64], "big")
    if not head.startswith(_SQLITE) and not (behind and not head):
        yield damaged_catalog(layout, "it is no SQLite file")
    elif not behind and version > VERSION:
        what = f"of version {version}; this coldtrail reads version {VERSION}"
        yield Finding(Severity.ERROR, str(layout.catalog), what, "a newer coldtrail has written it", "update this one")
    elif not behind and version < VERSION:
        what = f"of version {version}, older than this coldtrail's {VERSION}"
        yield Finding(Severity.NOTE, str(layout.catalog), what, "a cache: any command makes it anew", "coldtrail rebuild")


def damaged_catalog(layout: Layout, what: str) -> Finding:
    """The catalog cannot be used."""
    means = "a cache: nothing is listed or captured until it is made again; no session is lost by it"
    return Finding(Severity.ERROR, str(layout.catalog), f"damaged: {what}", means, DOCTOR_FIX, Mend.CATALOG)


def can_be_opened(layout: Layout, found: Iterable[Finding]) -> bool:
    """Whether opening the home changes nothing in it, as far as is known."""
    broken = {str(layout.catalog), str(layout.host_id)}
    return layout.home.is_dir() and not any(each.place in broken for each in found)


def _set_aside(layout: Layout) -> Iterator[Finding]:
    found = [path for path in ours(layout) if path.name.endswith(DAMAGED_SUFFIX)]
    if found:
        what = f"a segment that was set aside as damaged{_more(found)}"
        means = "its later frames may hold bytes that nothing else does"
        yield Finding(Severity.WARNING, str(found[0]), what, means, "coldtrail verify --repair")


# ---- what is in it ----------------------------------------------------------------------------------------------------------


def of_home(home: Home, sources: Iterable[Source], compact_after_ms: int) -> Iterator[Finding]:
    """What is wrong with what is kept, as far as can be told without decoding it."""
    wrong = home.catalog.wrong()
    if wrong:
        yield damaged_catalog(home.layout, wrong)
        return
    yield from _archive_away(home)
    yield from _small_files(home)
    yield from _faults(home)
    yield from _backlog(home, compact_after_ms)
    yield from _in_danger(home, sources)
    yield from _proofs(home)


def _archive_away(home: Home) -> Iterator[Finding]:
    """An archive that is not mounted has nothing of sources of which all was sealed."""
    keys = {home.layout.source_key(home.host, row.source) for row in home.catalog.all_streams() if row.settled and row.held}
    empty = sorted(key for key in keys if not home.archive.names(key))
    if empty:
        means = f"it should have {', '.join(empty)}: nothing is archived, and what is sealed cannot be read"
        fix = "mount its disk, or see to `archive.url`"
        yield Finding(Severity.ERROR, str(home.layout.archive), "is not there, or empty: is its disk mounted?", means, fix)


def _small_files(home: Home) -> Iterator[Finding]:
    found = [*_damaged_metas(home), *_damaged_manifests(home)]
    yield from found[:_TOLD_MAX]
    if len(found) > _TOLD_MAX:
        yield Finding(
            Severity.ERROR, str(home.layout.home), f"{len(found) - _TOLD_MAX} more small files are damaged", "", DOCTOR_FIX, Mend.FILES
        )


def _damaged_metas(home: Home) -> Iterator[Finding]:
    for stream in sorted(home.store.streams()):
        path = home.layout.meta(stream)
        try:
            missing = home.store.meta(stream) is None and any(not each.name.startswith(TEMP_PREFIX) for each in path.parent.iterdir())
        except ColdtrailError as error:
            yield _damaged(str(path), error)
        except FileNotFoundError:
            continue  # it was removed meanwhile
        else:
            if missing:
                means = "nobody can tell whose the bytes beside it are"
                yield Finding(Severity.ERROR, str(path), "missing", means, DOCTOR_FIX, Mend.FILES)


def _damaged_manifests(home: Home) -> Iterator[Finding]:
    for row in home.catalog.sessions():
        try:
            find_manifest(home, row.source, row.key, row.host)
        except ColdtrailError as error:
            yield _damaged(manifest_label(home, row.source, row.key, row.host), error)


def _damaged(place: str, error: ColdtrailError) -> Finding:
    means = "it says whose the bytes beside it are; they are whole, and it is written anew from what else is known"
    return Finding(Severity.ERROR, place, str(error).removeprefix(f"{place}: "), means, DOCTOR_FIX, Mend.FILES)


def _faults(home: Home) -> Iterator[Finding]:
    faults = home.catalog.faults()
    for fault in faults[:_TOLD_MAX]:
        since = f"since {instant_text(fault.since_ms)}, tried {fault.tries} times"
        yield Finding(Severity.WARNING, os.fsdecode(fault.place), fault.what, since, fault.hint)
    if len(faults) > _TOLD_MAX:
        yield Finding(Severity.WARNING, str(home.layout.home), f"{len(faults) - _TOLD_MAX} more faults", "", "coldtrail status")


def _backlog(home: Home, after_ms: int) -> Iterator[Finding]:
    late = [row for row, cold in due(home, after_ms + LATE_MS) if cold]
    if late:
        size = sum(home.store.stored_bytes(row.stream) for row in late)
        what = f"{len(late)} streams have been cold for over a day and are not archived yet: {size} bytes"
        means = "nothing is lost: they are in the store. The daemon does not run, or cannot archive them"
        yield Finding(Severity.WARNING, str(home.layout.store), what, means, "coldtrail run --once")


def _in_danger(home: Home, sources: Iterable[Source]) -> Iterator[Finding]:
    outlook = sweeps.look(home, sources)
    for each in outlook.dangers[:_TOLD_MAX]:
        what = f"{each.what}, and {each.agent} deletes it from {instant_text(each.deletes_ms)} on"
        yield Finding(Severity.ERROR, each.path, what, "what is not captured by then is gone", "coldtrail run --once")
    soon = [fate for _, fate in outlook.within(home.now_ms(), SOON_MS) if fate.kept]
    if soon:
        what = f"the agents delete {len(soon)} sessions within a week, and all that was seen of them is kept"
        yield Finding(Severity.NOTE, str(home.layout.home), what)


def _proofs(home: Home) -> Iterator[Finding]:
    """What the last drill and the last verification have left to say."""
    told, now_ms = drill.last(home.layout.home), home.now_ms()
    place = str(home.layout.home / drill.NAME)
    if told is not None and told.get("verdict") != "ok":
        severity = Severity.ERROR if told.get("verdict") == "bad" else Severity.WARNING
        what = f"of {told.get('tried')} sessions {told.get('ok')} came back in the last drill"
        yield Finding(severity, place, what, "our copy of the others is damaged, or could not be judged", "coldtrail verify --repair")
    elif home.catalog.sessions() and (told is None or _is_old(str(told.get("at")), now_ms)):
        what = "no drill has shown yet that sessions come back" if told is None else f"the last drill was on {str(told.get('at'))[:10]}"
        yield Finding(Severity.NOTE, place, what, "", "coldtrail drill")
    stopped = Stopped.load(home)
    if stopped is not None:
        what = f"a verification stopped on {str(instant_text(stopped.at_ms))[:10]} before its end"
        yield Finding(Severity.NOTE, str(home.layout.home), what, "", "coldtrail verify --resume")


def _is_old(at: str, now_ms: int) -> bool:
    return at < str(instant_text(max(0, now_ms - DRILL_DUE_MS)))
