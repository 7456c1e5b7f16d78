"""Programs that a test starts: waiting for them, for what they do, and ending them."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

TURN_S = 60.0  # any one program has ended by then: a turn of an agent takes 1 to 3 seconds on an idle machine
STOP_S = 10.0  # a daemon that was asked to stop has stopped by then


def wait_until(what: str, condition: Callable[[], object], timeout_s: float) -> None:
    """Come back when `condition` holds; fail with `what` after `timeout_s` seconds."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"not within {timeout_s:.0f} s: {what}"
        time.sleep(0.05)


@dataclass(frozen=True, slots=True)
class Run:
    """How a program that has ended went."""

    code: int
    stdout: str
    stderr: str

    def __str__(self) -> str:
        return f"exit {self.code}\n{self.stdout}\n{self.stderr}"


@dataclass(frozen=True, slots=True)
class Process:
    """A program that was started; what it prints goes to files, so that it never waits for a reader."""

    popen: subprocess.Popen[bytes]
    stdout: Path
    stderr: Path

    def wait(self, timeout_s: float = TURN_S) -> Run:
        """Wait for the end."""
        code = self.popen.wait(timeout_s)
        return Run(code, self.stdout.read_text(), self.stderr.read_text())

    def terminate(self, timeout_s: float = STOP_S) -> Run:
        """Ask it to stop, and wait for the end."""
        self.popen.send_signal(signal.SIGTERM)
        return self.wait(timeout_s)

    def kill_group(self) -> None:
        """End what is left of it: its own process group, nothing else."""
        if self.popen.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.popen.pid, signal.SIGKILL)
            self.popen.wait()


def listens(pid: int, port: int) -> bool:
    """Whether the process with this pid has a network of its own, in which somebody listens on `port`."""
    if os.readlink(f"/proc/{pid}/ns/net") == os.readlink("/proc/self/ns/net"):
        return False
    sockets = Path(f"/proc/{pid}/net/tcp").read_text()
    return f"0100007F:{port:04X} 00000000:0000 0A" in sockets
