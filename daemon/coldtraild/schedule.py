"""Runs the service's jobs, each at its own pace and never twice at once. The only door to APScheduler."""

from __future__ import annotations

import logging
import random
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import FrameType

from apscheduler.events import EVENT_JOB_ERROR, EVENT_JOB_EXECUTED, JobExecutionEvent
from apscheduler.executors.pool import ThreadPoolExecutor
from apscheduler.schedulers.background import BackgroundScheduler
from apscheduler.triggers.base import BaseTrigger

from coldtraild.log import error_text
from coldtraild.runs import Hung, JobStatus, Last, Runs

WORKERS = 8
LOOK_EVERY_S = 30.0  # the longest sleep between two looks at the clock, which may be set, or jump over a suspend
HUNG_S = 600.0  # a run that has given no sign of life for so long is told of
RETRY_S = 3600.0  # a rare job that failed is not put off until its next turn
POSTPONED_S = 60.0

Job = Callable[[], str | None]  # gives what it has done, in words


class PostponedError(Exception):
    """A job has not done its work, for it may not now: it is tried again soon, and neither has failed nor succeeded."""


@dataclass(slots=True)
class _Task:
    name: str
    every_s: float
    job: Job
    kept: bool = False
    hung_s: float = HUNG_S
    last: Last = field(default_factory=Last)
    running: bool = False
    wanted: bool = False  # somebody asked for a run that has not begun
    postponed: bool = False
    alive_s: float = 0.0  # when the run gave its last sign of life
    thread: int = 0  # that runs it


