"""One daemon a home: the kernel's lock decides, and what a lock file says decides nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from coldtrail import LockedError, durable
from coldtrail.settings import Settings, settings
from coldtraild.service import LOCK_PATIENCE_S, only_one

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


class Time:
    """Goes by only when somebody sleeps; at `end_s` the block's other holder lets go."""

    def __init__(self, held: ExitStack, end_s: float) -> None:
        self.now_s, self._held, self._end_s = 1000.0, held, 1000.0 + end_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds
        if self.now_s >= self._end_s:
            self._held.close()


def settings_of(home: Path) -> Settings:
    return settings(env={"HOME": str(home)})


@pytest.mark.parametrize("busy_s", [0.0, 0.3, 1.0, LOCK_PATIENCE_S - 0.5])
def test_who_captures_for_a_moment_is_waited_for(home: Path, busy_s: float) -> None:
    """As `follow` and `wait_captured` do, where no daemon runs."""
    with ExitStack() as held:
        held.enter_context(durable.locked(lock_of(home), note=b"1\n"))
        time = Time(held, busy_s)
        with only_one(settings_of(home), clock_s=lambda: time.now_s, sleep=time.sleep):
            assert lock_of(home).read_text() == f"{os.getpid()}\n"
            assert busy_s <= time.now_s - 1000.0 <= busy_s + 0.2


def test_who_keeps_it_is_waited_for_5_s_and_no_longer(home: Path) -> None:
    with ExitStack() as held:
        held.enter_context(durable.locked(lock_of(home), note=b"1\n"))
        time = Time(held, 3_600)
        with (
            pytest.raises(LockedError, match="another coldtrail is at work here") as raised,
            only_one(settings_of(home), clock_s=lambda: time.now_s, sleep=time.sleep),
        ):
            raise AssertionError("it began")
        assert LOCK_PATIENCE_S <= time.now_s - 1000.0 <= LOCK_PATIENCE_S + 0.2
        assert (raised.value.exit_code, "coldtrail status" in raised.value.hint) == (4, True)


@pytest.mark.parametrize("content", [b"", b"999999999\n", b"-1\n", b"0\n", b"\xff\xff", b"x" * 10_000])
def test_whatever_a_stale_lock_file_holds_it_is_harmless(home: Path, content: bytes) -> None:
    lock_of(home).parent.mkdir(parents=True)
    lock_of(home).write_bytes(content)
    assert run_once(home).returncode == 0
