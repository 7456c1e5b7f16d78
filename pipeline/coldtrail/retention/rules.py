"""Which rules are about a session, and whether one of them keeps it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from fnmatch import fnmatchcase

from coldtrail.config import Rule
from coldtrail.retention.plan import Candidate
from coldtrail.units import size_text, span_text

_DAY_MS = 86_400_000


@dataclass(frozen=True, slots=True)
class Ruling:
    """What the rules say of a session that at least one of them is about."""

    kept: bool
    rule: int  # the first that keeps it, else the first that is about it
    reason: str


def rulings(newest_first: Sequence[Candidate], active_ms: Mapping[str, int], rules: Sequence[Rule], now_ms: int) -> dict[str, Ruling]:
    """The ruling on each session that a rule is about, by key: what one of its rules keeps is kept."""
    found: dict[str, Ruling] = {}
    for number, rule in enumerate(rules, 1):
        name, otherwise = f"rule {number} ({describe(rule)})", ", ".join(_not_kept(rule))
        # Each project for itself: a busy one shall not push the sessions of a quiet one out of the newest 50.
        for group in _by_project(newest_first, rule).values():
            kept = _kept(rule, group, active_ms, now_ms)
            for each in group:
                why = kept.get(each.key)
                found[each.key] = _joined(found.get(each.key), Ruling(why is not None, number, f"{name}: {why or otherwise}"))
    return found


def describe(rule: Rule) -> str:
    """What a rule is about, in its own words."""
    larger_than = None if rule.larger_than_bytes is None else size_text(rule.larger_than_bytes)
    words = (("agent", rule.agent), ("project", rule.project), ("tag", rule.tag), ("state", rule.state), ("larger than", larger_than))
    return ", ".join(f"{name} {value}" for name, value in words if value is not None) or "every session"


def matches_folder(pattern: str, folder: str) -> bool:
    """Whether a glob names a folder: `*` stays within one name, as in a shell; `**` stands for any number of names.

    >>> matches_folder("/a/*", "/a/b"), matches_folder("/a/*", "/a/b/c"), matches_folder("/a/**", "/a/b/c")
    (True, False, True)
    """
    return _match(pattern.rstrip("/").split("/"), folder.rstrip("/").split("/"))


def _match(pattern: list[str], names: list[str]) -> bool:
    if not pattern:
        return not names
    if pattern[0] == "**":
        return any(_match(pattern[1:], names[skipped:]) for skipped in range(len(names) + 1))
    return bool(names) and fnmatchcase(names[0], pattern[0]) and _match(pattern[1:], names[1:])


def _by_project(sessions: Sequence[Candidate], rule: Rule) -> dict[str | None, list[Candidate]]:
    groups: dict[str | None, list[Candidate]] = defaultdict(list)
    named: dict[str | None, bool] = {None: rule.project is None}
    for each in sessions:
        if each.project not in named:
            named[each.project] = rule.project is None or matches_folder(rule.project, each.project or "")
        if named[each.project] and _is_about(rule, each):
            groups[each.project].append(each)
    return groups


def _is_about(rule: Rule, session: Candidate) -> bool:
    return (
        rule.agent in (None, session.agent)
        and (rule.tag is None or rule.tag in session.tags)
        and rule.state in (None, "live" if session.live else "gone")
        and (rule.larger_than_bytes is None or session.bytes > rule.larger_than_bytes)
    )


def _kept(rule: Rule, newest_first: list[Candidate], active_ms: Mapping[str, int], now_ms: int) -> dict[str, str]:
    """Why the rule keeps what it keeps of a project's sessions, by key."""
    kept: dict[str, str] = {}
    if rule.keep_within_ms is not None:
        reason = f"active within {span_text(rule.keep_within_ms)}"
        kept |= {each.key: reason for each in newest_first if now_ms - active_ms[each.key] <= rule.keep_within_ms}
    if rule.keep_last is not None:
        reason = f"among the newest {rule.keep_last} of its project"
        kept = {each.key: reason for each in newest_first[: rule.keep_last]} | kept
    for name, count, period in _periods(rule):
        newest: dict[object, str] = {}
        for each in newest_first:
            newest.setdefault(period(active_ms[each.key]), each.key)
        kept = dict.fromkeys(list(newest.values())[:count], f"the newest of one of the {count} latest {name}s of its project") | kept
    return kept


def _periods(rule: Rule) -> Iterator[tuple[str, int, Callable[[int], object]]]:
    if rule.keep_daily is not None:
        yield "day", rule.keep_daily, lambda ms: ms // _DAY_MS
    if rule.keep_weekly is not None:
        yield "week", rule.keep_weekly, lambda ms: (ms // _DAY_MS + 3) // 7  # the first day of 1970 was a Thursday
    if rule.keep_monthly is not None:
        yield "month", rule.keep_monthly, _month


def _month(ms: int) -> tuple[int, int]:
    day = datetime.fromtimestamp(ms // 1000, UTC)
    return day.year, day.month


def _not_kept(rule: Rule) -> Iterator[str]:
    if rule.keep_within_ms is not None:
        yield f"older than {span_text(rule.keep_within_ms)}"
    if rule.keep_last is not None:
        yield f"not among the newest {rule.keep_last} of its project"
    for name, count, _ in _periods(rule):
        yield f"not the newest of one of the {count} latest {name}s of its project"


def _joined(one: Ruling | None, other: Ruling) -> Ruling:
    if one is None or one.kept == other.kept:
        return other if one is None else one if one.kept else Ruling(False, one.rule, f"{one.reason}; {other.reason}")
    return one if one.kept else other
