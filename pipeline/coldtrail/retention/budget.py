"""What a budget takes, the longest inactive first, and which marks it can lift again."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from coldtrail.config import Retention
from coldtrail.retention.plan import Candidate
from coldtrail.units import size_text


@dataclass(slots=True)
class Budget:
    """How many bytes stay, and how many will be free, against what the policy allows; it changes as sessions go and stay."""

    max_total_bytes: int | None
    min_free_bytes: int | None  # None too where nobody knows how many are free
    total_bytes: int  # of what stays
    free_bytes: int  # once everything is gone that is marked, or will be
    taken: dict[str, str] = field(default_factory=dict)  # why it goes, by key

    @property
    def over_bytes(self) -> int:
        """How many bytes too many stay."""
        return 0 if self.max_total_bytes is None else max(0, self.total_bytes - self.max_total_bytes)

    @property
    def missing_bytes(self) -> int:
        """How many bytes too few will be free."""
        return 0 if self.min_free_bytes is None else max(0, self.min_free_bytes - self.free_bytes)

    def evict(self, oldest_first: Sequence[Candidate]) -> None:
        """Take sessions that could stay, one by one, until the budget is met."""
        for each in oldest_first:
            if not self.reason:
                return
            self.taken[each.key] = self.reason
            self.total_bytes -= each.bytes
            self.free_bytes += each.bytes

    def lift(self, newest_first: Sequence[Candidate], away: Collection[str]) -> None:
        """Let marked sessions stay, the newest first, up to the first that has no room.

        To try the ones behind it would lift in the next pass what this one marks.
        """
        for at, each in enumerate(newest_first):
            frees = 0 if each.source in away else each.bytes
            self.total_bytes += each.bytes
            self.free_bytes -= frees
            if reason := self.reason:
                self.total_bytes -= each.bytes
                self.free_bytes += frees
                self.taken = {left.key: self.taken.get(left.key, reason) for left in newest_first[at:]}
                return
            self.taken.pop(each.key, None)

    @property
    def reason(self) -> str:
        """Which bound is not met; empty: none."""
        if self.over_bytes:
            return f"max_total {size_text(self.max_total_bytes or 0)}: among those inactive for longest"
        if self.missing_bytes:
            return f"min_free {size_text(self.min_free_bytes or 0)}: among those inactive for longest"
        return ""

    def notes(self, passed_over: Sequence[tuple[str, int]]) -> list[str]:
        """What cannot be met, and for which sessions: the kind of each that had to stay, and its bytes."""
        sessions, sizes = Counter(kind for kind, _ in passed_over), Counter[str]()
        for kind, size in passed_over:
            sizes[kind] += size
        why = ", ".join(f"{count} {kind} ({sizes[kind]} bytes)" for kind, count in sorted(sessions.items())) or "nothing is left to go"
        over = f"max_total {size_text(self.max_total_bytes or 0)} cannot be met: {self.over_bytes} bytes too many stay: {why}"
        missing = f"min_free {size_text(self.min_free_bytes or 0)} cannot be met: {self.missing_bytes} bytes will be missing: {why}"
        return [over] * bool(self.over_bytes) + [missing] * bool(self.missing_bytes)


def within_floors(newest_first: Sequence[Candidate], policy: Retention) -> set[str]:
    """The keys of each project's newest sessions, as many as it takes to reach the floor."""
    if policy.project_floor_bytes is None:
        return set()
    inside, reached = set[str](), defaultdict[str | None, int](int)
    for each in newest_first:
        if reached[each.project] < policy.project_floor_bytes:
            inside.add(each.key)
            reached[each.project] += each.bytes
    return inside


def early(marked: Mapping[str, tuple[int, int]], missing_bytes: int) -> set[str]:
    """Whose grace ends early, the oldest mark first, so that bytes are freed now: of each key when it was marked, and its bytes."""
    ended = set[str]()
    for key, (_, size) in sorted(marked.items(), key=lambda item: (item[1][0], item[0])):
        if missing_bytes <= 0:
            break
        ended.add(key)
        missing_bytes -= size
    return ended
