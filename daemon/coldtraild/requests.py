"""What can be asked of a running daemon, and what it answers: never more than an order to go, so that nobody is kept waiting."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import asdict

from coldtrail.errors import RefusedError, UsageError
from coldtrail.settings import now_ms
from coldtraild.capturing import Capturing
from coldtraild.chores import Chores
from coldtraild.runs import Pause, Runs
from coldtraild.schedule import Schedule

VERBS = ("ping", "sync", "pause", "resume", "reload")
NAMES_MAX = 10_000
PAUSE_MAX_MS = 366 * 86_400_000

Request = Mapping[str, object]


class Requests:
    """The verbs, over the parts of one daemon."""

    def __init__(
        self,
        capturing: Capturing,
        schedule: Schedule,
        runs: Runs,
        chores: Chores,
        reload: Callable[[], dict[str, object]],
        state: Callable[[], dict[str, object]],
    ) -> None:
        self._capturing, self._schedule, self._runs, self._chores, self._state = capturing, schedule, runs, chores, state
        self._reload = reload

    def answer(self, request: Request) -> dict[str, object]:
        """Do what is asked for; UsageError for what is not known, RefusedError for what cannot be now."""
        verb = request.get("verb")
        acts: dict[str, Callable[[Request], dict[str, object]]] = {
            "ping": self._ping,
            "sync": self._sync,
            "pause": self._pause,
            "resume": self._resume,
            "reload": lambda _: self._reload(),
        }
        if not isinstance(verb, str) or verb not in acts:
            raise UsageError("there is no such verb", hint=f"known here: {', '.join(VERBS)}")
        return acts[verb](request)

    def _ping(self, _request: Request) -> dict[str, object]:
        return {"pid": os.getpid(), "state": self._state()}

    def _sync(self, request: Request) -> dict[str, object]:
        names = request.get("names", [])
        if not isinstance(names, list) or len(names) > NAMES_MAX or not all(isinstance(name, str) for name in names):
            raise UsageError("names is a list of keys and paths")
        if self._chores.is_capture_paused():
            raise RefusedError("capture is paused", hint="`coldtrail resume` ends that")
        self._capturing.sync(names)
        return {"asked": len(names)}

    def _pause(self, request: Request) -> dict[str, object]:
        for_ms, capture = request.get("for_ms"), request.get("capture", False)
        if not (for_ms is None or (type(for_ms) is int and 0 < for_ms <= PAUSE_MAX_MS)) or not isinstance(capture, bool):
            raise UsageError("for_ms is a number of milliseconds up to a year, capture is true or false")
        at_ms = now_ms()
        pause = Pause(at_ms, None if for_ms is None else at_ms + for_ms, capture)
        self._runs.set_pause(pause)
        return {"paused": asdict(pause)}

    def _resume(self, _request: Request) -> dict[str, object]:
        was_paused = self._chores.is_paused()
        self._runs.set_pause(None)
        if was_paused:  # capture sees it, and the others are tried again, by themselves
            self._schedule.run_soon("compact")
        return {"was_paused": was_paused}
