"""The document of how the service is, put together from what a home alone tells; see `health`."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from coldtrail import sums
from coldtrail.agents.walk import Source
from coldtrail.catalog import FaultRow
from coldtrail.home import Home
from coldtrail.settings import Settings, find_sources
from coldtrail.stage import drill
from coldtrail.sweeps import Danger, Outlook
from coldtrail.units import parse_span
from coldtraild import health
from coldtraild.runs import Hung, JobStatus, Last, Runs

SOON = "7d"  # what the agents will delete within so long is counted


@dataclass(slots=True)
class Known:
    """What other threads have found out, as whole values that they put in the place of the old ones."""

    clock: str = ""  # why nothing is removed by its age now
    refused: str = ""  # why the latest config was not taken
    refused_ms: int | None = None
    capture_stuck: Hung | None = None
    outlook: Mapping[str, Any] | None = None
    named: Mapping[Path, Path] = field(default_factory=dict)  # a watched folder -> its name below a root


def job(status: JobStatus) -> dict[str, Any]:
    """A job as the document shows it."""
    last: Last = status.last
    return {
        "name": status.name,
        "every_s": status.every_s,
        "running": status.running,
        "last_start_ms": last.start_ms,
        "last_success_ms": last.success_ms,
        "last_error_ms": last.error_ms,
        "last_error": last.error,
        "last_said": last.said,
        "next_ms": status.next_ms,
        "hung": None if status.hung is None else asdict(status.hung),
    }


def alone(home: Home, found: Settings, outlook: Mapping[str, Any], *, mode: str, looked_ms: int | None = None) -> dict[str, Any]:
    """How everything is where no daemon runs, as far as that can be told; `looked_ms`: when everything was captured last."""
    counted = {each.source: each for each in sums.sources(home.catalog)}
    runs = Runs(home.layout.schedule)
    kept = [job(JobStatus(name, 0.0, False, last)) for name, last in runs.all().items()]
    written = frame(home, found, runs) | {
        "mode": mode,
        "sources": [_source_alone(source, counted.get(source.name), looked_ms) for source in find_sources(found)],
        "jobs": kept,
        **outlook,
        **stored(home, sums.sessions(home.catalog), counted.values()),
    }
    return judged(written)


def _source_alone(source: Source, counted: sums.SourceSums | None, looked_ms: int | None) -> dict[str, Any]:
    there = source.root.is_dir()
    return {
        "name": source.name,
        "agent": source.agent.name,
        "root": str(source.root),
        "there": there,
        "freshness": health.freshness(there=there, looked=looked_ms is not None, lag_s=0.0),
        "lag_s": 0.0,
        "uncaptured_bytes": counted.lacking_bytes if counted else 0,
        "uncaptured_files": 0,
        "files": counted.there if counted else 0,
        "looked_ms": looked_ms,
        "watch": [],
    }


def frame(home: Home, found: Settings, runs: Runs) -> dict[str, Any]:
    """What every document has, with nothing known yet."""
    now_ms, pause, drilled = home.now_ms(), runs.pause, drill.last(home.layout.home)
    return {
        "version": health.VERSION,
        "program": "",
        "mode": "",
        "pid": os.getpid(),
        "started_ms": now_ms,
        "written_ms": now_ms,
        "stopped_ms": None,
        "ready": False,
        "sources": [],
        "jobs": [],
        "queue": {"marks": 0, "oldest_s": 0.0},
        "paused": asdict(pause) if pause is not None and pause.holds(now_ms) else None,
        "no_space": None,
        "clock": "",
        "drill": None if drilled is None else {name: drilled.get(name) for name in ("verdict", "at", "tried", "ok", "bad", "unverifiable")},
        "config": config(found),
        **no_outlook(),
    }


def config(found: Settings) -> dict[str, Any]:
    """Which config holds, and that none was refused."""
    return {"file": None if found.config_file is None else str(found.config_file), "refused": "", "refused_ms": None}


def judged(written: dict[str, Any]) -> dict[str, Any]:
    """A document, with what in it is not well."""
    return {**written, "findings": health.listed(health.findings(written))}


def stored(home: Home, sessions: sums.SessionSums, sources: Iterable[sums.SourceSums]) -> dict[str, Any]:
    """What is kept, what room there is, and what is wrong."""
    opened, faults, layout = sum(each.open_bytes for each in sources), home.catalog.faults(), home.layout
    return {
        "sessions": asdict(sessions),
        "store_bytes": opened,
        "archive_bytes": max(sessions.stored_bytes - opened, 0),
        "catalog_bytes": _size(layout.catalog),
        "wal_bytes": _size(layout.catalog.with_name(f"{layout.catalog.name}-wal")),
        "disks": [_disk(folder) for folder in dict.fromkeys((layout.home, layout.archive)) if folder.is_dir()],
        "faults": [fault(each) for each in faults[: health.FAULTS_MAX]],
        "fault_count": len(faults),
        "ours": [str(layout.store), str(layout.archive)],
    }


def fault(row: FaultRow) -> dict[str, Any]:
    """A fault as the document shows it."""
    return {
        "place": os.fsdecode(row.place).encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace"),
        "what": row.what,
        "hint": row.hint,
        "since_ms": row.since_ms,
        "tries": row.tries,
        "next_try_ms": row.next_ms,
    }


def no_outlook() -> dict[str, Any]:
    """Where nobody has looked yet at what the agents will delete."""
    return {"agents_delete": {"within": SOON, "sessions": 0, "not_kept": 0}, "alarms": []}


def outlook(found: Outlook, now_ms: int) -> dict[str, Any]:
    """What the agents will delete soon, as the document shows it."""
    soon = found.within(now_ms, parse_span(SOON))
    lacking = sum(not fate.kept for _, fate in soon)
    counts = {"within": SOON, "sessions": len(soon), "not_kept": lacking}
    return {"agents_delete": counts, "alarms": [danger(each) for each in found.dangers]}


def danger(each: Danger) -> dict[str, Any]:
    """What its agent deletes soon and we do not hold; of a file that was never captured there is no key."""
    return {
        "key": each.key or None,
        "id": each.id or None,
        "agent": each.agent,
        "path": each.path,
        "agent_deletes_ms": each.deletes_ms,
        "what": each.what,
    }


def _size(path: Path) -> int:
    with suppress(OSError):
        return path.stat().st_size
    return 0


def _disk(folder: Path) -> dict[str, Any]:
    found = os.statvfs(folder)
    return {"folder": str(folder), "free_bytes": found.f_bavail * found.f_frsize, "total_bytes": found.f_blocks * found.f_frsize}
