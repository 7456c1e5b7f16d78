"""Runs the service's jobs, each at its own pace and never twice at once. The only door to APScheduler."""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from apscheduler.events import EVENT_JOB_ERROR, EVENT_JOB_EXECUTED, JobExecutionEvent
from apscheduler.executors.pool import ThreadPoolExecutor
from apscheduler.schedulers.background import BackgroundScheduler
from apscheduler.triggers.base import BaseTrigger

from coldtraild.log import error_text

WORKERS = 4
LOOK_EVERY_S = 30.0  # the longest sleep between two looks at the clock, which may be set, or jump over a suspend


@dataclass(frozen=True, slots=True)
class JobStatus:
    """What became of a job so far; times in milliseconds since 1970 UTC, None where there was none yet."""

    name: str
    every_s: float
    running: bool
    last_start_ms: int | None
    last_success_ms: int | None
    last_error_ms: int | None
    last_error: str  # of the latest failure; it may be older than the latest success


@dataclass(slots=True)
class _Task:
    name: str
    every_s: float
    job: Callable[[], None]
    running: bool = False
    wanted: bool = False  # somebody asked for a run that has not begun
    last_start_ms: int | None = None
    last_success_ms: int | None = None
    last_error_ms: int | None = None
    last_error: str = ""


class Schedule:
    """A few jobs on a few threads.

    A job that is late runs once, however many turns it missed; one that takes longer than its interval skips the turns in
    between. What a job raises goes to `on_error(name, exception)`, on the job's thread, and the job has its next turn as ever.
    `clock_ms` gives the time in milliseconds since 1970 UTC, for the status alone.
    """

    def __init__(self, on_error: Callable[[str, BaseException], None], clock_ms: Callable[[], int], *, workers: int = WORKERS) -> None:
        logging.getLogger("apscheduler").setLevel(logging.ERROR)  # a turn skipped is no warning here
        logging.getLogger("apscheduler.executors").setLevel(logging.CRITICAL)  # what a job raises goes to `on_error`
        self._on_error = on_error
        self._clock_ms = clock_ms
        self._ended = threading.Condition()  # guards the tasks, and tells when a run has ended
        self._tasks: dict[str, _Task] = {}
        self._stopping = False
        pool = ThreadPoolExecutor(workers, {"thread_name_prefix": "coldtrail-job"})
        self._scheduler = _Scheduler(timezone=UTC, executors={"default": pool})
        self._scheduler.add_listener(self._after_run, EVENT_JOB_EXECUTED | EVENT_JOB_ERROR)

    def every(
        self, name: str, seconds: float, job: Callable[[], None], *, first_after_s: float | None = None, jitter_s: float = 0.0
    ) -> None:
        """Run `job` every `seconds`, each turn up to `jitter_s` later at random; the first after `first_after_s` (else one interval).

        A name that is there already gets the new job and pace, and keeps its history. ValueError where `seconds` is not above 0.
        """
        if seconds <= 0:
            raise ValueError(f"{name}: a job cannot run every {seconds} seconds")
        with self._ended:
            task = self._tasks.setdefault(name, _Task(name, seconds, job))
            task.every_s, task.job = seconds, job
        self._scheduler.add_job(
            lambda: self._run(task),
            _Pace(seconds, seconds if first_after_s is None else first_after_s, jitter_s),
            id=name,
            replace_existing=True,
            coalesce=True,
            max_instances=1,
            misfire_grace_time=None,
        )

    def start(self) -> None:
        """Begin to run jobs."""
        self._scheduler.start()

    def stop(self, timeout_s: float) -> bool:
        """Begin no more runs and wait for those that are under way; False where one still ran after `timeout_s` seconds.

        Not to be called by a job, which would wait for itself. A stopped schedule does not start again.
        """
        with self._ended:
            self._stopping = True
        if self._scheduler.running:
            self._scheduler.shutdown(wait=False)
        with self._ended:
            return self._ended.wait_for(lambda: not any(task.running for task in self._tasks.values()), timeout_s)

    def run_now(self, name: str) -> None:
        """Begin a run of this job now; while one is under way, once more after it. KeyError where there is no such job."""
        with self._ended:
            self._tasks[name].wanted = True
        self._make_due(name)

    def status(self) -> list[JobStatus]:
        """What became of each job, in the order they were added."""
        with self._ended:
            return [
                JobStatus(
                    task.name, task.every_s, task.running, task.last_start_ms, task.last_success_ms, task.last_error_ms, task.last_error
                )
                for task in self._tasks.values()
            ]

    def _make_due(self, name: str) -> None:
        self._scheduler.modify_job(name, next_run_time=datetime.now(UTC))

    def _run(self, task: _Task) -> None:
        with self._ended:
            if self._stopping:  # it was in the pool's queue
                return
            task.wanted, task.running, task.last_start_ms = False, True, self._clock_ms()
            job = task.job
        done = False
        try:
            job()
            done = True
        finally:
            with self._ended:
                task.running = False
                task.last_success_ms = self._clock_ms() if done else task.last_success_ms
                self._ended.notify_all()

    def _after_run(self, event: JobExecutionEvent) -> None:
        with self._ended:
            task = self._tasks[event.job_id]
            if event.exception is not None:
                task.last_error_ms, task.last_error = self._clock_ms(), error_text(event.exception)
            again = task.wanted and not self._stopping
        if again:  # the turn that `run_now` asked for came while this run was under way, and was skipped
            self._make_due(task.name)
        if event.exception is not None:
            self._on_error(task.name, event.exception)


class _Pace(BaseTrigger):  # type: ignore[misc] # the package has no types
    """The next turn is one interval from now: APScheduler's own would list each missed turn, 7 million after a clock's leap of a year."""

    def __init__(self, every_s: float, first_after_s: float, jitter_s: float) -> None:
        self._every_s, self._first_after_s, self._jitter_s = every_s, first_after_s, jitter_s

    @property
    def longest_s(self) -> float:
        """No turn is further ahead than this, unless the clock was set back."""
        return max(self._every_s, self._first_after_s) + self._jitter_s

    def get_next_fire_time(self, previous: datetime | None, now: datetime) -> datetime:
        """The next turn, as APScheduler asks for it."""
        wait_s = self._first_after_s if previous is None else self._every_s
        return now + timedelta(seconds=wait_s + random.uniform(0, self._jitter_s))


class _Scheduler(BackgroundScheduler):  # type: ignore[misc] # the package has no types
    """Never sleeps long, and makes a job due whose turn a clock that was set back has put out of reach."""

    def _process_jobs(self) -> float:
        now = datetime.now(UTC)
        for job in self.get_jobs():
            if job.next_run_time > now + timedelta(seconds=job.trigger.longest_s + 1.0):
                job.modify(next_run_time=now)
        wait_s: float | None = super()._process_jobs()
        return LOOK_EVERY_S if wait_s is None else min(wait_s, LOOK_EVERY_S)
