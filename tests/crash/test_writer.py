"""A writer that is killed, wherever it was, loses no event that it acknowledged; several at once never mix their lines."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from pathlib import Path
from typing import IO

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coldtrail.format.lines import LineSplitter
from coldtrail.model import Record, RecordKind
from crash.writing import SESSION, opened

TESTS = Path(__file__).resolve().parents[1]
DEAD = -signal.SIGKILL


def started(folder: Path, name: str, count: int, fsync: str = "never") -> subprocess.Popen[bytes]:
    path = os.pathsep.join([str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])])
    command = [sys.executable, "-m", "crash.writing", str(folder), name, str(count), fsync]
    return subprocess.Popen(command, env={**os.environ, "PYTHONPATH": path}, stdout=subprocess.PIPE)


def output(process: subprocess.Popen[bytes]) -> IO[bytes]:
    assert process.stdout is not None
    return process.stdout


def acknowledged(said: bytes) -> list[tuple[str, str]]:
    """Each id that the process has said, and how its text begins; what it did not say to the end does not count."""
    return [(line.split(" ", 1)[0], line.split(" ", 1)[1]) for line in said.decode().split("\n")[:-1]]


def tiles(folder: Path) -> list[Record]:
    """The log's records, which tile it."""
    data = (folder / f"{SESSION}.jsonl").read_bytes()
    splitter = LineSplitter(0)
    records = [*splitter.feed(data), *splitter.finish()]
    assert sum(record.length for record in records) == len(data)
    return records


def events(folder: Path) -> list[dict[str, object]]:
    return [record.value for record in tiles(folder) if isinstance(record.value, dict)]


def assert_has(folder: Path, said: list[tuple[str, str]]) -> None:
    there = {record["event_id"]: str(record.get("content", "")) for record in events(folder)}
    missing = [(event_id, text) for event_id, text in said if not there.get(event_id, "").startswith(f"{text} ")]
    assert not missing


@pytest.mark.parametrize("fsync", ["interval", "always"])
def test_a_writer_killed_at_any_moment_has_lost_nothing_it_acknowledged(tmp_path: Path, fsync: str) -> None:
    """Again and again over one log, each time by a process that goes on with it."""
    rng, said = random.Random(fsync), []
    for run in range(6):
        process = started(tmp_path, f"p{run}", 1_000_000, fsync)
        before = b"".join(output(process).readline() for _ in range(rng.randrange(1, 400)))
        process.kill()
        said += acknowledged(before + output(process).read())
        process.communicate()
        assert process.returncode == DEAD
        assert_has(tmp_path, said)
    with opened(tmp_path) as log:
        assert not any(log.append("session_end", event_id=event_id).is_new for event_id, _ in said[::7])
    ids = [str(record["event_id"]) for record in events(tmp_path)]
    assert len(ids) == len(set(ids))
    ours = [each for each in ids if not each.startswith("p")]
    assert ours == sorted(ours)
    assert events(tmp_path)[0]["type"] == "session_start"


def test_four_processes_append_500_events_each_and_no_line_is_torn(tmp_path: Path) -> None:
    processes = [started(tmp_path, f"p{n}", 500) for n in range(4)]
    said = [acknowledged(output(process).read()) for process in processes]
    assert [process.wait() for process in processes] == [0] * 4
    for process in processes:
        output(process).close()
    assert [record.kind for record in tiles(tmp_path)] == [RecordKind.DATA] * 2001
    starts = [record for record in events(tmp_path) if record["type"] == "session_start"]
    assert len(starts) == 1, "whoever was first"
    for number, mine in enumerate(said):
        assert len(mine) == 500
        there = [record["event_id"] for record in events(tmp_path) if str(record.get("content", "")).startswith(f"p{number} ")]
        assert there == [event_id for event_id, _ in mine], "each one's events stand in the order it appended them"
    ours = [str(record["event_id"]) for record in events(tmp_path) if not str(record["event_id"]).startswith("p")]
    assert ours == sorted(set(ours))


def test_while_one_of_four_is_killed_the_others_go_on(tmp_path: Path) -> None:
    victim, *others = [started(tmp_path, f"p{n}", 1_000_000 if n == 0 else 300) for n in range(4)]
    before = output(victim).readline()
    for process in others:
        said = acknowledged(output(process).read())
        assert len(said) == 300
        victim.kill()
        assert process.wait() == 0
        output(process).close()
        assert_has(tmp_path, said)
    assert_has(tmp_path, acknowledged(before + output(victim).read()))
    victim.communicate()


# --- every byte at which a write may end ---


def whole_log(folder: Path) -> tuple[bytes, int]:
    """A log of some events, and where its last one begins."""
    given = {"to": "é \ud83d", "n": [{}, {"a": {"type": "session_end", "event_id": "inside"}}]}
    with opened(folder) as log:
        log.append("message_added", role="user", content='first {"a": 1}', event_id="e-1")
        last = log.append("tool_invoked", tool_name="mail", input=given, more={"a": 1}, invocation_id="i", event_id="e-2")
    return log.path.read_bytes(), last.offset


