"""Which files are due for a look: marks with a debounce, and one flag when there are too many."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from itertools import islice
from pathlib import Path

MARKS_MAX = 100_000  # more paths than this cost more to go through one by one than a scan of everything


class Marks:
    """A set of touched paths, each with the time of its first mark; for any number of threads.

    The debounce counts from the first mark, not the last, so a file that never stops changing is still taken once each debounce.
    With more than `limit` paths they collapse into one flag: `overflowed` says that everything is due for a scan.
    """

    def __init__(self, *, clock: Callable[[], float] = time.monotonic, limit: int = MARKS_MAX) -> None:
        self._clock = clock
        self._limit = limit
        self._changed = threading.Condition()
        self._first_s: dict[Path, float] = {}  # when each path was first marked; in that order, so the first one is due first
        self._not_before_s: dict[Path, float] = {}  # when each path put off is due
        self._overflowed = False
        self._overflowed_s = 0.0  # since when
        self._woken = False
        self._closed = False

    def add(self, path: Path) -> None:
        """Mark a path as touched now; a second mark before it is taken changes nothing."""
        with self._changed:
            if self._overflowed or path in self._first_s:
                return
            self._first_s[path] = self._clock()
            self._collapse_if_full()
            if len(self._first_s) <= 1:  # the oldest mark, or an overflow: no other changes what a waiter waits for
                self._changed.notify_all()

    def later(self, path: Path, delay_s: float) -> None:
        """Make a path due `delay_s` seconds from now, whether it is touched or not; of two such times the earlier counts."""
        with self._changed:
            due_s = self._clock() + delay_s
            self._not_before_s[path] = min(due_s, self._not_before_s.get(path, due_s))
            self._collapse_if_full()
            self._changed.notify_all()

    def wait_due(self, debounce_s: float, timeout_s: float) -> list[Path]:
        """Wait until a path is due, then remove and return all that are, the longest marked first.

        Empty after `timeout_s` seconds, after `wake` and `close`, and at once while `overflowed` (ask `take_overflow`, then scan).
        """
        with self._changed:
            deadline_s = self._clock() + timeout_s
            while not self._closed and not self._overflowed:
                if self._woken:
                    self._woken = False
                    break
                now_s = self._clock()
                if due := self._take(now_s, debounce_s):
                    return due
                if now_s >= deadline_s:
                    break
                self._changed.wait(min(self._next_due_s(debounce_s) - now_s, deadline_s - now_s, threading.TIMEOUT_MAX))
            return []

    def everything(self) -> None:
        """Ask for a scan of everything, as after an overflow; what was marked is part of it."""
        with self._changed:
            self._overflow(next(iter(self._first_s.values()), self._clock()))
            self._changed.notify_all()

    def wake(self) -> None:
        """Let a waiter go, now or when it comes: there is something else for it to do."""
        with self._changed:
            self._woken = True
            self._changed.notify_all()

    def peek(self, limit: int) -> list[tuple[Path, float]]:
        """The paths that were marked first, each with the seconds since."""
        with self._changed:
            now_s = self._clock()
            return [(path, now_s - first_s) for path, first_s in islice(self._first_s.items(), limit)]

    @property
    def oldest_s(self) -> float:
        """The seconds since the first mark that nobody has taken, or since everything became due; 0 where nothing waits."""
        with self._changed:
            first_s = next(iter(self._first_s.values()), None)
            since = [each for each in (first_s, self._overflowed_s if self._overflowed else None) if each is not None]
            return self._clock() - min(since) if since else 0.0

    @property
    def overflowed(self) -> bool:
        """Whether there were too many marks to tell them apart, and nobody has taken that on yet."""
        with self._changed:
            return self._overflowed

    def take_overflow(self) -> bool:
        """Whether everything is due for a scan; the answer clears the flag, and marks count again from here."""
        with self._changed:
            was, self._overflowed = self._overflowed, False
            return was

    def drain(self) -> list[Path]:
        """Remove and return every mark, due or not."""
        with self._changed:
            left = list(self._first_s.keys() | self._not_before_s.keys())
            self._first_s.clear()
            self._not_before_s.clear()
            return left

    def close(self) -> None:
        """Wake every waiter; from now on nobody waits and nothing is due."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def __len__(self) -> int:
        with self._changed:
            return len(self._first_s.keys() | self._not_before_s.keys())

    def _take(self, now_s: float, debounce_s: float) -> list[Path]:
        due: dict[Path, None] = {}
        for path, first_s in self._first_s.items():
            if first_s + debounce_s > now_s:
                break
            due[path] = None
        due |= dict.fromkeys(path for path, due_s in self._not_before_s.items() if due_s <= now_s)
        for path in due:
            self._first_s.pop(path, None)
            self._not_before_s.pop(path, None)
        return list(due)

    def _next_due_s(self, debounce_s: float) -> float:
        oldest_s = next(iter(self._first_s.values()), float("inf"))
        return min(oldest_s + debounce_s, *self._not_before_s.values(), float("inf"))

    def _collapse_if_full(self) -> None:
        if len(self._first_s) > self._limit or len(self._not_before_s) > self._limit:
            self._not_before_s.clear()
            self._overflow(next(iter(self._first_s.values()), self._clock()))

    def _overflow(self, since_s: float) -> None:
        self._overflowed_s = min(since_s, self._overflowed_s) if self._overflowed else since_s
        self._overflowed = True
        self._first_s.clear()
