"""The real agents' own files: never taken from a running session; of a finished one they go, come back, and can be resumed."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from coldtrail.agents import agents
from coldtrail.home import Home
from coldtrail.layout import Layout
from coldtrail.stage.reclaim import Act, Outcome, Terms, pending, reclaim
from e2e.programs import ClaudeCode, Codex, Program
from e2e.world import TOOL_WORD, WORD, World

pytestmark = pytest.mark.e2e

AT_ONCE = Terms(after_ms=0, wait_ms=0)
WITH_A_WAIT = Terms(after_ms=0)
PROGRAMS: tuple[Program, ...] = (ClaudeCode(), Codex())


@pytest.fixture
def program(request: pytest.FixtureRequest) -> Program:
    """Claude Code, unless the test says otherwise."""
    chosen: Program = getattr(request, "param", PROGRAMS[0])
    return chosen


each_program = pytest.mark.parametrize("program", PROGRAMS, ids=[each.agent for each in PROGRAMS], indirect=True)


@pytest.fixture(autouse=True)
def _sealed_at_once(world: World) -> None:
    world.configure('[compact]\nafter = "0s"\n')


@contextmanager
def opened(world: World, *, later_ms: int = 0) -> Iterator[Home]:
    """The world's coldtrail home, `later_ms` from now."""
    with Home.open(Layout.at(world.root / "trail"), agents(), lambda: time.time_ns() // 1_000_000 + later_ms) as home:
        yield home


def reclaimed(world: World, session_id: str, terms: Terms, *, later_ms: int = 0) -> Outcome:
    """One step of reclaiming a session of the agent's."""
    with opened(world, later_ms=later_ms) as home:
        (row,) = home.catalog.sessions_with_id(session_id)
        return reclaim(home, row.key, terms)


@each_program
def test_a_running_session_keeps_its_files(world: World) -> None:
    """Captured and sealed as far as it goes, and nothing is written to it just now."""
    with world.held_turn(f"remember {WORD}"):
        log = world.only_log()
        session_id = world.program.session_id(log)
        world.coldtrail("run", "--once")
        before = log.stat()
        outcome = reclaimed(world, session_id, AT_ONCE)
        assert outcome.act is Act.KEPT
        assert outcome.reason.startswith("busy: ")
        assert log.stat().st_ino == before.st_ino
    assert TOOL_WORD.encode() in log.read_bytes()


@each_program
def test_a_finished_session_goes_is_restored_and_can_be_resumed(world: World) -> None:
    session_id, log = world.first_turn()
    written = world.bundle(session_id)
    world.coldtrail("run", "--once")
    outcome = reclaimed(world, session_id, AT_ONCE)
    assert (outcome.act, outcome.bytes) == (Act.RECLAIMED, sum(len(file.data) for file in written.values())), outcome.reason
    assert world.bundle(session_id) == {}
    assert world.cannot_resume(session_id)
    world.coldtrail("run", "--once")
    assert world.session(session_id)["state"] == "gone"

    world.coldtrail("restore", session_id)
    assert {path: file.data for path, file in world.bundle(session_id).items()} == {path: file.data for path, file in written.items()}
    assert all(WORD in request for request in world.resume(session_id))
    assert log.read_bytes().startswith(written[log].data)


@pytest.mark.parametrize("program", [Codex()], ids=["codex"], indirect=True)
def test_codex_keeps_what_it_has_open_though_it_has_no_lock(world: World) -> None:
    """Its lock is a hint; that it has the file open is certain."""
    with world.held_turn(f"remember {WORD}"):
        log = world.only_log()
        session_id = world.program.session_id(log)
        world.coldtrail("run", "--once")
        (world.home / ".codex" / "thread-writer-locks" / f"{session_id}.lock").unlink()
        outcome = reclaimed(world, session_id, AT_ONCE)
        assert outcome.act is Act.KEPT
        assert "open: pid" in outcome.reason
    assert TOOL_WORD.encode() in log.read_bytes()


def test_a_session_that_runs_on_though_its_marker_is_gone_loses_nothing(world: World) -> None:
    """Claude Code makes its log again without its head; what was set aside goes when it is proven that both parts are held."""
    with world.held_turn(f"remember {WORD}"):
        log = world.only_log()
        session_id = world.program.session_id(log)
        world.coldtrail("run", "--once")
        head = log.read_bytes()
        for mark in (world.home / ".claude" / "sessions").glob("*.json"):
            mark.unlink()
        outcome = reclaimed(world, session_id, WITH_A_WAIT)
        assert outcome.act is Act.SET_ASIDE, outcome.reason
        assert not log.exists()
    tail = log.read_bytes()
    assert TOOL_WORD.encode() in tail
    assert head[:200] not in tail
    world.coldtrail("run", "--once")  # no config asks for reclaim: what waits is undone
    with opened(world) as home:
        assert pending(home) == []
    world.coldtrail("restore", session_id, "--overwrite")
    assert log.read_bytes() == head + tail
    assert all(WORD in request and TOOL_WORD in request for request in world.resume(session_id))


def test_a_session_that_is_resumed_while_its_files_wait_cannot_be_found_and_is_restored(world: World) -> None:
    """The agent says that there is none; `restore` gives it back from the archive, and what waits goes."""
    session_id, log = world.first_turn()
    written = log.read_bytes()
    world.coldtrail("run", "--once")
    assert reclaimed(world, session_id, WITH_A_WAIT).act is Act.SET_ASIDE
    assert world.cannot_resume(session_id)
    world.coldtrail("restore", session_id)
    assert all(WORD in request for request in world.resume(session_id))
    outcome = reclaimed(world, session_id, WITH_A_WAIT, later_ms=WITH_A_WAIT.wait_ms)
    assert outcome.act is Act.PUT_BACK
    assert log.read_bytes().startswith(written)
    with opened(world) as home:
        assert pending(home) == []
        assert home.catalog.faults() == []
