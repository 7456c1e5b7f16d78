"""The service's jobs: capture on its own thread, compaction on another; what goes wrong in one is told, and the others go on."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from coldtrail.agents.walk import Source
from coldtrail.client import Settings, find_sources, open_home
from coldtrail.errors import ColdtrailError, StoreFullError
from coldtrail.home import Home
from coldtrail.stage.checkpoint import Policy, advance
from coldtrail.stage.checkpoint import due as due_for_checkpoint
from coldtrail.stage.compact import Compactor, due
from coldtrail.stage.rebuild import adopt, is_owed, rebuild, tidy
from coldtrail.stage.scan import BACK_OFF_MS, Scanner, Tally
from coldtraild.log import NAME, error_text
from coldtraild.marks import Marks

TAIL_WAIT_S = 5.0  # after so long an unfinished line is looked at again
FULL_WAIT_S = 15.0  # after so long a full disk is tried again
TIDY_AFTER_MS = 3_600_000
TOLD_EVERY_MS = 2_000
_IDLE_S = 30.0

log = logging.getLogger(NAME)


@dataclass(slots=True)
class Compaction:
    """What a compaction pass did."""

    streams: int = 0
    segments: int = 0
    plain_bytes: int = 0
    failed: int = 0


def prepare(home: Home) -> None:
    """What a start owes to the run before it: the catalog as the files say, no temps left behind."""
    if is_owed(home):
        log.info("the catalog is empty: making it again from store and archive")
        _tell(rebuild(home))
    _tell(adopt(home))
    if count := tidy(home, TIDY_AFTER_MS):
        log.info("removed %(count)d unfinished files of an interrupted run", {"count": count})


def _tell(errors: list[ColdtrailError]) -> None:
    for error in errors:
        log.error("%(what)s", {"what": error_text(error)})


def compact(home: Home, found: Settings, stopping: Callable[[], bool]) -> Compaction:
    """Seal and make dense what is due, one stream after the other."""
    compactor, done = Compactor(home, found.config.compact.level), Compaction()
    for row, cold in due(home, found.config.compact.after_ms):
        if stopping():
            break
        place = os.fsencode(home.layout.stream(row.stream))
        fault = home.catalog.fault(place)
        if fault is not None and fault.waits(home.now_ms()):
            continue
        try:
            made = compactor.compact(row, cold=cold)
        except StoreFullError:
            raise
        except Exception as error:
            home.catalog.note_fault(place, error_text(error), "run `coldtrail verify`", home.now_ms(), BACK_OFF_MS)
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
    """Make the checkpoints that are due, one log after the other; gives how many. What fails is made another time."""
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
    made = 0
    for row in due_for_checkpoint(home, policy):
        if stopping():
            break
        try:
            made += advance(home, row, policy)
        except StoreFullError:
            raise
        except Exception:
            log.exception("stream %(stream)s: no checkpoint made", {"stream": row.stream})
    return made


class Capturing:
    """The capture thread: a first scan, then whatever is marked, a scan now and then, until it is stopped."""

    def __init__(self, found: Settings, marks: Marks, progress: Callable[[Tally], None], on_captured: Callable[[], None]) -> None:
        self._found, self._marks, self._on_captured = found, marks, on_captured
        self._told = progress
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="coldtrail-capture")
        self.ready = threading.Event()  # the first scan is done, or has failed
        self.first: Tally | None = None
        self.broken: BaseException | None = None

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self, timeout_s: float) -> bool:
        """Take what is marked, then end; False where that took longer than `timeout_s`."""
        self._stop.set()
        self._marks.close()
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        try:
            with open_home(self._found) as home:
                prepare(home)
                self._loop(home, Scanner(home, self._progress, faults=(Exception,)))
        except BaseException as error:  # noqa: BLE001 - a thread has no caller: whoever waits for it is told
            self.broken = error
            log.critical("capture has ended: %(what)s", {"what": error_text(error)})
        finally:
            self.ready.set()

    def _loop(self, home: Home, scanner: Scanner) -> None:
        self._guarded(home, lambda: self._note(scanner.scan(self._sources(home))))
        self.ready.set()
        while not self._stop.is_set():
            paths = self._marks.wait_due(self._found.config.capture.debounce_ms / 1000, _IDLE_S)
            if self._marks.take_overflow():
                self._guarded(home, lambda: self._note(scanner.scan(self._sources(home))))
            elif paths:
                self._guarded(home, lambda paths=paths: self._note(scanner.look(self._sources(home), paths)))  # type: ignore[misc]
        left = self._marks.drain()
        self._guarded(home, lambda: self._note(scanner.look(self._sources(home), left)))

    def _sources(self, home: Home) -> list[Source]:
        if not home.catalog.fresh():
            log.warning("the catalog was removed: making it again from store and archive")
            _tell(rebuild(home))
        return find_sources(self._found)

    def _progress(self, tally: Tally) -> None:
        """Only the first scan takes long enough to be told of."""
        if self.first is None:
            self._told(tally)

    def _guarded(self, home: Home, work: Callable[[], None]) -> None:
        """One pass; what stops it is told, and the next one tries again."""
        try:
            work()
        except StoreFullError:
            log.exception("paused: no space")
            self._again(FULL_WAIT_S)
        except Exception as error:
            log.exception("a capture pass failed")
            place = os.fsencode(home.layout.home)
            home.catalog.note_fault(place, error_text(error), "this is a fault of coldtrail: please report it", home.now_ms(), BACK_OFF_MS)
            self._again(FULL_WAIT_S)

    def _again(self, wait_s: float) -> None:
        if not self._stop.wait(wait_s):
            self._marks.everything()

    def _note(self, tally: Tally) -> None:
        for path in tally.later:
            self._marks.later(path, TAIL_WAIT_S)
        if self.first is None:
            self.first = tally
        elif tally.captured or tally.gone or tally.failed:
            log.info(
                "captured %(bytes)d bytes of %(files)d files; %(gone)d gone, %(failed)d failed",
                {"bytes": tally.new_bytes, "files": tally.captured, "gone": tally.gone, "failed": tally.failed},
            )
        if tally.captured:
            self._on_captured()


def watched_folders(sources: list[Source], linked: Callable[[Path], dict[Path, Path]]) -> Iterator[tuple[Path, Path]]:
    """What to watch: each folder that holds sessions, and each that links in it lead to, with its name below the root."""
    for source in sources:
        for folder in source.agent.folders:
            top = source.root / folder
            yield top, top
            yield from linked(top).items()
