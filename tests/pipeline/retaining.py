"""Sessions for tests of retention: made in a line, and changed as a plan says."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from coldtrail.retention import Candidate, Length, Mark, Plan, Verdict

HOUR = 3_600_000
DAY = 24 * HOUR
NOW = 1_788_100_200_000  # 2026-08-30T14:30:00Z, a Sunday
ACTS = (Verdict.EXPIRE, Verdict.REMOVE, Verdict.LIFT)


def session(name: str, days: float | None = 0, size: int = 10, **more: Any) -> Candidate:
    """A session last active so many days ago (None: its logs have no time)."""
    last_ms = None if days is None else NOW - round(days * DAY)
    known = {"agent": "codex", "source": "codex", "project": "/p/a", "lengths": (Length(f"stream-{name}", 0, 4 * size),)}
    return Candidate(**{"key": f"key-{name}", "id": name, "bytes": size, "last_ms": last_ms, **known, **more})


def marked(one: Candidate, days: float, *, grown: bool = False) -> Candidate:
    """The session, marked so many days ago; `grown`: it was shorter then."""
    lengths = tuple(replace(each, bytes=each.bytes - 1) for each in one.lengths) if grown else one.lengths
    return replace(one, mark=Mark(NOW - round(days * DAY), lengths))


def verdicts(plan: Plan) -> dict[str, str]:
    """What becomes of each session, by its id."""
    return {each.id: each.verdict.value for each in plan.decisions}


def reasons(plan: Plan) -> dict[str, str]:
    """Why, by its id."""
    return {each.id: each.reason for each in plan.decisions}


def carried_out(sessions: Iterable[Candidate], plan: Plan, now_ms: int = NOW) -> list[Candidate]:
    """The sessions once the plan was carried out."""
    verdict = {each.key: each.verdict for each in plan.decisions}
    left = [each for each in sessions if verdict[each.key] is not Verdict.REMOVE]
    left = [replace(each, mark=None) if verdict[each.key] is Verdict.LIFT else each for each in left]
    return [replace(each, mark=Mark(now_ms, each.lengths)) if verdict[each.key] is Verdict.EXPIRE else each for each in left]


def removed_bytes(plan: Plan) -> int:
    """What carrying the plan out frees."""
    return sum(each.bytes for each in plan.of(Verdict.REMOVE))
