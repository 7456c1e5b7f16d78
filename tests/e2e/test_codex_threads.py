"""Codex threads that are forked and reverted: their logs go on from parts of other ones, which they name and do not copy."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from e2e.app_server import app_server
from e2e.processes import wait_until
from e2e.programs import Codex, Program
from e2e.test_conversation import recovered, sent_back
from e2e.world import CAPTURE_S, World

pytestmark = pytest.mark.e2e


@pytest.fixture
def program() -> Program:
    """Codex CLI."""
    return Codex()


def prompts(world: World, session_id: str) -> list[str]:
    """What was typed in a session, as coldtrail has it."""
    return [text for role, text in recovered(world, session_id).said if role == "user" and not text.startswith("<environment_context>")]


def logs(world: World) -> list[Path]:
    """Every rollout there is."""
    return sorted((world.home / ".codex" / "sessions").rglob("rollout-*.jsonl"))


def base_of(log: Path) -> dict[str, object]:
    """What a rollout says that comes before it."""
    with log.open("rb") as lines:
        base: dict[str, object] = json.loads(lines.readline())["payload"].get("history_base") or {}
        return base


def forks(world: World) -> tuple[str, str, str]:
    """A thread of two turns, a fork of its first one, and a fork of that; each with a turn of its own behind it."""
    with app_server(world) as server:
        thread = server.begin(str(world.project))
        first = server.turn(thread, "first")
        server.turn(thread, "second")
        fork = server.fork(thread, lastTurnId=first)
        server.turn(fork, "in the fork")
        last = server.fork(fork)
        server.turn(last, "in the fork of the fork")
    return thread, fork, last


def reverted(world: World) -> str:
    """A thread of which the second turn was taken back, and another one put in its place; then that again."""
    with app_server(world) as server:
        thread = server.begin(str(world.project))
        server.turn(thread, "first")
        for taken_back in ("second", "third"):
            server.ask("thread/revert", threadId=thread, beforeTurnId=server.turn(thread, taken_back))
        server.turn(thread, "fourth")
    return thread


def test_a_fork_is_told_as_codex_tells_it_with_what_it_does_not_hold_itself(world: World) -> None:
    """Neither fork's file holds what was said before it; the state does, and it is what Codex sends back."""
    thread, fork, last = forks(world)
    assert [bool(base_of(log)) for log in logs(world)] == [False, True, True]
    for session_id, said in (
        (last, ["first", "in the fork", "in the fork of the fork"]),
        (fork, ["first", "in the fork"]),
        (thread, ["first", "second"]),
    ):
        assert prompts(world, session_id) == said
        ours = recovered(world, session_id)
        theirs = sent_back(world, session_id)
        assert (ours.said, ours.calls) == (theirs.said, theirs.calls)
    assert recovered(world, fork).said == sent_back(world, fork).said  # after a resume, too


def test_a_fork_whose_threads_are_gone_comes_back_with_them_and_goes_on(world: World) -> None:
    """What it was forked from is put back first; the last thread is resumed with everything."""
    *_, last = forks(world)
    ours = recovered(world, last)
    written = {log: log.read_bytes() for log in logs(world)}
    for log in written:
        log.unlink()
    world.coldtrail("run", "--once")
    assert world.cannot_resume(last)
    world.coldtrail("restore", last)
    assert {log: log.read_bytes() for log in logs(world)} == written
    assert sent_back(world, last) == ours


def test_a_fork_without_its_thread_says_what_is_missing(world: World) -> None:
    """A gap names the log that was never seen; the answer is that not all is known."""
    thread, fork, _ = forks(world)
    for log in logs(world):
        if log.stem.endswith(thread):
            log.unlink()
    world.coldtrail("run", "--once")
    run = world.coldtrail("state", fork, "--json", code=5)
    (gap,) = json.loads(run.stdout)["gaps"]
    assert thread in gap["what"]


