"""What the state at the end of a long archived log costs: no more than that of one a twentieth as long."""

from __future__ import annotations

import itertools
import json
import re
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from bench.measuring import MIB, Bench, needs_corpus, real_logs, show
from bench.test_own_agents import pieces
from bench.test_reading import parsed_seconds

pytestmark = [pytest.mark.bench, needs_corpus]
UUIDS = re.compile(rb'("(?:uuid|parentUuid|logicalParentUuid)":")[0-9a-f]{2}([0-9a-f]{6}-)')
SHORT, LONG = 50 * MIB, 1000 * MIB


@dataclass(frozen=True)
class Found:
    """What recovering a log of some size cost, and what parsing every line of it takes."""

    recover: dict[str, float]
    parse_seconds: float
    log_bytes: int


def turns() -> Iterator[bytes]:
    """A user's message, a call, its result and an answer, for ever; the ids do not sort, and nothing is ever summed up."""
    texts = itertools.cycle(json.dumps(text).encode() for text in itertools.islice(pieces(), 20_000))
    for n in itertools.count():
        call = b"call-%d" % n
        for fields in (
            b'"message_added","role":"user","content":%b' % next(texts),
            b'"tool_invoked","tool_name":"Bash","input":{"command":%b},"invocation_id":"%b"' % (next(texts), call),
            b'"tool_completed","output":%b,"invocation_id":"%b"' % (next(texts), call),
            b'"message_added","role":"assistant","content":%b' % next(texts),
        ):
            yield b'{"event_id":"%b","timestamp":%d,"type":%b}\n' % (str(uuid.uuid4()).encode(), 1_767_225_600_000 + n, fields)


def claude_log(path: Path, size: int) -> None:
    """Real sessions end to end, as often as needed, each time with other ids; whatever the size, the same one is the last."""
    logs = real_logs()[:: len(real_logs()) // 40]  # so few that the short log has them all too: what they leave pending stays so
    assert sum(log.stat().st_size for log in logs) < SHORT
    with path.open("wb") as file:
        for turn in itertools.count():
            for each in logs:
                file.write(renamed(each.read_bytes(), turn))
                if file.tell() >= size:
                    file.write(renamed(max((log.read_bytes() for log in logs), key=len), 0xFF))
                    return


def renamed(data: bytes, turn: int) -> bytes:
    """A log with other ids in its chain, and a newline at its end."""
    found = UUIDS.sub(lambda match: match[1] + b"%02x" % turn + match[2], data)
    return found if found.endswith(b"\n") else found + b"\n"


def event_log(path: Path, size: int) -> None:
    with path.open("wb") as file:
        for line in turns():
            file.write(line)
            if file.tell() >= size:
                return


def measured(folder: Path, kind: str, size: int) -> Found:
    """A log captured, made dense, checkpointed, and gone."""
    bench = Bench(folder)
    log = bench.log("long") if kind == "claude-code" else folder / "events" / "long.jsonl"
    log.parent.mkdir(parents=True, exist_ok=True)
    bench.root.mkdir(exist_ok=True)
    (claude_log if kind == "claude-code" else event_log)(log, size)
    for verb in ("capture", "compact", "checkpoint"):  # as the service does, which seals what it has rolled
        took = bench.work(verb)
        show(f"{kind}, {size // MIB} MB: {verb}", seconds=took["seconds"], peak_MB=took["peak_bytes"] / 1e6)
    parse, log_bytes = parsed_seconds(log)[0], log.stat().st_size
    log.unlink()
    took = bench.work("recover", 9)
    show(
        f"{kind}, {size // MIB} MB: the state at its end (its messages are read when they are asked for)",
        ms=took["recover_seconds"] * 1e3, cpu_ms=took["recover_cpu_seconds"] * 1e3, frames=took["frames"], replayed=took["replayed"],
        bytes_read=took["bytes_read"], peak_MB=took["recover_peak_bytes"] / 1e6, messages=took["messages"],
        reading_them_ms=took["messages_seconds"] * 1e3, parsing_all_seconds=parse, times_as_fast=parse / took["recover_seconds"],
    )  # fmt: skip
    return Found(took, parse, log_bytes)


@pytest.mark.parametrize("kind", ["claude-code", "event-log"])
def test_the_state_at_the_end_of_1_gb_costs_what_that_of_50_mb_does(tmp_path: Path, kind: str) -> None:
    short, long = (measured(tmp_path / str(size), kind, size) for size in (SHORT, LONG))
    for found in (short, long):
        assert found.recover["from"]
    assert long.recover["frames"] <= short.recover["frames"] + 4  # where the last checkpoint lies differs
    assert long.recover["replayed"] <= short.recover["replayed"] + 1000
    assert long.recover["recover_seconds"] < 0.1
    assert long.recover["recover_seconds"] * 30 < long.parse_seconds
    assert long.recover["recover_peak_bytes"] < 100e6


def test_a_log_that_nobody_seals_is_checkpointed_and_recovered_in_time_that_grows_as_it_does(tmp_path: Path) -> None:
    """Ids that do not sort: each is looked for in all that came before it, of which no segment has a table."""
    took: dict[int, float] = {}
    for size in (SHORT, 5 * SHORT):
        bench = Bench(tmp_path / str(size))
        log = bench.folder / "events" / "long.jsonl"
        log.parent.mkdir(parents=True)
        bench.root.mkdir()
        event_log(log, size)
        bench.work("capture")
        made, found = bench.work("checkpoint"), bench.work("recover", 3)
        took[size] = made["cpu_seconds"]
        show(
            f"event-log, {size // MIB} MB, not sealed: checkpoints",
            seconds=made["seconds"], made=made["made"], peak_MB=made["peak_bytes"] / 1e6,
            recover_ms=found["recover_seconds"] * 1e3, recover_peak_MB=found["recover_peak_bytes"] / 1e6,
        )  # fmt: skip
        assert made["peak_bytes"] < 100e6
    assert took[5 * SHORT] < 7 * took[SHORT]
