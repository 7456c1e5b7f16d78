"""What the schedule calls: each job with a home of its own, one that may not work now steps back, and each says what it did."""

from __future__ import annotations

import logging
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from random import Random

from coldtrail import steady, sweeps
from coldtrail.settings import Settings, find_sources, now_ms, open_home, uptime
from coldtrail.stage.drill import drill
from coldtrail.stage.sample import Sample
from coldtraild import jobs, keeping, pace, report
from coldtraild.log import NAME
from coldtraild.report import Known
from coldtraild.runs import Runs
from coldtraild.schedule import PostponedError, Schedule

COMPACT_EVERY_S = 60.0
RECLAIM_EVERY_S = 300.0
REMOVE_FIRST_S = 60.0  # whoever has just installed a config may want to think again
CLOCK_EVERY_S = 300.0
OUTLOOK_EVERY_S = 600.0
DRILL_EVERY_S = 7 * 24 * 3_600.0
DRILL_FIRST_S = 3_600.0  # not while everything is captured for the first time
DRILL_SESSIONS = 20
_JITTER_S = 300.0

log = logging.getLogger(NAME)


class Chores:
    """The jobs of one daemon. `use` gives them other settings, which hold from their next run on."""

    def __init__(self, found: Settings, schedule: Schedule, runs: Runs, known: Known, stopping: threading.Event) -> None:
        self._found, self._schedule, self._runs, self._known, self._stopping = found, schedule, runs, known, stopping
        self._bucket = self._new_bucket()

    def use(self, found: Settings) -> None:
        """Go on with other settings."""
        self._found = found
        self._bucket = self._new_bucket()

    def _new_bucket(self) -> pace.Bucket:
        return pace.Bucket(self._found.config.compact.rate_bytes, time.monotonic, self._stopping.wait)

    def add(self) -> None:
        """Put every job on the schedule."""
        every = self._schedule.every
        every("compact", COMPACT_EVERY_S, self._compact, first_after_s=1.0, apart=True)
        every("retain", keeping.RETAIN_EVERY_S, self._retain, first_after_s=REMOVE_FIRST_S, jitter_s=_JITTER_S, kept=True)
        every("reclaim", RECLAIM_EVERY_S, self._reclaim, first_after_s=REMOVE_FIRST_S)
        every("clock", CLOCK_EVERY_S, self._clock, first_after_s=0.0)
        every("drill", DRILL_EVERY_S, self._drill, first_after_s=DRILL_FIRST_S, jitter_s=_JITTER_S, kept=True, apart=True)
        every("outlook", OUTLOOK_EVERY_S, self._outlook, first_after_s=1.0)

    def is_paused(self) -> bool:
        """Whether somebody has told the work to stop."""
        pause = self._runs.pause
        return pause is not None and pause.holds(now_ms())

    def is_capture_paused(self) -> bool:
        """Whether capture was told to stop too."""
        pause = self._runs.pause
        return pause is not None and pause.capture and pause.holds(now_ms())

    def _must_end(self, name: str) -> Callable[[], bool]:
        """For a job to ask between two steps, which is also its sign of life; PostponedError where it may not even begin."""
        if self.is_paused():
            raise PostponedError

        def must_end() -> bool:
            self._schedule.beat(name)
            return self._stopping.is_set() or self.is_paused()

        return must_end

    def _compact(self) -> str:
        must_end = self._must_end("compact")
        pace.step_back()
        with open_home(self._found) as home, jobs.shown(home, home.layout.archive):
            made = jobs.checkpoint(home, self._found, must_end)
            done = jobs.compact(home, self._found, must_end, self._paced)
        if done.segments:
            log.info(
                "compacted %(bytes)d bytes of %(streams)d streams into %(segments)d segments",
                {"bytes": done.plain_bytes, "streams": done.streams, "segments": done.segments},
            )
        if not (done.segments or made):
            return "nothing to do"
        return f"{done.plain_bytes} bytes of {done.streams} streams into {done.segments} segments, {made} checkpoints"

    def _paced(self, size: int) -> None:
        self._schedule.beat("compact")
        self._bucket.take(size)

    def _retain(self) -> str:
        must_end = self._must_end("retain")
        with open_home(self._found) as home, jobs.shown(home, home.layout.journal):
            done = keeping.retain(home, self._found, must_end)
        if must_end():
            raise PostponedError
        if done is None:
            return "nothing is asked for"
        log.info(
            "retention: marked %(marked)d, kept after all %(lifted)d, removed %(removed)d sessions; %(freed)d bytes freed",
            {"marked": done.marked, "lifted": done.lifted, "removed": done.removed, "freed": done.freed},
        )
        return f"marked {done.marked}, kept after all {done.lifted}, removed {done.removed} sessions, {done.freed} bytes freed"

    def _reclaim(self) -> str:
        must_end = self._must_end("reclaim")
        with open_home(self._found) as home, jobs.shown(home, home.layout.aside):
            done = keeping.reclaim(home, self._found, must_end)
        for each in done:
            log.info("session %(session)s: %(act)s: %(why)s", {"session": each.session, "act": each.act.value, "why": each.reason})
        return f"{len(done)} steps" if done else "nothing to do"

    def _drill(self) -> str:
        must_end = self._must_end("drill")
        pace.step_back()
        with open_home(self._found) as home:
            found = drill(home, Sample(count=DRILL_SESSIONS), Random(), Path(tempfile.gettempdir()), stopping=must_end)
        if must_end():
            raise PostponedError
        told = {"verdict": found.word, "tried": len(found.tried), "bad": found.count("bad")}
        log.log(logging.ERROR if found.word == "bad" else logging.INFO, "drill: %(verdict)s: tried %(tried)d sessions, %(bad)d bad", told)
        return f"{found.word}: tried {len(found.tried)} sessions"

    def _clock(self) -> str:
        why = steady.suspended(self._found.layout.clock, now_ms(), uptime())
        if why and not self._known.clock:
            log.warning("%(why)s", {"why": why})
        self._known.clock = why
        return why or "steady"

    def _outlook(self) -> str:
        with open_home(self._found) as home:
            found = sweeps.look(home, find_sources(self._found))
            self._known.outlook = report.outlook(found, home.now_ms())
        return f"{len(found.dangers)} in danger"
