"""One pass over sources: find what is there, capture what is new, mark what is gone. A scan is the truth; events only hint."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath

from coldtrail import sums
from coldtrail.agents.walk import Candidate, Source, at_path, walk
from coldtrail.catalog import StreamRow, changed
from coldtrail.errors import ColdtrailError, StoreFullError
from coldtrail.home import Home
from coldtrail.sessions import refresh
from coldtrail.stage.capture import Capture, Outcome, Taken
from coldtrail.stage.firsts import Firsts
from coldtrail.stage.identify import known_meta

BACK_OFF_MS = 5_000  # after a first failure; doubled by each further one
URGENT_MS = 3 * 86_400_000  # files that their agent will delete so soon come first
_DAY_MS = 86_400_000
_NEWS_MAX = 100
_QUICK_TRIES = 3  # a file that keeps failing is left to the scans


@dataclass(slots=True)
class Tally:
    """What a pass has done so far."""

    found: int = 0  # files to look at
    looked: int = 0
    captured: int = 0  # files with something new
    new_bytes: int = 0
    gone: int = 0
    failed: int = 0
    unreadable: int = 0  # folders that could not be looked into
    checked: int = 0
    later: list[Path] = field(default_factory=list)  # files to look at again soon: an unfinished last line, a passing fault
    news: list[Path] = field(default_factory=list)  # some of the files with something new, of those that nothing was wrong with before


Progress = Callable[[Tally], None]
Faults = tuple[type[Exception], ...]
FAULTS: Faults = (ColdtrailError, OSError, MemoryError)


class Scanner:
    """Runs passes. One thread's alone; the caller holds the daemon's lock."""

    def __init__(self, home: Home, progress: Progress = lambda _: None, *, faults: Faults = FAULTS) -> None:
        """`faults` are the exceptions that stay one file's own; the service gives all there are."""
        self._home, self._progress, self._faults = home, progress, faults
        self._capture, self._firsts = Capture(home), Firsts(home)
        self._wrong: set[bytes] = set()  # places that something is wrong with, as this pass has found
        self._unreadable = 0

    def scan(self, sources: Iterable[Source], *, whole: bool = False) -> Tally:
        """Look at every file of every source: the most urgent and the newest first.

        A source whose root is not there is passed over: an unmounted disk is no deletion.
        """
        tally = Tally()
        self._wrong.clear()
        self._unreadable = 0
        self._firsts.clear()
        there = [source for source in sources if self._is_there(source)]
        todo = [found for source in there for found in walk(source, self._note_problem)]
        tally.found = len(todo)
        now_ms = self._home.now_ms()
        days = {source.root: source.agent.sweep_days(source.root) for source in there}
        self._take_all(sorted(todo, key=lambda found: urgency(found, days[found.source.root], now_ms)), tally, whole=whole)
        present = {os.fsencode(found.path) for found in todo}
        self._mark_gone(there, present, tally)
        self._check_due(tally)
        self._forget_mended(there, present)
        tally.unreadable = self._unreadable
        return tally

    def look(self, sources: Iterable[Source], paths: Iterable[Path], *, whole: bool = False) -> Tally:
        """Look at some paths only: files, or folders with all below them."""
        tally, listed = Tally(), list(sources)
        for path in paths:
            for source in listed:
                if path == source.root or source.root in path.parents:  # of several, whose roots lie in each other, any may know it
                    self._look_at(source, path, tally, whole=whole)
        return tally

    def _look_at(self, source: Source, path: Path, tally: Tally, *, whole: bool) -> None:
        found = at_path(source, path, self._note_problem)
        if found is not None:
            tally.found += 1
            self._take(found, tally, whole=whole)
        elif self._is_there(source):
            below = path if os.path.isdir(path) else path.parent
            if below == source.root or source.root in below.parents:
                self._look_below(source, below, tally)

    def _look_below(self, source: Source, folder: Path, tally: Tally) -> None:
        rel = PurePosixPath(folder.relative_to(source.root).as_posix())
        if not any(top in ("", ".") or rel.is_relative_to(top) for top in source.agent.folders):
            return
        todo = list(walk(source, self._note_problem, below=rel))
        tally.found += len(todo)
        self._take_all(todo, tally, whole=False)
        self._mark_gone([source], {os.fsencode(found.path) for found in todo}, tally, below=os.fsencode(folder) + b"/")

    def _is_there(self, source: Source) -> bool:
        try:
            with os.scandir(source.root):
                pass
        except FileNotFoundError:
            return False
        except OSError as error:
            self._note_problem(source.root, error)
            return False
        self._home.catalog.clear_fault(os.fsencode(source.root))
        return True

    def _take_all(self, todo: Iterable[Candidate], tally: Tally, *, whole: bool) -> None:
        """Capture files in this order; those that nobody has met, and that are small, some hundreds together."""
        wrong = {fault.place for fault in self._home.catalog.faults()}  # of a file nobody else notes one meanwhile
        try:
            for found in todo:
                place = os.fsencode(found.path)
                if place not in wrong and self._firsts.stage(found, whole=whole):
                    tally.looked += 1
                    if self._firsts.is_full:
                        self._publish(tally)
                else:
                    self._publish(tally)  # its kin are to be known before it is asked to which session it belongs
                    self._take(found, tally, whole=whole, may_be_wrong=place in wrong)
            self._publish(tally)
        except BaseException:
            self._firsts.clear()  # what was staged is taken by the next pass
            raise

    def _publish(self, tally: Tally) -> None:
        for found, taken in self._firsts.publish():
            self._count(found, taken, tally)

    def _count(self, found: Candidate, taken: Taken, tally: Tally, *, was_wrong: bool = False) -> None:
        tally.captured += taken.outcome is Outcome.CAPTURED
        if taken.outcome is Outcome.CAPTURED and not was_wrong and len(tally.news) < _NEWS_MAX:
            tally.news.append(found.path)
        tally.new_bytes += taken.new_bytes
        if taken.tail_pending:
            tally.later.append(found.path)
        self._progress(tally)

    def _take(self, found: Candidate, tally: Tally, *, whole: bool, may_be_wrong: bool = True) -> None:
        """Capture one file; what goes wrong with it stays its own."""
        place = os.fsencode(found.path)
        tally.looked += 1
        fault = self._home.catalog.fault(place) if may_be_wrong else None
        if fault is not None and not whole and fault.waits(self._home.now_ms()):  # who asks for all of it asks now
            return
        try:
            taken = self._capture.take(found, whole=whole)
        except StoreFullError:
            raise
        except self._faults as error:
            self._note_fault(place, error, tally)
            return
        if fault is not None:
            self._home.catalog.clear_fault(place)
        self._count(found, taken, tally, was_wrong=fault is not None)

    def _note_fault(self, place: bytes, error: Exception, tally: Tally) -> None:
        hint = error.hint if isinstance(error, ColdtrailError) else "it is tried again later; if it stays, please report it"
        what = _said(error).removeprefix(f"{os.fsdecode(place)}: ")  # the place is told with it
        fault = self._home.catalog.note_fault(place, what, hint, self._home.now_ms(), BACK_OFF_MS)
        self._wrong.add(place)
        tally.failed += 1
        if fault.tries <= _QUICK_TRIES:
            tally.later.append(Path(os.fsdecode(place)))

    def _note_problem(self, path: Path, error: OSError) -> None:
        hint = "give the user that runs coldtrail the right to read it" if isinstance(error, PermissionError) else ""
        self._home.catalog.note_fault(os.fsencode(path), error.strerror or str(error), hint, self._home.now_ms(), BACK_OFF_MS)
        self._wrong.add(os.fsencode(path))
        self._unreadable += 1

    def _mark_gone(self, sources: list[Source], present: set[bytes], tally: Tally, *, below: bytes = b"") -> None:
        """Take down which streams' files are no longer there; what was captured of them stays."""
        for source in sources:
            known = sums.paths_below(self._home.catalog, below or os.fsencode(source.root) + b"/")
            missed = [stream for stream, path, was_there in known if was_there and path not in present and _is_gone(path)]
            gone = [row for row in map(self._home.catalog.stream, missed) if row is not None]
            if all(map(_was_on_another_disk, gone)) and not any(path in present for _, path, _ in known):
                continue  # an empty folder is what an unmounted disk leaves
            for row in gone:
                try:
                    self._gone(row)
                    tally.gone += 1
                except self._faults as error:
                    self._note_fault(row.path, error, tally)

    def _gone(self, row: StreamRow) -> None:
        with self._home.changing(row.session):
            now_ms = self._home.now_ms()
            if self._home.catalog.graves(stream=row.stream):  # removed just now
                return
            self._home.store.write_meta(replace(known_meta(self._home, row), gone_ms=now_ms))
            with self._home.catalog.transaction():
                self._home.catalog.put(changed(self._home.catalog.stream(row.stream) or row, gone_ms=now_ms))
                refresh(self._home, row.session)
        self._home.catalog.clear_fault(row.path)

    def _check_due(self, tally: Tally) -> None:
        """Compare whole the files that changed without growing."""
        for row in self._home.catalog.streams_to_check():
            try:
                self._capture.check(row)
                tally.checked += 1
            except StoreFullError:
                raise
            except self._faults as error:
                self._note_fault(row.path, error, tally)

    def _forget_mended(self, sources: list[Source], present: set[bytes]) -> None:
        """Of folders and of files that are gone nobody else says that nothing is wrong with them any more."""
        roots = tuple(os.fsencode(source.root) + b"/" for source in sources)
        told = present | self._wrong
        for fault in self._home.catalog.faults():
            if fault.place.startswith(roots) and fault.place not in told:
                self._home.catalog.clear_fault(fault.place)


