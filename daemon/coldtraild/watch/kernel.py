"""Watching by what the kernel tells, with the signs of everything that it or watchdog leaves out."""

from __future__ import annotations

import errno
import logging
import os
import sys
import threading
import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from watchdog.observers.api import BaseObserver


@dataclass(frozen=True, slots=True)
class Why:
    """What keeps a folder from being watched by events, and what to do about it (empty: it mends by itself)."""

    what: str
    hint: str = ""

    def __str__(self) -> str:
        return f"{self.what} ({self.hint})" if self.hint else self.what


@dataclass(slots=True)
class Signs:
    """What the threads of one observer have noticed; they write, the watcher reads."""

    limit: OSError | None = None  # a folder inside could not be watched for want of a limit
    lost: Why | None = None  # why the observer did not see everything
    reader: threading.Thread | None = None  # a thread of its own, besides the emitters


def cause_of(error: OSError) -> Why:
    """Why a folder cannot be watched by events, with the limit that the user can raise."""
    if error.errno == errno.ENOSPC:
        return Why("inotify has no watches left for this user", "raise the sysctl fs.inotify.max_user_watches")
    if error.errno != errno.EMFILE:
        return Why(f"it cannot be watched: {error.strerror or error}")
    if _out_of_files():
        return Why("this process has too many files open", "raise its limit (LimitNOFILE of the service, or ulimit -n)")
    return Why("inotify has no instances left for this user", "raise the sysctl fs.inotify.max_user_instances")


def _out_of_files() -> bool:
    """Whether EMFILE means this process's own limit: inotify has the one errno for both."""
    try:
        ends = os.pipe()
    except OSError:
        return True
    for fd in ends:
        os.close(fd)
    return False


if sys.platform == "linux":
    from watchdog.observers.inotify import InotifyEmitter
    from watchdog.observers.inotify_c import CallbackId, InotifyConstants, InotifyEvent, InotifyFD, Mask, WatchCallback, WatchDescriptor

    class _Inotify(InotifyFD):
        """Notices what watchdog passes over in silence."""

        def __init__(self, signs: Signs, on_overflow: Callable[[], None]) -> None:
            self._signs = signs
            self._on_overflow = on_overflow
            super().__init__()

        def add_callback(self, path: bytes, mask: Mask, callback: WatchCallback, id_: CallbackId) -> WatchDescriptor:
            try:
                wd = super().add_callback(path, mask, callback, id_)
            except OSError as error:
                if error.errno == errno.ENOSPC:  # watchdog drops it for every folder but the top one
                    self._signs.limit = error
                raise
            if wd == -1:  # watchdog takes EACCES for success
                self.remove_callbacks([(wd, id_)])
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), os.fsdecode(path))
            return wd

        def handle_event(self, event: InotifyEvent) -> None:
            try:
                super().handle_event(event)
            except KeyError:  # watchdog trips over a folder that was moved out and made again; its thread would end here
                self._signs.lost = Why("the watch of a folder inside was lost")
            if event.is_queue_overflow:
                self._signs.lost = Why("events were lost: inotify's queue ran over", "raise the sysctl fs.inotify.max_queued_events")
                self._on_overflow()
            elif event.mask & InotifyConstants.IN_UNMOUNT:
                self._signs.lost = Why("a file system was unmounted")

    class _InotifyObserver(BaseObserver):
        """One inotify instance for one root, so that a flood in one loses no events of another."""

        def __init__(self, signs: Signs, on_overflow: Callable[[], None]) -> None:
            _hush_watchdog()
            self._reader = signs.reader = _Inotify(signs, on_overflow)
            self._reader.start()
            super().__init__(InotifyEmitter, inotify_fd=self._reader)

        def on_thread_stop(self) -> None:
            with suppress(KeyError):  # as in handle_event
                super().on_thread_stop()
            self._reader.stop()
            self._reader.join()

    def _hush_watchdog() -> None:
        # What its loggers would say is in the signs. The warning comes whenever a folder is made while its parent is walked.
        for name in ("watchdog.observers.inotify", "watchdog.observers.inotify_c"):
            logging.getLogger(name).setLevel(logging.CRITICAL)
        warnings.filterwarnings("ignore", message="Callback with id", category=RuntimeWarning)

    def native_observer(signs: Signs, on_overflow: Callable[[], None]) -> BaseObserver:
        """The observer that the kernel tells what happens."""
        return _InotifyObserver(signs, on_overflow)

else:
    from watchdog.observers import Observer

    def native_observer(signs: Signs, on_overflow: Callable[[], None]) -> BaseObserver:  # noqa: ARG001 - it gives no signs
        """The observer that the kernel tells what happens."""
        return Observer()
