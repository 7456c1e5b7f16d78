"""A session restored up to a moment: the agent goes on with it as with one of its own, and with the original too."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from e2e.programs import Codex, GeminiCli, Program
from e2e.test_every_agent import PROGRAMS, SEALED_AT_ONCE, each
from e2e.world import WORD, World

pytestmark = pytest.mark.e2e

LATER_WORD = "MEDLAR"  # stands in the second prompt only
TIMES = re.compile(rb'"(?:timestamp|lastUpdated)":"(20[0-9T:.-]+Z)"')


@pytest.fixture
def program(request: pytest.FixtureRequest) -> Program:
    """The agent that a test names as its parameter."""
    chosen: Program = request.param
    return chosen


def two_turns(world: World) -> tuple[str, Path, bytes]:
    """A session of two turns; gives its id, its log, and what the log was after the first."""
    if isinstance(world.program, GeminiCli):
        sweep_nothing(world.home)
    session_id, log = world.first_turn()
    first = log.read_bytes()
    world.turn(f"remember {LATER_WORD}", session_id)
    return session_id, log, first


def sweep_nothing(home: Path) -> None:
    """Gemini CLI deletes at its next start what it resumed in another minute than it began it: a test may last so long."""
    settings = home / ".gemini" / "settings.json"
    chosen = json.loads(settings.read_bytes())
    chosen["general"]["sessionRetention"] = {"enabled": False}
    settings.write_text(json.dumps(chosen))


def end_of(log: bytes) -> str:
    """The last record of a log, by its number."""
    lines = log.count(b"\n")
    return f"#{lines}"


def moments(world: World, session_id: str, first: bytes) -> Iterator[tuple[str, bytes]]:
    """The end of the first turn in each way that a moment is named, with what the log was then."""
    yield end_of(first), first
    yield max(TIMES.findall(first)).decode(), first
    places: dict[str, set[int]] = {}  # by id, where its records stand: Gemini CLI writes some of them twice
    for event in world.events(session_id):
        places.setdefault(event["id"], set()).add(int(event["position"].split(":")[1].split(".")[0]))
    ids = {min(found): each for each, found in places.items() if each and len(found) == 1 and min(found) < len(first)}
    yield ids[max(ids)], first[: first.index(b"\n", max(ids)) + 1]


def assert_is(forked: dict[str, Any], beginning: bytes) -> None:
    """A new log is the beginning of the old one but for so many lines, and in those only the one id is another."""
    old, new = beginning.split(b"\n"), Path(forked["path"]).read_bytes().split(b"\n")
    assert len(old) == len(new)
    changed = [(was, is_now) for was, is_now in zip(old, new, strict=True) if was != is_now]
    assert len(changed) == forked["changed_lines"]
    for was, is_now in changed:
        assert is_now.count(forked["id"].encode()) == 1
        assert is_now.replace(forked["id"].encode(), forked["from"].encode()) == was


@each(PROGRAMS)
def test_the_agent_goes_on_from_the_end_of_the_first_turn_and_does_not_know_of_the_second(world: World) -> None:
    """By number, by time, by id; the original is not touched, goes on with both, and each fork is captured as a session of its own."""
    session_id, log, first = two_turns(world)
    world.coldtrail("run", "--once")
    whole, inode = log.read_bytes(), log.stat().st_ino

    forks = []
    for moment, beginning in moments(world, session_id, first):
        forked = world.coldtrail_json("restore", session_id, "--at", moment)["forked"]
        assert forked["from"] == session_id
        assert_is(forked, beginning)
        requests = world.resume(forked["id"])
        assert all(WORD in request and LATER_WORD not in request for request in requests), moment
        forks.append(forked)

    assert (log.read_bytes(), log.stat().st_ino) == (whole, inode)
    assert all(WORD in request and LATER_WORD in request for request in world.resume(session_id))
    world.coldtrail("run", "--once")
    assert {session["id"] for session in world.listed()} == {session_id, *(forked["id"] for forked in forks)}
    for forked in forks:
        assert str(forked["path"]) in world.session(forked["id"])["paths"]


@each(PROGRAMS)
def test_a_session_that_is_gone_is_gone_on_with_from_a_moment_in_it(world: World) -> None:
    """Nothing of it is with the agent any more; the fork comes from the archive alone, and brings nothing else back."""
    world.configure(SEALED_AT_ONCE)
    session_id, log, first = two_turns(world)
    world.coldtrail("run", "--once")
    world.delete(session_id)

    forked = world.coldtrail_json("restore", session_id, "--at", end_of(first))["forked"]
    assert_is(forked, first)
    assert all(WORD in request and LATER_WORD not in request for request in world.resume(forked["id"]))
    assert not log.exists()


@each([Codex()])
def test_a_thread_that_codex_has_archived_is_gone_on_with_from_a_moment_in_it(world: World) -> None:
    """Codex resumes no archived thread; the fork of one is none."""
    session_id, _, first = two_turns(world)
    run = world.start_agent("archive", session_id).wait()
    assert run.code == 0, run
    world.coldtrail("run", "--once")
    assert world.cannot_resume(session_id)

    forked = world.coldtrail_json("restore", session_id, "--at", end_of(first))["forked"]
    assert all(WORD in request and LATER_WORD not in request for request in world.resume(forked["id"]))