def urgency(found: Candidate, days: float | None, now_ms: int) -> tuple[int, float]:
    """Sorts first what its agent, which deletes logs after so many `days`, will delete soon; then the newest."""
    left_ms = found.stat.st_mtime_ns // 1_000_000 + days * _DAY_MS - now_ms if days is not None else None
    if left_ms is not None and left_ms < URGENT_MS:
        return 0, left_ms
    return 1, -found.stat.st_mtime_ns


def _said(error: Exception) -> str:
    """What may be said of an exception: our own and the system's speak of paths, another's words could be a session's."""
    return str(error) if isinstance(error, ColdtrailError | OSError) else type(error).__name__


def _is_gone(path: bytes) -> bool:
    """Whether nothing is at a path: neither the file, nor a folder that cannot be read, nor a link to a disk that is not mounted."""
    try:
        os.lstat(path)
    except FileNotFoundError:
        left = _last_there(path)
        return os.path.exists(left) or not os.path.islink(left)
    except OSError:
        return False
    return False


def _was_on_another_disk(row: StreamRow) -> bool:
    """Whether a file lay on another device than what is left of the folders on its way."""
    try:
        device = os.stat(_last_there(row.path)).st_dev
    except OSError:
        return False
    return bool(row.identity) and not row.identity.startswith(f"{device}:")


def _last_there(path: bytes) -> bytes:
    """The longest beginning of a path at which there is something, be it a link that leads nowhere."""
    while not os.path.lexists(path):
        path = os.path.dirname(path)
    return path
