"""Gemini CLI: it deletes what it cannot read and what is old inside, and leaves a stub beside a log that it resumes."""

from __future__ import annotations

import os
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from e2e.programs import GeminiCli, Program
from e2e.world import TOOL_WORD, WORD, World

pytestmark = pytest.mark.e2e

IN_NAME = "%Y-%m-%dT%H-%M"  # the minute in a log's name


@pytest.fixture
def program() -> Program:
    """Gemini CLI."""
    return GeminiCli()


def make_older(log: Path, by: timedelta) -> Path:
    """Make a log what it would be had it been written so much earlier: times inside, name and mtime; gives its new path."""
    earlier = datetime.now(UTC) - by
    today = re.compile(rb"\b20\d\d-\d\d-\d\dT(?=\d\d:\d\d:\d\d\.\d{3}Z)")
    old = log.with_name(f"session-{earlier.strftime(IN_NAME)}-{log.stem[-8:]}.jsonl")
    old.write_bytes(today.sub(earlier.strftime("%Y-%m-%dT").encode(), log.read_bytes()))
    os.utime(old, (earlier.timestamp(), earlier.timestamp()))
    log.unlink()
    return old


def test_a_headless_log_that_gemini_makes_and_then_deletes_comes_back_whole(world: World) -> None:
    """Deleted during a tool call the log is made again without its head, and the next start deletes that; we have both parts."""
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

        world.turn("something else")
        assert not log.exists()
        world.wait_for_state(session_id, "gone")

        world.coldtrail("restore", session_id)
        assert log.read_bytes() == head + tail
        assert all(WORD in request and TOOL_WORD in request for request in world.resume(session_id))


def test_the_stub_that_a_resume_leaves_beside_the_log_is_of_the_same_session(world: World) -> None:
    """A resume in another minute makes a second file with the same id: one session, both files captured and restored."""
    session_id, log = world.first_turn()
    log = make_older(log, by=timedelta(hours=2))
    world.resume(session_id)
    written = world.bundle(session_id)
    assert len(written) == 2

    world.coldtrail("run", "--once")
    assert [session["id"] for session in world.listed()] == [session_id]
    world.delete(session_id)
    assert world.cannot_resume(session_id)
    world.coldtrail("restore", session_id)

    assert world.bundle(session_id) == written
    assert all(WORD in request for request in world.resume(session_id))


def test_a_session_too_old_for_gemini_is_restored_with_a_warning_and_can_be_resumed_at_once(world: World) -> None:
    """Gemini deletes by the time inside the log, so a restore cannot protect it, only say so; a resume at once keeps it."""
    session_id, log = world.first_turn()
    log = make_older(log, by=timedelta(days=60))
    written = world.bundle(session_id)
    world.coldtrail("run", "--once")

    world.turn("something else")
    assert not log.exists()
    world.coldtrail("run", "--once")
    assert world.session(session_id)["state"] == "gone"

    run = world.coldtrail("restore", session_id)
    assert world.bundle(session_id) == written  # its old mtime too
    assert re.search("delete|remove|retention", run.stdout + run.stderr, re.IGNORECASE), run
    assert all(WORD in request for request in world.resume(session_id))
    assert log.read_bytes().startswith(written[log].data)
