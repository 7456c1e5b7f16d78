"""Waiting in tests: for a condition, with a deadline, on a clock that can be told."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

DEADLINE_S = 20.0


class Clock:
    """A clock that moves when it is told to."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


def until(condition: Callable[[], object], within_s: float = DEADLINE_S) -> None:
    """Wait for something that has no event of its own."""
    deadline_s, pause = time.monotonic() + within_s, threading.Event()
    while not (met := condition()) and time.monotonic() < deadline_s:
        pause.wait(0.01)
    assert met, "it did not come about in time"
