"""The daemon: a watcher, a capture thread, a schedule and an ear, put together, looked after, and taken apart in order."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import FrameType

from coldtrail.errors import ColdtrailError, ConfigError
from coldtrail.home import Home
from coldtrail.settings import Settings, find_sources, now_ms, open_home
from coldtrail.stage.scan import Tally
from coldtraild import jobs
from coldtraild.alarm import Alarm
from coldtraild.capturing import Capturing, Listeners
from coldtraild.chores import Chores
from coldtraild.control import Control
from coldtraild.heartbeat import LOOK_EVERY_S, Heartbeat
from coldtraild.log import NAME, error_text
from coldtraild.marks import Marks
from coldtraild.metrics import Metrics
from coldtraild.notify import Manager
from coldtraild.report import Known
from coldtraild.reporter import Parts, Reporter
from coldtraild.requests import Requests
from coldtraild.runs import Hung, Runs
from coldtraild.schedule import Schedule, place_of
from coldtraild.watch import Watcher, linked_folders

STOP_S = 8.0  # for capture and for compaction to come to an end: SIGTERM drains within 10 s
LOOK_S = 1.0  # how often the daemon looks at itself
START_LOOK_S = 0.1  # and whether the first pass is done
MEND_EVERY_S = 1.0  # a folder that appears is taken up so soon: its first lines are to be safe within 3 s; it costs one stat a folder
WATCH_EVERY_S = 30.0
TAKEN_UP_S = 0.3
_MISSED = "a scan found a change that no event told of, as on a network mount or in a folder shared with another system"

log = logging.getLogger(NAME)

Reread = Callable[[], Settings]


class Daemon:
    """The parts that run together until a signal comes."""

    def __init__(self, found: Settings, progress: Callable[[Tally], None], reread: Reread) -> None:
        self._found, self._reread = found, reread
        self._stopping, self._wake, self._hung_up = threading.Event(), threading.Event(), threading.Event()
        self._reloading = threading.Lock()
        self._manager = Manager.of(found.env, os.getpid())
        self._heartbeat = Heartbeat(self._manager, self._on_stuck)
        self._stuck_s = float("-inf")  # when it was last told that capture is stuck
        self._marks, self._known, self._runs = Marks(), Known(), Runs(found.layout.schedule)
        self._watcher = Watcher(self._mark)
        self._schedule = Schedule(self._on_error, now_ms, self._runs)
        self._chores = Chores(found, self._schedule, self._runs, self._known, self._stopping)
        listeners = Listeners(
            progress, self._on_captured, self._on_missed, lambda: self._heartbeat.beat("capture"), lambda: self._schedule.run_soon("retain")
        )
        self._capturing = Capturing(found, self._marks, listeners, paused=self._chores.is_capture_paused)
        requests = Requests(self._capturing, self._schedule, self._runs, self._chores, self.reload, self._state)
        self._control = Control(found.layout.control, requests.answer, self._wake.set, faults=(Exception,))
        self._reporter: Reporter | None = None
        self._alarm = self._new_alarm()
        self._metrics = Metrics(None)

    def run(self) -> int:
        """Run until a signal; gives the exit code."""
        with self._signals(), open_home(self._found) as home:
            self._start(home)
            begun = False
            while not self._stopping.is_set() and self._capturing.broken is None:
                self._wake.wait(LOOK_S if begun else START_LOOK_S)
                self._wake.clear()
                self._heartbeat.beat("daemon")
                if not begun and self._capturing.ready.is_set() and self._capturing.broken is None:
                    begun = True
                    self._begin()
                if self._hung_up.is_set():
                    self._hung_up.clear()
                    self._reload_told()
                jobs.guarded("the daemon's look at itself", self._look)
            return self._end()

    def _start(self, home: Home) -> None:
        parts = Parts(self._marks, self._watcher, self._schedule, self._capturing, self._runs, self._known)
        self._reporter = Reporter(home, parts, _version())
        jobs.guarded("the daemon's look at itself", self._look)  # from here on nobody takes the last one's word for ours
        self._heartbeat.start()
        self._watch()
        self._watcher.start()
        self._capturing.start()
        self._new_metrics()
        try:
            self._control.start()
        except OSError as error:
            log.warning("requests such as `coldtrail sync` are not heard: %(what)s", {"what": error_text(error)})

    def _begin(self) -> None:
        """The first scan is over: everything else begins."""
        self._schedule.every("scan", self._found.config.capture.scan_every_ms / 1000, self._capturing.scan)
        self._schedule.every("watch", WATCH_EVERY_S, self._watch)
        self._schedule.every("mend", MEND_EVERY_S, self._mend)
        self._schedule.every("heartbeat", LOOK_EVERY_S, lambda: self._heartbeat.beat("schedule"), first_after_s=0.0, apart=True)
        self._chores.add()
        self._heartbeat.beat("schedule")
        self._schedule.start()
        self._heartbeat.ready()
        first = self._capturing.first
        if first is not None:
            log.info(
                "ready: looked at %(found)d files, captured %(bytes)d bytes of %(files)d; watching. Ctrl-C stops",
                {"found": first.found, "bytes": first.new_bytes, "files": first.captured},
            )
        elif self._chores.is_capture_paused():
            log.warning("ready, but capture is paused: `coldtrail resume` ends that")
        else:
            log.warning("ready, but the first look failed: it is tried again")
        self._manager.ready("watching")

    def _look(self) -> None:
        """How everything is: for the state file, for who collects figures, and for whoever wants to be told."""
        if self._known.capture_stuck is not None and time.monotonic() - self._stuck_s > 3 * LOOK_EVERY_S:
            self._known.capture_stuck = None
        reporter = self._reporter
        if reporter is None:
            return
        is_new = reporter.look(self._found)
        self._alarm.look(reporter.latest["findings"], now_ms())
        if not is_new:
            return
        self._metrics.show(reporter.latest)
        count = len(reporter.latest["findings"])
        if self._capturing.ready.is_set():
            self._manager.status(f"watching; {count} findings: see coldtrail status" if count else "watching; all is well")

    def _state(self) -> dict[str, object]:
        return {} if self._reporter is None else self._reporter.latest

    def _end(self) -> int:
        log.info("stopping: taking what is left")
        self._manager.stopping()
        self._heartbeat.stop()
        self._stopping.set()
        self._control.stop()
        self._watcher.stop()
        ended = [self._capturing.stop(STOP_S), self._schedule.stop(STOP_S)]
        self._alarm.close()
        self._metrics.close()
        reporter = self._reporter
        if reporter is not None:
            jobs.guarded("the last look", lambda: reporter.stopped(self._found))
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
            self._wake.set()

        def hang_up(_signal: int, _frame: FrameType | None) -> None:
            self._hung_up.set()
            self._wake.set()

        handlers = {signal.SIGTERM: stop, signal.SIGINT: stop, signal.SIGHUP: stop if sys.stderr.isatty() else hang_up}
        old = {number: signal.signal(number, handler) for number, handler in handlers.items()}
        try:
            yield
        finally:
            for number, handler in old.items():
                signal.signal(number, handler)

    # --- watching ---

    def _watch(self) -> None:
        """Watch the folders as they are now: a project may have been linked in, an agent installed."""
        named = dict(jobs.watched_folders(find_sources(self._found), linked_folders))
        self._known.named = named
        self._watcher.set_roots(named)

    def _mark(self, path: Path) -> None:
        """A path was touched: mark it by the name that it has below its root; what has just been taken up is due sooner."""
        named = self._known.named
        if path in named:
            self._marks.later(named[path], TAKEN_UP_S)
            return
        for folder, name in named.items():
            if path.is_relative_to(folder):
                self._marks.add(name / path.relative_to(folder))
                return
        self._marks.add(path)

    def _mend(self) -> None:
        for fault in self._watcher.mend():
            log.warning("%(folder)s: %(what)s", {"folder": fault.folder, "what": fault.why})

    def _on_missed(self, paths: Sequence[Path]) -> None:
        """Events do not come from everywhere: where one did not, they are trusted no more."""
        modes = {each.folder: each.mode for each in self._watcher.status()}
        for folder, name in self._known.named.items():
            if modes.get(folder) == "events" and any(path.is_relative_to(name) for path in paths):
                log.warning("%(folder)s is polled from now on: %(what)s", {"folder": folder, "what": _MISSED})
                self._watcher.fall_back(folder, _MISSED)

    # --- what the parts tell ---

    def _on_captured(self) -> None:
        if self._found.config.compact.after_ms == 0 and self._capturing.ready.is_set():
            self._schedule.run_soon("compact")

    def _on_error(self, name: str, error: BaseException) -> None:
        log.error("job %(job)s failed: %(what)s", {"job": name, "what": error_text(error)})

    def _on_stuck(self, parts: list[str]) -> None:
        if "capture" not in parts:
            log.error("%(parts)s does not move", {"parts": ", ".join(parts)})
            return
        self._stuck_s = time.monotonic()
        place = place_of(self._capturing.thread)
        self._known.capture_stuck = Hung(self._capturing.last.start_ms or now_ms(), place)
        log.error("%(parts)s does not move: it stands at %(place)s", {"parts": ", ".join(parts), "place": place})

    # --- the config, read again ---

    def _reload_told(self) -> None:
        try:
            self.reload()
        except ColdtrailError:
            log.exception("the config was not taken, the old one holds")

    def reload(self) -> dict[str, object]:
        """Take the config as it is now, and say which sources came and went; ColdtrailError where it is not taken: the old one holds."""
        with self._reloading:
            self._manager.reloading()
            try:
                found = self._fitting(self._reread())
            except ColdtrailError as error:
                self._known.refused, self._known.refused_ms = str(error), now_ms()
                raise
            finally:
                self._manager.ready("watching")
            self._known.refused, self._known.refused_ms = "", None
            old, self._found = self._found, found
            self._apply(old)
        before, after = ({source.name for source in each.sources} for each in (old, found))
        log.info("the config was read again: %(file)s", {"file": found.config_file or "none, the defaults hold"})
        return {"added": sorted(after - before), "removed": sorted(before - after), "config": str(found.config_file or "")}

    def _fitting(self, found: Settings) -> Settings:
        """The same, if they can hold without a restart."""
        for name, old, new in (
            ("home", self._found.layout.home, found.layout.home),
            ("archive.url", self._found.layout.archive, found.layout.archive),
        ):
            if old != new:
                file = str(found.config_file or "")
                raise ConfigError(f"{new} takes the place of {old} at a restart only", file=file, key=name, hint="restart the daemon")
        return found

    def _apply(self, old: Settings) -> None:
        found = self._found
        self._capturing.use(found)
        self._chores.use(found)
        service, was = found.config.service, old.config.service
        if (service.alarm, service.alarm_on) != (was.alarm, was.alarm_on):  # else it remembers what it has told within the hour
            self._alarm.close()
            self._alarm = self._new_alarm()
        if found.config.service.metrics != old.config.service.metrics:
            self._new_metrics()
        if not self._capturing.ready.is_set():
            return  # the schedule begins with what holds by then
        if found.config.capture.scan_every_ms != old.config.capture.scan_every_ms:
            # by the new pace one may be overdue
            self._schedule.every("scan", found.config.capture.scan_every_ms / 1000, self._capturing.scan, first_after_s=0.0)
        self._watch()
        if found.config.retention != old.config.retention:
            self._schedule.run_soon("retain")

    def _new_alarm(self) -> Alarm:
        service = self._found.config.service
        return Alarm(service.alarm, service.alarm_on, str(self._found.layout.home), self._found.env)

    def _new_metrics(self) -> None:
        self._metrics.close()
        try:
            self._metrics = Metrics(self._found.config.service.metrics)
        except OSError:
            self._metrics = Metrics(None)
            log.exception("there are no metrics")


def _version() -> str:
    try:
        return version("coldtrail")
    except PackageNotFoundError:
        return ""
