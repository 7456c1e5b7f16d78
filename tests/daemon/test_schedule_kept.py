"""The schedule over restarts and in trouble: what is remembered, what steps back, what hangs."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from coldtraild.runs import Last
from coldtraild.runs import Runs as Memory
from coldtraild.schedule import PostponedError, Schedule
from daemon.scheduling import FAR_S, Errors, Runs, clock_ms, status
from daemon.waiting import DEADLINE_S, Clock, until

DAY_S = 86_400.0
NOON_MS = 1_800_000_000_000


@pytest.fixture
def errors() -> Errors:
    return Errors()


@pytest.fixture
def runs() -> Iterator[Runs]:
    made = Runs()
    yield made
    made.gate.set()


def keeping(errors: Errors, memory: Memory, now_ms: int) -> Schedule:
    return Schedule(errors, lambda: now_ms, memory)


@pytest.fixture
def memory(tmp_path: Path) -> Memory:
    return Memory(tmp_path / "schedule.json")


@pytest.mark.parametrize(
    ("last_ms", "due"),
    [
        (None, True),  # never
        (NOON_MS - 3 * 86_400_000, True),  # the machine was off
        (NOON_MS - 86_400_000, True),
        (NOON_MS - 3_600_000, False),
        (NOON_MS + 400 * 86_400_000, True),  # a wrong clock has noted it
    ],
)
def test_a_daily_job_is_caught_up_after_a_restart_and_not_run_before_its_day_is_over(
    errors: Errors, memory: Memory, runs: Runs, last_ms: int | None, due: bool
) -> None:
    memory.note("retain", Last(success_ms=last_ms))
    schedule = keeping(errors, memory, NOON_MS)
    schedule.every("retain", DAY_S, runs, first_after_s=0.05, kept=True)
    schedule.start()
    assert runs.wait_ended(1) if due else not runs.wait_started(1, timeout_s=0.4)
    assert not runs.wait_started(2, timeout_s=0.1)
    assert schedule.stop(DEADLINE_S)


def test_what_came_of_a_kept_job_is_in_the_file(errors: Errors, memory: Memory, tmp_path: Path) -> None:
    def remove() -> str:
        return "removed 3"

    def fail() -> None:
        raise ValueError("the words of somebody's session")

    schedule = keeping(errors, memory, NOON_MS)
    schedule.every("retain", DAY_S, remove, first_after_s=0, kept=True)
    schedule.every("drill", 7 * DAY_S, fail, first_after_s=0, kept=True)
    schedule.every("mend", FAR_S, remove, first_after_s=0)
    schedule.start()
    assert errors.wait_for(1)
    until(lambda: Memory(tmp_path / "schedule.json").last("retain").success_ms)
    until(lambda: Memory(tmp_path / "schedule.json").last("drill").error_ms)
    assert schedule.stop(DEADLINE_S)
    known = Memory(tmp_path / "schedule.json").all()
    assert sorted(known) == ["drill", "retain"]
    assert (known["retain"].said, known["drill"].success_ms) == ("removed 3", None)
    assert "somebody" not in known["drill"].error


def test_a_rare_job_that_failed_is_tried_again_before_its_next_turn(errors: Errors, memory: Memory) -> None:
    def fail() -> None:
        raise OSError(28, "No space left on device")

    schedule = keeping(errors, memory, NOON_MS)
    schedule.every("retain", DAY_S, fail, first_after_s=0, kept=True)
    schedule.start()
    assert errors.wait_for(1)
    until(lambda: (status(schedule, "retain").next_ms or 0) - clock_ms() < 3_700_000)
    assert schedule.stop(DEADLINE_S)


def test_a_job_that_steps_back_has_neither_failed_nor_succeeded_and_comes_again(errors: Errors, memory: Memory) -> None:
    may = threading.Event()

    def job() -> str:
        if not may.is_set():
            raise PostponedError
        return "done"

    schedule = keeping(errors, memory, NOON_MS)
    schedule.every("retain", DAY_S, job, first_after_s=0, kept=True)
    schedule.start()
    until(lambda: status(schedule, "retain").last.start_ms)
    until(lambda: (status(schedule, "retain").next_ms or 0) - clock_ms() < 61_000)
    assert status(schedule, "retain").last == Last(start_ms=NOON_MS)
    assert (errors.seen, memory.all()) == ([], {})
    may.set()
    schedule.run_now("retain")
    until(lambda: status(schedule, "retain").last.said == "done")
    assert schedule.stop(DEADLINE_S)


def test_a_run_without_a_sign_of_life_is_told_with_its_place_and_the_others_go_on(errors: Errors, runs: Runs) -> None:
    clock = Clock()
    schedule, gate, other = Schedule(errors, clock_ms, tick_s=clock), threading.Event(), Runs()

    def stand_still() -> None:
        secret = "the words of somebody's session"
        gate.wait(DEADLINE_S if secret else 0)

    schedule.every("stuck", FAR_S, stand_still, first_after_s=0, hung_s=60)
    schedule.every("other", 0.02, other)
    schedule.start()
    until(lambda: status(schedule, "stuck").running)
    clock.now_s += 59
    schedule.beat("stuck")
    clock.now_s += 59
    assert status(schedule, "stuck").hung is None
    clock.now_s += 2
    hung = status(schedule, "stuck").hung
    assert hung is not None
    assert clock_ms() - 70_000 < hung.since_ms < clock_ms() - 50_000
    assert "threading.py" in hung.place
    assert "somebody" not in hung.place
    ended = other.ended
    assert other.wait_ended(ended + 3)
    gate.set()
    until(lambda: status(schedule, "stuck").last.success_ms)
    assert status(schedule, "stuck").hung is None
    assert schedule.stop(DEADLINE_S)


def test_a_job_apart_has_its_thread_to_itself(errors: Errors) -> None:
    schedule, seen = Schedule(errors, clock_ms), dict[str, set[int]](low=set(), high=set())
    schedule.every("low", 0.02, lambda: seen["low"].add(threading.get_ident()), apart=True)
    for number in range(4):
        schedule.every(f"high {number}", 0.02, lambda: seen["high"].add(threading.get_ident()))
    schedule.start()
    until(lambda: status(schedule, "low").last.success_ms and len(seen["high"]) > 1)
    schedule.every("low", 0.01, lambda: seen["low"].add(threading.get_ident()), apart=True)
    schedule.run_now("low")
    assert schedule.stop(DEADLINE_S)
    assert len(seen["low"]) == 1
    assert not seen["low"] & seen["high"]
