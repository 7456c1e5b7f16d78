"""A session is busy while a program runs that says it is at it."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from coldtrail.agents import agent, agents
from coldtrail.agents.base import Agent

CLAUDE, CODEX = agent("claude-code"), agent("codex")
SESSION, OTHER = "8952642c-e858-4a92-9cea-f32190b857a4", "01a2289a-e81d-7d12-802f-10d854907507"


@pytest.fixture
def running() -> Iterator[int]:
    """A process that runs."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        yield process.pid
        process.communicate()


@pytest.fixture
def ended() -> int:
    """The number of a process that has ended."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def mark(root: Path, pid: int, session: str | None) -> None:
    folder = root / "sessions"
    folder.mkdir(exist_ok=True)
    said = {"pid": pid, "sessionId": session, "cwd": "/there", "startedAt": 1, "procStart": "1", "version": "2.1.197"}
    (folder / f"{pid}.json").write_text(json.dumps(said) if session else "{")


@pytest.mark.parametrize("one", agents().values(), ids=list(agents()))
def test_where_nothing_runs_nothing_is_busy(one: Agent, tmp_path: Path) -> None:
    assert one.busy(tmp_path, SESSION) is None


def test_claude_codes_marker_makes_its_session_busy_and_no_other(tmp_path: Path, running: int) -> None:
    mark(tmp_path, running, SESSION)
    assert CLAUDE.busy(tmp_path, SESSION) == f"busy: pid {running}"
    assert CLAUDE.busy(tmp_path, OTHER) is None


def test_a_marker_that_a_crash_left_makes_nothing_busy(tmp_path: Path, ended: int) -> None:
    mark(tmp_path, ended, SESSION)
    assert CLAUDE.busy(tmp_path, SESSION) is None


def test_a_number_that_was_given_again_counts_as_alive(tmp_path: Path) -> None:
    """Whether the program began when the marker says may not be known, from a container for one."""
    mark(tmp_path, os.getpid(), SESSION)
    assert CLAUDE.busy(tmp_path, SESSION) == f"busy: pid {os.getpid()}"


def test_a_running_programs_marker_that_cannot_be_read_makes_every_session_busy(tmp_path: Path, running: int) -> None:
    mark(tmp_path, running, None)
    assert str(running) in (CLAUDE.busy(tmp_path, SESSION) or "")


def test_codexs_lock_makes_its_thread_busy_and_no_other(tmp_path: Path) -> None:
    lock = tmp_path / "thread-writer-locks" / f"{SESSION}.lock"
    lock.parent.mkdir()
    with lock.open("w") as file:
        assert CODEX.busy(tmp_path, SESSION) is None
        fcntl.flock(file, fcntl.LOCK_EX)
        assert CODEX.busy(tmp_path, SESSION) == f"busy: {SESSION}.lock is locked"
        assert CODEX.busy(tmp_path, OTHER) is None


def test_asking_leaves_no_lock_behind(tmp_path: Path) -> None:
    lock = tmp_path / "thread-writer-locks" / f"{SESSION}.lock"
    lock.parent.mkdir()
    lock.touch()
    assert CODEX.busy(tmp_path, SESSION) is None
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
