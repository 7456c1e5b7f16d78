"""A hang is told from work: who beats or computes is alive, who does neither is not, and the service manager hears of it."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from coldtraild.heartbeat import BUSY_S, HANG_S, LOOK_EVERY_S, START_S, Heartbeat
from coldtraild.notify import Manager
from daemon.cli.desk import Desk
from daemon.waiting import Clock, until


class Listener(Manager):
    """A manager that remembers what it was told."""

    __slots__ = ("heard",)

    def __init__(self, watchdog_s: float = 0.0) -> None:
        super().__init__("nobody", watchdog_s)
        object.__setattr__(self, "heard", [])

    heard: list[dict[str, object]]

    def _send(self, **words: object) -> None:
        self.heard.append(words)


@dataclass
class World:
    """A heartbeat on a clock that can be told."""

    clock: Clock = field(default_factory=Clock)
    listener: Listener = field(default_factory=Listener)
    stuck: list[list[str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.heartbeat = Heartbeat(self.listener, self.stuck.append, clock_s=self.clock)

    def look(self) -> dict[str, object] | None:
        """What the manager hears of one look."""
        before = len(self.listener.heard)
        self.heartbeat.look()
        return self.listener.heard[before] if len(self.listener.heard) > before else None


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def thread(world: World) -> Iterator[Callable[[Callable[[], None]], threading.Event]]:
    """Starts a thread that does something once and then stands still; it ends with the test."""
    ends = threading.Event()
    threads: list[threading.Thread] = []

    def start(act: Callable[[], None]) -> threading.Event:
        done = threading.Event()

        def body() -> None:
            act()
            done.set()
            ends.wait()

        threads.append(threading.Thread(target=body))
        threads[-1].start()
        done.wait()
        world.heartbeat.stuck()  # whatever it has computed between its beat and its standing still is no sign of life any more
        return done

    yield start
    ends.set()
    for each in threads:
        each.join()


def test_a_start_asks_for_more_time_and_a_daemon_that_is_ready_says_that_it_lives(world: World) -> None:
    world.heartbeat.beat("capture")
    assert world.look() == {"EXTEND_TIMEOUT_USEC": int(START_S * 1e6), "STATUS": "looking at what there is"}
    world.heartbeat.ready()
    assert world.look() == {"WATCHDOG": 1}


def test_one_part_that_stands_still_silences_all(world: World, thread: Callable[[Callable[[], None]], threading.Event]) -> None:
    world.heartbeat.ready()
    thread(lambda: world.heartbeat.beat("capture"))
    world.clock.now_s += HANG_S + 1
    world.heartbeat.beat("schedule")
    assert world.look() is None
    assert world.stuck == [["capture"]]
    world.heartbeat.beat("capture")
    assert world.look() == {"WATCHDOG": 1}


def test_a_start_that_stands_still_gets_no_more_time(world: World, thread: Callable[[Callable[[], None]], threading.Event]) -> None:
    thread(lambda: world.heartbeat.beat("capture"))
    world.clock.now_s += HANG_S + 1
    assert world.look() is None


@pytest.mark.skipif(not hasattr(time, "pthread_getcpuclockid"), reason="here a thread's own time is not told")
def test_a_thread_that_computes_is_alive_for_longer_but_not_for_ever(world: World) -> None:
    world.heartbeat.ready()
    world.heartbeat.beat("capture")
    for silent_s, alive in ((HANG_S + 1, True), (BUSY_S - HANG_S - 2, True), (2, False)):
        world.clock.now_s += silent_s
        compute()
        assert (world.look() is not None) == alive


def compute() -> None:
    """Spend some of this thread's own time."""
    start_s = time.thread_time()
    while time.thread_time() - start_s < 0.005:
        pass


def test_a_thread_that_has_ended_is_as_one_that_stands_still(world: World) -> None:
    ended = threading.Thread(target=lambda: world.heartbeat.beat("capture"))
    ended.start()
    ended.join()
    world.clock.now_s += HANG_S + 1
    assert world.heartbeat.stuck() == ["capture"]


def test_it_speaks_three_times_in_the_watchdogs_time() -> None:
    listener = Listener(watchdog_s=0.03)
    heartbeat = Heartbeat(listener, lambda _: None)
    heartbeat.ready()
    heartbeat.start()
    until(lambda: len(listener.heard) >= 3)
    heartbeat.stop()
    assert listener.heard[:3] == [{"WATCHDOG": 1}] * 3
    assert LOOK_EVERY_S < HANG_S


# --- the daemon's own parts ---

QUICK = """
import coldtraild.capturing as c, coldtraild.daemon as d, coldtraild.heartbeat as h, threading
h.HANG_S, d.LOOK_EVERY_S, c._IDLE_S = 1.5, 0.3, 0.3
"""
HANGS = {
    "capture": "c.Scanner.look = lambda *a, **k: threading.Event().wait()",
    "schedule": "import coldtraild.schedule as s; s._Scheduler._process_jobs = lambda self: threading.Event().wait()",
}


@pytest.fixture
def listening(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
        channel.bind(str(tmp_path / "notify"))
        yield channel


def hears(listening: socket.socket, what: bytes, within_s: float) -> bool:
    """Whether something is said from now on within a time."""
    listening.setblocking(False)
    with contextlib.suppress(BlockingIOError):
        while listening.recv(999):
            """What was said before."""
    listening.settimeout(0.5)
    end_s = time.monotonic() + within_s
    while time.monotonic() < end_s:
        with contextlib.suppress(TimeoutError):
            if what in listening.recv(999):
                return True
    return False


@pytest.mark.parametrize("part", [None, *HANGS])
def test_the_manager_hears_no_more_when_one_part_of_the_daemon_hangs(tmp_path: Path, listening: socket.socket, part: str | None) -> None:
    desk = Desk(tmp_path)
    desk.converse()
    told = {"NOTIFY_SOCKET": listening.getsockname(), "WATCHDOG_USEC": "300000"}
    with open(tmp_path / "said", "wb") as said:
        argv = desk.argv("run", before=QUICK + HANGS.get(part or "", ""))
        process = subprocess.Popen(argv, env=desk.process_env(**told), stdout=said, stderr=said)
    try:
        assert hears(listening, b"READY=1", 20), (tmp_path / "said").read_text()
        desk.converse(said="something new")  # what hangs is woken
        if part is None:
            end_s = time.monotonic() + 3  # two times as long as a hang may last
            while time.monotonic() < end_s:
                assert hears(listening, b"WATCHDOG=1", 1)
        else:
            until(lambda: not hears(listening, b"WATCHDOG=1", 1.5))
            assert f"{part} does not move" in (tmp_path / "said").read_text()
            os.kill(process.pid, signal.SIGABRT)  # as the watchdog does
            process.wait(10)
            assert "most recent call first" in (tmp_path / "said").read_text()
    finally:
        process.kill()
        process.wait()
