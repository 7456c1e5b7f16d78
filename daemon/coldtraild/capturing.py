"""The capture thread: a first scan, then whatever is marked or asked for, a scan now and then, until it is stopped."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from coldtrail.agents.walk import Source
from coldtrail.errors import NotFoundError, StoreFullError, UnverifiableError
from coldtrail.home import Home
from coldtrail.layout import is_id
from coldtrail.settings import Settings, find_sources, now_ms, open_home
from coldtrail.stage.barrier import Barrier
from coldtrail.stage.rebuild import rebuild
from coldtrail.stage.scan import Scanner, Tally
from coldtraild import jobs
from coldtraild.log import NAME, error_text
from coldtraild.marks import Marks
from coldtraild.runs import Last

TAIL_WAIT_S = 5.0  # after so long an unfinished line is looked at again
RETRY_S = 15.0  # after so long a pass that failed is tried again, such as on a full disk; doubled by each further failure
RETRY_MAX_S = 120.0
PAUSE_LOOK_S = 0.5
_IDLE_S = 30.0
_SLOW_S = 5.0  # after a pass that took so long, marks may have waited
_MISSED_S = 10.0  # what changed so long ago, and was not marked, nobody told us of

log = logging.getLogger(NAME)


@dataclass(frozen=True, slots=True)
class Pass:
    """A pass that is under way."""

    paths: tuple[Path, ...] | None  # that it looks at; None: at everything
    since_s: float  # on the monotonic clock


@dataclass(frozen=True, slots=True)
class NoSpace:
    """Nothing can be captured: a disk of ours is full."""

    since_ms: int
    place: str


def _nothing(*_: object) -> None:
    """For who has no wish to be told."""


@dataclass(frozen=True, slots=True)
class Listeners:
    """Whom the capture thread tells, on itself; each must be quick."""

    progress: Callable[[Tally], None] = _nothing  # after each file of the first scan
    captured: Callable[[], None] = _nothing  # there is something new in the store
    missed: Callable[[Sequence[Path]], None] = _nothing  # a scan has found what no event told of
    alive: Callable[[], None] = _nothing  # it moves
    full: Callable[[], None] = _nothing  # nothing can be captured, for a disk of ours is full


class Capturing:
    """The thread. What goes wrong in a pass is told and shown, and the next one tries again."""

    def __init__(
        self,
        found: Settings,
        marks: Marks,
        listeners: Listeners,
        *,
        paused: Callable[[], bool] = lambda: False,
        clock_ms: Callable[[], int] = now_ms,
    ) -> None:
        self._found, self._marks, self._tell, self._paused, self._clock_ms = found, marks, listeners, paused, clock_ms
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="coldtrail-capture")
        self._wanted = threading.Condition()  # guards what is asked for, and tells of it
        self._asked: list[tuple[str, ...]] = []  # names to capture now; none: everything
        self.new: list[Source] = []  # sources whose first look is still to begin
        self.ready = threading.Event()  # the first scan is done, or has failed
        self.first: Tally | None = None
        self.broken: BaseException | None = None
        self.under_way: Pass | None = None
        self.last = Last()
        self.looked_ms: int | None = None  # when a scan of everything came to its end
        self.no_space: NoSpace | None = None
        self._failures = 0  # in a row
        self._whole_failed = False  # the last scan of everything did not come to its end
        self._scan_wanted = False  # the next scan is one that the schedule asked for
        self._calm_since_ms = clock_ms()  # since then every mark was seen to at once

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self, timeout_s: float) -> bool:
        """Take what is marked, then end; False where that took longer than `timeout_s`."""
        self._stop.set()
        self._marks.close()
        with self._wanted:
            self._wanted.notify_all()
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    @property
    def thread(self) -> int:
        """Which thread it is, for `sys._current_frames`."""
        return self._thread.ident or 0

    def use(self, found: Settings) -> None:
        """Go on with other settings, from the next pass on; sources that are new in them, or others than before, are looked at now."""
        known = find_sources(self._found)
        new = [source for source in find_sources(found) if source not in known]
        self._found = found
        if new:
            self._calm_since_ms = self._clock_ms()  # nobody was to be told of what happened there before
            self._want(new=new)

    def scan(self) -> None:
        """Look at everything, in its turn."""
        self._scan_wanted = True
        self._marks.everything()

    def sync(self, names: Sequence[str] = ()) -> None:
        """Capture these sessions (keys, or paths of logs that nobody has met) now, unfinished lines too; without any: everything."""
        self._want(asked=[tuple(names)])

    def _want(self, *, asked: Sequence[tuple[str, ...]] = (), new: Sequence[Source] = ()) -> None:
        with self._wanted:
            self._asked += asked
            self.new += new
            self._wanted.notify_all()
        self._marks.wake()

    def _run(self) -> None:
        self.broken = jobs.end_of(self._captured)
        if self.broken is not None:
            log.critical("capture has ended: %(what)s", {"what": error_text(self.broken)})
        self.ready.set()

    def _captured(self) -> None:
        with open_home(self._found) as home:
            jobs.prepare(home, self._found)
            self._loop(home, Scanner(home, self._progress, faults=(Exception,)))

    def _loop(self, home: Home, scanner: Scanner) -> None:
        if not self._paused():
            self._everything(home, scanner)
        self.ready.set()
        while not self._stop.is_set():
            self._tell.alive()
            self._sit_out()
            paths = self._marks.wait_due(self._found.config.capture.debounce_ms / 1000, _IDLE_S)
            if self._paused():
                continue  # the scan after the pause looks at them
            self._serve(home, scanner)
            if self._marks.take_overflow():
                self._everything(home, scanner)
            elif paths:
                self._pass(home, paths, lambda paths=paths: scanner.look(self._sources(home), paths))  # type: ignore[misc]
        if not self._paused():
            left = self._marks.drain()
            self._serve(home, scanner)
            self._pass(home, left, lambda: scanner.look(self._sources(home), left))

    def _sit_out(self) -> None:
        """Wait while it is paused; a scan makes good what was not looked at."""
        if not self._paused():
            return
        while self._paused() and not self._stop.is_set():
            self._tell.alive()
            self._stop.wait(PAUSE_LOOK_S)
        self._calm_since_ms = self._clock_ms()
        self._marks.everything()

    def _everything(self, home: Home, scanner: Scanner, *, whole: bool = False) -> None:
        in_turn, self._scan_wanted = self._scan_wanted, False
        begin_ms = self._clock_ms()
        tally = self._pass(home, None, lambda: scanner.scan(self._sources(home), whole=whole))
        if tally is None:
            return
        self.looked_ms = self._clock_ms()
        if in_turn and self._calm_since_ms < begin_ms:
            self._tell_missed(tally, begin_ms)

    def _tell_missed(self, tally: Tally, begin_ms: int) -> None:
        """Changes long before the scan, while nothing kept marks from being seen to, should have been captured by then."""
        latest_ms = begin_ms - self._found.config.capture.debounce_ms - round(_MISSED_S * 1000)
        missed = []
        for path in tally.news:
            with contextlib.suppress(OSError):
                if self._calm_since_ms < path.stat().st_ctime_ns // 1_000_000 < latest_ms:
                    missed.append(path)
        if missed:
            self._tell.missed(missed)

    def _serve(self, home: Home, scanner: Scanner) -> None:
        """Do what was asked for."""
        with self._wanted:
            asked, self._asked, new, self.new = self._asked, [], self.new, []
        if () in asked:
            self._everything(home, scanner, whole=True)
        elif new:
            roots = [source.root for source in new]
            self._pass(home, roots, lambda: scanner.scan(source for source in self._sources(home) if source in new))
        for name in dict.fromkeys(name for names in asked for name in names):
            self._pass(home, [], lambda name=name: self._one(home, name))  # type: ignore[misc]

    def _one(self, home: Home, name: str) -> Tally:
        with contextlib.suppress(NotFoundError, UnverifiableError):  # whoever asked looks for himself
            sources = self._sources(home)
            barrier = Barrier.over(home, sources, name) if is_id(name) else Barrier.at(home, sources, Path(name))
            if barrier.missing(home):
                barrier.capture(home)
                return Tally(captured=1)
        return Tally()

    def _sources(self, home: Home) -> list[Source]:
        if not home.catalog.fresh():
            log.warning("the catalog was removed: making it again from store and archive")
            jobs.tell(rebuild(home))
        return find_sources(self._found)

    def _progress(self, tally: Tally) -> None:
        """Only the first scan takes long enough to be told of."""
        self._tell.alive()
        if self.first is None:
            self._tell.progress(tally)

    def _pass(self, home: Home, paths: Sequence[Path] | None, work: Callable[[], Tally]) -> Tally | None:
        """One pass; None where something stopped it: it is told, and the next one tries again.

        That some paths could be looked at does not mend that a scan of everything failed.
        """
        self.under_way = Pass(None if paths is None else tuple(paths), time.monotonic())
        self.last = replace(self.last, start_ms=self._clock_ms())
        tally, error = jobs.attempt(home, work, clears=paths is None or not self._whole_failed)
        if time.monotonic() - self.under_way.since_s > _SLOW_S or error is not None:
            self._calm_since_ms = self._clock_ms()
        self.under_way = None
        if error is not None or tally is None:
            self._failed(error, whole=paths is None)
            return None
        self._whole_failed = self._whole_failed and paths is not None
        self._came_through(tally, first=self.first is None)
        return tally

    def _failed(self, error: Exception | None, *, whole: bool) -> None:
        if not isinstance(error, StoreFullError):
            log.error("a capture pass failed: %(what)s", {"what": "" if error is None else error_text(error)})
        elif self.no_space is None:
            log.error("paused: no space: %(what)s", {"what": error_text(error)})
            self.no_space = NoSpace(self._clock_ms(), str(error.path))
            self._tell.full()
        self.last = replace(self.last, error_ms=self._clock_ms(), error="" if error is None else error_text(error))
        wait_s = min(RETRY_S * 2**self._failures, RETRY_MAX_S)
        self._failures = min(self._failures + 1, 20)
        self._again(wait_s, whole)

    def _again(self, wait_s: float, whole: bool) -> None:
        self._whole_failed = self._whole_failed or whole
        self._tell.alive()
        with self._wanted:  # who asks, asks for another try
            self._wanted.wait_for(lambda: self._stop.is_set() or self._asked or self.new, wait_s)
        if not self._stop.is_set():
            self._marks.everything()

    def _came_through(self, tally: Tally, *, first: bool) -> None:
        self._failures = 0
        if self.no_space is not None:
            log.info("there is space again: capture goes on")
            self.no_space = None
        self.last = replace(self.last, success_ms=self._clock_ms())
        for path in tally.later:
            self._marks.later(path, TAIL_WAIT_S)
        if first:
            self.first = tally
        elif tally.captured or tally.gone or tally.failed:
            log.info(
                "captured %(bytes)d bytes of %(files)d files; %(gone)d gone, %(failed)d failed",
                {"bytes": tally.new_bytes, "files": tally.captured, "gone": tally.gone, "failed": tally.failed},
            )
        if tally.captured:
            self._tell.captured()
