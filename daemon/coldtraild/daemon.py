"""The daemon: a watcher, a capture thread and a schedule, put together and taken apart in order."""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from coldtrail.client import Settings, find_sources, now_ms, open_home
from coldtrail.stage.scan import Tally
from coldtraild import jobs
from coldtraild.log import NAME, error_text
from coldtraild.marks import Marks
from coldtraild.schedule import Schedule
from coldtraild.watch import Watcher, linked_folders

STOP_S = 8.0  # for capture and for compaction to come to an end: SIGTERM drains within 10 s
MEND_EVERY_S = 1.0  # a folder that appears is taken up so soon: its first lines are to be safe within 3 s; it costs one stat a folder
WATCH_EVERY_S = 30.0
TAKEN_UP_S = 0.3
COMPACT_EVERY_S = 60.0

log = logging.getLogger(NAME)


class Daemon:
    """The parts that run together until a signal comes."""

    def __init__(self, found: Settings, progress: Callable[[Tally], None]) -> None:
        self._found = found
        self._stopping = threading.Event()
        self._marks = Marks()
        self._named: dict[Path, Path] = {}  # a watched folder -> its name below a root
        self._watcher = Watcher(self._mark)
        self._schedule = Schedule(self._on_error, now_ms)
        self._capturing = jobs.Capturing(found, self._marks, progress, self._on_captured)

    def run(self) -> int:
        """Run until a signal; gives the exit code."""
        with self._signals():
            self._watch()
            self._watcher.start()
            self._capturing.start()
            self._capturing.ready.wait()
            if self._capturing.broken is None:
                self._begin()
                self._stopping.wait()
        return self._end()

    def _begin(self) -> None:
        capture = self._found.config.capture
        self._schedule.every("scan", capture.scan_every_ms / 1000, self._marks.everything)
        self._schedule.every("watch", WATCH_EVERY_S, self._watch)
        self._schedule.every("mend", MEND_EVERY_S, self._mend)
        self._schedule.every("compact", COMPACT_EVERY_S, self._compact, first_after_s=1.0)
        self._schedule.start()
        first = self._capturing.first
        if first is not None:
            log.info(
                "ready: looked at %(found)d files, captured %(bytes)d bytes of %(files)d; watching. Ctrl-C stops",
                {"found": first.found, "bytes": first.new_bytes, "files": first.captured},
            )
        else:
            log.warning("ready, but the first look failed: it is tried again")

    def _end(self) -> int:
        log.info("stopping: taking what is left")
        self._watcher.stop()
        ended = [self._capturing.stop(STOP_S), self._schedule.stop(STOP_S)]
        if not all(ended):
            log.error("a job did not end in time; nothing is lost by it, the next start goes on")
            logging.shutdown()
            os._exit(1)  # its thread would hold the process up
        log.info("stopped")
        return 1 if self._capturing.broken is not None else 0

    @contextmanager
    def _signals(self) -> Iterator[None]:
        def stop(_signal: int, _frame: FrameType | None) -> None:
            self._stopping.set()

        old = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            yield
        finally:
            for number, handler in old.items():
                signal.signal(number, handler)

    def _watch(self) -> None:
        """Watch the folders as they are now: a project may have been linked in, an agent installed."""
        self._named = dict(jobs.watched_folders(find_sources(self._found), linked_folders))
        self._watcher.set_roots(self._named)

    def _mark(self, path: Path) -> None:
        """A path was touched: mark it by the name that it has below its root; what has just been taken up is due sooner."""
        if path in self._named:
            self._marks.later(self._named[path], TAKEN_UP_S)
            return
        for folder, name in self._named.items():
            if path.is_relative_to(folder):
                self._marks.add(name / path.relative_to(folder))
                return
        self._marks.add(path)

    def _mend(self) -> None:
        for fault in self._watcher.mend():
            log.warning("%(folder)s: %(what)s", {"folder": fault.folder, "what": fault.why})

    def _on_captured(self) -> None:
        if self._found.config.compact.after_ms == 0 and self._capturing.ready.is_set():
            self._schedule.run_now("compact")

    def _compact(self) -> None:
        with open_home(self._found) as home:
            jobs.checkpoint(home, self._found, self._stopping.is_set)
            done = jobs.compact(home, self._found, self._stopping.is_set)
        if done.segments:
            log.info(
                "compacted %(bytes)d bytes of %(streams)d streams into %(segments)d segments",
                {"bytes": done.plain_bytes, "streams": done.streams, "segments": done.segments},
            )

    def _on_error(self, name: str, error: BaseException) -> None:
        log.error("job %(job)s failed: %(what)s", {"job": name, "what": error_text(error)})
