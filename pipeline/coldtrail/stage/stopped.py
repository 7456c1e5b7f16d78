"""Where a verification stopped for want of time: kept in a small file, so that the next one goes on."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

from coldtrail import durable
from coldtrail.format import lines
from coldtrail.format.fields import array, integer, json_object, objects, text
from coldtrail.home import Home
from coldtrail.layout import check_id
from coldtrail.stage.verify import Effort, Spot, Verdict

VERSION = 1
NAME = "verify.json"


@dataclass(frozen=True, slots=True)
class Stopped:
    """A verification that is not at its end."""

    sessions: tuple[str, ...] | None  # the keys of those that were asked for; None: all
    percent: float | None  # of the data; None: all
    seed: int
    next: Spot
    damaged: tuple[Spot, ...]  # so far: read again by whoever goes on
    at_ms: int

    @classmethod
    def load(cls, home: Home) -> Self | None:
        """The last one; None where there is none, or nobody can read it."""
        try:
            value = json_object(lines.loads(_file(home).read_bytes()), NAME)
            return cls._from(value) if value.get("version") == VERSION else None
        except (FileNotFoundError, ValueError):
            return None

    @classmethod
    def _from(cls, value: Mapping[str, Any]) -> Self:
        sessions = None if value.get("sessions") is None else tuple(check_id(str(each)) for each in array(value, "sessions"))
        percent = value.get("percent")
        if percent is not None and not isinstance(percent, int | float):
            raise ValueError("'percent' is no number")
        damaged = tuple(_spot(each) for each in objects(value, "damaged"))
        where = _spot(json_object(value.get("next"), "'next'"))
        return cls(sessions, percent, integer(value, "seed"), where, damaged, integer(value, "at_ms"))

    def is_of(self, sessions: Collection[str] | None, percent: float | None) -> bool:
        """Whether it was over these sessions, with that share of the data."""
        same = self.sessions is None if sessions is None else self.sessions is not None and set(self.sessions) == set(sessions)
        return same and self.percent == percent


def keep(home: Home, sessions: Collection[str] | None, effort: Effort, verdict: Verdict) -> None:
    """Take down where a verification goes on; where it is at its end, that there is nothing to go on with."""
    if verdict.next is None:
        durable.remove(_file(home))
        return
    keys = None if sessions is None else tuple(sessions)
    found = Stopped(keys, effort.percent, effort.seed, verdict.next, tuple(sorted(verdict.damaged)), home.now_ms())
    durable.replace(_file(home), lines.dumps({"version": VERSION, **asdict(found)}, sort=True) + b"\n")


def _file(home: Home) -> Path:
    return home.layout.home / NAME


def _spot(value: Mapping[str, Any]) -> Spot:
    return Spot(check_id(text(value, "session")), check_id(text(value, "stream")), integer(value, "generation"), integer(value, "offset"))
