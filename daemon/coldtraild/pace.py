"""How hard the work in the background may go: so many bytes a second, and behind everybody else."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable

BACKGROUND_NICE = 10  # the kernel takes the I/O priority of a thread from it too
_BURST_S = 1.0  # what was not used of a rate is good for so long


class Bucket:
    """A rate, kept by waiting: `take` returns when so many bytes are due.

    >>> now, bucket = 0.0, Bucket(1000, lambda: now, lambda seconds: print(f"waits {seconds:.1f} s"))
    >>> bucket.take(1000)
    >>> bucket.take(500)
    waits 0.5 s
    """

    def __init__(self, rate_bytes: int | None, tick_s: Callable[[], float], wait: Callable[[float], object]) -> None:
        """`rate_bytes` a second; None: no bound."""
        self._rate, self._tick_s, self._wait = rate_bytes, tick_s, wait
        self._left = 0.0 if rate_bytes is None else rate_bytes * _BURST_S
        self._seen_s = tick_s()

    def take(self, size: int) -> None:
        """Wait until so many bytes more may be worked on."""
        if self._rate is None:
            return
        now_s = self._tick_s()
        self._left = min(self._left + (now_s - self._seen_s) * self._rate, self._rate * _BURST_S) - size
        self._seen_s = now_s
        if self._left < 0:
            self._wait(-self._left / self._rate)


def step_back() -> None:
    """Put the calling thread behind all others of the machine, for good; where a thread has no priority of its own nothing happens."""
    if sys.platform == "linux" and os.getpriority(os.PRIO_PROCESS, threading.get_native_id()) < BACKGROUND_NICE:
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), BACKGROUND_NICE)
