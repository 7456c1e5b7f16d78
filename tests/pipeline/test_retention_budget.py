"""Budgets: what they take, what they pass over, which marks they lift, and what they say when they cannot be met."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from coldtrail.config import Retention, Rule
from coldtrail.retention import Candidate, Verdict, decide
from pipeline.retaining import ACTS, DAY, NOW, carried_out, marked, reasons, removed_bytes, session, verdicts


def days_old(*sizes: int, **more: Any) -> list[Candidate]:
    """Sessions of these sizes: `s0` of today, `s1` of yesterday, and so on."""
    return [session(f"s{number}", number, size, **more) for number, size in enumerate(sizes)]


def going(sessions: list[Candidate], policy: Retention, **more: Any) -> set[str]:
    return {each.id for each in decide(sessions, policy, NOW, **more).of(Verdict.EXPIRE)}


# --- max_total ---


def test_a_budget_takes_those_inactive_for_longest_until_the_rest_fits() -> None:
    sessions = days_old(10, 10, 10, 10)
    assert going(sessions, Retention(max_total_bytes=40)) == set()
    assert going(sessions, Retention(max_total_bytes=39)) == {"s3"}
    assert going(sessions, Retention(max_total_bytes=20)) == {"s2", "s3"}
    assert going(sessions, Retention(max_total_bytes=1)) == {"s0", "s1", "s2", "s3"}


def test_a_budget_passes_over_what_must_stay_and_says_so() -> None:
    sessions = [
        *days_old(10),
        session("pinned", 90, pinned=True),
        session("held", 80, held_until_ms=NOW + DAY),
        session("needed", 70),
        session("child", 60, pinned=True, parents=("needed",)),
        session("away", 50, source="other"),
        session("ruled", 40, tags=("keep",)),
        session("free", 30),
    ]
    policy = Retention(max_total_bytes=60, rules=(Rule(tag="keep", keep_within_ms=99 * DAY),))
    plan = decide(sessions, policy, NOW, away={"other"})
    assert {each.id for each in plan.of(Verdict.EXPIRE)} == {"free", "s0"}
    assert reasons(plan)["free"] == "max_total 60B: among those inactive for longest"
    assert plan.notes == ("the source other is not there: nothing of it is marked or removed",)
    assert decide(sessions, replace(policy, max_total_bytes=42), NOW, away={"other"}).notes[1] == (
        "max_total 42B cannot be met: 18 bytes too many stay: 1 kept by rules (10 bytes), 1 needed by others (10 bytes), "
        "1 of sources that are not there (10 bytes), 2 pinned (20 bytes), 1 restored (10 bytes)"
    )


def test_what_rules_let_go_is_not_counted() -> None:
    sessions = [*days_old(10, 10), session("ruled", 90, 1_000, tags=("x",)), marked(session("marked", 90, 1_000, tags=("x",)), 1)]
    policy = Retention(max_total_bytes=20, rules=(Rule(tag="x", keep_within_ms=DAY),))
    assert verdicts(decide(sessions, policy, NOW)) == {"s0": "keep", "s1": "keep", "ruled": "expire", "marked": "expiring"}


def test_what_rules_would_let_go_but_must_stay_is_counted() -> None:
    sessions = [*days_old(10, 10), session("pinned", 90, 10, tags=("x",), pinned=True)]
    assert going(sessions, Retention(max_total_bytes=20, rules=(Rule(tag="x", keep_within_ms=DAY),))) == {"s1"}


def test_a_budget_takes_no_more_in_the_passes_after() -> None:
    policy, sessions = Retention(max_total_bytes=25), days_old(10, 10, 10, 10)
    for days in range(20):
        plan = decide(sessions, policy, NOW + days * DAY)
        assert [each.id for each in plan.of(Verdict.EXPIRE)] == (["s3", "s2"] if days == 0 else [])
        sessions = carried_out(sessions, plan, NOW + days * DAY)
    assert [each.id for each in sessions] == ["s0", "s1"]


def test_a_larger_budget_lifts_the_marks_of_the_newest_first() -> None:
    sessions = carried_out(days := days_old(10, 10, 10, 10), decide(days, Retention(max_total_bytes=15), NOW))
    plan = decide(sessions, Retention(max_total_bytes=35), NOW + DAY)
    assert verdicts(plan) == {"s0": "keep", "s1": "lift", "s2": "lift", "s3": "expiring"}
    assert reasons(plan)["s3"] == "max_total 35B: among those inactive for longest"
    assert set(verdicts(decide(sessions, Retention(), NOW + 9 * DAY)).values()) == {"keep", "lift"}


def test_a_small_session_behind_a_large_one_is_not_lifted_by_the_room_left() -> None:
    sessions = days_old(6, 5, 1)
    policy = Retention(max_total_bytes=7)
    first = decide(sessions, policy, NOW)
    assert {each.id for each in first.of(Verdict.EXPIRE)} == {"s1", "s2"}
    assert verdicts(decide(carried_out(sessions, first), policy, NOW)) == {"s0": "keep", "s1": "expiring", "s2": "expiring"}


# --- floors ---


def test_a_busy_project_does_not_push_out_the_others() -> None:
    busy = [session(f"busy{number}", number / 10, 1_000) for number in range(20)]
    quiet = [session(f"quiet{number}", 300 + number, 10, project="/p/quiet") for number in range(4)]
    gone = going([*busy, *quiet], Retention(max_total_bytes=5_000, project_floor_bytes=25))
    assert gone == {"quiet3", *(f"busy{number}" for number in range(4, 20))}


def test_a_floor_is_reached_by_the_newest_sessions_of_its_project() -> None:
    plan = decide(days_old(10, 10, 10, 10), Retention(max_total_bytes=1, project_floor_bytes=25), NOW)
    assert verdicts(plan) == {"s0": "keep", "s1": "keep", "s2": "keep", "s3": "expire"}
    assert reasons(plan)["s2"] == "within the floor of its project"
    assert plan.notes == ("max_total 1B cannot be met: 29 bytes too many stay: 3 within the floors of their projects (30 bytes)",)


def test_a_floor_counts_what_stays_anyway_and_not_what_a_rule_lets_go() -> None:
    sessions = [session("pinned", 0, 10, pinned=True), session("ruled", 1.5, 10, tags=("x",)), session("in", 2, 10), session("out", 3, 10)]
    policy = Retention(max_total_bytes=1, project_floor_bytes=15, rules=(Rule(tag="x", keep_within_ms=DAY),))
    assert going(sessions, policy) == {"ruled", "out"}


def test_sessions_of_no_project_are_one_project() -> None:
    assert going(days_old(10, 10, 10, project=None), Retention(max_total_bytes=1, project_floor_bytes=15)) == {"s2"}


# --- min_free ---


def test_too_little_free_ends_grace_early_the_oldest_mark_first() -> None:
    rule = Rule(tag="x", keep_within_ms=DAY)
    sessions = [marked(session(f"m{days}", 90 - days, 10, tags=("x",)), days) for days in (1, 2, 3)] + days_old(10)
    policy = Retention(min_free_bytes=100, rules=(rule,))
    plan = decide(sessions, policy, NOW, free_bytes=81)
    assert verdicts(plan) == {"m1": "expiring", "m2": "remove", "m3": "remove", "s0": "keep"}
    assert reasons(plan)["m2"] == "rule 1 (tag x): older than 1d; its grace ends early: min_free 100B"
    assert plan.notes == ("min_free 100B: the grace of 2 ends early",)
    assert not decide(sessions, policy, NOW, free_bytes=100).of(Verdict.REMOVE)


def test_what_is_removed_anyway_counts_before_any_grace_ends_early() -> None:
    sessions = [marked(session(f"m{days}", 90, 10, tags=("x",)), days) for days in (1, 8)]
    policy = Retention(min_free_bytes=100, rules=(Rule(keep_within_ms=DAY),))
    assert verdicts(decide(sessions, policy, NOW, free_bytes=90)) == {"m1": "expiring", "m8": "remove"}


def test_if_marks_do_not_free_enough_more_are_marked_the_oldest_first() -> None:
    sessions = [marked(session("m", 90, 10, tags=("x",)), 1), *days_old(10, 10, 10)]
    policy = Retention(min_free_bytes=100, rules=(Rule(tag="x", keep_within_ms=DAY),))
    plan = decide(sessions, policy, NOW, free_bytes=75)
    assert verdicts(plan) == {"m": "remove", "s2": "expire", "s1": "expire", "s0": "keep"}
    assert reasons(plan)["s1"] == "min_free 100B: among those inactive for longest"
    left = carried_out(sessions, plan)
    assert set(verdicts(decide(left, policy, NOW, free_bytes=85)).values()) == {"keep", "expiring"}  # not in the same moment
    assert verdicts(decide(left, policy, NOW + 1, free_bytes=85)) == {"s2": "remove", "s1": "remove", "s0": "keep"}


def test_marks_of_min_free_are_lifted_once_others_have_made_room() -> None:
    sessions = days_old(10, 10, 10)
    policy = Retention(min_free_bytes=100)
    left = carried_out(sessions, decide(sessions, policy, NOW, free_bytes=85))
    assert verdicts(decide(left, policy, NOW + DAY, free_bytes=95)) == {"s0": "keep", "s1": "lift", "s2": "remove"}
    assert verdicts(decide(left, policy, NOW + DAY, free_bytes=100)) == {"s0": "keep", "s1": "lift", "s2": "lift"}


def test_min_free_that_cannot_be_met_says_how_much_is_missing() -> None:
    plan = decide([session("a", 1, 10, pinned=True)], Retention(min_free_bytes=100), NOW, free_bytes=60)
    assert plan.notes == ("min_free 100B cannot be met: 40 bytes will be missing: 1 pinned (10 bytes)",)


def test_where_nobody_can_tell_what_is_free_min_free_takes_nothing() -> None:
    plan = decide(days_old(10, 10), Retention(min_free_bytes=1 << 60), NOW, free_bytes=None)
    assert set(verdicts(plan).values()) == {"keep"}
    assert plan.notes == ("min_free: nobody can tell how much is free, so nothing is done for it",)


def test_what_is_away_frees_nothing_now() -> None:
    sessions = [marked(session("away", 90, 50, source="other", tags=("x",)), 8), *days_old(10, 10)]
    policy = Retention(min_free_bytes=100, rules=(Rule(tag="x", keep_within_ms=DAY),))
    assert verdicts(decide(sessions, policy, NOW, free_bytes=95, away={"other"})) == {"away": "expiring", "s1": "expire", "s0": "keep"}


def test_after_a_disk_that_was_full_everything_comes_to_rest() -> None:
    policy, free_bytes = Retention(min_free_bytes=100, max_total_bytes=60), 40
    sessions = days_old(*[10] * 12)
    for hours in range(40):
        plan = decide(sessions, policy, NOW + hours, free_bytes=free_bytes)
        free_bytes += removed_bytes(plan)
        sessions = carried_out(sessions, plan, NOW + hours)
    assert free_bytes == 100
    assert sum(each.mark is None for each in sessions) == 6
    assert not [each for verdict in ACTS for each in decide(sessions, policy, NOW + 99, free_bytes=free_bytes).of(verdict)]
