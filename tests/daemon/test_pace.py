"""The background's pace: a rate that is kept, a burst that is not saved up, and a priority behind everybody else."""

from __future__ import annotations

import os
import sys
import threading
from itertools import pairwise

import pytest

from coldtraild.pace import BACKGROUND_NICE, Bucket, step_back
from daemon.waiting import Clock


class Slept:
    """A clock that sleeping moves."""

    def __init__(self, clock: Clock) -> None:
        self.clock, self.total_s = clock, 0.0

    def __call__(self, seconds: float) -> None:
        self.clock.now_s += seconds
        self.total_s += seconds


def test_a_rate_is_kept_over_any_sizes() -> None:
    clock = Clock()
    slept, begin_s = Slept(clock), clock()
    bucket, sizes = Bucket(1000, clock, slept), [1, 5000, 10, 999, 3000] * 20
    for size in sizes:
        bucket.take(size)
    assert clock() - begin_s == pytest.approx(sum(sizes) / 1000 - 1.0), "but for the burst of the first second"


def test_what_was_not_used_is_good_for_a_second_only() -> None:
    clock = Clock()
    slept = Slept(clock)
    bucket = Bucket(1000, clock, slept)
    clock.now_s += 3600
    bucket.take(1000)
    assert slept.total_s == 0
    bucket.take(1000)
    assert slept.total_s == pytest.approx(1.0)


def test_without_a_rate_nobody_waits() -> None:
    clock = Clock()
    slept = Slept(clock)
    for size, _ in pairwise([1 << 40] * 5):
        Bucket(None, clock, slept).take(size)
    assert slept.total_s == 0


@pytest.mark.skipif(sys.platform != "linux", reason="a thread has a priority of its own on Linux only")
def test_a_thread_that_steps_back_takes_no_other_with_it() -> None:
    seen: list[int] = []

    def background() -> None:
        step_back()
        step_back()
        seen.append(os.getpriority(os.PRIO_PROCESS, threading.get_native_id()))

    before = os.getpriority(os.PRIO_PROCESS, threading.get_native_id())
    thread = threading.Thread(target=background)
    thread.start()
    thread.join()
    assert seen == [max(BACKGROUND_NICE, before)]
    assert os.getpriority(os.PRIO_PROCESS, threading.get_native_id()) == before
