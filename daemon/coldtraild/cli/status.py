"""`coldtrail status`: what is kept of whom, and what is wrong."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import click

from coldtrail import Trail
from coldtrail.agents.walk import Source
from coldtrail.catalog import FaultRow
from coldtrail.client import now_ms
from coldtrail.model import instant_text
from coldtraild.cli import say
from coldtraild.cli.asked import Asked, as_json, epilog, pass_asked

_NOTE_BYTES = 64


@dataclass(frozen=True, slots=True)
class Daemon:
    """Whether one runs on this home, and which process says so."""

    running: bool
    pid: int | None  # as it wrote it down: for people, nothing is sent to it


@click.command("status", epilog=epilog("coldtrail status", "coldtrail status --json"))
@as_json
@pass_asked
def command(asked: Asked, *, as_json: bool) -> None:
    """Say what is kept, of which agents, and what is wrong.

    Prints whether a daemon runs, which config holds, the home and the sources, how many sessions and bytes are kept, and every
    fault: its place, what to do about it, and when it is tried again.
    """
    with asked.trail() as trail:
        daemon, faults, sums = _daemon(trail.settings.layout.daemon_lock), trail.home.catalog.faults(), _sums(trail)
        if as_json:
            say.document(_document(trail, daemon, sums, faults))
        else:
            click.echo("\n".join(_lines(trail, daemon, sums, faults)))


def _daemon(lock: Path) -> Daemon:
    """The kernel knows who holds the lock. Ours is a shared one, dropped at once, so that two who ask do not see each other."""
    try:
        fd = os.open(lock, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return Daemon(running=False, pid=None)
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        note = os.pread(fd, _NOTE_BYTES, 0).split()
        return Daemon(running=True, pid=int(note[0]) if note and note[0].isdigit() else None)
    finally:
        os.close(fd)
    return Daemon(running=False, pid=None)


def _sums(trail: Trail) -> dict[str, int]:
    """What the sessions come to."""
    rows = [session.row for session in trail.sessions()]
    return {
        "total": len(rows),
        "live": sum(row.state == "live" for row in rows),
        "gone": sum(row.state == "gone" for row in rows),
        "pinned": sum(bool(row.pinned) for row in rows),
        "records": sum(row.records for row in rows),
        "damaged": sum(row.damaged for row in rows),
        "bytes": sum(row.bytes for row in rows),
        "stored_bytes": sum(row.stored_bytes for row in rows),
    }


def _ratio(sums: Mapping[str, int]) -> float | None:
    return round(sums["bytes"] / sums["stored_bytes"], 2) if sums["stored_bytes"] else None


def _document(trail: Trail, daemon: Daemon, sums: dict[str, int], faults: list[FaultRow]) -> dict[str, object]:
    found = trail.settings
    return {
        "daemon": {"running": daemon.running, "pid": daemon.pid},
        "config": None if found.config_file is None else str(found.config_file),
        "home": str(found.layout.home),
        "archive": str(found.layout.archive),
        "sources": [{"name": s.name, "agent": s.agent.name, "root": str(s.root), "there": s.root.is_dir()} for s in found.sources],
        "sessions": {name: sums[name] for name in ("total", "live", "gone", "pinned")},
        "records": sums["records"],
        "damaged": sums["damaged"],
        "bytes": sums["bytes"],
        "stored_bytes": sums["stored_bytes"],
        "ratio": _ratio(sums),
        "faults": [fault_document(fault) for fault in faults],
    }


def fault_document(fault: FaultRow) -> dict[str, object]:
    """A fault as JSON shows it."""
    return {
        "place": os.fsdecode(fault.place),
        "what": fault.what,
        "hint": fault.hint,
        "since": instant_text(fault.since_ms),
        "tries": fault.tries,
        "next_try": instant_text(fault.next_ms),
    }


def _lines(trail: Trail, daemon: Daemon, sums: Mapping[str, int], faults: list[FaultRow]) -> Iterator[str]:
    found = trail.settings
    who = "" if daemon.pid is None else f" (it says that it is process {daemon.pid})"
    yield "daemon    " + (f"running{who}" if daemon.running else "not running: `coldtrail run` starts it")
    yield "config    " + ("none, the defaults hold" if found.config_file is None else say.folder(str(found.config_file)))
    yield f"home      {say.folder(str(found.layout.home))}"
    if found.config.archive.folder is not None:
        yield f"archive   {say.folder(str(found.layout.archive))}"
    yield from _source_lines(found.sources)
    pinned = f", {sums['pinned']} pinned" if sums["pinned"] else ""
    yield f"sessions  {sums['total']}: {sums['live']} live, {sums['gone']} gone{pinned}"
    ratio = _ratio(sums)
    yield f"kept      {say.size(sums['bytes'])} in {say.size(sums['stored_bytes'])}" + (f", {ratio:.1f} to 1" if ratio else "")
    yield f"records   {sums['records']}" + (f", {sums['damaged']} of them damaged when they were captured" if sums["damaged"] else "")
    yield from fault_lines(faults)


def _source_lines(sources: tuple[Source, ...]) -> Iterator[str]:
    if not sources:
        yield "sources   none: no agent was found on this machine"
    for at, source in enumerate(sources):
        there = "" if source.root.is_dir() else "  (not there)"
        yield f"{'' if at else 'sources':<8}  {say.printable(source.name)}: {source.agent.name} in {say.folder(str(source.root))}{there}"


def fault_lines(faults: list[FaultRow]) -> Iterator[str]:
    """The faults for people."""
    yield f"faults    {len(faults) or 'none'}"
    for fault in faults:
        yield f"  {say.folder(os.fsdecode(fault.place))}: {say.printable(fault.what)}"
        if fault.hint:
            yield f"    {say.printable(fault.hint)}"
        times = "once" if fault.tries == 1 else f"{fault.tries} times"
        yield f"    since {say.local(fault.since_ms)}, tried {times}, {_next_try(fault)}"


def _next_try(fault: FaultRow) -> str:
    left_s = (fault.next_ms - now_ms()) // 1000
    return "due for the next try" if left_s <= 0 else f"tried again in {left_s} s"
