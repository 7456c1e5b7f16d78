"""The service's jobs: what goes wrong in one of them is told and shown, and the others go on."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from coldtrail import checkpoints, reserve
from coldtrail.agents.walk import Source
from coldtrail.errors import ColdtrailError, StoreFullError
from coldtrail.home import Home
from coldtrail.settings import Settings
from coldtrail.stage import expire, placing
from coldtrail.stage.adopt import adopt, adopt_wishes, tidy
from coldtrail.stage.checkpoint import Policy, advance
from coldtrail.stage.checkpoint import due as due_for_checkpoint
from coldtrail.stage.compact import Compactor, due
from coldtrail.stage.rebuild import rebuild
from coldtrail.stage.scan import BACK_OFF_MS
from coldtrail.stage.seal import Pace, at_once
from coldtraild.log import NAME, error_text

TIDY_AFTER_MS = 3_600_000
TOLD_EVERY_MS = 2_000
_NO_CHECKPOINT = "nothing is lost: recovery replays from an earlier one; if it stays, please report it"
_OURS = "this is a fault of coldtrail: please report it"

log = logging.getLogger(NAME)


@dataclass(slots=True)
class Compaction:
    """What a compaction pass did."""

    streams: int = 0
    segments: int = 0
    plain_bytes: int = 0
    failed: int = 0


def prepare(home: Home, found: Settings) -> None:
    """What a start owes to the run before it: the catalog as the files say, no temps left behind; and to the day of a full disk."""
    if home.owes_rebuild():
        log.info("the catalog is empty: making it again from store and archive")
        tell(rebuild(home))
    expire.finish(home)
    tell(adopt(home) + adopt_wishes(home))
    roots = [source.root for source in found.sources]
    if count := tidy(home, TIDY_AFTER_MS) + placing.tidy(roots, home.layout.home):
        log.info("removed %(count)d unfinished files of an interrupted run", {"count": count})
    reserve.keep(home.layout, home.host)


def tell(errors: list[ColdtrailError]) -> None:
    """Log what could not be read."""
    for error in errors:
        log.error("%(what)s", {"what": error_text(error)})


@contextmanager
def shown(home: Home, place: Path, *, clears: bool = True) -> Iterator[None]:
    """What stops the block stands in `status` as a fault at `place`, until work that `clears` it comes through."""
    try:
        yield
    except Exception as error:
        try:
            _note_fault(home, os.fsencode(place), error, _OURS)
        except Exception:  # on a full disk the catalog may take nothing either
            log.exception("the fault could not be noted")
        raise
    if clears and home.catalog.fault(os.fsencode(place)) is not None:
        home.catalog.clear_fault(os.fsencode(place))


_T = TypeVar("_T")


def attempt(home: Home, work: Callable[[], _T], *, clears: bool = True) -> tuple[_T | None, Exception | None]:
    """Do the work, or give what stopped it; that is shown in `status` as a fault of the home."""
    try:
        with shown(home, home.layout.home, clears=clears):
            return work(), None
    except Exception as error:  # noqa: BLE001 - it is handed on
        return None, error


def end_of(work: Callable[[], None]) -> BaseException | None:
    """Do the work of a thread, which has no caller: what ended it is for whoever waits for it."""
    try:
        work()
    except BaseException as error:  # noqa: BLE001 - it is handed on
        return error
    return None


def guarded(name: str, work: Callable[[], None]) -> None:
    """Do something that nothing else must end with: what goes wrong is told."""
    try:
        work()
    except Exception:
        log.exception("%(name)s failed", {"name": name})


def _note_fault(home: Home, place: bytes, error: Exception, hint: str) -> None:
    """Take down a failure, with its own hint where it has one."""
    paused = "paused: " if isinstance(error, StoreFullError) else ""
    what = str(error).removeprefix(f"{os.fsdecode(place)}: ") if isinstance(error, ColdtrailError) else error_text(error)
    home.catalog.note_fault(place, paused + what, getattr(error, "hint", "") or hint, home.now_ms(), BACK_OFF_MS)


def compact(home: Home, found: Settings, stopping: Callable[[], bool], pace: Pace = at_once) -> Compaction:
    """Seal and make dense what is due, one stream after the other."""
    compactor, done = Compactor(home, found.config.compact.level, pace), Compaction()
    for row, cold in due(home, found.config.compact.after_ms):
        if stopping():
            break
        place = os.fsencode(home.layout.stream(row.stream))
        fault = home.catalog.fault(place)
        if fault is not None and fault.waits(home.now_ms()):
            continue  # see Catalog.note_fault: the wait ends, and grows with each failure
        try:
            made = compactor.compact(row, cold=cold)
        except StoreFullError:
            raise
        except Exception as error:
            _note_fault(home, place, error, "run `coldtrail verify`")
            log.exception("stream %(stream)s: not compacted", {"stream": row.stream})
            done.failed += 1
            continue
        if fault is not None:
            home.catalog.clear_fault(place)
        done.streams += made.sealed > 0
        done.segments += made.sealed
        done.plain_bytes += made.plain_bytes
    return done


def checkpoint(home: Home, found: Settings, stopping: Callable[[], bool]) -> int:
    """Make the checkpoints that are due, one log after the other; gives how many.

    What fails is a fault of that log alone, and tried again after a wait that grows.
    """
    wanted = found.config.checkpoint
    policy = Policy(
        wanted.every_events,
        wanted.every_ms,
        frozenset(wanted.on),
        wanted.least_bytes,
        wanted.cost_factor,
        wanted.replay_max_bytes,
        wanted.replay_max_records,
    )
    made, looked_at = 0, set[bytes]()
    for row in due_for_checkpoint(home, policy):
        if stopping():
            return made
        place = os.fsencode(home.layout.generation(row.stream, row.generation) / checkpoints.FILE_NAME)
        fault = home.catalog.fault(place)
        if fault is not None and fault.waits(home.now_ms()):
            looked_at.add(place)
            continue
        try:
            made += advance(home, row, policy)
        except StoreFullError:
            raise
        except Exception as error:
            looked_at.add(place)
            _note_fault(home, place, error, _NO_CHECKPOINT)
            log.exception("stream %(stream)s: no checkpoint made", {"stream": row.stream})
    _forget_mended_checkpoints(home, looked_at)
    return made


def _forget_mended_checkpoints(home: Home, faulty: set[bytes]) -> None:
    """A log whose checkpoint could be made, or which needs none any more, has no fault left."""
    store, name = os.fsencode(home.layout.store) + b"/", b"/" + checkpoints.FILE_NAME.encode()
    for fault in home.catalog.faults():
        if fault.place.startswith(store) and fault.place.endswith(name) and fault.place not in faulty:
            home.catalog.clear_fault(fault.place)


def watched_folders(sources: list[Source], linked: Callable[[Path], dict[Path, Path]]) -> Iterator[tuple[Path, Path]]:
    """What to watch: each folder that holds sessions, and each that links in it lead to, with its name below the root."""
    for source in sources:
        for folder in source.agent.folders:
            top = source.root / folder
            yield top, top
            yield from linked(top).items()
