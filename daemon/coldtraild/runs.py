"""What the service remembers from one run to the next: when its rare jobs last ran and what came of it, and a pause."""

from __future__ import annotations

import json
import threading
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypeVar

from coldtrail import durable
from coldtrail.errors import StoreFullError


@dataclass(frozen=True, slots=True)
class Last:
    """A job's latest runs; times in milliseconds since 1970 UTC, None where there was none yet."""

    start_ms: int | None = None
    success_ms: int | None = None
    error_ms: int | None = None
    error: str = ""  # of the latest failure; it may be older than the latest success
    said: str = ""  # what the latest success has done, in words


@dataclass(frozen=True, slots=True)
class Hung:
    """A run that does not move."""

    since_ms: int  # its last sign of life, in milliseconds since 1970 UTC
    place: str  # where its thread stands: files, lines and functions, no values


@dataclass(frozen=True, slots=True)
class JobStatus:
    """What became of a job so far; `next_ms` is its next turn in milliseconds since 1970 UTC, None where there is none."""

    name: str
    every_s: float
    running: bool
    last: Last
    next_ms: int | None = None
    hung: Hung | None = None


@dataclass(frozen=True, slots=True)
class Pause:
    """The work was told to stop."""

    since_ms: int
    until_ms: int | None = None  # None: until somebody says resume
    capture: bool = False  # capture too

    def holds(self, now_ms: int) -> bool:
        """Whether it is not over yet; one that began in the future was noted by a wrong clock."""
        return self.since_ms <= now_ms and (self.until_ms is None or now_ms < self.until_ms)


_Known = TypeVar("_Known", Pause, Last)


class Runs:
    """The file of one home, read once and replaced at each change; for any number of threads.

    One that is damaged is as one that is not there: then each job runs soon, as after an install.
    """

    def __init__(self, path: Path) -> None:
        self._path, self._lock = path, threading.Lock()
        self._pause, self._jobs = _read(path)

    def last(self, job: str) -> Last:
        """What is known of a job."""
        with self._lock:
            return self._jobs.get(job, Last())

    def all(self) -> dict[str, Last]:
        """Every job that is remembered."""
        with self._lock:
            return dict(self._jobs)

    def note(self, job: str, last: Last) -> None:
        """Remember the latest of a job; on a full disk only until this process ends."""
        with self._lock:
            self._jobs[job] = last
            self._keep()

    @property
    def pause(self) -> Pause | None:
        """The pause that was asked for last, be it over."""
        with self._lock:
            return self._pause

    def set_pause(self, pause: Pause | None) -> None:
        """Remember a pause, or that there is none."""
        with self._lock:
            self._pause = pause
            self._keep()

    def _keep(self) -> None:
        value = {
            "paused": None if self._pause is None else asdict(self._pause),
            "jobs": {name: asdict(last) for name, last in self._jobs.items()},
        }
        with suppress(StoreFullError):
            durable.replace(self._path, json.dumps(value, indent=1).encode() + b"\n")


def _read(path: Path) -> tuple[Pause | None, dict[str, Last]]:
    try:
        value = json.loads(path.read_bytes())
        pause = None if value["paused"] is None else _sound(Pause(**value["paused"]))
        return pause, {str(name): _sound(Last(**last)) for name, last in value["jobs"].items()}
    except (FileNotFoundError, ValueError, TypeError, KeyError, AttributeError):
        return None, {}


def _sound(found: _Known) -> _Known:
    """The same, if every time in it is one; TypeError otherwise."""
    for name, value in asdict(found).items():
        if name.endswith("_ms") and not (value is None or type(value) is int):
            raise TypeError(name)
    return found
