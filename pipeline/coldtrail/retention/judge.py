"""The plan for all sessions: what must stay, what rules and budgets let go, and how far each has come on its way out."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from coldtrail.config import Retention
from coldtrail.model import instant_text
from coldtrail.retention.budget import Budget, early, within_floors
from coldtrail.retention.plan import Candidate, Decision, Plan, Verdict
from coldtrail.retention.rules import rulings
from coldtrail.units import size_text

LEAST_PER_PASS = 100  # so many sessions may be marked in a pass, however small the share


def decide(
    sessions: Iterable[Candidate],
    policy: Retention,
    now_ms: int,
    *,
    free_bytes: int | None = None,
    away: Collection[str] = (),
    suspended: str = "",
    force: bool = False,
) -> Plan:
    """What becomes of each session under a policy at a moment; the same in whatever order they come.

    `free_bytes`: of the disk that holds the archive, None where nobody can tell; `away`: the sources that are not there now;
    `suspended`: why nothing may be marked or removed, else empty; `force`: mark more than a pass may.
    ValueError where two sessions have one key.

    >>> decide([Candidate(key="k", id="i", agent="codex", source="codex")], Retention(), 0).decisions[0].reason
    'no rule is about it'
    """
    everyone = sorted(sessions, key=lambda each: (each.activity_ms(now_ms), each.key))
    scene = _Scene(tuple(everyone), policy, now_ms, free_bytes, frozenset(away))
    if len({each.key for each in everyone}) < len(everyone):
        raise ValueError("two sessions have one key")
    decided, notes = _judge(scene)
    if suspended:
        return Plan(tuple(_suspend(everyone, decided, suspended)), (f"nothing is marked or removed: {suspended}", *notes))
    removed = {key: each for key, each in decided.items() if each.verdict is Verdict.REMOVE}
    if removed:  # what is left is decided as if they were gone, so that the next pass finds nothing more to do
        left, notes = _judge(scene.without(removed))
        decided = left | removed
    if not force:
        decided, postponed = _limit(everyone, decided, policy)
        notes += postponed
    in_order = tuple(decided[each.key] for each in everyone)
    return Plan(in_order, (*_early_notes(removed.values(), policy, now_ms), *notes))


@dataclass(frozen=True, slots=True)
class _Scene:
    """What one look is about."""

    everyone: tuple[Candidate, ...]  # inactive for longest first
    policy: Retention
    now_ms: int
    free_bytes: int | None
    away: frozenset[str]
    unburdened: frozenset[str] = frozenset()  # were needed until now: an old mark of theirs does not count

    def without(self, removed: Mapping[str, Decision]) -> _Scene:
        """The same once these sessions are gone."""
        gone = [each for each in self.everyone if each.key in removed]
        free_bytes = None if self.free_bytes is None else self.free_bytes + sum(each.bytes for each in gone)
        left = tuple(each for each in self.everyone if each.key not in removed)
        return replace(self, everyone=left, free_bytes=free_bytes, unburdened=frozenset(_needed(self.everyone, gone)))

    def marks(self) -> dict[str, int]:
        """Since when each session is marked, by key; what a clock in the future said counts from now."""
        standing = ((each.key, each.standing_mark()) for each in self.everyone if each.key not in self.unburdened)
        return {key: min(mark.at_ms, self.now_ms) for key, mark in standing if mark is not None}


@dataclass(frozen=True, slots=True)
class _Stay:
    """Why a session stays whatever a budget says."""

    kind: str  # what is said of several such
    reason: str
    rule: int | None = None


@dataclass(frozen=True, slots=True)
class _Go:
    """Why a session is to go."""

    reason: str
    rule: int | None = None


def _judge(scene: _Scene) -> tuple[dict[str, Decision], list[str]]:
    """A decision for each session, by key, and what is to be noted."""
    marks = scene.marks()
    stays, goes = _ruled(scene, dict(_shields(scene, marks)))
    notes = [f"the source {name} is not there: nothing of it is marked or removed" for name in sorted(_missing(scene))]
    notes += _spend(scene, marks, stays, goes)
    decided = {each.key: _decision(scene, each, marks.get(each.key), stays.get(each.key), goes.get(each.key)) for each in scene.everyone}
    return decided | dict(_ended_early(scene, decided, marks)), notes


def _shields(scene: _Scene, marks: Mapping[str, int]) -> Iterator[tuple[str, _Stay]]:
    """What no policy touches. A session whose source went away after it was marked stays marked, and waits."""
    needed = _needed(scene.everyone, scene.everyone)
    for each in scene.everyone:
        if each.pinned:
            yield each.key, _Stay("pinned", "pinned")
        elif each.held_until_ms is not None and each.held_until_ms > scene.now_ms:
            yield each.key, _Stay("restored", f"restored, and held until {instant_text(each.held_until_ms)}")
        elif each.key in needed:
            yield each.key, _Stay("needed by others", f"{needed[each.key]} needs it")
        elif each.source in scene.away and each.key not in marks:
            yield each.key, _Stay("of sources that are not there", "its source is not there")


def _needed(everyone: Sequence[Candidate], by: Sequence[Candidate]) -> dict[str, str]:
    """The keys of the sessions that one of `by` needs, and the id of that one."""
    needers: dict[tuple[str, str, str], list[Candidate]] = defaultdict(list)
    for each in by:
        for parent in each.parents:
            needers[each.agent, each.source, parent].append(each)
    needed: dict[str, str] = {}
    for each in everyone:
        for needer in needers.get((each.agent, each.source, each.id), ()):
            if needer.key != each.key:
                needed.setdefault(each.key, needer.id)
    return needed


def _ruled(scene: _Scene, stays: dict[str, _Stay]) -> tuple[dict[str, _Stay], dict[str, _Go]]:
    """What stays, and what goes, once the rules have spoken."""
    newest_first = scene.everyone[::-1]
    active_ms = {each.key: each.activity_ms(scene.now_ms) for each in newest_first}
    ruled = rulings(newest_first, active_ms, scene.policy.rules, scene.now_ms)
    kept = {key: _Stay("kept by rules", each.reason, each.rule) for key, each in ruled.items() if each.kept}
    goes = {key: _Go(each.reason, each.rule) for key, each in ruled.items() if not each.kept and key not in stays}
    return kept | stays, goes


def _spend(scene: _Scene, marks: Mapping[str, int], stays: dict[str, _Stay], goes: dict[str, _Go]) -> list[str]:
    """Let the budgets add to what stays and to what goes; what they cannot do is noted."""
    policy = scene.policy
    if policy.max_total_bytes is None and policy.min_free_bytes is None:
        return []
    left = [each for each in scene.everyone if each.key not in goes]
    for key in within_floors(left[::-1], policy):
        stays.setdefault(key, _Stay("within the floors of their projects", "within the floor of its project"))
    loose = [each for each in left if each.key not in stays]
    leaving = [each for each in scene.everyone if each.key in goes or (each.key in marks and each.key not in stays)]
    budget = Budget(
        policy.max_total_bytes,
        None if scene.free_bytes is None else policy.min_free_bytes,
        total_bytes=sum(each.bytes for each in left) - sum(each.bytes for each in loose if each.key in marks),
        free_bytes=(scene.free_bytes or 0) + sum(each.bytes for each in leaving if each.source not in scene.away),
    )
    budget.evict([each for each in loose if each.key not in marks])
    budget.lift([each for each in loose[::-1] if each.key in marks or each.key in budget.taken], scene.away)
    goes |= {key: _Go(reason) for key, reason in budget.taken.items()}
    notes = budget.notes([(stays[each.key].kind, each.bytes) for each in left if each.key in stays])
    if policy.min_free_bytes is not None and scene.free_bytes is None:
        notes.append("min_free: nobody can tell how much is free, so nothing is done for it")
    return notes


def _decision(scene: _Scene, session: Candidate, marked_ms: int | None, stay: _Stay | None, go: _Go | None) -> Decision:
    def becomes(verdict: Verdict, reason: str, rule: int | None, goes_ms: int | None = None) -> Decision:
        return Decision(session.key, session.id, verdict, reason, session.bytes, rule, session.lengths, goes_ms)

    if go is None:
        verdict = Verdict.KEEP if session.mark is None else Verdict.LIFT
        return becomes(verdict, stay.reason if stay else "no rule is about it", stay.rule if stay else None)
    if marked_ms is None:
        return becomes(Verdict.EXPIRE, go.reason, go.rule, scene.now_ms + scene.policy.grace_ms)
    goes_ms = marked_ms + scene.policy.grace_ms
    if session.source in scene.away:
        return becomes(Verdict.EXPIRING, f"{go.reason}; its source is not there: it waits", go.rule, goes_ms)
    return becomes(Verdict.REMOVE if goes_ms <= scene.now_ms else Verdict.EXPIRING, go.reason, go.rule, goes_ms)


def _ended_early(scene: _Scene, decided: Mapping[str, Decision], marks: Mapping[str, int]) -> Iterator[tuple[str, Decision]]:
    """What is removed before its grace is over, because the disk is too full; never what was marked this very moment."""
    if scene.policy.min_free_bytes is None or scene.free_bytes is None:
        return
    missing_bytes = scene.policy.min_free_bytes - scene.free_bytes
    missing_bytes -= sum(each.bytes for each in decided.values() if each.verdict is Verdict.REMOVE)
    waiting = {
        each.key: (marks[each.key], each.bytes)
        for each in scene.everyone
        if decided[each.key].verdict is Verdict.EXPIRING and each.source not in scene.away and marks[each.key] < scene.now_ms
    }
    for key in early(waiting, missing_bytes):
        reason = f"{decided[key].reason}; its grace ends early: min_free {size_text(scene.policy.min_free_bytes)}"
        yield key, replace(decided[key], verdict=Verdict.REMOVE, reason=reason)


def _missing(scene: _Scene) -> set[str]:
    return {each.source for each in scene.everyone} & scene.away


def _early_notes(removed: Iterable[Decision], policy: Retention, now_ms: int) -> list[str]:
    count = sum(each.goes_ms is not None and each.goes_ms > now_ms for each in removed)
    return [f"min_free {size_text(policy.min_free_bytes or 0)}: the grace of {count} ends early"] if count else []


def _limit(everyone: Sequence[Candidate], decided: dict[str, Decision], policy: Retention) -> tuple[dict[str, Decision], list[str]]:
    """The decisions, of which no more mark a session than a pass may; the one inactive for longest first."""
    most = max(LEAST_PER_PASS, len(everyone) * policy.most_per_pass_percent // 100)
    late = [each for each in everyone if decided[each.key].verdict is Verdict.EXPIRE][most:]
    note = f"limit of a pass: {most} of {len(everyone)} sessions may be marked at once (most_per_pass); {len(late)} more would expire"
    return decided | {each.key: _staying(each, decided[each.key], "limit of a pass") for each in late}, [note] if late else []


def _suspend(everyone: Sequence[Candidate], decided: Mapping[str, Decision], why: str) -> Iterator[Decision]:
    for session in everyone:
        each = decided[session.key]
        if each.verdict is Verdict.EXPIRE:
            yield _staying(session, each, f"suspended: {why}")
        elif each.verdict is Verdict.REMOVE:
            yield replace(each, verdict=Verdict.EXPIRING, reason=f"suspended: {why}; {each.reason}")
        else:
            yield each


def _staying(session: Candidate, decision: Decision, why: str) -> Decision:
    """A session that would be marked, and is not."""
    verdict = Verdict.KEEP if session.mark is None else Verdict.LIFT
    return replace(decision, verdict=verdict, reason=f"{why}; otherwise: {decision.reason}", goes_ms=None)
