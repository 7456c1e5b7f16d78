"""A session that is followed while the agent moves its log or makes it again: every line is told once, in one chain."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.processes import Process, wait_until
from e2e.programs import ClaudeCode, Program
from e2e.terminal import terminal, trust
from e2e.world import CAPTURE_S, TOOL_WORD, WORD, World

pytestmark = pytest.mark.e2e

Place = tuple[int, int]  # generation and offset of a record


@pytest.fixture
def program() -> Program:
    """Claude Code."""
    return ClaudeCode()


@pytest.fixture(params=[True, False], ids=["beside the daemon", "without a daemon"])
def captured(request: pytest.FixtureRequest, world: World) -> Iterator[None]:
    """With or without a daemon; without one, whoever follows captures what he needs."""
    with world.daemon() if request.param else contextlib.nullcontext():
        yield


def places_in(log: bytes, generation: int) -> list[Place]:
    """Where each line of a log stands."""
    ends = [at + 1 for at, byte in enumerate(log) if byte == 0x0A]
    return [(generation, start) for start in [0, *ends[:-1]]]


def told(follower: Process) -> list[Place]:
    """Where the records stand that were told so far, in the order in which they were."""
    positions = [json.loads(line)["position"] for line in follower.stdout.read_bytes().split(b"\n")[:-1]]
    assert len(set(positions)) == len(positions), "an event was told twice"
    records = [(int(generation), int(rest.split(".")[0])) for generation, rest in (each.split(":") for each in positions)]
    return list(dict.fromkeys(records))


def wait_for(follower: Process, places: list[Place]) -> None:
    """Come back when all these records were told; nothing else may be."""
    wait_until(f"{len(places)} records are told", lambda: len(told(follower)) >= len(places), CAPTURE_S)
    assert told(follower) == places


@pytest.mark.usefixtures("captured")
def test_a_log_that_cd_moves_goes_on_in_the_same_life(world: World) -> None:
    """`/cd` moves the log to another project's folder; what is written there comes behind what was written before."""
    session_id, log = world.first_turn()
    other = world.root / "other"
    other.mkdir()
    trust(world, world.project, other)
    if not world.running_daemon:
        world.coldtrail("run", "--once")
    wait_until("the session is captured", lambda: world.session(session_id), CAPTURE_S)
    follower = world.start_coldtrail("events", session_id, "--follow", "--json")
    wait_for(follower, places_in(log.read_bytes(), 0))

    with terminal(world, "--resume", session_id, "--allowedTools", "Bash") as screen:
        screen.enter(f"/cd {other}")
        screen.wait_for(f"Moved to {other}")
        screen.enter("after the move")
        screen.wait_for("mock answer")
    moved = world.only_log()
    assert (moved.name, log.exists()) == (log.name, False)
    assert moved.parent != log.parent
    wait_for(follower, places_in(moved.read_bytes(), 0))

    if not world.running_daemon:
        world.coldtrail("run", "--once")
    wait_until("the move is known", lambda: world.session(session_id)["paths"] == [str(moved)], CAPTURE_S)
    (stream,) = [each for each in world.coldtrail_json("show", session_id)["streams"] if each["role"] == "main"]
    assert [seen["path"] for seen in stream["paths"]] == [str(log), str(moved)]
    assert [each["relation"] for each in stream["generations"]] == [None]
    assert any(event["data"].get("cwd") == str(other) for event in world.events(session_id))


def test_without_anybody_who_captures_a_log_that_is_made_again_is_named(world: World) -> None:
    """What Claude Code has written anew is in no answer yet, and each of them says so."""
    with world.held_turn(f"remember {WORD}"):
        log = world.only_log()
        session_id = world.program.session_id(log)
        world.coldtrail("run", "--once")
        log.unlink()
    for command in ("state", "events"):
        run = world.coldtrail(command, session_id, code=5)
        assert f"the {log.stat().st_size} bytes that are in {log} now are not captured yet" in run.stderr
    world.coldtrail("run", "--once")
    for command in ("state", "events"):
        assert TOOL_WORD in world.coldtrail(command, session_id, "--json").stdout


@pytest.mark.usefixtures("captured")
def test_a_log_that_is_made_again_in_the_middle_of_a_turn_goes_on_in_a_second_life(world: World) -> None:
    """Claude Code makes the deleted log again without its head: the head is told, then the rest, each once."""
    follower, head, log = None, b"", Path()
    with world.held_turn(f"remember {WORD}"):
        log = world.only_log()
        session_id = world.program.session_id(log)
        if not world.running_daemon:
            world.coldtrail("run", "--once")
        wait_until("the session is captured", lambda: world.session(session_id), CAPTURE_S)
        head = log.read_bytes()
        follower = world.start_coldtrail("events", session_id, "--follow", "--json")
        wait_for(follower, places_in(head, 0))
        log.unlink()
    tail = log.read_bytes()
    assert TOOL_WORD.encode() in tail
    wait_for(follower, [*places_in(head, 0), *places_in(tail, 1)])
    (stream,) = world.coldtrail_json("show", session_id)["streams"]
    assert [each["relation"] for each in stream["generations"]] == [None, "continues"]
