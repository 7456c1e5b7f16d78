"""Logs of people's own agents: the documented format is read as it is documented, and opaque folders as they are."""

from __future__ import annotations

import inspect
import json
import re
from pathlib import Path, PurePosixPath

import pytest

import coldtrail.agents.event_log
from coldtrail.agents import agent
from coldtrail.agents.base import Agent, Place, RestoreAdvice
from coldtrail.model import EventType, Reading, Role

EVENTS = agent("event-log")
OPAQUE = agent("jsonl")
DOCUMENTED = inspect.getdoc(coldtrail.agents.event_log) or ""

both = pytest.mark.parametrize("one", [EVENTS, OPAQUE], ids=["event-log", "jsonl"])


def unread() -> bytes:
    raise AssertionError("the path tells whose this is")


def said(one: Agent, record: object) -> list[tuple[str, dict[str, object]]]:
    """The events of a record, plainly."""
    return [(event.type.value, dict(event.data)) for event in one.read(record).events]


# --- both ---


@both
@pytest.mark.parametrize(
    ("path", "owner"),
    [
        ("s1.jsonl", Place("s1", "", Role.MAIN)),
        ("a/b/s1.jsonl", Place("s1", "a/b", Role.MAIN)),
        ("a/s1.json", None),
        ("a/.s1.jsonl", None),
        (".git/s1.jsonl", None),
        ("a/s1.jsonl.gz", None),
    ],
)
def test_each_log_below_the_root_is_a_session_of_its_name_kept_apart_by_its_folder(one: Agent, path: str, owner: Place | None) -> None:
    assert one.place(PurePosixPath(path), unread) == owner


@both
def test_nothing_is_known_of_such_folders_but_what_the_config_says(one: Agent, tmp_path: Path) -> None:
    assert list(one.roots({"HOME": "/h"}, Path("/h"))) == []
    assert list(one.folders) == [""]
    assert one.plain_path(PurePosixPath("s1.jsonl.zst")) is None
    assert one.sweep_days(tmp_path) is None
    assert one.advise(tmp_path, 5, 6, 10**20) == RestoreAdvice(5)
    assert one.resume("s1", "/c") is None


# --- event-log ---


def test_every_event_type_is_documented_and_every_documented_one_is_read() -> None:
    documented = set(re.findall(r"^    ([a-z]+_[a-z]+|checkpoint)\b(?!.*RFC)", DOCUMENTED, re.MULTILINE)) - {"event_id"}
    assert documented == {kind.value for kind in EventType} - {"unknown"}
    for kind in documented:
        assert said(EVENTS, {"type": kind, "field": 1})[0][0] == kind


def test_the_documented_examples_are_read() -> None:
    examples = [json.loads(line) for line in re.findall(r"^    (\{.*\})$", DOCUMENTED, re.MULTILINE)]
    assert [said(EVENTS, example)[0] for example in examples] == [
        ("session_start", {"session_id": "s1", "model": "m"}),
        ("message_added", {"role": "user", "content": "Hello"}),
    ]
    readings = [EVENTS.read(example) for example in examples]
    assert [(reading.id, reading.time_ms) for reading in readings] == [("e1", 1767323045678), ("e2", 1767323046001)]


def test_fields_that_no_one_knows_are_kept() -> None:
    fields = {"state_hash": "h", "event_count": 5, "state_snapshot": {}, "mine": 1}
    assert said(EVENTS, {"type": "checkpoint", "timestamp": 1767323045, "event_id": "e", **fields}) == [("checkpoint", fields)]


def test_a_title_is_the_users_unless_its_rank_says_else() -> None:
    assert said(EVENTS, {"type": "metadata_changed", "title": "T"}) == [("metadata_changed", {"title": "T", "title_rank": 3})]
    assert said(EVENTS, {"type": "metadata_changed", "title": "T", "title_rank": 1})[0][1]["title_rank"] == 1


@pytest.mark.parametrize("kind", ["novelty", "unknown", 5, None])
def test_any_other_type_is_unknown_and_keeps_its_place(kind: object) -> None:
    reading = EVENTS.read({"type": kind, "timestamp": "2026-01-02T03:04:05.678Z", "event_id": "e"})
    assert [dict(event.data) for event in reading.events] == [{"type": kind if isinstance(kind, str) else None}]
    assert (reading.id, reading.time_ms) == ("e", 1767323045678)


def test_a_log_made_again_goes_on_if_it_has_ids_all_new_and_no_beginning() -> None:
    def records(*kinds_and_ids: tuple[str, str | None]) -> list[Reading]:
        return [EVENTS.read({"type": kind, "event_id": each}) for kind, each in kinds_and_ids]

    held = {"e1", "e2"}.__contains__
    assert EVENTS.continues(records(("message_added", "e3")), held)
    assert not EVENTS.continues(records(("session_start", "e3"), ("message_added", "e4")), held)
    assert not EVENTS.continues(records(("message_added", "e2"), ("message_added", "e3")), held)
    assert not EVENTS.continues(records(("message_added", None)), held)
    assert not EVENTS.continues([], held)


# --- jsonl ---


@pytest.mark.parametrize("key", ["timestamp", "ts", "time", "created_at"])
def test_an_opaque_record_has_the_time_of_the_usual_keys(key: str) -> None:
    assert OPAQUE.read({key: "2026-01-02T03:04:05.678Z"}).time_ms == 1767323045678
    assert OPAQUE.read({key: 1767323045.678}).time_ms == 1767323045678
    assert OPAQUE.read({key: 12.5}).time_ms is None  # a span, not a time


def test_a_key_that_holds_no_time_gives_way_to_the_next() -> None:
    assert OPAQUE.read({"timestamp": "soon", "ts": 1767323045}).time_ms == 1767323045000


def test_every_opaque_record_is_unknown_by_its_own_word() -> None:
    assert said(OPAQUE, {"type": "message_added", "content": "x"}) == [("unknown", {"type": "message_added"})]
    assert said(OPAQUE, {"a": 1}) == [("unknown", {"type": None})]
    assert OPAQUE.read([1, 2]).time_ms is None
    assert not OPAQUE.continues([OPAQUE.read({"a": 1})], bool)