def test_a_fork_of_a_reverted_thread_is_told_as_codex_tells_it(world: World) -> None:
    """It names the rollout that the revert made, not the thread."""
    with app_server(world) as server:
        thread = server.begin(str(world.project))
        server.turn(thread, "first")
        server.ask("thread/revert", threadId=thread, beforeTurnId=server.turn(thread, "taken back"))
        server.turn(thread, "second")
        fork = server.fork(thread)
        server.turn(fork, "in the fork")
    assert prompts(world, fork) == ["first", "second", "in the fork"]
    assert recovered(world, fork) == sent_back(world, fork)
    for log in logs(world):
        log.unlink()
    world.coldtrail("run", "--once")
    world.coldtrail("restore", fork)
    assert recovered(world, fork) == sent_back(world, fork)


def test_a_reverted_thread_is_one_session_and_told_as_codex_tells_it(world: World) -> None:
    """Each revert begins a further file, under an id of its own; what was taken back is in the store and not in the state."""
    thread = reverted(world)
    assert len(logs(world)) == 3
    assert prompts(world, thread) == ["first", "fourth"]
    (session,) = world.listed()
    assert (session["id"], len(session["paths"])) == (thread, 3)
    ours = recovered(world, thread)
    theirs = sent_back(world, thread)
    assert (ours.said, ours.calls) == (theirs.said, theirs.calls)
    assert prompts(world, thread) == ["first", "fourth", "go on"]


def test_who_follows_a_thread_is_told_where_it_goes_on_after_a_revert(world: World) -> None:
    """The further file is another log: it is named, and not mixed with the one that is followed."""
    with world.daemon(), app_server(world) as server:
        thread = server.begin(str(world.project))
        server.turn(thread, "first")
        turn = server.turn(thread, "taken back")
        (log,) = logs(world)
        world.wait_for_bytes(thread, log.stat().st_size)
        follower = world.start_coldtrail("events", thread, "--follow", "--json")
        wait_until("it is followed", lambda: b"taken back" in follower.stdout.read_bytes(), CAPTURE_S)
        server.ask("thread/revert", threadId=thread, beforeTurnId=turn)
        server.turn(thread, "ALMOND")
        (later,) = set(logs(world)) - {log}
        wait_until("the further log is named", lambda: f"goes on in {later}" in follower.stderr.read_text(), CAPTURE_S)
        assert b"ALMOND" not in follower.stdout.read_bytes()


@pytest.mark.parametrize("knows", [True, False], ids=["with its database", "without its database"])
def test_a_reverted_thread_that_is_gone_comes_back_and_goes_on(world: World, *, knows: bool) -> None:
    """All its files are put back; with the database or without, Codex goes on with the newest."""
    thread = reverted(world)
    ours = recovered(world, thread)
    written = {log: log.read_bytes() for log in logs(world)}
    for log in written:
        log.unlink()
    if not knows:
        for path in (world.home / ".codex").glob("*.sqlite*"):
            path.unlink()
    world.coldtrail("run", "--once")
    world.coldtrail("restore", thread)
    assert {log: log.read_bytes() for log in logs(world)} == written
    assert sent_back(world, thread).said == ours.said


def test_a_fork_and_a_reverted_thread_are_gone_on_with_from_a_moment_in_them(world: World) -> None:
    """The copy goes on from the same part of the same log as the original."""
    _, fork, _ = forks(world)
    world.turn("later", fork)
    for session_id in (fork, reverted(world)):
        world.turn("and later", session_id)
        world.coldtrail("run", "--once")
        turns = [
            event for event in world.events(session_id) if event["type"] == "message_added" and "later" in str(event["data"]["content"])
        ]
        copy = world.coldtrail_json("restore", session_id, "--before", turns[0]["position"])["forked"]["id"]
        ours = recovered(world, copy)
        assert "later" not in str(ours.said)
        assert ours.said == sent_back(world, copy).said
