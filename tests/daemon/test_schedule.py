"""The schedule: jobs run in time, alone, and whatever happens to one of them or to the clock."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, tzinfo

import pytest

from coldtraild.runs import Last
from coldtraild.schedule import Schedule
from daemon.scheduling import FAR_S, Errors, Runs, clock_ms, status
from daemon.waiting import DEADLINE_S, until


@pytest.fixture
def errors() -> Errors:
    return Errors()


@pytest.fixture
def schedule(errors: Errors) -> Iterator[Schedule]:
    made = Schedule(errors, clock_ms, workers=3)
    yield made
    assert made.stop(DEADLINE_S)


@pytest.fixture
def runs() -> Iterator[Runs]:
    made = Runs()
    yield made
    made.gate.set()


def test_a_job_runs_again_and_again(schedule: Schedule, runs: Runs) -> None:
    schedule.every("scan", 0.02, runs)
    schedule.start()
    assert runs.wait_ended(3)


def test_a_first_run_may_come_at_once_or_after_one_interval(schedule: Schedule, runs: Runs) -> None:
    late = Runs()
    schedule.every("soon", FAR_S, runs, first_after_s=0)
    schedule.every("late", FAR_S, late)
    schedule.start()
    assert runs.wait_ended(1)
    assert late.started == 0
    shown = status(schedule, "late")
    assert (shown.running, shown.last, shown.hung) == (False, Last(), None)
    assert FAR_S - DEADLINE_S < ((shown.next_ms or 0) - clock_ms()) / 1000 < FAR_S + 0.002  # either clock is cut to milliseconds


def test_a_job_added_to_a_running_schedule_runs(schedule: Schedule, runs: Runs) -> None:
    schedule.start()
    schedule.every("scan", 0.02, runs)
    assert runs.wait_ended(2)


def test_a_job_that_raises_is_told_of_and_has_its_next_turn(schedule: Schedule, errors: Errors, runs: Runs) -> None:
    def fail() -> None:
        raise ValueError("the words of somebody's session")

    schedule.every("bad", 0.02, fail)
    schedule.every("good", 0.02, runs)
    schedule.start()
    assert errors.wait_for(3)
    assert runs.wait_ended(3)
    assert [(name, type(error)) for name, error in errors.seen[:3]] == [("bad", ValueError)] * 3
    bad = status(schedule, "bad")
    assert bad.last.success_ms is None
    assert bad.last.error_ms is not None
    assert bad.last.error.startswith("ValueError at test_schedule.py:")
    assert "somebody" not in bad.last.error


def test_even_a_job_that_wants_to_exit_ends_nothing_but_its_run(schedule: Schedule, errors: Errors, runs: Runs) -> None:
    def leave() -> None:
        raise SystemExit(3)

    schedule.every("leaver", FAR_S, leave, first_after_s=0)
    schedule.start()
    assert errors.wait_for(1)
    schedule.every("after", FAR_S, runs, first_after_s=0)
    assert runs.wait_ended(1)


def test_what_a_job_raises_is_not_logged_by_the_way(schedule: Schedule, errors: Errors, caplog: pytest.LogCaptureFixture) -> None:
    def fail() -> None:
        raise ValueError("the words of somebody's session")

    logging.getLogger().setLevel(logging.DEBUG)
    schedule.every("bad", 0.02, fail)
    schedule.start()
    assert errors.wait_for(2)
    assert caplog.text == ""


def test_the_status_tells_the_last_start_success_and_error(schedule: Schedule, errors: Errors) -> None:
    outcomes = iter([OSError(28, "No space left on device", "/x"), None])

    def job() -> None:
        if error := next(outcomes, None):
            raise error

    begin_ms = clock_ms()
    schedule.every("ship", FAR_S, job, first_after_s=0)
    schedule.start()
    assert errors.wait_for(1)
    schedule.run_now("ship")
    until(lambda: status(schedule, "ship").last.success_ms)
    ship = status(schedule, "ship")
    times_ms = [begin_ms, ship.last.error_ms or 0, ship.last.start_ms or 0, ship.last.success_ms or 0, clock_ms()]
    assert times_ms == sorted(times_ms)
    assert ship.last.error == "OSError: [Errno 28] No space left on device: '/x'"
    assert not ship.running


def test_a_job_longer_than_its_interval_never_runs_twice_at_once(schedule: Schedule, runs: Runs) -> None:
    runs.gate.clear()
    other = Runs()
    schedule.every("long", 0.01, runs, first_after_s=0)
    schedule.every("other", 0.01, other, first_after_s=0)
    schedule.start()
    assert other.wait_ended(20)
    assert (runs.started, status(schedule, "long").running) == (1, True)
    runs.gate.set()
    assert runs.wait_ended(5)
    assert runs.most_at_once == 1


def test_run_now_runs_a_job_before_its_turn(schedule: Schedule, runs: Runs) -> None:
    schedule.every("scan", FAR_S, runs)
    schedule.start()
    schedule.run_now("scan")
    assert runs.wait_ended(1)


def test_run_now_before_the_start_makes_it_the_first_to_run(schedule: Schedule, runs: Runs) -> None:
    schedule.every("scan", FAR_S, runs)
    schedule.run_now("scan")
    schedule.start()
    assert runs.wait_ended(1)


def test_run_now_during_a_run_gives_one_more_after_it_however_often_it_was_asked(schedule: Schedule, runs: Runs) -> None:
    runs.gate.clear()
    other = Runs()
    schedule.every("scan", FAR_S, runs, first_after_s=0)
    schedule.every("other", FAR_S, other)
    schedule.start()
    assert runs.wait_started(1)
    for _ in range(5):
        schedule.run_now("scan")
    schedule.run_now("other")
    assert other.wait_ended(1), "the scheduler has passed by, and could not begin the run that was asked for"
    runs.gate.set()
    assert runs.wait_ended(2)
    assert not runs.wait_started(3, timeout_s=0.3)
    assert runs.most_at_once == 1


def test_no_call_of_run_now_is_ever_forgotten(schedule: Schedule) -> None:
    """Each call is followed by a run that began after it, at whatever moment of a run it comes."""
    asked, seen = 0, threading.Event()
    answered = 0

    def job() -> None:
        nonlocal answered
        answered = asked
        seen.set()

    schedule.every("sync", FAR_S, job)
    schedule.start()
    for number in range(1, 301):
        seen.clear()
        asked = number
        schedule.run_now("sync")
        while answered < number:
            assert seen.wait(DEADLINE_S), f"call {number} was forgotten"
            seen.clear()


def test_what_is_asked_for_begins_at_once_and_not_at_the_next_look_at_the_clock(schedule: Schedule, runs: Runs) -> None:
    schedule.every("drill", FAR_S, runs, apart=True)
    schedule.start()
    late_s = []
    for number in range(1, 52):
        asked_s = time.monotonic()
        schedule.run_now("drill")
        assert runs.wait_started(number)
        late_s.append(time.monotonic() - asked_s)
        until(lambda: not status(schedule, "drill").running)
    assert sorted(late_s)[25] < 1.0


def test_run_now_of_an_unknown_job_is_an_error(schedule: Schedule) -> None:
    with pytest.raises(KeyError, match="none"):
        schedule.run_now("none")


@pytest.mark.parametrize("seconds", [0, -1.0])
def test_an_interval_that_is_none_is_refused(schedule: Schedule, runs: Runs, seconds: float) -> None:
    with pytest.raises(ValueError, match="scan: a job cannot run every"):
        schedule.every("scan", seconds, runs)


def test_a_job_given_again_takes_the_place_of_the_old_one(schedule: Schedule, runs: Runs) -> None:
    old = Runs()
    schedule.every("scan", FAR_S, old, first_after_s=0)
    schedule.start()
    assert old.wait_ended(1)
    until(lambda: status(schedule, "scan").last.success_ms)
    before = status(schedule, "scan")
    schedule.every("scan", FAR_S / 2, runs)
    assert len(schedule.status()) == 1
    assert status(schedule, "scan").last.success_ms == before.last.success_ms
    schedule.run_now("scan")
    assert runs.wait_ended(1)
    assert old.started == 1


def test_no_more_jobs_run_at_once_than_there_are_workers(errors: Errors) -> None:
    schedule, runs = Schedule(errors, clock_ms, workers=2), Runs()
    runs.gate.clear()
    for number in range(5):
        schedule.every(f"job {number}", FAR_S, runs, first_after_s=0)
    schedule.start()
    assert runs.wait_started(2)
    assert not runs.wait_started(3, timeout_s=0.3)
    runs.gate.set()
    assert runs.wait_ended(5)
    assert runs.most_at_once == 2
    assert schedule.stop(DEADLINE_S)


# To stop


def test_stop_waits_for_a_run_that_is_under_way(errors: Errors, runs: Runs) -> None:
    schedule = Schedule(errors, clock_ms)
    runs.gate.clear()
    schedule.every("seal", FAR_S, runs, first_after_s=0)
    schedule.start()
    assert runs.wait_started(1)
    assert not schedule.stop(0.05)
    stopped: list[bool] = []
    stopping = threading.Thread(target=lambda: stopped.append(schedule.stop(DEADLINE_S)), daemon=True)
    stopping.start()
    runs.gate.set()
    stopping.join(DEADLINE_S)
    assert stopped == [True]
    assert runs.ended == 1


def test_after_stop_not_even_what_was_in_the_queue_begins(errors: Errors, runs: Runs) -> None:
    schedule, queued = Schedule(errors, clock_ms, workers=1), Runs()
    runs.gate.clear()
    schedule.every("first", FAR_S, runs, first_after_s=0)
    schedule.start()
    assert runs.wait_started(1)
    schedule.every("second", FAR_S, queued, first_after_s=0)
    until(lambda: schedule._scheduler.get_job("second").next_run_time > datetime.now(UTC) + timedelta(minutes=1))
    assert not schedule.stop(0.05)
    runs.gate.set()
    assert schedule.stop(DEADLINE_S)
    until(lambda: not [thread for thread in threading.enumerate() if thread.name.startswith("coldtrail-job")])
    assert (queued.started, runs.started) == (0, 1)
    assert status(schedule, "second").last.success_ms is None


def test_a_schedule_that_never_began_stops_at_once(errors: Errors) -> None:
    assert Schedule(errors, clock_ms).stop(0)


# When the clock jumps


class Shifted(datetime):
    """A clock that can be set."""

    ahead = timedelta(0)

    @classmethod
    def now(cls, tz: tzinfo | None = None) -> Shifted:
        return cls.fromtimestamp(time.time(), tz or UTC) + cls.ahead


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> type[Shifted]:
    monkeypatch.setattr("apscheduler.schedulers.base.datetime", Shifted)
    monkeypatch.setattr("coldtraild.schedule.datetime", Shifted)
    monkeypatch.setattr("coldtraild.schedule.LOOK_EVERY_S", 0.02)
    monkeypatch.setattr(Shifted, "ahead", timedelta(0))
    return Shifted


def test_a_clock_that_leaps_a_year_ahead_makes_each_job_run_once_and_at_once(clock: type[Shifted], errors: Errors, runs: Runs) -> None:
    """Seven million turns were missed; the scheduler must not go through them."""
    schedule = Schedule(errors, clock_ms)
    schedule.every("scan", 5.0, runs)
    schedule.start()
    clock.ahead = timedelta(days=400)
    assert runs.wait_ended(1)
    assert not runs.wait_started(2, timeout_s=0.3)
    assert schedule.stop(DEADLINE_S)


def test_a_clock_that_is_set_back_a_year_stops_no_job(clock: type[Shifted], errors: Errors, runs: Runs) -> None:
    clock.ahead = timedelta(days=400)
    schedule = Schedule(errors, clock_ms)
    schedule.every("scan", 0.5, runs)
    schedule.every("rare", FAR_S, rare := Runs())
    schedule.start()
    assert runs.wait_ended(1)
    clock.ahead = timedelta(0)
    assert runs.wait_ended(3)
    assert rare.wait_ended(1)
    assert schedule.stop(DEADLINE_S)


def test_turns_are_spread_within_the_jitter() -> None:
    from coldtraild.schedule import _Pace

    now = datetime(2026, 1, 1, tzinfo=UTC)
    pace = _Pace(every_s=60.0, first_after_s=5.0, jitter_s=10.0)
    waits = [(pace.get_next_fire_time(now, now) - now).total_seconds() for _ in range(200)]
    assert 60.0 <= min(waits) < max(waits) <= 70.0
    assert 5.0 <= (pace.get_next_fire_time(None, now) - now).total_seconds() <= 15.0
    assert pace.longest_s == 70.0
