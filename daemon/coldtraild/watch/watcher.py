"""Watches folders by events, or by polling where events are not to be had, and mends what breaks."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from watchdog import events
from watchdog.observers.api import BaseObserver
from watchdog.observers.polling import PollingObserverVFS

from coldtraild.watch.folders import Identity, identity_of
from coldtraild.watch.kernel import Signs, Why, cause_of, native_observer

Mode = Literal["events", "polling", "absent"]

POLL_EVERY_S = 1.0
POLL_REST = 30.0  # a poll is followed by a rest of at least so many times its length, or large folders would keep a core busy
POLL_REST_MAX_S = 60.0
RETRY_EVENTS_S = 300.0  # how long a folder that is polled for want of a limit stays so before events are tried again

# Opening and reading are left out, or our own reads would mark what they read. A folder's mtime says nothing that the
# events of the files in it do not.
_TOUCHES: list[type[events.FileSystemEvent]] = [
    events.FileCreatedEvent,
    events.FileModifiedEvent,
    events.FileAttribEvent,
    events.FileClosedEvent,
    events.FileMovedEvent,
    events.FileDeletedEvent,
    events.DirCreatedEvent,
    events.DirMovedEvent,
    events.DirDeletedEvent,
]


@dataclass(frozen=True, slots=True)
class Fault:
    """Why a folder is not watched as it should be."""

    folder: Path
    why: Why


@dataclass(frozen=True, slots=True)
class Watched:
    """How a folder is watched; `why` is None where nothing is amiss, or where there is no such folder."""

    folder: Path
    mode: Mode
    why: Why | None


@dataclass(slots=True)
class _Root:
    folder: Path
    mode: Mode = "absent"
    why: Why | None = None
    identity: Identity | None = None  # of the folder that is watched
    observer: BaseObserver | None = None
    signs: Signs = field(default_factory=Signs)
    retry_at_s: float = 0.0  # when to try events again, where it is polled
    told: Why | None = None  # what was wrong when it was last mended


class Watcher:
    """Watches folders with all that is in them, and calls `on_mark` with each path that was touched.

    Marks are hints: one may come twice, or for a path that is gone, or for a folder, which then wants a scan. A watched folder
    is marked itself whenever its watch begins, is mended, or has lost events. `on_mark` is called on threads of the watcher;
    it must be quick and may not call back into it.

    A folder that does not exist is no error: `mend` takes it up when it appears. Call `mend` every few seconds; where all is
    well it costs one stat a folder. Links inside a folder are not followed: give `real_folders(root)`.
    """

    def __init__(
        self,
        on_mark: Callable[[Path], None],
        *,
        poll_every_s: float = POLL_EVERY_S,
        retry_events_s: float = RETRY_EVENTS_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._on_mark = on_mark
        self._poll_every_s = poll_every_s
        self._retry_events_s = retry_events_s
        self._clock = clock
        self._lock = threading.Lock()  # the observers' threads never take it, or to stop one would be to wait for oneself
        self._roots: dict[Path, _Root] = {}
        self._running = False

    def set_roots(self, folders: Iterable[Path]) -> None:
        """Watch these folders and no others; those that were watched already go on undisturbed."""
        wanted = set(folders)
        with self._lock:
            for folder in self._roots.keys() - wanted:
                _release(self._roots.pop(folder))
            for folder in sorted(wanted - self._roots.keys()):
                self._roots[folder] = _Root(folder)
                if self._running:
                    self._take_up(self._roots[folder])

    def start(self) -> None:
        """Begin to watch."""
        with self._lock:
            self._running = True
            for root in self._roots.values():
                self._take_up(root)

    def stop(self) -> None:
        """End every thread of the watcher; no mark comes after it."""
        with self._lock:
            self._running = False
            for root in self._roots.values():
                _release(root)

    def status(self) -> list[Watched]:
        """How each folder is watched now."""
        with self._lock:
            return [Watched(root.folder, root.mode, root.why) for root in self._roots.values()]

    def check(self) -> list[Fault]:
        """What is wrong now, without touching it; to be absent is not wrong."""
        with self._lock:
            return self._faults()

    def mend(self) -> list[Fault]:
        """Watch again what is not watched as it should be, and mark it; gives what was wrong and was not so the last time."""
        with self._lock:
            if not self._running:
                return []
            news = [fault for fault in self._faults() if fault.why != self._roots[fault.folder].told]
            for root in self._roots.values():
                self._mend(root)
            return news

    def fall_back(self, folder: Path, what: str) -> None:
        """Poll this folder, until another takes its place: for one where a scan found changes that no event told of.

        Network mounts and folders shared with a container or another system are so. KeyError for a folder that is not watched.
        """
        with self._lock:
            root = self._roots[folder]
            if root.mode == "events":
                _release(root)
                self._poll(root, Why(what))
                root.retry_at_s = float("inf")
                self._on_mark(folder)

    def _faults(self) -> list[Fault]:
        return [Fault(root.folder, why) for root in self._roots.values() if (why := _fault(root))]

    def _mend(self, root: _Root) -> None:
        root.told = _fault(root)
        if root.observer is None or _trouble(root):
            self._take_up(root)
        elif root.mode == "polling" and self._clock() >= root.retry_at_s and self._watch(root) is None:
            self._on_mark(root.folder)

    def _take_up(self, root: _Root) -> None:
        """Watch a folder as well as can be, and mark it, for nobody saw what happened before."""
        _release(root)
        root.identity = identity_of(root.folder)  # before the watch begins: an exchange in between shows in the next check
        if root.identity is None:
            return
        if why := self._watch(root):
            self._poll(root, why)
        if root.observer:
            self._on_mark(root.folder)

    def _watch(self, root: _Root) -> Why | None:
        """Watch by events; where that fails the root stays as it was, and the answer is why."""
        signs = Signs()
        try:
            observer = self._observe(root.folder, native_observer(signs, lambda: self._on_mark(root.folder)))
            if signs.limit:
                _end(observer)
                raise signs.limit
        except OSError as error:
            root.retry_at_s = self._clock() + self._retry_events_s
            return cause_of(error)
        _release(root)
        root.observer, root.signs, root.mode = observer, signs, "events"
        return None

    def _poll(self, root: _Root, why: Why) -> None:
        begin_s = self._clock()
        try:
            observer = self._observe(root.folder, _poller(self._poll_every_s))
            rest_s = min(POLL_REST * (self._clock() - begin_s), POLL_REST_MAX_S)
            if rest_s > self._poll_every_s:
                _end(observer)
                observer = self._observe(root.folder, _poller(rest_s))
        except OSError as error:
            root.why = cause_of(error)
        else:
            root.observer, root.mode, root.why = observer, "polling", why

    def _observe(self, folder: Path, observer: BaseObserver) -> BaseObserver:
        # a link itself has no events; the folder "." behind it has
        path = f"{folder}/." if folder.is_symlink() else str(folder)
        try:
            observer.schedule(_Touch(self._on_mark), path, recursive=True, event_filter=_TOUCHES)
            observer.start()
        except OSError:
            observer.stop()
            raise
        return observer


def _poller(every_s: float) -> BaseObserver:
    # lstat, for polling follows links otherwise, and two that lead back up make it walk for ever
    return PollingObserverVFS(os.lstat, os.scandir, polling_interval=every_s)


def _release(root: _Root) -> None:
    """Stop watching; the root is as one that was never taken up."""
    if root.observer is not None:
        _end(root.observer)
    root.observer, root.signs = None, Signs()
    root.mode, root.why = "absent", None


def _end(observer: BaseObserver) -> None:
    observer.stop()
    observer.join()


def _fault(root: _Root) -> Why | None:
    return _trouble(root) or root.why


def _trouble(root: _Root) -> Why | None:
    """Why a watch that was begun is worth nothing now."""
    if root.observer is None:
        return None
    identity = identity_of(root.folder)
    if identity is None:
        return Why("the folder is gone")
    if identity != root.identity:
        return Why("another folder has taken its place")
    if root.signs.lost:
        return root.signs.lost
    if not all(thread.is_alive() for thread in _threads(root.observer, root.signs)):
        return Why("a thread that watches it has ended")  # watchdog's way when the folder is removed, though it may be back by now
    return cause_of(root.signs.limit) if root.signs.limit else None


def _threads(observer: BaseObserver, signs: Signs) -> Iterator[threading.Thread]:
    yield observer
    yield from observer.emitters
    if signs.reader:
        yield signs.reader


class _Touch(events.FileSystemEventHandler):
    """Hands on the paths of an event, whatever it is."""

    def __init__(self, mark: Callable[[Path], None]) -> None:
        self._mark = mark

    def dispatch(self, event: events.FileSystemEvent) -> None:
        for path in (event.src_path, event.dest_path):
            if path:
                self._mark(Path(os.fsdecode(path)))
