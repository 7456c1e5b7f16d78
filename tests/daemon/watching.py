"""A small world to watch in: a root, a watcher, its marks, and a kernel that can be made to refuse."""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from coldtraild.watch import Fault, Watched, Watcher
from daemon.waiting import DEADLINE_S, Clock, until


class Marked:
    """What was marked, for waiting on."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._paths: set[Path] = set()

    def __call__(self, path: Path) -> None:
        with self._changed:
            self._paths.add(path)
            self._changed.notify_all()

    def clear(self) -> None:
        with self._changed:
            self._paths.clear()

    def wait_for(self, *paths: Path) -> bool:
        """Whether each path is marked before the deadline."""
        with self._changed:
            return self._changed.wait_for(lambda: self._paths.issuperset(paths), DEADLINE_S)

    def has(self, path: Path) -> bool:
        with self._changed:
            return path in self._paths


class World:
    """A root, a watcher and its marks."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.root = folder / "root"
        self.root.mkdir()
        self.marked = Marked()
        self.clock = Clock()
        self.watcher = Watcher(self.marked, poll_every_s=0.05, retry_events_s=300.0, clock=self.clock)
        self.watcher.set_roots([self.root])

    def start(self) -> None:
        self.watcher.start()
        self.marked.clear()

    def sees(self, path: Path) -> bool:
        """Whether a write to this path is marked."""
        self.marked.clear()
        path.write_bytes(b'{"n":1}\n')
        return self.marked.wait_for(path)

    def faults_before_long(self) -> list[Fault]:
        """What `check` says as soon as it says something."""
        until(self.watcher.check)
        return self.watcher.check()

    def status(self) -> Watched:
        (status,) = self.watcher.status()
        return status


def what(faults: list[Fault]) -> str:
    return "; ".join(fault.why.what for fault in faults)


def inotify_instances() -> int:
    links = (f"/proc/self/fd/{name}" for name in os.listdir("/proc/self/fd"))
    return sum(os.readlink(link) == "anon_inode:inotify" for link in links if os.path.lexists(link))


def refuse(monkeypatch: pytest.MonkeyPatch, number: int, refused: Callable[[bytes], bool]) -> None:
    """Let the kernel refuse to watch some folders."""
    from watchdog.observers import inotify_c

    add_watch = inotify_c.inotify_add_watch

    def refusing(fd: int, path: bytes, mask: int) -> inotify_c.WatchDescriptor:
        if not refused(path):
            return add_watch(fd, path, mask)
        ctypes.set_errno(number)
        return inotify_c.WatchDescriptor(-1)

    monkeypatch.setattr(inotify_c, "inotify_add_watch", refusing)
