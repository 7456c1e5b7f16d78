"""Retention once more, as its description says it: slow, plain, and without a line of the real one."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime

from coldtrail.config import Retention, Rule
from coldtrail.retention import Candidate

MATCHES: dict[str | None, set[str | None]] = {  # the globs that the games use, and which of their projects each one names
    None: {"/p/a", "/p/b", "/p/b/c", None},
    "/p/*": {"/p/a", "/p/b"},
    "/p/b/**": {"/p/b", "/p/b/c"},
    "/p/a": {"/p/a"},
}
PROJECTS = ("/p/a", "/p/b", "/p/b/c", None)


class Model:
    """One look at some sessions."""

    def __init__(
        self, sessions: Iterable[Candidate], policy: Retention, now_ms: int, free_bytes: int | None, away: set[str], fresh: set[str]
    ) -> None:
        """`fresh`: the keys of those whose marks do not count."""
        self.sessions, self.policy, self.now, self.free, self.away, self.fresh = list(sessions), policy, now_ms, free_bytes, away, fresh
        self.budgeted = {one.key for one in self.sessions if self.at_the_budgets_mercy(one)} - self.floored()
        self.taken = self.evicted()

    def time(self, one: Candidate) -> int:
        if one.last_ms is not None and one.last_ms >= datetime(2000, 1, 1, tzinfo=UTC).timestamp() * 1000:
            return min(self.now, one.last_ms)
        times = [time for time in (one.last_ms, one.grew_ms) if time is not None and time > 0]
        return min(self.now, max(times)) if times else self.now

    def newer(self, one: Candidate, among: list[Candidate]) -> list[Candidate]:
        return [other for other in among if (self.time(other), other.key) > (self.time(one), one.key)]

    def oldest(self, among: list[Candidate]) -> Candidate:
        return max(among, key=lambda one: len(self.newer(one, among)))

    def newest(self, among: list[Candidate]) -> Candidate:
        return min(among, key=lambda one: len(self.newer(one, among)))

    def marked_ms(self, one: Candidate) -> int | None:
        if one.mark is None or one.key in self.fresh or (one.mark.lengths is not None and set(one.mark.lengths) != set(one.lengths)):
            return None
        return min(one.mark.at_ms, self.now)

    # --- rules ---

    def is_about(self, rule: Rule, one: Candidate) -> bool:
        if rule.agent is not None and one.agent != rule.agent:
            return False
        if rule.tag is not None and rule.tag not in one.tags:
            return False
        if rule.state is not None and one.live != (rule.state == "live"):
            return False
        if rule.larger_than_bytes is not None and one.bytes <= rule.larger_than_bytes:
            return False
        return one.project in MATCHES[rule.project]

    def keeps(self, rule: Rule, one: Candidate) -> bool:
        newer = self.newer(one, [other for other in self.sessions if self.is_about(rule, other) and other.project == one.project])
        if rule.keep_within_ms is not None and self.now - self.time(one) <= rule.keep_within_ms:
            return True
        if rule.keep_last is not None and len(newer) < rule.keep_last:
            return True
        for count, period in ((rule.keep_daily, "%Y %j"), (rule.keep_weekly, "%G %V"), (rule.keep_monthly, "%Y %m")):
            mine, theirs = (
                {datetime.fromtimestamp(self.time(each) / 1000, UTC).strftime(period) for each in some} for some in ([one], newer)
            )
            if count is not None and not mine & theirs and len(theirs) < count:
                return True
        return False

    def untouchable(self, one: Candidate) -> bool:
        needed = any(
            one.id in other.parents and (one.agent, one.source) == (other.agent, other.source) and one.key != other.key
            for other in self.sessions
        )
        held = one.held_until_ms is not None and one.held_until_ms > self.now
        return one.pinned or held or needed or (one.source in self.away and self.marked_ms(one) is None)

    def ruled_out(self, one: Candidate) -> bool:
        about = [rule for rule in self.policy.rules if self.is_about(rule, one)]
        return bool(about) and not any(self.keeps(rule, one) for rule in about) and not self.untouchable(one)

    # --- budgets ---

    def at_the_budgets_mercy(self, one: Candidate) -> bool:
        kept = any(self.is_about(rule, one) and self.keeps(rule, one) for rule in self.policy.rules)
        return not kept and not self.untouchable(one) and not self.ruled_out(one)

    def floored(self) -> set[str]:
        floor = self.policy.project_floor_bytes or 0
        left = [one for one in self.sessions if not self.ruled_out(one)]
        return {one.key for one in left if sum(other.bytes for other in self.newer(one, left) if other.project == one.project) < floor}

    def fits(self, gone: set[str]) -> bool:
        """Whether the budgets are met once these, and what the rules let go, are gone."""
        gone = gone | {one.key for one in self.sessions if self.ruled_out(one)}
        total = sum(one.bytes for one in self.sessions if one.key not in gone)
        freed = sum(one.bytes for one in self.sessions if one.key in gone and one.source not in self.away)
        if self.policy.max_total_bytes is not None and total > self.policy.max_total_bytes:
            return False
        return self.policy.min_free_bytes is None or self.free is None or self.free + freed >= self.policy.min_free_bytes

    def evicted(self) -> set[str]:
        mercy = [one for one in self.sessions if one.key in self.budgeted]
        gone = {one.key for one in mercy if self.marked_ms(one) is not None}
        while not self.fits(gone) and (left := [one for one in mercy if one.key not in gone]):
            gone.add(self.oldest(left).key)
        while leaving := [one for one in mercy if one.key in gone]:
            if not self.fits(gone - {self.newest(leaving).key}):
                break
            gone.remove(self.newest(leaving).key)
        return gone

    # --- all of it ---

    def verdict(self, one: Candidate) -> str:
        marked_ms = self.marked_ms(one)
        if not self.ruled_out(one) and one.key not in self.taken:
            return "keep" if one.mark is None else "lift"
        if marked_ms is None:
            return "expire"
        return "remove" if self.now - marked_ms >= self.policy.grace_ms and one.source not in self.away else "expiring"

    def verdicts(self) -> dict[str, str]:
        found = {one.key: self.verdict(one) for one in self.sessions}
        while self.policy.min_free_bytes is not None and self.free is not None:
            freed = sum(one.bytes for one in self.sessions if found[one.key] == "remove")
            waiting = [one for one in self.sessions if found[one.key] == "expiring" and one.source not in self.away]
            ages = sorted((marked, one.key) for one in waiting if (marked := self.marked_ms(one)) is not None and marked < self.now)
            if not ages or self.free + freed >= self.policy.min_free_bytes:
                break
            found[ages[0][1]] = "remove"
        return found


def expected(sessions: list[Candidate], policy: Retention, now_ms: int, free_bytes: int | None, away: set[str]) -> dict[str, str]:
    """The verdict on each session, by key; what is left is looked at again as if the removed ones were gone."""
    first = Model(sessions, policy, now_ms, free_bytes, away, set()).verdicts()
    gone = [one for one in sessions if first[one.key] == "remove"]
    left = [one for one in sessions if first[one.key] != "remove"]
    fresh = {
        one.key for one in left for other in gone if one.id in other.parents and (one.agent, one.source) == (other.agent, other.source)
    }
    free_bytes = None if free_bytes is None else free_bytes + sum(one.bytes for one in gone)
    return first | Model(left, policy, now_ms, free_bytes, away, fresh).verdicts()
