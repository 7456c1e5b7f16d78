"""The writer of people's own agents: what an event is, once and in order, whoever else appends."""

from __future__ import annotations

import json
import os
import threading
from dataclasses import dataclass, field
from pathlib import Path

import pytest

import coldtrail
from coldtrail.agents import agent
from coldtrail.errors import ConflictError, UsageError
from coldtrail.format.lines import MAX_LINE_BYTES
from coldtrail.model import EventType, instant_text
from coldtrail.state import State
from coldtrail.writer import Writer
from world_of import START_MS, Clock


@dataclass
class Desk:
    """A folder of logs, and a clock that is told."""

    folder: Path
    clock: Clock = field(default_factory=Clock)

    @property
    def path(self) -> Path:
        return self.folder / "s1.jsonl"

    def open(self, **options: object) -> Writer:
        return Writer(self.path, self.clock, state_of=lambda path: State(), **options)  # type: ignore[arg-type] # as a test says

    def records(self) -> list[dict[str, object]]:
        data = self.path.read_bytes()
        assert data.endswith(b"\n")
        return [json.loads(line) for line in data.split(b"\n")[:-1]]

    def ids(self) -> list[object]:
        return [record["event_id"] for record in self.records()]


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path / "logs")


# --- a log ---


def test_a_log_begins_with_session_start_and_is_nobody_elses_to_read(desk: Desk) -> None:
    with desk.open(start={"model": "m-1", "cwd": "/w"}) as log:
        log.append("message_added", role="user", content="Hello")
    first, second = desk.records()
    assert {**first, "event_id": None} == {
        "type": "session_start",
        "timestamp": instant_text(START_MS),
        "event_id": None,
        "session_id": "s1",
        "model": "m-1",
        "cwd": "/w",
    }
    assert {**second, "event_id": None} == {
        "type": "message_added",
        "timestamp": instant_text(START_MS),
        "event_id": None,
        "role": "user",
        "content": "Hello",
    }
    assert (desk.path.stat().st_mode & 0o777, desk.folder.stat().st_mode & 0o777) == (0o600, 0o700)
    assert [path.name for path in desk.folder.iterdir()] == ["s1.jsonl"]


def test_a_log_that_is_there_is_continued(desk: Desk) -> None:
    for content in ("one", "two"):
        with desk.open() as log:
            log.append("message_added", role="user", content=content)
    assert [record["type"] for record in desk.records()] == ["session_start", "message_added", "message_added"]


def test_what_was_appended_is_where_it_says_under_the_id_it_says(desk: Desk) -> None:
    with desk.open() as log:
        told = [log.append("decision_made", kind="reasoning", text="x" * size) for size in (1, 5000, 70_000)]
        told += log.append_many([{"type": "message_added", "role": "user", "content": "a"}, {"type": "session_end"}])
        data = desk.path.read_bytes()
        for each in told:
            record = json.loads(data[each.offset : data.index(b"\n", each.offset)])
            assert (record["event_id"], each.is_new) == (each.event_id, True)
        assert log.last_event_id == told[-1].event_id


