"""Looks at the parts of a running daemon, and writes down how it is: on a change, and now and then."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from coldtrail import sums
from coldtrail.agents.walk import Source
from coldtrail.errors import ColdtrailError
from coldtrail.home import Home
from coldtrail.settings import Settings, find_sources
from coldtraild import health, report
from coldtraild.capturing import Capturing
from coldtraild.marks import Marks
from coldtraild.report import Known, job
from coldtraild.runs import JobStatus, Runs
from coldtraild.schedule import Schedule
from coldtraild.watch import Watched, Watcher

PEEK_MAX = 200  # marks that are looked at one by one
SUM_EVERY_S = 3.0
_LATE_SCANS = 3  # after so many scans that did not come nobody knows what is on the disk


@dataclass(frozen=True, slots=True)
class Parts:
    """What is looked at."""

    marks: Marks
    watcher: Watcher
    schedule: Schedule
    capturing: Capturing
    runs: Runs
    known: Known


@dataclass(frozen=True, slots=True)
class _Waiting:
    """What of a source is not captured yet."""

    files: int
    size: int
    lag_s: float


class Reporter:
    """One thread's alone, with a home of its own; `look` is called every second."""

    def __init__(self, home: Home, parts: Parts, version: str, *, tick_s: Callable[[], float] = time.monotonic) -> None:
        self._home, self._parts, self._version, self._tick_s = home, parts, version, tick_s
        self._started_ms = home.now_ms()
        self._written_s = self._summed_s = float("-inf")
        self._seen: object = None
        self._sessions = sums.sessions(home.catalog)
        self._sources: dict[str, sums.SourceSums] = {}
        self._summed: int | None = None
        self.latest: dict[str, Any] = {}

    def look(self, found: Settings, *, at_once: bool = False) -> bool:
        """Write the document, if there is reason to; gives whether there was. On a full disk it stands in `latest` alone."""
        self._home.catalog.fresh()
        seen, now_s = self._gist(), self._tick_s()
        late = sums.version(self._home.catalog) != self._summed and now_s - self._summed_s >= SUM_EVERY_S
        if not at_once and not late and seen == self._seen and now_s - self._written_s < health.WRITE_EVERY_S:
            return False
        self._seen, self._written_s = seen, now_s
        self.latest = self.document(found)
        with suppress(OSError, ColdtrailError):
            health.write(self._home.layout.state, self.latest)
        return True

    def stopped(self, found: Settings) -> None:
        """Write that the daemon has ended in order."""
        self.latest = {**self.document(found), "stopped_ms": self._home.now_ms()}
        with suppress(OSError, ColdtrailError):
            health.write(self._home.layout.state, self.latest)

    def _gist(self) -> object:
        """What is a change worth writing, as far as it costs nothing to ask."""
        parts, capturing = self._parts, self._parts.capturing
        known = parts.known
        jobs = tuple((each.name, each.last.error_ms, each.last.said, each.hung is None) for each in parts.schedule.status())
        return (
            sums.version(self._home.catalog),
            (capturing.under_way, capturing.last, capturing.no_space, capturing.ready.is_set(), len(parts.marks) > 0),
            (known.clock, known.refused, known.capture_stuck is None, id(known.outlook), parts.runs.pause),
            tuple(parts.watcher.status()),
            jobs,
        )

    def document(self, found: Settings) -> dict[str, Any]:
        """How everything is now."""
        self._sum()
        now_ms, parts = self._home.now_ms(), self._parts
        written = report.frame(self._home, found, parts.runs) | {
            "program": self._version,
            "mode": "daemon",
            "started_ms": self._started_ms,
            "ready": parts.capturing.ready.is_set(),
            "sources": [self._source(source, found, now_ms) for source in find_sources(found)],
            "jobs": [self._capture_job(), *(job(each) for each in parts.schedule.status())],
            "queue": {"marks": len(parts.marks), "oldest_s": round(parts.marks.oldest_s, 1)},
            "no_space": None if parts.capturing.no_space is None else asdict(parts.capturing.no_space),
            "clock": parts.known.clock,
            "config": report.config(found) | {"refused": parts.known.refused, "refused_ms": parts.known.refused_ms},
            **(parts.known.outlook or report.no_outlook()),
            **report.stored(self._home, self._sessions, self._sources.values()),
        }
        return report.judged(written)

    def _sum(self) -> None:
        """Sum up anew, if there is something new and it was not just done."""
        version, now_s = sums.version(self._home.catalog), self._tick_s()
        if version != self._summed and now_s - self._summed_s >= SUM_EVERY_S:
            self._summed, self._summed_s = version, now_s
            self._sessions = sums.sessions(self._home.catalog)
            self._sources = {each.source: each for each in sums.sources(self._home.catalog)}

    def _source(self, source: Source, found: Settings, now_ms: int) -> dict[str, Any]:
        capturing, there = self._parts.capturing, source.root.is_dir()
        waiting = self._waiting(source, now_ms)
        looked_ms = capturing.looked_ms
        late_ms = _LATE_SCANS * found.config.capture.scan_every_ms + 60_000
        looked = looked_ms is not None and now_ms - looked_ms < late_ms and source not in capturing.new
        counted = self._sources.get(source.name)
        return {
            "name": source.name,
            "agent": source.agent.name,
            "root": str(source.root),
            "there": there,
            "freshness": health.freshness(there=there, looked=looked, lag_s=waiting.lag_s),
            "lag_s": round(waiting.lag_s, 1),
            "uncaptured_bytes": waiting.size,
            "uncaptured_files": waiting.files,
            "files": counted.there if counted else 0,
            "looked_ms": looked_ms,
            "watch": [_watched(each) for each in self._parts.watcher.status() if self._is_of(source, each.folder)],
        }

    def _is_of(self, source: Source, folder: Path) -> bool:
        name = self._parts.known.named.get(folder, folder)
        return name == source.root or source.root in name.parents

    def _waiting(self, source: Source, now_ms: int) -> _Waiting:
        files, size, lag_s = 0, 0, 0.0
        counted = self._sources.get(source.name)
        if counted is not None and counted.lacking_since_ns is not None:
            size, lag_s = counted.lacking_bytes, max(now_ms / 1000 - counted.lacking_since_ns / 1e9, 0.0)
        for path, age_s in self._marked():
            if path == source.root or source.root in path.parents:
                extra = self._lacking(path)
                files, size = files + (extra > 0), size + extra
                lag_s = max(lag_s, age_s if extra else 0.0)
        if self._parts.marks.overflowed:
            lag_s = max(lag_s, self._parts.marks.oldest_s)
        under_way = self._parts.capturing.under_way
        if under_way is not None and (under_way.paths is None or source.root in under_way.paths):
            lag_s = max(lag_s, self._tick_s() - under_way.since_s)
        return _Waiting(files, size, lag_s)

    def _marked(self) -> Iterator[tuple[Path, float]]:
        """The paths that wait, and those that are being looked at, with the seconds since."""
        yield from self._parts.marks.peek(PEEK_MAX)
        under_way = self._parts.capturing.under_way
        if under_way is not None and under_way.paths is not None:
            age_s = self._tick_s() - under_way.since_s
            yield from ((path, age_s) for path in under_way.paths[:PEEK_MAX])

    def _lacking(self, path: Path) -> int:
        """How much a file has grown since capture has seen it."""
        with suppress(OSError):
            found = path.stat()
            row = self._home.catalog.stream_at(os.fsencode(path))
            if path.is_file():
                return max(found.st_size - (row.size if row is not None else 0), 0)
        return 0

    def _capture_job(self) -> dict[str, Any]:
        capturing = self._parts.capturing
        status = JobStatus("capture", 0.0, capturing.under_way is not None, capturing.last, None, self._parts.known.capture_stuck)
        return job(status)


def _watched(each: Watched) -> dict[str, Any]:
    return {
        "folder": str(each.folder),
        "mode": each.mode,
        "why": "" if each.why is None else each.why.what,
        "hint": "" if each.why is None else each.why.hint,
    }
