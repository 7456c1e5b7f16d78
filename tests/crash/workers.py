"""Starts the working process, and waits for what it has done."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from crash.working import CAPTURED
from world_of import World

TESTS = Path(__file__).resolve().parents[1]
DEADLINE_S = 30.0


@contextlib.contextmanager
def working(world: World, *, writes: bool) -> Iterator[subprocess.Popen[bytes]]:
    """The working process, killed at the end of the block; the block fails if it ended by itself."""
    path = os.pathsep.join([str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])])
    command = [sys.executable, "-m", "crash.working", str(world.folder), "writes" if writes else "reads"]
    process = subprocess.Popen(command, env={**os.environ, "PYTHONPATH": path}, stderr=subprocess.PIPE)
    try:
        yield process
        assert process.poll() is None, (process.stderr.read() if process.stderr else b"").decode()
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate()


def captured(world: World) -> int:
    """How many bytes the working process has captured for certain."""
    try:
        return int.from_bytes((world.folder / CAPTURED).read_bytes()[:8], "little")
    except FileNotFoundError:
        return 0


def until(condition: Callable[[], object], process: subprocess.Popen[bytes]) -> None:
    """Wait for something that another process brings about."""
    deadline_s, pause = time.monotonic() + DEADLINE_S, threading.Event()
    while not condition():
        assert process.poll() is None, (process.stderr.read() if process.stderr else b"").decode()
        assert time.monotonic() < deadline_s, "it did not come about in time"
        pause.wait(0.005)