class Schedule:
    """A few jobs on a few threads.

    A job that is late runs once, however many turns it missed; one that takes longer than its interval skips the turns in
    between. What a job raises goes to `on_error(name, exception)`, on the job's thread, and the job has its next turn as ever.
    `clock_ms` gives the time in milliseconds since 1970 UTC, `tick_s` seconds that no setting of the clock changes.
    """

    def __init__(
        self,
        on_error: Callable[[str, BaseException], None],
        clock_ms: Callable[[], int],
        runs: Runs | None = None,
        *,
        workers: int = WORKERS,
        tick_s: Callable[[], float] = time.monotonic,
    ) -> None:
        logging.getLogger("apscheduler").setLevel(logging.ERROR)  # a turn skipped is no warning here
        logging.getLogger("apscheduler.executors").setLevel(logging.CRITICAL)  # what a job raises goes to `on_error`
        self._on_error, self._clock_ms, self._tick_s = on_error, clock_ms, tick_s
        self._runs = runs
        self._ended = threading.Condition()  # guards the tasks, and tells when a run has ended
        self._tasks: dict[str, _Task] = {}
        self._stopping = False
        pool = ThreadPoolExecutor(workers, {"thread_name_prefix": "coldtrail-job"})
        self._scheduler = _Scheduler(timezone=UTC, executors={"default": pool})
        self._scheduler.add_listener(self._after_run, EVENT_JOB_EXECUTED | EVENT_JOB_ERROR)

    def every(
        self,
        name: str,
        seconds: float,
        job: Job,
        *,
        first_after_s: float | None = None,
        jitter_s: float = 0.0,
        hung_s: float = HUNG_S,
        kept: bool = False,
        apart: bool = False,
    ) -> None:
        """Run `job` every `seconds`, each turn up to `jitter_s` later at random; the first after `first_after_s` (else one interval).

        `kept`: its last run is remembered over restarts, and the first is an interval after that one, if not due by then; where
        it fails it is tried again in an hour. `apart`: it has a thread that no other job comes to run on. A name that is there
        already gets the new job and pace, and keeps its history. ValueError where `seconds` is not above 0.
        """
        if seconds <= 0:
            raise ValueError(f"{name}: a job cannot run every {seconds} seconds")
        with self._ended:
            is_new = name not in self._tasks
            task = self._tasks.setdefault(name, _Task(name, seconds, job))
            task.every_s, task.job, task.kept, task.hung_s = seconds, job, kept, hung_s
            if kept and is_new and self._runs is not None:
                task.last = self._runs.last(name)
            first_s = self._first_s(task, first_after_s)
        if apart and is_new:
            self._scheduler.add_executor(ThreadPoolExecutor(1, {"thread_name_prefix": f"coldtrail-{name}"}), alias=name)
        self._scheduler.add_job(
            lambda: self._run(task),
            _Pace(seconds, first_s, jitter_s),
            id=name,
            executor=name if apart else "default",
            replace_existing=True,
            coalesce=True,
            max_instances=1,
            misfire_grace_time=None,
        )

    def _first_s(self, task: _Task, first_after_s: float | None) -> float:
        """How long until a job's first turn: one that is remembered is caught up."""
        last_ms, now_ms = task.last.success_ms, self._clock_ms()
        if not task.kept or last_ms is None:
            return task.every_s if first_after_s is None else first_after_s
        left_s = task.every_s - (now_ms - last_ms) / 1000 if last_ms <= now_ms else 0.0  # a wrong clock has noted it
        return max(left_s, first_after_s or 0.0)

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

    def run_soon(self, name: str) -> None:
        """The same; where the job is not there yet its first turn will do."""
        with self._ended:
            is_there = name in self._tasks
        if is_there:
            self.run_now(name)

    def beat(self, name: str) -> None:
        """A run of this job lives: to be said by whatever takes long, now and then."""
        with self._ended:
            self._tasks[name].alive_s = self._tick_s()

    def status(self) -> list[JobStatus]:
        """What became of each job, in the order they were added."""
        next_ms = {job.id: _ms(getattr(job, "next_run_time", None)) for job in self._scheduler.get_jobs()}
        with self._ended:
            return [
                JobStatus(task.name, task.every_s, task.running, task.last, next_ms.get(task.name), self._hung(task))
                for task in self._tasks.values()
            ]

    def _hung(self, task: _Task) -> Hung | None:
        silent_s = self._tick_s() - task.alive_s
        if not task.running or silent_s < task.hung_s:
            return None
        return Hung(self._clock_ms() - round(silent_s * 1000), place_of(task.thread))

    def _make_due(self, name: str, after_s: float = 0.0) -> None:
        self._scheduler.modify_job(name, next_run_time=datetime.now(UTC) + timedelta(seconds=after_s))

    def _run(self, task: _Task) -> None:
        self._scheduler.get_job(task.name)  # waits for the scheduler to set the next turn: a run that was faster would be overruled by it
        with self._ended:
            if self._stopping:  # it was in the pool's queue
                return
            task.wanted, task.running, task.postponed = False, True, False
            task.last = replace(task.last, start_ms=self._clock_ms())
            task.alive_s, task.thread = self._tick_s(), threading.get_ident()
            job = task.job
        said: str | None = None
        try:
            said = job() or ""
        except PostponedError:
            task.postponed = True
        finally:
            with self._ended:
                task.running = False
                if said is not None:
                    task.last = replace(task.last, success_ms=self._clock_ms(), said=said)
                self._ended.notify_all()
        if said is not None:
            self._remember(task)

    def _remember(self, task: _Task) -> None:
        if task.kept and self._runs is not None:
            self._runs.note(task.name, task.last)

    def _after_run(self, event: JobExecutionEvent) -> None:
        with self._ended:
            task = self._tasks[event.job_id]
            if event.exception is not None:
                task.last = replace(task.last, error_ms=self._clock_ms(), error=error_text(event.exception))
            wait_s = self._again_after_s(task, failed=event.exception is not None)
            again = wait_s is not None and not self._stopping
        if again and wait_s is not None:
            self._make_due(task.name, wait_s)
        if event.exception is not None:
            self._remember(task)
            self._on_error(task.name, event.exception)

    @staticmethod
    def _again_after_s(task: _Task, *, failed: bool) -> float | None:
        """How soon a job runs again out of its turn; None: it does not."""
        if task.wanted:  # the turn that `run_now` asked for came while this run was under way, and was skipped
            return 0.0
        if task.postponed:
            return min(POSTPONED_S, task.every_s)
        return RETRY_S if failed and task.kept and task.every_s > RETRY_S else None


def place_of(thread: int) -> str:
    """Where a thread stands: the innermost line, and the innermost of ours where that is another; no values of any variable."""
    frame = sys._current_frames().get(thread)  # there is no other way to look at another thread
    places: list[str] = []
    while frame is not None:
        if not places or _is_ours(frame):
            places.append(f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno} in {frame.f_code.co_name}")
            if _is_ours(frame):
                break
        frame = frame.f_back
    return ", called by ".join(places)


def _is_ours(frame: FrameType) -> bool:
    return str(frame.f_globals.get("__name__", "")).partition(".")[0] in ("coldtrail", "coldtraild")


def _ms(moment: datetime | None) -> int | None:
    return None if moment is None else round(moment.timestamp() * 1000)


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