def test_wherever_a_write_ended_its_bytes_stay_and_the_log_goes_on(tmp_path: Path) -> None:
    data, begin = whole_log(tmp_path)
    path = tmp_path / f"{SESSION}.jsonl"
    seen = set()
    for end in range(begin, len(data)):
        path.write_bytes(data[:end])
        with opened(tmp_path) as log:
            assert path.read_bytes()[:end] == data[:end]
            seen.add(path.read_bytes()[end:])
            assert not log.append("session_end", event_id="e-1").is_new
            is_whole = end == len(data) - 1  # only its newline was missing
            assert log.append("session_end", event_id="e-2").is_new is not is_whole
            log.append("session_end", event_id="e-3")
        kinds = [record.kind for record in tiles(tmp_path)]
        torn = [] if end == begin or is_whole else [RecordKind.DAMAGED]
        assert kinds == [RecordKind.DATA] * 2 + torn + [RecordKind.DATA] * 2, end
        assert [record["event_id"] for record in events(tmp_path)][1:] == ["e-1", "e-2", "e-3"]
    assert seen == {b"", b"\n", b"~\n"}, "the last of them behind an object inside the torn one, which would look like a record"


def test_wherever_the_first_write_ended_the_log_has_its_session_start(tmp_path: Path) -> None:
    data, _ = whole_log(tmp_path)
    path, first = tmp_path / f"{SESSION}.jsonl", data.index(b"\n")
    for end in range(first + 1):
        path.write_bytes(data[:end])
        with opened(tmp_path):
            pass
        assert path.read_bytes().startswith(data[:end])
        assert [record["type"] for record in events(tmp_path)] == ["session_start"], end


@pytest.mark.parametrize("tail", [b"\0" * 5000, b"\xff\xfe", b'{"event_id":"x"} ', b"[1,2", b" ", b'"' + b"y" * 200_000])
def test_whatever_the_tail_is_it_stays_as_a_line_of_its_own(tmp_path: Path, tail: bytes) -> None:
    data, _ = whole_log(tmp_path)
    path = tmp_path / f"{SESSION}.jsonl"
    path.write_bytes(data + tail)
    with opened(tmp_path) as log:
        told = log.append("session_end")
        assert told.offset == len(data + tail) + 1
        assert log.append("session_end", event_id="x").is_new is (b"event_id" not in tail)
    assert path.read_bytes().startswith(data + tail + b'\n{"type":"session_end"')


def test_a_tail_torn_while_the_log_is_open_is_closed_before_the_next_event(tmp_path: Path) -> None:
    with opened(tmp_path) as log:
        log.append("session_end")
        with log.path.open("ab") as file:
            file.write(b'{"torn":"')
        told = log.append("session_end")
        assert json.loads(log.path.read_bytes()[told.offset :])["event_id"] == told.event_id
        assert log.path.read_bytes()[: told.offset].endswith(b'\n{"torn":"\n')


# --- whatever comes, in whatever order ---

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(0, 2), st.one_of(st.none(), st.integers(0, 9))),
        st.tuples(st.just("many"), st.integers(0, 2), st.lists(st.integers(0, 9), max_size=4)),
        st.tuples(st.just("reopen"), st.integers(0, 2), st.none()),
        st.tuples(st.just("torn"), st.just(0), st.binary(min_size=1, max_size=12)),
    ),
    max_size=25,
)


@settings(max_examples=60, deadline=None)
@given(STEPS)
def test_three_writers_and_torn_writes_in_any_order_give_each_event_once(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int, object]]
) -> None:
    folder = tmp_path_factory.mktemp("any")
    writers = [opened(folder) for _ in range(3)]
    expected: list[object] = []
    torn = b""
    for what, at, value in steps:
        if what == "torn":
            assert isinstance(value, bytes)
            with writers[0].path.open("ab") as file:
                file.write(value)
            torn += value
        elif what == "reopen":
            writers[at].close()
            writers[at] = opened(folder)
        else:
            events = [{"type": "session_end", "event_id": f"e-{n}"} for n in (value if isinstance(value, list) else [value])]
            told = writers[at].append_many([{**each, "event_id": None} if each["event_id"] == "e-None" else each for each in events])
            for each in told:
                assert each.is_new is (each.event_id not in expected)
                expected += [each.event_id] if each.is_new else []
    for writer in writers:
        writer.close()
    path = folder / f"{SESSION}.jsonl"
    there = [record.value["event_id"] for record in tiles(folder) if isinstance(record.value, dict) and "event_id" in record.value]
    assert there[1:] == expected
    assert len(path.read_bytes()) >= len(torn)
