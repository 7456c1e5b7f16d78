"""Whatever a record holds, every agent makes something of it and none raises."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from coldtrail.agents import agents
from coldtrail.agents.base import Agent
from coldtrail.model import EventType, Meaning, Reading

Logs = Callable[[str], Iterator[tuple[Path, list[object]]]]

ODD: tuple[object, ...] = (
    None, True, False, 0, -1, 10**400, 1.5, math.nan, math.inf, "", "x", "\ud800", [], [[]], [None], {}, {"type": []}, [{}],
)  # fmt: skip

KEYS = (
    "type", "uuid", "parentUuid", "timestamp", "message", "content", "role", "usage", "id", "subtype", "attachment", "prompt", "data",
    "toolUseResult", "durationMs", "compactMetadata", "isCompactSummary", "isMeta", "worktreeSession", "sessionId", "summary",
    "payload", "call_id", "name", "arguments", "output", "git", "history_base", "source", "info", "duration", "item", "record_type",
    "$set", "$rewindTo", "messages", "toolCalls", "thoughts", "tokens", "directories", "startTime", "lastUpdated", "result", "status",
    "event_id", "cwd", "ts", "time", "created_at", "title", "text",
)  # fmt: skip
WORDS = (
    "user", "assistant", "system", "attachment", "progress", "summary", "file-history-snapshot", "relocated", "worktree-state", "tag",
    "tool_use", "tool_result", "thinking", "compact_boundary", "queued_command", "session_meta", "response_item", "event_msg",
    "turn_context", "compacted", "world_state", "message", "reasoning", "function_call", "function_call_output", "web_search_call",
    "token_count", "thread_name_updated", "thread_rolled_back", "item_completed", "gemini", "info", "session_start", "metadata_changed",
)  # fmt: skip

scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.sampled_from(WORDS)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS) | st.text(max_size=3), inner, max_size=6),
    max_leaves=25,
)

# One whole record of each shape; every value in each is then replaced by every odd one.
WHOLE: tuple[dict[str, object], ...] = (
    {"type": "user", "uuid": "u", "parentUuid": None, "sessionId": "s", "cwd": "/c", "gitBranch": "b", "version": "1",
     "message": {"role": "user", "content": [
        {"type": "tool_result", "tool_use_id": "t", "content": "x", "is_error": True}, {"type": "text", "text": "y"}]},
     "toolUseResult": {"durationMs": 5}, "timestamp": "2026-01-02T03:04:05Z"},
    {"type": "user", "isCompactSummary": True, "message": {"content": [{"type": "text", "text": "x"}]}},
    {"type": "assistant", "parentUuid": "p", "message": {"id": "m", "model": "m", "usage": {"input_tokens": 1}, "content": [
        {"type": "thinking", "thinking": "t"}, {"type": "text", "text": "x"}, {"type": "tool_use", "id": "i", "name": "n", "input": {}}]}},
    {"type": "system", "subtype": "compact_boundary", "compactMetadata": {"trigger": "auto", "preTokens": 5}, "logicalParentUuid": "p"},
    {"type": "system", "subtype": "turn_duration", "durationMs": 5, "content": ""},
    {"type": "attachment", "attachment": {"type": "queued_command", "prompt": "x"}},
    {"type": "progress", "data": {"type": "bash_progress"}, "parentToolUseID": "t"},
    {"type": "worktree-state", "worktreeSession": {"worktreePath": "/w", "worktreeBranch": "b"}},
    {"type": "custom-title", "customTitle": "t"},
    {"type": "session_meta", "payload": {
     "id": "s", "cwd": "/c", "git": {"branch": "b"}, "forked_from_id": "f", "history_base": {"thread_id": "h"},
     "source": {"subagent": {"thread_spawn": {"parent_thread_id": "p"}}}}},
    {"type": "response_item", "payload": {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "x"}]}},
    {"type": "response_item", "payload": {"type": "reasoning", "summary": [{"text": "x"}]}},
    {"type": "response_item", "payload": {"type": "function_call", "call_id": "c", "name": "n", "arguments": "{}"}},
    {"type": "response_item", "payload": {"type": "function_call_output", "call_id": "c", "output": {"success": False}}},
    {"type": "event_msg", "payload": {"type": "exec_command_end", "call_id": "c", "duration": {"secs": 1, "nanos": 5}, "exit_code": 0}},
    {"type": "event_msg", "payload": {"type": "item_completed", "item": {"id": "c", "status": "completed", "duration": {"secs": 1}}}},
    {"type": "event_msg", "payload": {"type": "token_count", "info": {"total_token_usage": {"input_tokens": 1}}}},
    {"type": "event_msg", "payload": {"type": "thread_rolled_back", "num_turns": 2}},
    {"type": "turn_context", "payload": {"cwd": "/c", "model": "m", "sandbox_policy": {"mode": "x"}}},
    {"type": "compacted", "payload": {"message": "x", "replacement_history": []}},
    {"type": "world_state", "payload": {"state": {"model": "m"}}},
    {"id": "s", "timestamp": "2026-01-02T03:04:05Z", "git": {"branch": "b"}},
    {"record_type": "state"},
    {"sessionId": "s", "projectHash": "h", "startTime": "2026-01-02T03:04:05Z", "lastUpdated": "x", "directories": ["/c"], "summary": "t",
     "messages": [{"id": "m", "type": "user", "content": "x"}]},
    {"$set": {"messages": [{"id": "m", "type": "user", "content": [{"text": "<session_context>"}]}], "lastUpdated": "x"}},
    {"$set": {"directories": ["/c"], "summary": "t"}},
    {"$rewindTo": "m"},
    {"id": "m", "type": "gemini", "content": "x", "thoughts": [{"subject": "s", "description": "d"}], "tokens": {"input": 1}, "model": "m",
     "toolCalls": [{"id": "t", "name": "n", "args": {}, "status": "error", "result": [{"functionResponse": {}}]}]},
    {"id": "m", "type": "user", "content": [{"functionResponse": {"id": "t"}}]},
    {"type": "metadata_changed", "event_id": "e", "timestamp": 1767323045, "title": "t"},
)  # fmt: skip


def is_sound(reading: Reading) -> bool:
    """Whether a reading keeps the promises of its type, which the type checker cannot see through JSON."""
    events: tuple[object, ...] = reading.events
    kinds: list[object] = [event.type for event in reading.events]
    data: list[object] = [event.data for event in reading.events]
    words: tuple[object, ...] = (reading.id, reading.parent, reading.cwd)
    return (
        bool(events)
        and all(type(each) is Meaning for each in events)
        and all(type(each) is EventType for each in kinds)
        and all(type(each) is dict for each in data)
        and all(each is None or (type(each) is str and each) for each in words)
        and (reading.time_ms is None or (type(reading.time_ms) is int and reading.time_ms >= 0))
    )


def places(value: object, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """The way to every value inside a value."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in inner:
        yield (*path, key)
        yield from places(each, (*path, key))


