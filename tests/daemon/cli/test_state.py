"""`coldtrail state`: what holds in a session at a moment, and the proof of it."""

from __future__ import annotations

import json

import pytest

from coldtrail.settings import open_home
from coldtrail.stage.checkpoint import Policy, advance
from daemon.cli.desk import FIRST, JANUARY_MS, Desk

OFTEN = Policy(every_events=1, least_bytes=0, cost_factor=0)


def checkpointed(desk: Desk) -> None:
    """One session with a checkpoint after each record."""
    desk.converse()
    desk.capture()
    with open_home(desk.settings()) as home:
        for row in home.catalog.all_streams():
            advance(home, row, OFTEN)


def test_the_document_has_what_is_promised(desk: Desk) -> None:
    desk.captured()
    said = desk.json("state", FIRST)
    assert {"key", "id", "position", "state_hash", "checkpoint", "replayed", "gaps", "state"} <= set(said)
    assert (said["id"], said["replayed"], said["gaps"], said["verified"], said["notes"]) == (FIRST, 4, [], None, [])
    assert len(said["state_hash"]) == 64
    assert said["state_hash_short"] == said["state_hash"][:16]
    state = said["state"]
    assert [(each["role"], each["content"]) for each in state["messages"]] == [
        ("user", "list the files"),
        ("assistant", [{"type": "text", "text": "one file"}]),
    ]
    assert state["completed_tools"] == [
        {"invocation_id": "toolu_1", "tool_name": "Bash", "input": {"command": "ls"}, "output": "a.txt", "duration_ms": None}
    ]
    assert (state["pending_tools"], state["decisions"]) == ({}, [])
    assert state["environment"]["cwd"] == "/somebody/demo"
    assert set(state["metadata"]) == {"title", "created", "updated", "usage"}
    assert {"summary_applied_at", "event_count", "last_event"} <= set(state)


def test_at_a_moment_a_tool_that_was_not_heard_of_is_pending(desk: Desk) -> None:
    desk.captured()
    said = desk.json("state", FIRST, "--at", "#2")
    assert said["state"]["pending_tools"] == {
        "toolu_1": {"tool_name": "Bash", "input": {"command": "ls"}, "started_at": "2026-01-01T00:00:01.000Z"}
    }
    assert desk.json("state", FIRST, "--before", "#3")["state_hash"] == said["state_hash"]
    assert desk.json("state", FIRST, "--at", "2026-01-01T00:00:01Z")["state_hash"] == said["state_hash"]
    assert desk.json("state", FIRST, "--before", "#1")["position"] is None
    assert "pending   Bash  toolu_1" in desk.run("state", FIRST, "--at", "#2").stdout


def test_it_says_where_it_began_and_that_it_is_proven(desk: Desk) -> None:
    checkpointed(desk)
    said = desk.json("state", FIRST, "--verify")
    assert (said["verified"], said["replayed"]) == (True, 0)
    assert said["checkpoint"] is not None
    assert said["position"] != said["checkpoint"]
    text = desk.run("state", FIRST, "--verify").stdout
    assert f"recovered   from checkpoint {said['checkpoint']}, 0 records replayed" in text
    assert "verified by a whole replay" in text
    assert "tools       1 completed, 0 pending" in text
    assert "  user      list the files" in text
    assert "from the start of the log" in desk.run("state", FIRST, "--before", "#2").stdout


def test_a_sub_agents_log_is_named_by_its_stream(desk: Desk) -> None:
    log = desk.captured()
    line = {"type": "user", "uuid": "s1", "isSidechain": True, "sessionId": FIRST, "message": {"role": "user", "content": "go"}}
    child = desk.write(log.with_suffix("") / "subagents" / "agent-a1.jsonl", line)
    desk.capture()
    (message,) = desk.json("state", FIRST, "--stream", child)["state"]["messages"]
    assert message["content"] == "go"


def test_a_log_that_names_another_state_than_it_has_ends_with_1(desk: Desk) -> None:
    desk.configure(f'[[source]]\nname = "mine"\nagent = "event-log"\nroot = "{desk.user}/logs"\n')
    wrong = {"type": "checkpoint", "state_hash": "0" * 16, "event_count": 1}
    desk.write(desk.user / "logs" / "s1.jsonl", {"type": "session_start", "session_id": "s1"}, wrong)
    desk.capture()
    assert desk.json("state", "s1")["differing"] == []
    said = desk.json("state", "s1", "--verify", code=1)
    assert (said["verified"], said["differing"]) == (False, [said["position"]])
    text = desk.run("state", "s1", "--verify", code=1).stdout
    assert f"the checkpoint event at {said['position']} names the state 0000000000000000 after 1 events; replayed it is" in text
    assert "NOT what a whole replay gives" in text


@pytest.mark.parametrize(("arguments", "code"), [(("--at", "nowhere"), 3), (("--at", "#99"), 3), (("--at", "#1", "--before", "#2"), 2)])
def test_a_moment_that_is_none_is_told(desk: Desk, arguments: tuple[str, ...], code: int) -> None:
    desk.captured()
    desk.run("state", FIRST, *arguments, code=code)


def test_a_session_that_is_not_there_ends_with_3(desk: Desk) -> None:
    desk.captured()
    desk.run("state", "nobody", code=3)


def test_what_cannot_be_read_is_named_and_ends_with_5(desk: Desk) -> None:
    desk.captured().unlink()
    desk.damage()
    result = desk.run("state", FIRST, "--json", code=5)
    said = json.loads(result.stdout)
    (gap,) = said["gaps"]
    assert (gap["generation"], gap["start"]) == (0, 0)
    assert "could not be read" in result.stderr


def test_control_characters_of_a_log_do_not_reach_the_terminal(desk: Desk) -> None:
    desk.converse(said="red \x1b[31m alert", at_ms=JANUARY_MS)
    desk.configure(f'[[source]]\nname = "mine"\nagent = "event-log"\nroot = "{desk.user}/logs"\n')
    named = {"type": "environment_changed", "key\x1b[31m": "value\x1b[31m"}
    said = {"type": "message_added", "role": "user\x1b[31m", "content": "x\x1b[31m"}
    desk.write(desk.user / "logs" / "s1.jsonl", named, said)
    desk.capture()
    assert "\x1b" not in desk.run("state", FIRST).stdout
    assert "\x1b" not in desk.run("state", "s1").stdout
