"""The daemon as a process of its own: it starts, captures within seconds, survives, and stops."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import coldtrail
from daemon.waiting import until

SESSION = "11111111-2222-4333-8444-555555555555"
COMMAND = [sys.executable, "-m", "coldtraild.cli"]


class World:
    """A user's home with one Claude Code session in it."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.log = home / ".claude" / "projects" / "-w" / f"{SESSION}.jsonl"
        self.log.parent.mkdir(parents=True)
        self.env = {"HOME": str(home), "PATH": os.environ["PATH"], "PYTHONPATH": os.environ.get("PYTHONPATH", "")}
        self.count = 0

    def configure(self, text: str) -> None:
        """Give it a config file."""
        config = self.home / ".config" / "coldtrail" / "config.toml"
        config.parent.mkdir(parents=True, exist_ok=True)
        config.write_text(text)

    def append(self, count: int = 1) -> None:
        """More whole lines."""
        with self.log.open("ab") as file:
            for _ in range(count):
                line = {"type": "user", "uuid": str(self.count), "message": {"role": "user", "content": "x" * 100}}
                file.write(json.dumps(line).encode() + b"\n")
                self.count += 1

    def held(self) -> bytes:
        """What coldtrail has of the log, without the live file's help."""
        with coldtrail.open(self.home / ".local" / "share" / "coldtrail") as trail:
            session = next(trail.sessions(), None)
            if session is None:
                return b""
            meta = session.streams()[0]
            parts = (data for each in meta.chain() for _, data in trail.home.plain(meta, each.number).read())
            return b"".join(parts)

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """One command to its end."""
        return subprocess.run([*COMMAND, *words], env=self.env, capture_output=True, text=True, timeout=60, check=False)

    @contextmanager
    def daemon(self) -> Iterator[Daemon]:
        """`coldtrail run`, ready; killed at the end if it still runs."""
        with (self.home / "daemon.log").open("ab") as out:
            process = subprocess.Popen([*COMMAND, "run"], env=self.env, stdin=subprocess.DEVNULL, stdout=out, stderr=out)
        daemon = Daemon(process, self.home / "daemon.log")
        try:
            until(lambda: "ready:" in daemon.said() or process.poll() is not None)
            yield daemon
        finally:
            process.kill()
            process.wait()


class Daemon:
    """A running daemon."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        self.process, self._log = process, log
        self._start = log.stat().st_size

    def said(self) -> str:
        """Its log so far."""
        return self._log.read_bytes()[self._start :].decode()

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Ask it to stop; gives its exit code."""
        self.process.send_signal(number)
        return self.process.wait(timeout=10)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path / "user")


def test_it_says_what_is_watched_and_where_the_store_is(world: World) -> None:
    world.append()
    with world.daemon() as daemon:
        said = daemon.said()
    assert f"keeping sessions in {world.home}/.local/share/coldtrail" in said
    assert f"source claude-code: claude-code in {world.home}/.claude" in said


def test_what_was_there_is_captured_before_it_is_ready_and_a_new_line_long_before_the_next_scan(world: World) -> None:
    world.append(5)
    with world.daemon():
        assert world.held() == world.log.read_bytes()
        world.append()
        until(lambda: world.held() == world.log.read_bytes())


def test_a_torn_line_is_captured_when_it_has_been_quiet(world: World) -> None:
    world.append()
    with world.daemon():
        with world.log.open("ab") as file:
            file.write(b'{"type":"us')
        until(lambda: world.held() == world.log.read_bytes())


def test_sigterm_ends_it_with_0_in_time_and_nothing_is_lost(world: World) -> None:
    world.append()
    with world.daemon() as daemon:
        world.append(3)
        assert daemon.stop() == 0
    assert world.run("run", "--once").returncode == 0
    assert world.held() == world.log.read_bytes()


def test_a_second_one_is_refused_and_the_first_goes_on(world: World) -> None:
    world.append()
    with world.daemon() as daemon:
        for words in (["run"], ["run", "--once"]):
            second = world.run(*words)
            assert (second.returncode, "another coldtrail is at work here" in second.stderr) == (4, True)
        assert daemon.process.poll() is None


def test_a_stale_lock_file_with_somebodys_pid_stops_nobody(world: World) -> None:
    world.append()
    lock = world.home / ".local" / "share" / "coldtrail" / "lock"
    lock.parent.mkdir(parents=True, mode=0o700)
    lock.write_text(f"{os.getpid()}\n")
    assert world.run("run", "--once").returncode == 0


def test_a_catalog_removed_under_it_is_made_again(world: World) -> None:
    world.append(3)
    with world.daemon():
        before = world.run("ls", "--json").stdout
        for path in (world.home / ".local" / "share" / "coldtrail").glob("catalog.db*"):
            path.unlink()
        assert world.run("rebuild").returncode == 0
        assert world.run("ls", "--json").stdout == before
        world.append()
        until(lambda: world.held() == world.log.read_bytes())
        until(lambda: json.loads(world.run("ls", "--json").stdout)["sessions"][0]["records"] == 4)


def test_an_agent_installed_later_is_taken_up(world: World) -> None:
    world.log.parent.rmdir()
    world.log.parent.parent.rmdir()
    world.log.parent.parent.parent.rmdir()
    with world.daemon() as daemon:
        assert "no agent was found on this machine" in daemon.said()
        world.log.parent.mkdir(parents=True)
        world.append()
        until(lambda: world.held() == world.log.read_bytes())


def test_killed_again_and_again_under_load_it_has_every_byte_once(world: World) -> None:
    world.append()
    world.configure('[capture]\ndebounce = "50ms"\n[compact]\nafter = "0s"\n')
    for _ in range(4):
        with world.daemon() as daemon:
            for _ in range(20):
                world.append(50)
                time.sleep(0.01)  # the load itself: a writer that goes on while the daemon works
            daemon.process.kill()
            daemon.process.wait()
    assert world.run("run", "--once").returncode == 0
    assert world.held() == world.log.read_bytes()
    assert world.run("verify").returncode == 0


def test_a_session_that_is_gone_comes_back_and_is_not_captured_twice(world: World) -> None:
    world.append(5)
    content = world.log.read_bytes()
    with world.daemon():
        world.log.unlink()
        until(lambda: json.loads(world.run("ls", "--json").stdout)["sessions"][0]["state"] == "gone")
        restored = world.run("restore", SESSION, "--json")
        assert (restored.returncode, json.loads(restored.stdout)["restored"][0]["bytes"]) == (0, len(content))
        assert world.log.read_bytes() == content
        world.append()
        until(lambda: world.held() == world.log.read_bytes())
        with coldtrail.open(world.home / ".local" / "share" / "coldtrail") as trail:
            assert len(trail.session(SESSION).streams()[0].generations) == 1
