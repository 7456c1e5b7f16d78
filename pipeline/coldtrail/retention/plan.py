"""What retention is told of a session, and what it says of it: candidates, decisions, the plan."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from enum import StrEnum

from coldtrail.model import instant_text

_BELIEVABLE_MS = 946_684_800_000  # 2000-01-01: an earlier time comes from a clock that was never set
_GOING = ("expire", "expiring")


@dataclass(frozen=True, slots=True, order=True)
class Length:
    """How much is held of a generation of a stream: what a decision is about."""

    stream: str
    generation: int
    bytes: int  # plain


@dataclass(frozen=True, slots=True)
class Mark:
    """That a session expires: since when, and at which lengths; None where nobody noted them."""

    at_ms: int
    lengths: tuple[Length, ...] | None = None


@dataclass(frozen=True, slots=True)
class Candidate:
    """What retention needs to know of a session."""

    key: str
    id: str  # the agent's
    agent: str
    source: str
    project: str | None = None
    tags: tuple[str, ...] = ()
    live: bool = False  # the agent's own file is there
    bytes: int = 0  # stored: what its removal frees, and what every size of a policy is about
    last_ms: int | None = None  # newest time inside its logs
    grew_ms: int = 0  # when it was last seen growing
    pinned: bool = False
    held_until_ms: int | None = None  # restored: left alone until then
    mark: Mark | None = None
    parents: tuple[str, ...] = ()  # agents' ids of the sessions that it needs
    lengths: tuple[Length, ...] = ()

    def activity_ms(self, now_ms: int) -> int:
        """When it was last active: never after now, and now where no time is known."""
        if self.last_ms is not None and self.last_ms >= _BELIEVABLE_MS:
            return min(self.last_ms, now_ms)
        return min(max(self.last_ms or 0, self.grew_ms) or now_ms, now_ms)

    def standing_mark(self) -> Mark | None:
        """Its mark, unless it has grown since."""
        if self.mark is None or self.mark.lengths is None or sorted(self.mark.lengths) == sorted(self.lengths):
            return self.mark
        return None


class Verdict(StrEnum):
    """What becomes of a session."""

    KEEP = "keep"
    EXPIRE = "expire"  # is marked now (anew, where it has grown since it was): its grace begins
    EXPIRING = "expiring"  # is marked already: everything stays until its grace is over
    REMOVE = "remove"  # its grace is over: what we hold of it goes
    LIFT = "lift"  # is marked and stays: the mark goes


@dataclass(frozen=True, slots=True)
class Decision:
    """What becomes of one session, and why."""

    key: str
    id: str
    verdict: Verdict
    reason: str  # names ids and the policy, never a session's text
    bytes: int
    rule: int | None = None  # the number of the rule that decided, from 1
    lengths: tuple[Length, ...] = ()
    goes_ms: int | None = None  # when its grace is over, of one that expires

    def to_json(self) -> dict[str, object]:
        """As a JSON object."""
        goes = {"goes": instant_text(self.goes_ms)} if self.verdict in _GOING else {}
        return {"key": self.key, "id": self.id, "bytes": self.bytes, "reason": self.reason, "rule": self.rule, **goes}


@dataclass(frozen=True, slots=True, order=True)
class Version:
    """An older version of a companion that is more than `companion_versions`."""

    session: str
    stream: str
    generation: int
    bytes: int  # stored


@dataclass(frozen=True, slots=True)
class Plan:
    """A decision for each session, the longest inactive first, and what there is to say of them all."""

    decisions: tuple[Decision, ...]
    notes: tuple[str, ...] = ()
    thin: tuple[Version, ...] = ()  # of sessions that stay

    def of(self, verdict: Verdict) -> tuple[Decision, ...]:
        """The decisions of that verdict."""
        return tuple(each for each in self.decisions if each.verdict is verdict)

    @property
    def fingerprint(self) -> str:
        """16 hex digits for everything the plan would do, and to how many bytes of what.

        What it leaves alone has no part in it: who agreed to a plan need not be asked again because another session goes on.
        """
        acts = (Verdict.EXPIRE, Verdict.REMOVE, Verdict.LIFT)
        done: list[list[object]] = sorted(
            [each.verdict.value, each.key, [[length.stream, length.generation, length.bytes] for length in sorted(each.lengths)]]
            for each in self.decisions
            if each.verdict in acts
        )
        done += [["thin", each.stream, each.generation] for each in sorted(self.thin)]
        return hashlib.sha256(json.dumps(done, separators=(",", ":")).encode()).hexdigest()[:16]

    @property
    def totals(self) -> dict[str, dict[str, int]]:
        """Sessions and stored bytes for each verdict."""
        parts = {verdict.value: self.of(verdict) for verdict in Verdict}
        return {name: {"sessions": len(part), "bytes": sum(each.bytes for each in part)} for name, part in parts.items()}

    def to_json(self) -> dict[str, object]:
        """As the JSON that `plan` prints."""
        parts = {verdict.value: [each.to_json() for each in self.of(verdict)] for verdict in Verdict}
        return {"fingerprint": self.fingerprint, **parts, "totals": self.totals, "thin": self.thinned, "notes": list(self.notes)}

    @property
    def thinned(self) -> dict[str, int]:
        """How many older versions of companions go, of how many sessions, and their stored bytes."""
        size = sum(each.bytes for each in self.thin)
        return {"sessions": len({each.session for each in self.thin}), "versions": len(self.thin), "bytes": size}