def put(value: object, path: tuple[str | int, ...], odd: object) -> object:
    """A copy of the value with something else at one place."""
    changed = copy.deepcopy(value)
    at: object = changed
    for key in path[:-1]:
        at = at[key]  # type: ignore[index]
    at[path[-1]] = odd  # type: ignore[index]
    return changed


every_agent = pytest.mark.parametrize("agent", agents().values(), ids=list(agents()))


@every_agent
@given(value=values)
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_any_json_is_read(agent: Agent, value: object) -> None:
    assert is_sound(agent.read(value))


@every_agent
def test_a_record_with_any_one_value_exchanged_is_read(agent: Agent) -> None:
    count = 0
    for whole in WHOLE:
        for path in places(whole):
            for odd in ODD:
                assert is_sound(agent.read(put(whole, path, odd))), (path, odd)
                count += 1
    assert count > 3000


@every_agent
def test_a_record_without_any_one_of_its_keys_is_read(agent: Agent) -> None:
    for whole in WHOLE:
        for key in whole:
            assert is_sound(agent.read({other: each for other, each in whole.items() if other != key}))


@every_agent
@pytest.mark.parametrize("key", ["content", "message", "payload", "$set", "messages", "input"])
def test_deep_nesting_is_read(agent: Agent, key: str) -> None:
    deep: object = "bottom"
    for _ in range(900):
        deep = {key: [deep]}
    for kind in ("user", "assistant", "response_item", "gemini", "message_added"):
        assert is_sound(agent.read({"type": kind, "id": "m", key: deep}))


def test_every_real_record_of_every_agent_is_read_by_every_agent(logs: Logs) -> None:
    count = 0
    for path, records in logs("."):
        for record in records:
            for agent in agents().values():
                assert is_sound(agent.read(record)), (agent.name, path)
            count += 1
    assert count > 40_000
