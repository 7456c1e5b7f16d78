"""Runs the user's command when something is not well: once an hour for each kind at most, and never with a word of a session."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import subprocess
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from coldtraild.log import NAME

AGAIN_S = 3600.0
LIMIT_S = 30.0  # what runs longer is ended
LASTING_MS = 60_000  # what may pass by itself is an alarm once it has lasted so long
_PASSING = ("fault", "job", "stale", "missing")

log = logging.getLogger(NAME)


@dataclass(slots=True)
class _Running:
    process: subprocess.Popen[bytes]
    end_s: float


class Alarm:
    """One command, without a shell. `look` is called every second with what is not well; it waits for nothing."""

    def __init__(
        self,
        command: Sequence[str],
        states: Collection[str],
        home: str,
        env: Mapping[str, str],
        *,
        tick_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """`env` are the surroundings of the command, to which what has happened is added."""
        self._command, self._states, self._home, self._tick_s = list(command), frozenset(states), home, tick_s
        self._env = {name: value for name, value in env.items() if not name.startswith(("NOTIFY_", "WATCHDOG_"))}
        self._told_s: dict[str, float] = {}
        self._running: list[_Running] = []

    def look(self, findings: Sequence[Mapping[str, Any]], now_ms: int) -> None:
        """Run the command for each kind of finding that it has not been run for within the hour."""
        self._reap()
        if not self._command:
            return
        for state in sorted(self._states):
            found = [each for each in findings if each["state"] == state and _lasts(each, now_ms)]
            if found and self._tick_s() - self._told_s.get(state, float("-inf")) >= AGAIN_S:
                self._told_s[state] = self._tick_s()
                self._run(state, found)

    def close(self) -> None:
        """End what still runs."""
        for each in self._running:
            _end(each.process)
        self._running.clear()

    def _run(self, state: str, found: Sequence[Mapping[str, Any]]) -> None:
        first = found[0]
        said = {
            "COLDTRAIL_ALARM": state,
            "COLDTRAIL_COUNT": str(len(found)),
            "COLDTRAIL_WHAT": str(first["what"]),
            "COLDTRAIL_PLACE": str(first["place"]),
            "COLDTRAIL_SESSION": str(first["session"]),
            "COLDTRAIL_SINCE_MS": str(first["since_ms"] or ""),
            "COLDTRAIL_HOME": self._home,
        }
        env = {**self._env, **{name: value.replace("\0", "") for name, value in said.items()}}
        try:
            nothing = subprocess.DEVNULL
            process = subprocess.Popen(self._command, env=env, stdin=nothing, stdout=nothing, stderr=nothing, start_new_session=True)
        except OSError:
            log.exception("the alarm for %(state)s cannot be run", {"state": state})
            return
        self._running.append(_Running(process, self._tick_s() + LIMIT_S))
        log.warning("alarm: %(state)s; the command is run", {"state": state})

    def _reap(self) -> None:
        for each in list(self._running):
            code = each.process.poll()
            if code is None and self._tick_s() < each.end_s:
                continue
            self._running.remove(each)
            if code is None:
                _end(each.process)
                log.error("the alarm's command did not end within %(limit)d s, and was ended", {"limit": int(LIMIT_S)})
            elif code:
                log.error("the alarm's command ended with %(code)d", {"code": code})


def _lasts(finding: Mapping[str, Any], now_ms: int) -> bool:
    since_ms = finding["since_ms"]
    return finding["state"] not in _PASSING or since_ms is None or now_ms - since_ms >= LASTING_MS


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a command with all that it has started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
