"""Codex CLI: a log that it holds open, its own compression, its own archive."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import zstandard

from e2e.programs import Codex, Program
from e2e.world import WORD, World

pytestmark = pytest.mark.e2e


@pytest.fixture
def program() -> Program:
    """Codex CLI."""
    return Codex()


def compress_as_codex_does(log: Path) -> Path:
    """Exchange a log for its compressed twin: same bytes, mode and times."""
    twin = log.with_name(log.name + ".zst")
    stat = log.stat()
    twin.write_bytes(zstandard.compress(log.read_bytes(), 3))
    twin.chmod(stat.st_mode)
    os.utime(twin, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    log.unlink()
    return twin


def run_codex(world: World, *arguments: str) -> None:
    """One other command of Codex, which must go well."""
    run = world.start_agent(*arguments).wait()
    assert run.code == 0, run


def test_what_was_captured_before_a_held_open_log_was_deleted_comes_back(world: World) -> None:
    """Codex writes on into the deleted file and makes no new one; everything up to the deletion can be restored and resumed."""
    with world.daemon():
        with world.held_turn(f"remember {WORD}"):
            log = world.only_log()
            session_id = world.program.session_id(log)
            captured = world.wait_for_capture(session_id)[log].data
            log.unlink()
        assert not log.exists()
        world.wait_for_state(session_id, "gone")

        world.coldtrail("restore", session_id)
        restored = log.read_bytes()
        assert restored.startswith(captured)

        assert all(WORD in request for request in world.resume(session_id))
        assert log.read_bytes().startswith(restored)


def test_a_log_that_codex_compresses_and_unpacks_again_stays_one_session(world: World) -> None:
    """Plain, then `.jsonl.zst` alone, then plain again by a resume: one session, never gone, one generation, every byte."""
    session_id, log = world.first_turn()
    written = log.read_bytes()
    world.coldtrail("run", "--once")
    generation = world.generation(session_id)

    twin = compress_as_codex_does(log)
    world.coldtrail("run", "--once")
    assert [session["state"] for session in world.listed()] == ["live"]

    assert all(WORD in request for request in world.resume(session_id))
    assert log.exists()
    assert not twin.exists()
    world.coldtrail("run", "--once")
    assert [session["bytes"] for session in world.listed()] == [log.stat().st_size]
    assert world.generation(session_id) == generation

    grown = log.read_bytes()
    assert grown.startswith(written)
    log.unlink()
    world.coldtrail("restore", session_id)
    assert log.read_bytes() == grown


def test_a_session_that_codex_archives_has_moved_and_is_restored_where_it_was_last(world: World) -> None:
    """`codex archive` is a move: one live session at the new path; restored there, `codex unarchive` and a resume find it."""
    session_id, log = world.first_turn()
    world.coldtrail("run", "--once")
    run_codex(world, "archive", session_id)
    archived = world.home / ".codex" / "archived_sessions" / log.name
    assert archived.exists()
    assert not log.exists()

    world.coldtrail("run", "--once")
    assert [session["state"] for session in world.listed()] == ["live"]
    assert str(archived) in str(world.session(session_id)["paths"])
    written = archived.read_bytes()
    archived.unlink()
    world.coldtrail("restore", session_id)

    assert archived.read_bytes() == written
    assert not log.exists()
    run_codex(world, "unarchive", session_id)
    assert all(WORD in request for request in world.resume(session_id))
