"""One piece of work a process, so that its time and its memory are its own: `python work.py VERB ROOT HOME [N]` prints what it took."""

from __future__ import annotations

import json
import os
import resource
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from coldtrail.agents import agent, agents
from coldtrail.agents.walk import Source
from coldtrail.format.index import mask_of
from coldtrail.home import Home
from coldtrail.layout import Layout
from coldtrail.model import EventType, Position
from coldtrail.recover import Selection, StreamReader
from coldtrail.session import Session
from coldtrail.stage.checkpoint import Policy, advance
from coldtrail.stage.checkpoint import due as due_checkpoints
from coldtrail.stage.compact import Compactor, due
from coldtrail.stage.restore import Wish, carry_out, plan_restore
from coldtrail.stage.scan import Scanner

LEVEL = 9  # of [compact], by default
Figures = dict[str, float]


@dataclass
class Reads:
    """What is read of the agent's files, and of ours."""

    root: Path
    theirs_bytes: int = 0
    ours_bytes: int = 0

    def counted(self) -> None:
        """Count every read by place from now on."""
        pread, root = os.pread, str(self.root)

        def counting(fd: int, length: int, offset: int) -> bytes:
            data = pread(fd, length, offset)
            if os.readlink(f"/proc/self/fd/{fd}").startswith(root):
                self.theirs_bytes += len(data)
            else:
                self.ours_bytes += len(data)
            return data

        os.pread = counting


def clock_ms() -> int:
    return time.time_ns() // 1_000_000


def opened(home: Path) -> Home:
    return Home.open(Layout.at(home), agents(), clock_ms)


def sources(root: Path) -> list[Source]:
    return [Source("claude-code", agent("claude-code"), root), Source("mine", agent("event-log"), root.with_name("events"))]


def capture(root: Path, home: Path, _: int) -> Figures:
    """One pass over everything."""
    with opened(home) as trail:
        tally = Scanner(trail).scan(sources(root), whole=True)
    return {"files": tally.captured, "plain_bytes": tally.new_bytes}


def compact(_root: Path, home: Path, _: int) -> Figures:
    """Everything made dense, as if it were cold."""
    with opened(home) as trail:
        compactor = Compactor(trail, LEVEL)
        done = [compactor.compact(row, cold=True) for row, _cold in list(due(trail, 0))]
    return {"segments": sum(each.sealed for each in done), "plain_bytes": sum(each.plain_bytes for each in done)}


def restore(_root: Path, home: Path, _: int) -> Figures:
    """Every session, into a folder beside the home."""
    total = 0
    with opened(home) as trail:
        for session in trail.catalog.sessions():
            plan = plan_restore(trail, session, Wish(to=home.with_name("restored")))
            total += sum(getattr(each, "bytes", 0) for each in carry_out(trail, plan))
    return {"plain_bytes": total}


def grow(root: Path, home: Path, count: int) -> Figures:
    """A line of 200 bytes is appended `count` times to the one log there is, and captured each time; the last time is measured."""
    (log,) = root.rglob("*.jsonl")
    reads, began = Reads(root), 0.0
    with opened(home) as trail:
        scanner, found = Scanner(trail), sources(root)
        for at in range(count):
            with log.open("ab") as file:
                file.write(json.dumps({"type": "user", "n": at, "x": "y" * 150}).encode().ljust(199) + b"\n")
            if at == count - 1:
                reads.counted()
            began = time.perf_counter()
            tally = scanner.look(found, [log])
            assert tally.new_bytes == 200, tally
    return {"wake_seconds": time.perf_counter() - began, "theirs_bytes": reads.theirs_bytes, "ours_bytes": reads.ours_bytes}


def last(_root: Path, home: Path, count: int) -> Figures:
    """The last `count` messages of the one session there is."""
    with opened(home) as trail:
        (row,) = trail.catalog.sessions()
        meta = trail.store.meta(trail.catalog.streams_of(row.key)[0].stream)
        assert meta is not None
        with StreamReader(trail, meta) as reader:
            messages = Selection(mask=mask_of([EventType.MESSAGE_ADDED]))
            generation, first = list(reader.rows(messages))[-count]
            wanted = Selection(mask=messages.mask, begin=Position(generation, first.offset))
            found = [event for placed in reader.placed(wanted) for event in placed.events()]
        assert len(found) >= count
        return {"frames": trail.work.frames_decoded, "bytes_read": trail.work.bytes_read, "events": len(found)}


def checkpoint(_root: Path, home: Path, _: int) -> Figures:
    """Every checkpoint that is due."""
    with opened(home) as trail:
        return {"made": sum(advance(trail, row, Policy()) for row in list(due_checkpoints(trail, Policy())))}


def recover(_root: Path, home: Path, count: int) -> Figures:
    """The state at the end of the one session there is, `count` times: the medians; then what its messages cost besides, once."""
    with opened(home) as trail:
        (row,) = trail.catalog.sessions()
        session, wall, cpu = Session(trail, row), list[float](), list[float]()
        found = session.recover()
        for _ in range(count):
            trail.work.frames_decoded = trail.work.bytes_read = 0
            began, spent = time.perf_counter(), time.process_time()
            found = session.recover()
            wall.append(time.perf_counter() - began)
            cpu.append(time.process_time() - spent)
        figures = {"recover_seconds": statistics.median(wall), "recover_cpu_seconds": statistics.median(cpu), "replayed": found.replayed}
        figures |= {"frames": trail.work.frames_decoded, "bytes_read": trail.work.bytes_read, "recover_peak_bytes": peak_bytes()}
        began = time.perf_counter()
        messages = len(found.state.messages())
        return {**figures, "messages": messages, "messages_seconds": time.perf_counter() - began, "from": int(found.checkpoint is not None)}


VERBS: dict[str, Callable[[Path, Path, int], Figures]] = {
    "capture": capture,
    "compact": compact,
    "restore": restore,
    "grow": grow,
    "last": last,
    "checkpoint": checkpoint,
    "recover": recover,
}


def peak_bytes() -> int:
    """The most memory this process has had; Linux's ru_maxrss counts that of the process it was started from too."""
    try:
        status = Path("/proc/self/status").read_text(encoding="ascii")
        return next(int(line.split()[1]) << 10 for line in status.splitlines() if line.startswith("VmHWM"))
    except FileNotFoundError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def main() -> None:
    verb, root, home, *count = sys.argv[1:]
    began = time.perf_counter()
    figures = VERBS[verb](Path(root), Path(home), int(count[0]) if count else 0)
    seconds, cpu = time.perf_counter() - began, time.process_time()
    sys.stdout.write(json.dumps({"seconds": seconds, "cpu_seconds": cpu, "peak_bytes": peak_bytes(), **figures}))


if __name__ == "__main__":
    main()
