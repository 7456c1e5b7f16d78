"""What the tests of the schedule share: jobs that count their runs, and what they raised."""

from __future__ import annotations

import threading
import time

from coldtraild.runs import JobStatus
from coldtraild.schedule import Schedule
from daemon.waiting import DEADLINE_S

FAR_S = 3600.0


class Errors:
    """What jobs raised, for waiting on."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self.seen: list[tuple[str, BaseException]] = []

    def __call__(self, name: str, error: BaseException) -> None:
        with self._changed:
            self.seen.append((name, error))
            self._changed.notify_all()

    def wait_for(self, count: int) -> bool:
        with self._changed:
            return self._changed.wait_for(lambda: len(self.seen) >= count, DEADLINE_S)


class Runs:
    """A job that counts its runs, and how many of them there were at once; it lasts while `gate` is closed."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self.gate = threading.Event()
        self.gate.set()
        self.started = self.ended = self.most_at_once = 0

    def __call__(self) -> None:
        with self._changed:
            self.started += 1
            self.most_at_once = max(self.most_at_once, self.started - self.ended)
            self._changed.notify_all()
        self.gate.wait(DEADLINE_S)
        with self._changed:
            self.ended += 1
            self._changed.notify_all()

    def wait_started(self, count: int, timeout_s: float = DEADLINE_S) -> bool:
        with self._changed:
            return self._changed.wait_for(lambda: self.started >= count, timeout_s)

    def wait_ended(self, count: int) -> bool:
        with self._changed:
            return self._changed.wait_for(lambda: self.ended >= count, DEADLINE_S)


def clock_ms() -> int:
    return time.time_ns() // 1_000_000


def status(schedule: Schedule, name: str) -> JobStatus:
    return next(each for each in schedule.status() if each.name == name)
