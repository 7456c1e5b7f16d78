"""Retention against a naive model of it, and what holds of every plan, on games of random policies, sessions and times."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest

from coldtrail.config import Retention, Rule
from coldtrail.retention import Candidate, Length, Mark, Plan, Verdict, decide
from pipeline.retaining import ACTS, DAY, HOUR, NOW, carried_out, removed_bytes, session
from pipeline.retention_model import MATCHES, PROJECTS, expected

LOSING = (Verdict.EXPIRE, Verdict.EXPIRING, Verdict.REMOVE)


@dataclass(frozen=True)
class Game:
    sessions: tuple[Candidate, ...]
    policy: Retention
    free_bytes: int | None
    away: frozenset[str]

    def plan(self, **more: Any) -> Plan:
        return decide(self.sessions, self.policy, NOW, free_bytes=self.free_bytes, away=self.away, **more)

    def next(self, plan: Plan) -> Game:
        free_bytes = None if self.free_bytes is None else self.free_bytes + removed_bytes(plan)
        return replace(self, sessions=tuple(carried_out(self.sessions, plan)), free_bytes=free_bytes)


def a_time(chance: random.Random) -> int:
    """Mostly on a grid of half days, so that times are equal; a few lie in the future."""
    ago_ms = chance.randint(-3, 120) * 12 * HOUR if chance.random() < 0.7 else chance.randint(-DAY, 60 * DAY)
    return NOW - ago_ms


def a_session(chance: random.Random, number: int) -> Candidate:
    lengths = (Length(f"s{number}", 0, chance.randint(1, 3)),)
    mark = Mark(NOW - (NOW - a_time(chance)) // 5, chance.choice((None, lengths, lengths, lengths, ())))
    return session(
        str(number),
        size=chance.randint(0, 20),
        id=f"id{chance.randint(max(0, number - 1), number)}",
        agent=chance.choice(("codex", "codex", "claude-code")),
        source=chance.choice(("codex", "codex", "other")),
        project=chance.choice((*PROJECTS, "/p/a", "/p/b")),
        tags=chance.choice(((), ("x",), ("x", "y"))),
        live=chance.random() < 0.5,
        last_ms=chance.choice((a_time(chance), a_time(chance), a_time(chance), None, 5)),
        grew_ms=chance.choice((0, a_time(chance))),
        pinned=chance.random() < 0.08,
        held_until_ms=chance.choice((None,) * 8 + (NOW, NOW + 1)),
        mark=chance.choice((None, mark)),
        parents=tuple(f"id{chance.randint(0, 15)}" for _ in range(chance.choice((0, 0, 0, 0, 0, 0, 1, 2)))),
        lengths=lengths,
    )


def a_rule(chance: random.Random) -> Rule:
    keeps = [chance.choice((None, chance.randint(1, 40) * DAY))] + [chance.choice((None,) * 5 + (chance.randint(1, 3),)) for _ in range(4)]
    return Rule(
        chance.choice((None, None, "codex")),
        chance.choice((None, *MATCHES)),
        chance.choice((None, None, None, "x", "y")),
        chance.choice((None, None, None, "live", "gone")),
        chance.choice((None, None, None, 5, 10)),
        *(keeps if any(keeps) else [DAY]),
    )


def a_game(chance: random.Random) -> Game:
    policy = Retention(
        grace_ms=chance.randint(1, 12) * DAY,
        max_total_bytes=chance.choice((None, chance.randint(1, 150))),
        min_free_bytes=chance.choice((None, chance.randint(1, 150))),
        project_floor_bytes=chance.choice((None, chance.randint(1, 60))),
        rules=tuple(a_rule(chance) for _ in range(chance.randint(0, 3))),
    )
    sessions = tuple(a_session(chance, number) for number in range(chance.randint(0, 16)))
    away = frozenset(chance.choice(((), (), ("codex",), ("other",))))
    return Game(sessions, policy, chance.choice((None, chance.randint(0, 150))), away)


def games(count: int) -> Iterator[Game]:
    """So many games, the same ones every time."""
    return (a_game(random.Random(seed)) for seed in range(count))


def rules_alone(policy: Retention) -> Retention:
    return replace(policy, max_total_bytes=None, min_free_bytes=None)


def losing(plan: Plan) -> set[str]:
    return {each.key for each in plan.decisions if each.verdict in LOSING}


@pytest.mark.parametrize("seed", range(20))
def test_a_plan_is_what_the_model_says(seed: int) -> None:
    for game in (a_game(random.Random(seed * 1_000 + number)) for number in range(100)):
        model = expected(list(game.sessions), game.policy, NOW, game.free_bytes, set(game.away))
        assert {each.key: each.verdict.value for each in game.plan().decisions} == model, game


def test_the_games_know_every_verdict_and_many_ways_to_it() -> None:
    plans = [(game, game.plan()) for game in games(600)]
    count = Counter(each.verdict for _, plan in plans for each in plan.decisions)
    assert all(count[verdict] > 150 for verdict in Verdict), count
    said = " ".join(each.reason for _, plan in plans for each in plan.decisions) + " ".join(
        note for _, plan in plans for note in plan.notes
    )
    for words in (
        "max_total",
        "min_free",
        "ends early",
        "needs it",
        "held until",
        "floor",
        "not there: it waits",
        "cannot be met",
        "latest weeks",
    ):
        assert said.count(words) > 20, words


def test_the_order_of_the_sessions_is_nothing() -> None:
    for game in games(400):
        plan, shuffled = game.plan(), list(game.sessions)
        random.Random(len(shuffled)).shuffle(shuffled)
        assert replace(game, sessions=tuple(shuffled)).plan() == plan, game


def test_once_a_plan_is_carried_out_there_is_nothing_more_to_do_at_that_moment() -> None:
    for game in games(2_000):
        after = game.next(game.plan()).plan()
        assert not [each for verdict in ACTS for each in after.of(verdict)], game


def test_pinned_held_and_needed_sessions_never_go() -> None:
    for game in games(600):
        plan = game.plan()
        lost, gone = losing(plan), {each.key for each in plan.of(Verdict.REMOVE)}
        assert not lost & {each.key for each in game.sessions if each.pinned or (each.held_until_ms or 0) > NOW}, game
        for child in (each for each in game.sessions if each.key not in gone):
            family = [each for each in game.sessions if each.id in child.parents and each.key != child.key]
            assert not lost & {each.key for each in family if (each.agent, each.source) == (child.agent, child.source)}, game


def test_of_a_source_that_is_away_nothing_is_marked_or_removed() -> None:
    for game in games(600):
        away = {each.key for each in game.sessions if each.source in game.away}
        plan = game.plan()
        assert not away & {each.key for each in (*plan.of(Verdict.EXPIRE), *plan.of(Verdict.REMOVE))}, game


def test_nothing_is_removed_before_its_grace_is_over_but_for_min_free() -> None:
    for game in games(600):
        marks = {each.key: each.mark for each in game.sessions}
        for each in game.plan().of(Verdict.REMOVE):
            mark = marks[each.key]
            assert mark is not None, game
            assert mark.lengths in (None, each.lengths), game
            assert mark.at_ms <= NOW - game.policy.grace_ms or (game.policy.min_free_bytes is not None and mark.at_ms < NOW), game


def test_budgets_leave_each_project_its_floor() -> None:
    for game in games(600):
        game = replace(game, policy=replace(game.policy, project_floor_bytes=25, rules=()))
        lost = losing(game.plan()) if game.policy.max_total_bytes or game.policy.min_free_bytes else set()
        for project in PROJECTS:
            sessions = [each for each in game.sessions if each.project == project]
            left = sum(each.bytes for each in sessions if each.key not in lost)
            assert left >= min(25, sum(each.bytes for each in sessions)), game


def test_what_a_rule_keeps_stays_whatever_the_budgets_say() -> None:
    for game in games(600):
        by_rules = replace(game, policy=rules_alone(game.policy)).plan()
        kept = {each.key for each in by_rules.decisions if each.rule is not None and each.verdict in (Verdict.KEEP, Verdict.LIFT)}
        assert not kept & losing(game.plan()), game


MORE: tuple[Callable[[Rule], Rule], ...] = (
    lambda rule: replace(rule, keep_within_ms=(rule.keep_within_ms or 0) + 9 * DAY),
    lambda rule: replace(rule, keep_last=(rule.keep_last or 0) + 1),
    lambda rule: replace(rule, keep_daily=(rule.keep_daily or 0) + 2),
    lambda rule: replace(rule, keep_weekly=(rule.keep_weekly or 0) + 1),
    lambda rule: replace(rule, keep_monthly=(rule.keep_monthly or 0) + 1),
)


@pytest.mark.parametrize("more", MORE, ids=["within", "last", "daily", "weekly", "monthly"])
def test_a_rule_that_keeps_more_never_lets_more_go(more: Callable[[Rule], Rule]) -> None:
    fewer = 0
    for game in (each for each in games(500) if each.policy.rules):
        before = rules_alone(game.policy)  # a budget may take others for what a rule keeps
        first, *others = before.rules
        after = replace(before, rules=(more(first), *others))
        lost = [losing(replace(game, policy=policy).plan()) for policy in (before, after)]
        assert lost[1] <= lost[0], game
        fewer += len(lost[1]) < len(lost[0])
    assert fewer > 20


def test_a_suspended_plan_marks_and_removes_nothing() -> None:
    for game in games(400):
        plan = game.plan(suspended="the clock jumped", force=True)
        assert not plan.of(Verdict.EXPIRE) + plan.of(Verdict.REMOVE), game


def test_each_session_has_one_decision_and_each_decision_a_reason() -> None:
    for game in games(400):
        plan = game.plan()
        assert sorted(each.key for each in plan.decisions) == sorted(each.key for each in game.sessions)
        assert all(each.reason for each in plan.decisions)
        assert sum(total["bytes"] for total in plan.totals.values()) == sum(each.bytes for each in game.sessions)


def test_passes_day_after_day_come_to_rest_and_take_no_more_than_it_needs() -> None:
    for game in games(300):
        game, policy = replace(game, free_bytes=None), replace(game.policy, rules=(), max_total_bytes=60)
        sessions = game.sessions
        for days in range(0, 200, 9):
            plan = decide(sessions, policy, NOW + days * DAY)
            sessions = tuple(carried_out(sessions, plan, NOW + days * DAY))
        after = decide(sessions, policy, NOW + 200 * DAY)
        assert not [each for verdict in ACTS for each in after.of(verdict)], game
        lost = [each for each in game.sessions if each.key not in {each.key for each in sessions}]
        if lost:  # with the largest of them the budget would not have been met
            assert sum(each.bytes for each in sessions) + max(each.bytes for each in lost) > 60, game
