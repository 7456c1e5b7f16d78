"""Marks: what is due when, what is never lost, and what happens when there are too many."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from coldtraild.marks import Marks
from daemon.waiting import DEADLINE_S, Clock

A, B, C = Path("/logs/a.jsonl"), Path("/logs/b.jsonl"), Path("/logs/c.jsonl")


def test_a_path_is_due_one_debounce_after_its_first_mark() -> None:
    clock = Clock()
    marks = Marks(clock=clock)
    marks.add(A)
    clock.now_s += 1.9
    assert marks.wait_due(2.0, 0) == []
    clock.now_s += 0.2
    assert marks.wait_due(2.0, 0) == [A]


def test_a_file_that_never_stops_changing_is_due_once_each_debounce() -> None:
    clock = Clock()
    marks = Marks(clock=clock)
    taken = 0
    for _ in range(100):  # ten seconds of an append every tenth
        marks.add(A)
        clock.now_s += 0.1
        taken += len(marks.wait_due(2.0, 0))
    assert taken == 5


def test_what_is_taken_is_no_longer_marked() -> None:
    clock = Clock()
    marks = Marks(clock=clock)
    marks.add(A)
    clock.now_s += 5
    assert (marks.wait_due(2.0, 0), len(marks), marks.wait_due(2.0, 0)) == ([A], 0, [])


def test_only_what_is_due_is_taken_the_longest_marked_first() -> None:
    clock = Clock()
    marks = Marks(clock=clock)
    for path in (B, A, C):
        marks.add(path)
        clock.now_s += 1
    assert marks.wait_due(2.0, 0) == [B, A]
    assert len(marks) == 1


def test_a_path_put_off_is_due_at_its_time_whatever_the_debounce() -> None:
    clock = Clock()
    marks = Marks(clock=clock)
    marks.later(A, 5.0)
    clock.now_s += 4.9
    assert marks.wait_due(0.0, 0) == []
    clock.now_s += 0.2
    assert marks.wait_due(100.0, 0) == [A]


def test_of_two_times_for_a_path_the_earlier_counts() -> None:
    clock = Clock()
    marks = Marks(clock=clock)
    marks.later(A, 60.0)
    marks.later(A, 5.0)
    marks.later(A, 300.0)
    clock.now_s += 5.1
    assert marks.wait_due(2.0, 0) == [A]


def test_a_touched_path_that_was_put_off_is_taken_once_and_both_marks_are_gone() -> None:
    clock = Clock()
    marks = Marks(clock=clock)
    marks.later(A, 2.0)
    marks.add(A)
    assert len(marks) == 1
    clock.now_s += 2.1
    assert marks.wait_due(2.0, 0) == [A]
    clock.now_s += 100
    assert marks.wait_due(2.0, 0) == []


def test_too_many_paths_become_one_flag_until_it_is_taken() -> None:
    clock = Clock()
    marks = Marks(clock=clock, limit=3)
    for number in range(3):
        marks.add(Path(f"/logs/{number}"))
    assert not marks.overflowed
    marks.add(A)
    marks.add(B)
    assert (marks.overflowed, len(marks), marks.wait_due(0.0, DEADLINE_S)) == (True, 0, [])
    assert marks.take_overflow()
    assert not marks.take_overflow()
    marks.add(A)
    clock.now_s += 3
    assert marks.wait_due(2.0, 0) == [A]


def test_too_many_paths_put_off_overflow_too() -> None:
    marks = Marks(clock=Clock(), limit=3)
    for number in range(4):
        marks.later(Path(f"/logs/{number}"), 5.0)
    assert marks.overflowed


def test_the_limit_is_a_hundred_thousand_paths() -> None:
    marks = Marks(clock=Clock())
    for number in range(100_000):
        marks.add(Path(f"/{number}"))
    assert (len(marks), marks.overflowed) == (100_000, False)
    marks.add(A)
    assert (len(marks), marks.overflowed) == (0, True)


class Waiter(threading.Thread):
    """Waits for due paths on a thread of its own."""

    def __init__(self, marks: Marks, debounce_s: float, timeout_s: float = 3600.0) -> None:
        super().__init__(daemon=True)
        self._marks, self._debounce_s, self._timeout_s = marks, debounce_s, timeout_s
        self.taken: list[Path] | None = None
        self.start()

    def run(self) -> None:
        self.taken = self._marks.wait_due(self._debounce_s, self._timeout_s)

    def end(self) -> list[Path] | None:
        self.join(DEADLINE_S)
        return self.taken


def test_a_mark_wakes_a_waiter() -> None:
    marks = Marks()
    waiter = Waiter(marks, 0.01)
    marks.add(A)
    assert waiter.end() == [A]


def test_a_mark_for_later_wakes_a_waiter_that_waits_for_something_further_off() -> None:
    marks = Marks()
    marks.later(A, 3600.0)
    waiter = Waiter(marks, 3600.0)
    marks.later(B, 0.01)
    assert waiter.end() == [B]


def test_an_overflow_wakes_a_waiter() -> None:
    marks = Marks(limit=2)
    waiter = Waiter(marks, 3600.0)
    for path in (A, B, C):
        marks.add(path)
    assert waiter.end() == []
    assert marks.overflowed


def test_close_wakes_a_waiter_and_nobody_waits_after_it() -> None:
    marks = Marks()
    waiter = Waiter(marks, 3600.0)
    marks.add(A)
    marks.close()
    assert waiter.end() == []
    assert marks.wait_due(0.0, 3600.0) == []


def test_a_wait_without_end_is_no_error() -> None:
    marks = Marks()
    waiter = Waiter(marks, 0.01, timeout_s=float("inf"))
    marks.add(A)
    assert waiter.end() == [A]
    with pytest.raises(OverflowError):  # what a wait must not be given
        threading.Event().wait(float("inf"))


def test_no_mark_is_lost_between_threads() -> None:
    marks = Marks()
    seen: set[Path] = set()
    wanted = {Path(f"/{thread}/{number}") for thread in range(4) for number in range(2000)}

    def add(thread: int) -> None:
        for number in range(2000):
            marks.add(Path(f"/{thread}/{number}"))

    threads = [threading.Thread(target=add, args=(thread,), daemon=True) for thread in range(4)]
    for thread in threads:
        thread.start()
    while seen != wanted and (due := marks.wait_due(0.0, DEADLINE_S)):
        seen.update(due)
    assert seen == wanted


def test_a_scan_of_everything_can_be_asked_for_and_wakes_a_waiter() -> None:
    marks = Marks()
    marks.add(A)
    waiter = Waiter(marks, 3600.0)
    marks.everything()
    assert waiter.end() == []
    assert marks.take_overflow()
    assert len(marks) == 0


def test_drain_takes_every_mark_due_or_not_even_after_close() -> None:
    marks = Marks(clock=Clock())
    marks.add(A)
    marks.later(B, 3600.0)
    marks.close()
    assert sorted(marks.drain()) == [A, B]
    assert marks.drain() == []


# What can be seen of it from outside


def test_the_oldest_mark_tells_how_long_something_waits() -> None:
    clock = Clock()
    marks = Marks(clock=clock)
    assert marks.oldest_s == 0.0
    marks.add(Path("a"))
    clock.now_s += 2
    marks.add(Path("b"))
    clock.now_s += 3
    assert (marks.oldest_s, marks.peek(5)) == (5.0, [(Path("a"), 5.0), (Path("b"), 3.0)])
    assert marks.peek(1) == [(Path("a"), 5.0)]
    marks.everything()
    clock.now_s += 1
    assert (marks.oldest_s, marks.peek(5)) == (6.0, []), "what was marked is part of the scan"
    assert marks.take_overflow()
    assert marks.oldest_s == 0.0


def test_a_waiter_can_be_woken_for_something_else_even_before_it_waits() -> None:
    marks = Marks(clock=Clock())
    marks.add(Path("a"))
    marks.wake()
    assert marks.wait_due(10.0, 3600.0) == []
    assert marks.wait_due(0.0, 3600.0) == [Path("a")]