def test_one_event_is_one_write_and_so_are_many_at_once(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[bytes] = []
    write = os.write

    def counting(fd: int, data: bytes) -> int:
        written.append(bytes(data))
        return write(fd, data)

    with desk.open() as log:
        monkeypatch.setattr(os, "write", counting)
        log.append("message_added", role="user", content="x" * 100_000)
        log.append_many([{"type": "message_added", "role": "user", "content": str(n)} for n in range(3)])
    assert [data.count(b"\n") for data in written] == [1, 3]


@pytest.mark.parametrize("kind", sorted(set(EventType) - {EventType.UNKNOWN}))
def test_every_event_type_is_read_as_what_was_written(desk: Desk, kind: str) -> None:
    with desk.open() as log:
        told = log.append(kind, invocation_id="i1", note={"a": [1, None]})
    reading = agent("event-log").read(desk.records()[-1])
    (meaning,) = reading.events
    assert (meaning.type, reading.id, reading.time_ms) == (kind, told.event_id, START_MS)
    assert meaning.data == {"invocation_id": "i1", "note": {"a": [1, None]}}


@pytest.mark.parametrize("value", ["\ud83d", "\u2028\x85\n\r\0", 1 << 80, (1, 2), {"": ""}, "é", -0.0, None, True])
def test_whatever_json_can_hold_comes_back(desk: Desk, value: object) -> None:
    with desk.open() as log:
        log.append("message_added", role="user", content=value, event_id="\ud800é\n")
    record = desk.records()[-1]
    assert (record["content"], record["event_id"]) == (list(value) if isinstance(value, tuple) else value, "\ud800é\n")


def nested(depth: int) -> object:
    value: object = 1
    for _ in range(depth):
        value = [value]
    return value


NOT_EVENTS: dict[str, tuple[str, dict[str, object], str]] = {
    "a type of nobody": ("message_adde", {}, "message_adde"),
    "the type for what is not known": ("unknown", {}, "unknown"),
    "bytes": ("message_added", {"role": "user", "content": b"x"}, "content"),
    "a set inside": ("message_added", {"role": "user", "content": {"a": [{1}]}}, "content"),
    "a key that is no text": ("message_added", {"role": "user", "content": {1: 2}}, "content"),
    "NaN": ("message_added", {"role": "user", "content": [None, {"a": float("nan")}]}, "content"),
    "an infinity": ("message_added", {"usage": (1, float("-inf"))}, "usage"),
    "nested deeper than can be read": ("message_added", {"content": nested(20_000)}, "nested"),  # how deep that is, each Python knows
    "nested deeper than can be written": ("message_added", {"content": nested(100_000)}, "nested"),
    "longer than can be read": ("message_added", {"content": "x" * MAX_LINE_BYTES}, str(MAX_LINE_BYTES)),
    "a time of its own": ("message_added", {"timestamp": "2026-01-01"}, "timestamp"),
    "a type of its own": ("message_added", {"type": "x"}, "type"),
    "a call without its id": ("tool_invoked", {"tool_name": "mail"}, "invocation_id"),
    "an id that is no text": ("message_added", {"event_id": 7}, "event_id"),
    "an empty id": ("message_added", {"event_id": ""}, "event_id"),
}


@pytest.mark.parametrize("name", NOT_EVENTS)
def test_what_is_no_event_is_told_before_anything_is_written(desk: Desk, name: str) -> None:
    kind, fields, said = NOT_EVENTS[name]
    with desk.open() as log:
        before = desk.path.read_bytes()
        with pytest.raises(UsageError, match=said):
            log.append(kind, **fields)  # type: ignore[arg-type] # which is the point
        if "type" not in fields:
            with pytest.raises(UsageError, match=said):
                log.append_many([{"type": "session_end"}, {"type": kind, **fields}])
        assert desk.path.read_bytes() == before
        log.append("message_added", role="user", content="x" * (MAX_LINE_BYTES - 1000))  # just short enough


# --- once ---


def test_an_event_of_the_callers_id_is_written_once(desk: Desk) -> None:
    with desk.open() as log:
        first = log.append("message_added", role="user", content="a", event_id="m-1")
    with desk.open() as log, desk.open() as other:
        for each in (log, other, log):
            again = each.append("message_added", role="user", content="a", event_id="m-1")
            assert (again.is_new, again.offset, again.event_id) == (False, first.offset, "m-1")
        theirs = other.append("message_added", role="user", content="b", event_id="m-2")
        assert log.append("session_end", event_id="m-2") == coldtrail.Appended("m-2", theirs.offset, is_new=False)
        made = log.append("session_end")
        assert other.append("session_end", event_id=made.event_id).is_new is False
    assert desk.ids()[1:] == ["m-1", "m-2", made.event_id]


def test_of_many_at_once_those_that_are_there_already_are_passed_over(desk: Desk) -> None:
    events = [{"type": "message_added", "role": "user", "content": n, "event_id": f"m-{n}"} for n in range(6)]
    with desk.open() as log:
        log.append_many(events[1:3])
        told = log.append_many([*events[:5], events[3]])
        assert [(each.event_id, each.is_new) for each in told] == [
            ("m-0", True), ("m-1", False), ("m-2", False), ("m-3", True), ("m-4", True), ("m-3", False),
        ]  # fmt: skip
        assert told[5].offset == told[3].offset
        size = desk.path.stat().st_size
        assert not any(each.is_new for each in log.append_many(events[:5]))
        assert desk.path.stat().st_size == size
    assert desk.ids()[1:] == ["m-1", "m-2", "m-0", "m-3", "m-4"]


@pytest.mark.parametrize("hashed", [1, 0xFFFFFF << 40], ids=["one slot", "one hash at the end"])
def test_ids_of_one_hash_are_told_apart(desk: Desk, hashed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("coldtrail.writer.places.id_hash", lambda text: hashed)
    with desk.open() as log:
        for is_new in (True, False):
            assert all(log.append("message_added", role="user", content=n, event_id=f"m-{n}").is_new is is_new for n in range(50))
    assert len(desk.records()) == 51


def test_ids_in_glued_and_torn_lines_count_as_they_do_for_readers(desk: Desk) -> None:
    with desk.open() as log:
        log.append("session_end")
        with desk.path.open("ab") as file:
            file.write(b'{"type":"session_end","event_id":"g-1"}{"type":"session_end","event_id":"g-2"}\n{"event_id":"torn"')
        assert [log.append("session_end", event_id=each).is_new for each in ("g-1", "g-2", "torn")] == [False, False, True]


# --- in order ---


def test_ids_sort_as_the_log_does_though_the_clock_is_set_back(desk: Desk) -> None:
    with desk.open() as log, desk.open() as other:
        for jump_ms in (5, 0, -86_400_000, 1, -1, 0, 2, 86_400_000):
            desk.clock.tick(jump_ms)
            log.append("session_end")
            other.append("session_end")
    with desk.open() as log:
        log.append("session_end")
    ids = [str(each) for each in desk.ids()]
    assert ids == sorted(set(ids))
    assert len(ids) == 18
    assert desk.records()[-1]["timestamp"] == instant_text(desk.clock.now_ms), "the time is what the clock said"


def test_ids_go_on_from_those_that_stand_far_above_the_end(desk: Desk) -> None:
    with desk.open() as log:
        made = log.append("session_end")
        log.append_many([{"type": "decision_made", "text": "x" * 500, "event_id": f"own-{n}"} for n in range(2000)])
    desk.clock.tick(-86_400_000)
    with desk.open() as log:
        assert log.last_event_id == "own-1999"
        assert log.append("session_end").event_id > made.event_id


def test_more_events_than_a_millisecond_has_counts_are_in_order_too(desk: Desk) -> None:
    with desk.open() as log:
        ids = [each.event_id for each in log.append_many([{"type": "session_end"}] * 9000)]
    assert ids == sorted(set(ids))


def test_threads_share_a_writer(desk: Desk) -> None:
    with desk.open() as log:
        told: list[coldtrail.Appended] = []
        threads = [threading.Thread(target=lambda: told.extend(log.append("session_end") for _ in range(250))) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    ids = desk.ids()
    assert len(ids) == 2001
    assert ids[1:] == sorted({each.event_id for each in told})
    assert len({each.offset for each in told}) == 2000


# --- expected_last ---


def test_whoever_expects_another_end_is_refused_and_told_the_real_one(desk: Desk) -> None:
    with desk.open() as log, desk.open() as other:
        seen = log.last_event_id
        theirs = other.append("session_end", expected_last=seen)
        before = desk.path.read_bytes()
        with pytest.raises(ConflictError) as caught:
            log.append("session_end", expected_last=seen)
        assert (caught.value.last, caught.value.exit_code) == (theirs.event_id, 4)
        with pytest.raises(ConflictError):
            log.append_many([{"type": "session_end"}] * 2, expected_last=seen)
        assert desk.path.read_bytes() == before
        assert log.append("session_end", expected_last=caught.value.last).is_new


def test_an_event_that_is_there_already_is_no_conflict(desk: Desk) -> None:
    """Who crashed after appending says the same again, and the log's end is its own event by then."""
    with desk.open() as log:
        seen = log.last_event_id
        log.append("session_end", event_id="e-1", expected_last=seen)
        assert not log.append("session_end", event_id="e-1", expected_last=seen).is_new
