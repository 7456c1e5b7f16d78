"""Claude Code: its sweep, a log that vanishes under it, and sessions of many files."""

from __future__ import annotations

import os
import time
import uuid
from pathlib import Path

import pytest

from e2e.delegating_models import CHILD_PROMPT, DELEGATE
from e2e.processes import TURN_S, wait_until
from e2e.programs import ClaudeCode, Program
from e2e.world import TOOL_WORD, WORD, World

pytestmark = pytest.mark.e2e

DAY_S = 86_400


@pytest.fixture
def program() -> Program:
    """Claude Code."""
    return ClaudeCode()


def make_old(path: Path, days: float = 40) -> None:
    """Give a file, or a folder and all in it, a modification time as if untouched for so long."""
    then = time.time() - days * DAY_S
    for each in (path, *path.rglob("*")):
        os.utime(each, (then, then))


def let_it_sweep(world: World) -> None:
    """Start another session and keep it busy until Claude Code's own sweep, some five seconds later, is through."""
    swept = world.home / ".claude" / ".last-cleanup"  # written when a sweep ends; holds off the next one for a day
    swept.unlink(missing_ok=True)
    with world.held_turn("something else"):
        wait_until("Claude Code sweeps its old sessions", swept.exists, TURN_S)


def test_a_swept_session_comes_back_and_is_not_swept_again(world: World) -> None:
    """A 40-day-old session is swept; `ls` says gone; the restored one outlives the next sweep and can be resumed."""
    session_id, log = world.first_turn()
    make_old(log.parent)
    written = log.read_bytes()
    world.coldtrail("run", "--once")

    let_it_sweep(world)
    assert not log.exists()
    world.coldtrail("run", "--once")
    assert world.session(session_id)["state"] == "gone"

    world.coldtrail("restore", session_id)
    assert log.read_bytes() == written
    assert abs(time.time() - log.stat().st_mtime) < DAY_S

    bait = log.with_name(f"{uuid.uuid4()}.jsonl")  # proves that the second sweep really sweeps
    bait.write_bytes(written)
    make_old(bait)
    let_it_sweep(world)
    assert not bait.exists()
    assert log.read_bytes() == written
    assert all(WORD in request for request in world.resume(session_id))


def test_a_log_deleted_during_a_tool_call_is_restored_as_the_union_of_both_parts(world: World) -> None:
    """Claude Code makes the file again without its head; both parts come back, once and in order, over the live second part."""
    with world.daemon():
        with world.held_turn(f"remember {WORD}"):
            log = world.only_log()
            session_id = world.program.session_id(log)
            head = world.wait_for_capture(session_id)[log].data
            log.unlink()
        tail = log.read_bytes()
        assert TOOL_WORD.encode() in tail
        assert TOOL_WORD.encode() not in head
        world.wait_for_bytes(session_id, len(head + tail))

        world.coldtrail("restore", session_id, "--overwrite")
        assert log.read_bytes() == head + tail

        assert all(WORD in request and TOOL_WORD in request for request in world.resume(session_id))
        assert log.read_bytes().startswith(head + tail)


def test_an_output_that_was_too_long_is_told_with_the_file_that_has_all_of_it(world: World) -> None:
    """The log has only how it begins; the file is one of the session's."""
    world.set_tool("seq 1 20000\n")
    session_id, _ = world.first_turn()
    world.coldtrail("run", "--once")
    (done,) = [event["data"] for event in world.events(session_id) if event["type"] == "tool_completed"]
    output = Path(done["output_path"])
    assert output in world.bundle(session_id)
    assert output.read_text().endswith("\n20000\n")


def test_a_session_with_a_sub_agent_and_a_long_tool_output_is_one_bundle(world: World) -> None:
    """The log, the sub-agent's log, its metadata and the output file are captured, listed and restored as one session."""
    world.set_tool("seq 1 20000\n")
    world.turn(f"remember {WORD} and {DELEGATE}")
    session_id = world.program.session_id(world.only_log())
    written = world.bundle(session_id)
    kinds = sorted("".join(path.suffixes) for path in written)
    assert kinds[:3] == [".jsonl", ".jsonl", ".meta.json"]
    assert set(kinds[3:]) == {".txt"}
    assert any(CHILD_PROMPT.encode() in file.data for path, file in written.items() if path.parent.name == "subagents")

    world.coldtrail("run", "--once")
    assert [session["id"] for session in world.listed()] == [session_id]
    world.delete(session_id)
    assert world.cannot_resume(session_id)
    world.coldtrail("restore", session_id)

    assert world.bundle(session_id) == written
    assert all(WORD in request for request in world.resume(session_id))


def test_an_agent_that_is_new_on_this_machine_is_found_by_the_running_daemon(world: World) -> None:
    """The daemon starts where no agent ever ran; the first session of the first one is captured within a scan period."""
    world.configure('[capture]\nscan_every = "2s"\n')
    (world.home / ".claude").rmdir()
    with world.daemon():
        session_id, log = world.first_turn()
        assert world.wait_for_capture(session_id)[log].data == log.read_bytes()
