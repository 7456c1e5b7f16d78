"""One daemon a home: the kernel's lock decides, and what a lock file says decides nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from coldtrail import durable

Run = subprocess.CompletedProcess[str]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / ".claude" / "projects").mkdir(parents=True)
    return tmp_path


@pytest.fixture
def bystander() -> Iterator[subprocess.Popen[bytes]]:
    """A process that has nothing to do with coldtrail."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        yield process
        process.kill()


def lock_of(home: Path) -> Path:
    return home / ".local" / "share" / "coldtrail" / "lock"


def run_once(home: Path) -> Run:
    environment = {"HOME": str(home), "PATH": os.environ["PATH"], "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-m", "coldtraild.cli", "run", "--once"]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)


def test_the_second_one_ends_with_4_and_says_why(home: Path) -> None:
    with durable.locked(lock_of(home), note=b"1\n"):
        done = run_once(home)
    assert done.returncode == 4
    assert "another coldtrail is at work here" in done.stderr
    assert lock_of(home).read_text() == "1\n", "the first one's note is not touched"
    assert run_once(home).returncode == 0


def test_a_lock_file_with_the_pid_of_somebody_else_is_no_obstacle_and_no_reason_to_signal_them(
    home: Path, bystander: subprocess.Popen[bytes]
) -> None:
    lock_of(home).parent.mkdir(parents=True)
    lock_of(home).write_text(f"{bystander.pid}\n")
    assert run_once(home).returncode == 0
    assert bystander.poll() is None
    assert lock_of(home).read_text() != f"{bystander.pid}\n"


@pytest.mark.parametrize("content", [b"", b"999999999\n", b"-1\n", b"0\n", b"\xff\xff", b"x" * 10_000])
def test_whatever_a_stale_lock_file_holds_it_is_harmless(home: Path, content: bytes) -> None:
    lock_of(home).parent.mkdir(parents=True)
    lock_of(home).write_bytes(content)
    assert run_once(home).returncode == 0
