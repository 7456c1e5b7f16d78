"""`coldtrail status`: what is kept of whom, whether it is captured, and what is not well."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click

from coldtrail import sums, sweeps
from coldtrail.catalog import FaultRow
from coldtrail.errors import ColdtrailError
from coldtrail.home import Home
from coldtrail.model import instant_text
from coldtrail.settings import Settings, find_sources, now_ms
from coldtraild import health, report
from coldtraild.cli import say
from coldtraild.cli.asked import Asked, as_json, epilog, pass_asked, whole_home

_NOTE_BYTES = 64
_ANSWER_S = 1.0
_EXITS = {
    0: "all is well: a daemon runs (or `run --once` has ended within 26 hours), everything is captured, and nothing below is told",
    1: "it is not: no daemon, or one that does not move; a source that is stale or missing; any fault, alarm, damage or full disk; a job "
    "that failed or hangs; a pause; a clock that jumped; a config that was not taken. Polling instead of events is well",
}


@dataclass(frozen=True, slots=True)
class Daemon:
    """Whether one runs on this home, and which process says so."""

    running: bool
    pid: int | None  # as it wrote it down: for people, nothing is sent to it


@click.command("status", epilog=epilog("coldtrail status", "coldtrail status --json", exits=_EXITS))
@as_json
@pass_asked
def command(asked: Asked, *, as_json: bool) -> int:
    """Say what is kept, of which agents, whether it is captured, and what is not well.

    Prints whether a daemon runs, which config holds, the home and the sources, each of them fresh, stale or unknown (nobody has
    looked), how their folders are watched, how many sessions and bytes are kept, what each job did last, what the agents will
    delete soon that is not held (an ALARM each), and every fault: its place, what to do about it, and when it is tried again.
    """
    found = asked.settings()
    with whole_home(found) as home:
        daemon, state = _daemon(found, home)
        faults = home.catalog.faults()
        if as_json:
            say.document(_document(found, daemon, state, faults))
        else:
            click.echo("\n".join([*_lines(found, daemon, state), *_outlook_lines(state), *fault_lines(faults), *_finding_lines(state)]))
    return 1 if state["findings"] else 0


def _daemon(found: Settings, home: Home) -> tuple[Daemon, dict[str, Any]]:
    """Whether a daemon runs, and how everything is: as it says itself, or as can be told without it."""
    layout = found.layout
    daemon, written = lock_holder(layout.daemon_lock), health.read(layout.state)
    if daemon.running and not (written and written["pid"] == daemon.pid and written["written_ms"] + health.OLD_MS > now_ms()):
        written = _asked(layout.control) or written  # its disk may be full
    is_its = written is not None and written["mode"] == "daemon" and written["stopped_ms"] is None and daemon.pid in (None, written["pid"])
    running = daemon.running and is_its  # else somebody captures for a moment
    state = written
    if written is None or not running:
        outlook = report.outlook(sweeps.look(home, find_sources(found)), now_ms())
        state = report.alone(home, found, outlook, mode="none")
    assert state is not None
    outside = health.listed(health.outside(written, running=running, now_ms=now_ms()))
    return daemon, {**state, "sessions": asdict(sums.sessions(home.catalog)), "findings": [*outside, *state["findings"]]}


def _asked(control: Path) -> dict[str, Any] | None:
    """What the daemon answers, if one does."""
    from coldtraild.control import ask

    with suppress(ColdtrailError):
        state = ask(control, {"verb": "ping"}, timeout_s=_ANSWER_S).get("state")
        return state if isinstance(state, dict) and state.get("version") == health.VERSION else None
    return None


def lock_holder(lock: Path) -> Daemon:
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


def _ratio(counts: Mapping[str, int]) -> float | None:
    return round(counts["bytes"] / counts["stored_bytes"], 2) if counts["stored_bytes"] else None


# --- as JSON ---


def _document(found: Settings, daemon: Daemon, state: Mapping[str, Any], faults: list[FaultRow]) -> dict[str, object]:
    counts = state["sessions"]
    own = ("sources", "jobs", "queue", "disks", "store_bytes", "archive_bytes", "catalog_bytes", "wal_bytes", "agents_delete", "alarms")
    more = ("paused", "no_space", "clock", "drill", "findings")
    return {
        "well": not state["findings"],
        "daemon": {"running": daemon.running, "pid": daemon.pid},
        **told({name: state[name] for name in ("mode", "ready", "started_ms", "written_ms")}),
        "config": None if found.config_file is None else str(found.config_file),
        "config_refused": state["config"]["refused"] or None,
        "home": str(found.layout.home),
        "archive": str(found.layout.archive),
        **told({name: state[name] for name in own}),
        "sessions": {name: counts[name] for name in ("total", "live", "gone", "expiring", "pinned")},
        "records": counts["records"],
        "damaged": counts["damaged"],
        "bytes": counts["bytes"],
        "stored_bytes": counts["stored_bytes"],
        "ratio": _ratio(counts),
        "faults": [fault_document(fault) for fault in faults],
        **told({name: state[name] for name in more}),
    }


def told(value: Any) -> Any:
    """A part of the daemon's document as JSON shows it: a time is RFC 3339, under the key without `_ms`.

    >>> told({"since_ms": 0, "lag_s": 1.5})
    {'since': '1970-01-01T00:00:00.000Z', 'lag_s': 1.5}
    """
    if isinstance(value, Mapping):
        return {
            name.removesuffix("_ms"): instant_text(each) if name.endswith("_ms") and not isinstance(each, Mapping) else told(each)
            for name, each in value.items()
        }
    return [told(each) for each in value] if isinstance(value, list) else value


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


# --- for people ---


def _lines(found: Settings, daemon: Daemon, state: Mapping[str, Any]) -> Iterator[str]:
    counts = state["sessions"]
    who = "" if daemon.pid is None else f" (it says that it is process {daemon.pid})"
    yield "daemon    " + (f"running{who}" if daemon.running else "not running: `coldtrail run` starts it")
    yield "config    " + ("none, the defaults hold" if found.config_file is None else say.folder(str(found.config_file)))
    yield f"home      {say.folder(str(found.layout.home))}"
    if found.config.archive.folder is not None:
        yield f"archive   {say.folder(str(found.layout.archive))}"
    yield from _source_lines(state["sources"])
    pinned = f", {counts['pinned']} pinned" if counts["pinned"] else ""
    expiring = f", {counts['expiring']} expiring" if counts["expiring"] else ""
    yield f"sessions  {counts['total']}: {counts['live']} live, {counts['gone']} gone{expiring}{pinned}"
    ratio = _ratio(counts)
    yield f"kept      {say.size(counts['bytes'])} in {say.size(counts['stored_bytes'])}" + (f", {ratio:.1f} to 1" if ratio else "")
    yield f"records   {counts['records']}" + (f", {counts['damaged']} of them damaged when they were captured" if counts["damaged"] else "")
    yield "disk      " + ", ".join(f"{say.size(disk['free_bytes'])} free in {say.folder(disk['folder'])}" for disk in state["disks"])
    drilled = state["drill"]
    if drilled is not None:
        yield f"drill     {drilled['verdict']}: {drilled['ok']} of {drilled['tried']} sessions came back, on {drilled['at'][:10]}"
    yield from _job_lines(state["jobs"])


def _source_lines(sources: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    if not sources:
        yield "sources   none: no agent was found on this machine"
    for at, source in enumerate(sources):
        there = "" if source["there"] else "  (not there)"
        fresh = f", {source['freshness']}" if source["watch"] else ""
        waiting = f", {say.size(source['uncaptured_bytes'])} not captured yet" if source["uncaptured_bytes"] else ""
        place = f"{source['agent']} in {say.folder(source['root'])}"
        yield f"{'' if at else 'sources':<8}  {say.printable(source['name'])}: {place}{there}{fresh}{waiting}"
        for each in source["watch"]:
            if each["why"]:
                hint = f" ({each['hint']})" if each["hint"] else ""
                yield f"            {each['mode']}: {say.folder(each['folder'])}: {say.printable(each['why'])}{hint}"


def _job_lines(jobs: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """What the jobs that change something did last."""
    told_of = [job for job in jobs if job["last_said"] and job["name"] not in ("clock", "outlook", "drill")]
    for at, job in enumerate(told_of):
        yield f"{'' if at else 'jobs':<8}  {job['name']}: {say.ago(job['last_success_ms'], now_ms())}: {say.printable(job['last_said'])}"


def _outlook_lines(state: Mapping[str, Any]) -> Iterator[str]:
    soon = state["agents_delete"]
    held = f", {soon['not_kept']} of them NOT KEPT" if soon["not_kept"] else ", all of them kept" if soon["sessions"] else ""
    yield f"agents    will delete {say.counted(soon['sessions'], 'session')} within {soon['within']}{held}"
    for each in state["alarms"]:
        when = say.local(each["agent_deletes_ms"])[:16]
        yield f"ALARM     {each['agent']} deletes {say.folder(each['path'])} on {when}: {say.printable(each['what'])}"


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


def _finding_lines(state: Mapping[str, Any]) -> Iterator[str]:
    """What is not well, but for what was told as a fault or an alarm above."""
    shown = {fault["place"] for fault in state["faults"]}
    found = state["findings"]
    yield f"all well  {'no: ' + say.counted(len(found), 'finding') if found else 'yes'}"
    for each in found:
        if each["state"] == "unheld" or (each["place"] in shown and each["state"] in ("fault", "damage")):
            continue
        place = f"{say.folder(each['place'])}: " if each["place"] else ""
        since = f" (since {say.local(each['since_ms'])})" if each["since_ms"] is not None else ""
        yield f"  {place}{say.printable(each['what'])}{since}"
        if each["hint"]:
            yield f"    {say.printable(each['hint'])}"
