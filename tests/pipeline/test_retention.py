"""Rules, marks and what stands above them: each fact of a plan on a few sessions."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from coldtrail.config import Retention, Rule
from coldtrail.retention import Candidate, Length, Mark, Plan, Verdict, decide
from coldtrail.retention.rules import matches_folder
from pipeline.retaining import DAY, HOUR, NOW, carried_out, marked, reasons, session, verdicts


def ruled(sessions: list[Candidate], *rules: Rule, **more: Any) -> Plan:
    return decide(sessions, Retention(rules=rules), NOW, **more)


def staying(sessions: list[Candidate], *rules: Rule) -> set[str]:
    return {name for name, verdict in verdicts(ruled(sessions, *rules)).items() if verdict == "keep"}


# --- what no rule is about ---


def test_without_rules_and_budgets_everything_stays() -> None:
    sessions = [session("new"), session("old", 5_000), session("timeless", None), session("large", 900, 1 << 50)]
    plan = decide(sessions, Retention(), NOW, free_bytes=0)
    assert set(verdicts(plan).values()) == {"keep"}
    assert set(reasons(plan).values()) == {"no rule is about it"}


def test_what_no_rule_is_about_stays() -> None:
    plan = ruled([session("a", 900, agent="claude-code"), session("b", 900)], Rule(agent="codex", keep_within_ms=DAY))
    assert verdicts(plan) == {"a": "keep", "b": "expire"}


@pytest.mark.parametrize(
    ("about", "matching"),
    [
        (Rule(keep_within_ms=DAY), {"plain", "tagged", "live", "large", "elsewhere", "nowhere", "claude"}),
        (Rule(agent="claude-code", keep_within_ms=DAY), {"claude"}),
        (Rule(project="/p/b", keep_within_ms=DAY), {"elsewhere"}),
        (Rule(tag="spike", keep_within_ms=DAY), {"tagged"}),
        (Rule(state="live", keep_within_ms=DAY), {"live"}),
        (Rule(state="gone", agent="codex", project="/p/a", keep_within_ms=DAY), {"plain", "tagged", "large"}),
        (Rule(larger_than_bytes=10, keep_within_ms=DAY), {"large"}),
        (Rule(project="**", keep_within_ms=DAY), {"plain", "tagged", "live", "large", "elsewhere", "claude"}),
        (Rule(tag="spike", state="live", keep_within_ms=DAY), set()),
    ],
)
def test_a_rule_is_about_what_all_its_words_match(about: Rule, matching: set[str]) -> None:
    sessions = [
        session("plain", 9),
        session("tagged", 9, tags=("spike", "other")),
        session("live", 9, live=True),
        session("large", 9, 11),
        session("elsewhere", 9, project="/p/b"),
        session("nowhere", 9, project=None),
        session("claude", 9, agent="claude-code"),
    ]
    assert {each.id for each in ruled(sessions, about).of(Verdict.EXPIRE)} == matching


@pytest.mark.parametrize(
    ("pattern", "folder", "matches"),
    [
        ("/a/b", "/a/b", True),
        ("/a/b/", "/a/b", True),
        ("/a/b", "/a/b/", True),
        ("/a/b", "/a/bc", False),
        ("/a/*", "/a/b", True),
        ("/a/*", "/a", False),
        ("/a/*", "/a/b/c", False),
        ("/a/**", "/a", True),
        ("/a/**", "/a/b/c", True),
        ("/a/**", "/ab", False),
        ("/**/c", "/a/b/c", True),
        ("/a/**/c", "/a/c", True),
        ("/a/x-?", "/a/x-1", True),
        ("/a/[xy]*", "/a/z", False),
        ("/A/*", "/a/b", False),
        ("/a/b.c", "/a/bxc", False),
        ("f3*", "f3ab", True),
    ],
)
def test_a_star_stays_within_one_name_and_two_cross_any_number(pattern: str, folder: str, matches: bool) -> None:
    assert matches_folder(pattern, folder) is matches


# --- what rules keep ---


def test_keep_within_counts_from_the_last_activity_and_includes_its_last_millisecond() -> None:
    sessions = [session("in", 2), replace(session("out", 2), last_ms=NOW - 2 * DAY - 1)]
    assert staying(sessions, Rule(keep_within_ms=2 * DAY)) == {"in"}


def test_keep_last_is_of_each_project_so_that_a_busy_one_does_not_push_out_a_quiet_one() -> None:
    busy = [session(f"busy{number}", number) for number in range(5)]
    quiet = [session("quiet", 400, project="/p/b"), session("nowhere", 500, project=None)]
    assert staying([*quiet, *busy], Rule(keep_last=2)) == {"busy0", "busy1", "quiet", "nowhere"}


def test_keep_last_counts_what_the_rule_is_about() -> None:
    sessions = [session("new", 1, tags=("t",)), session("newer", 0), session("old", 9, tags=("t",)), session("older", 10, tags=("t",))]
    assert staying(sessions, Rule(tag="t", keep_last=2)) == {"newer", "new", "old"}


def at(text: str) -> Candidate:
    moment = datetime.fromisoformat(text).replace(tzinfo=UTC)
    return replace(session(text), last_ms=round(moment.timestamp() * 1000))


def test_keep_daily_keeps_the_newest_of_the_latest_days_of_utc_that_have_one() -> None:
    days = ["2026-08-30T00:00", "2026-08-29T23:59", "2026-08-29T00:00", "2026-03-01T12:00", "2026-03-01T11:00", "2025-12-31T23:00"]
    assert staying([at(day) for day in days], Rule(keep_daily=3)) == {days[0], days[1], days[3]}


def test_keep_weekly_begins_weeks_on_monday_over_the_turn_of_the_year() -> None:
    # 2024-12-30 was a Monday: week 1 of 2025 by ISO 8601.
    days = ["2025-01-05T23:59", "2024-12-30T00:00", "2024-12-29T23:59", "2024-12-23T00:00", "2024-12-22T12:00"]
    assert staying([at(day) for day in days], Rule(keep_weekly=2)) == {days[0], days[2]}


def test_keep_monthly_keeps_the_newest_of_each_month() -> None:
    days = ["2026-08-01T00:00", "2026-07-31T23:59", "2026-07-01T00:00", "2025-07-31T00:00", "2025-07-30T00:00"]
    assert staying([at(day) for day in days], Rule(keep_monthly=3)) == {days[0], days[1], days[3]}


def test_what_one_of_several_rules_keeps_stays() -> None:
    sessions = [session("young", 5), session("last", 50), session("old", 60), session("work", 60, project="/w/x")]
    rules = (Rule(keep_within_ms=9 * DAY), Rule(project="/p/**", keep_last=2), Rule(project="/w/*", keep_within_ms=90 * DAY))
    assert staying(sessions, *rules) == {"young", "last", "work"}


def test_the_reason_names_the_rules_and_what_they_would_have_kept() -> None:
    rules = (Rule(tag="x", keep_last=1), Rule("codex", "/p/*", keep_within_ms=730 * DAY, keep_last=1), Rule(keep_monthly=1))
    plan = ruled([session("new"), session("old", 731)], *rules)
    old, new = plan.decisions
    assert (old.rule, new.rule) == (2, 2)
    assert new.reason == "rule 2 (agent codex, project /p/*): active within 2y"
    assert old.reason == (
        "rule 2 (agent codex, project /p/*): older than 2y, not among the newest 1 of its project; "
        "rule 3 (every session): not the newest of one of the 1 latest months of its project"
    )


# --- times that cannot be ---


def test_a_time_in_the_future_counts_as_now() -> None:
    sessions = [session("2099", -27_000), session("today", 0), session("yesterday", 1)]
    assert staying(sessions, Rule(keep_within_ms=HOUR)) == {"2099", "today"}
    assert staying(sessions, Rule(keep_last=2)) == {"2099", "today"}


@pytest.mark.parametrize("last_ms", [None, 0, -5, 1_788_100_200, 946_684_799_999])
def test_without_a_time_that_can_be_the_growth_that_was_seen_counts(last_ms: int | None) -> None:
    young, old = (replace(session(str(days), last_ms=last_ms), grew_ms=NOW - days * DAY) for days in (1, 9))
    assert staying([young, old], Rule(keep_within_ms=2 * DAY)) == {"1"}


def test_without_any_time_a_session_counts_as_active_now() -> None:
    assert staying([session("a", None)], Rule(keep_within_ms=1)) == {"a"}


def test_growth_without_a_time_does_not_make_a_session_young() -> None:
    assert staying([replace(session("a", 9), grew_ms=NOW)], Rule(keep_within_ms=2 * DAY)) == set()


# --- what stands above rules ---


def test_pinned_and_held_sessions_stay() -> None:
    sessions = [session("pinned", 99, pinned=True), session("held", 99, held_until_ms=NOW + 1), session("free", 99, held_until_ms=NOW)]
    plan = ruled(sessions, Rule(keep_within_ms=DAY))
    assert verdicts(plan) == {"pinned": "keep", "held": "keep", "free": "expire"}
    assert reasons(plan)["held"] == "restored, and held until 2026-08-30T14:30:00.001Z"


def test_what_another_session_needs_stays_through_the_whole_family() -> None:
    family = [session("grandmother", 90), session("mother", 80, parents=("grandmother",)), session("child", 1, parents=("mother", "lost"))]
    plan = ruled(family, Rule(keep_within_ms=9 * DAY))
    assert reasons(plan)["grandmother"] == "mother needs it"
    assert reasons(plan)["mother"] == "child needs it"
    assert set(verdicts(plan).values()) == {"keep"}


def test_a_family_goes_the_youngest_first_each_with_a_grace_of_its_own() -> None:
    rule, sessions, days = Rule(keep_within_ms=DAY), [session("mother", 90), session("child", 80, parents=("mother",))], 0
    seen = []
    while sessions:
        plan = decide(sessions, Retention(rules=(rule,)), NOW + days * DAY)
        seen.append(verdicts(plan))
        sessions, days = carried_out(sessions, plan, NOW + days * DAY), days + 7
    assert seen == [
        {"mother": "keep", "child": "expire"},
        {"mother": "expire", "child": "remove"},
        {"mother": "remove"},
    ]


def test_a_parent_is_known_by_its_agent_and_source_and_is_never_the_session_itself() -> None:
    sessions = [
        session("a", 90, parents=("a",)),
        session("b", 90, source="other"),
        session("b2", 90, id="b", agent="claude-code"),
        session("c", 1, parents=("b",)),
    ]
    assert {each.key for each in ruled(sessions, Rule(keep_within_ms=DAY * 9)).of(Verdict.EXPIRE)} == {"key-a", "key-b", "key-b2"}


def test_of_several_sessions_with_the_id_that_is_needed_all_stay() -> None:
    sessions = [session("a", 90), session("a2", 90, id="a"), session("child", 1, parents=("a",))]
    assert ruled(sessions, Rule(keep_within_ms=9 * DAY)).of(Verdict.EXPIRE) == ()


def test_of_a_source_that_is_not_there_nothing_is_marked_or_removed() -> None:
    rule = Rule(keep_within_ms=DAY)
    sessions = [session("new", 90), marked(session("old", 90), 8), session("here", 90, source="mine")]
    plan = ruled(sessions, rule, away={"codex", "unheard-of"})
    assert verdicts(plan) == {"new": "keep", "old": "expiring", "here": "expire"}
    assert reasons(plan)["new"] == "its source is not there"
    assert plan.notes == ("the source codex is not there: nothing of it is marked or removed",)
    assert verdicts(ruled(sessions, rule))["old"] == "remove"


# --- marks ---


def test_grace_runs_from_the_mark_to_its_last_millisecond() -> None:
    rule, old = Rule(keep_within_ms=DAY), session("a", 90)
    expire, expiring, remove = (
        ruled([one], rule).decisions[0] for one in (old, replace(old, mark=Mark(NOW - 7 * DAY + 1)), replace(old, mark=Mark(NOW - 7 * DAY)))
    )
    assert (expire.verdict, expire.goes_ms) == (Verdict.EXPIRE, NOW + 7 * DAY)
    assert (expiring.verdict, expiring.goes_ms) == (Verdict.EXPIRING, NOW + 1)
    assert remove.verdict is Verdict.REMOVE
    assert expire.lengths == (Length("stream-a", 0, 40),)


@pytest.mark.parametrize(
    "more",
    [{"pinned": True}, {"held_until_ms": NOW + DAY}, {"last_ms": NOW}, {"agent": "claude-code"}],
    ids=["pin", "hold", "young", "rule"],
)
def test_a_mark_is_lifted_when_the_policy_lets_its_session_stay(more: dict[str, Any]) -> None:
    assert verdicts(ruled([marked(session("a", 90, **more), 30)], Rule(agent="codex", keep_within_ms=DAY))) == {"a": "lift"}


def test_a_mark_is_lifted_when_another_session_has_come_to_need_it() -> None:
    plan = ruled([marked(session("a", 90), 30), session("b", 0, parents=("a",))], Rule(keep_within_ms=DAY))
    assert verdicts(plan) == {"a": "lift", "b": "keep"}


def test_a_mark_in_the_future_counts_from_now() -> None:
    (decision,) = ruled([marked(session("a", 90), -400)], Rule(keep_within_ms=DAY)).decisions
    assert (decision.verdict, decision.goes_ms) == (Verdict.EXPIRING, NOW + 7 * DAY)


def test_what_has_grown_since_it_was_marked_is_marked_anew_or_stays() -> None:
    sessions = [marked(session("old", 90), 30, grown=True), marked(session("young", 0), 30, grown=True)]
    assert verdicts(ruled(sessions, Rule(keep_within_ms=DAY))) == {"old": "expire", "young": "lift"}


# --- what holds a pass back ---


@pytest.mark.parametrize(("count", "share", "most"), [(99, 1, 99), (101, 1, 100), (1_000, 20, 200), (1_000, 100, 1_000), (999, 11, 109)])
def test_a_pass_marks_at_most_its_share_the_oldest_first(count: int, share: int, most: int) -> None:
    sessions = [session(str(number), 10 + number) for number in range(count)]
    policy = Retention(most_per_pass_percent=share, rules=(Rule(keep_within_ms=DAY),))
    plan = decide(sessions, policy, NOW)
    assert {each.id for each in plan.of(Verdict.EXPIRE)} == {str(number) for number in range(count - most, count)}
    late = plan.of(Verdict.KEEP)
    assert all(each.reason == "limit of a pass; otherwise: rule 1 (every session): older than 1d" and each.goes_ms is None for each in late)
    assert len(plan.notes) == (1 if late else 0)
    assert len(decide(sessions, policy, NOW, force=True).of(Verdict.EXPIRE)) == count


def test_while_deletion_is_suspended_nothing_is_marked_or_removed() -> None:
    sessions = [session("new", 90), marked(session("old", 90), 30), marked(session("pinned", 90, pinned=True), 30)]
    plan = ruled(sessions, Rule(keep_within_ms=DAY), suspended="the clock jumped by 400 days", force=True)
    assert verdicts(plan) == {"new": "keep", "old": "expiring", "pinned": "lift"}
    assert plan.notes == ("nothing is marked or removed: the clock jumped by 400 days",)
    assert "the clock jumped" in reasons(plan)["new"]
    assert "the clock jumped" in reasons(plan)["old"]


# --- the plan ---


def test_two_sessions_of_one_key_are_an_error() -> None:
    with pytest.raises(ValueError, match="one key"):
        ruled([session("a"), session("b", key="key-a")])


def test_the_plan_as_json_has_what_is_promised() -> None:
    sessions = [
        session("a", 90, 5),
        marked(session("b", 80, 6), 1),
        marked(session("c", 70, 7), 9),
        marked(session("d", 0, 8), 1),
        session("e"),
    ]
    plan = ruled(sessions, Rule(keep_within_ms=DAY))
    value = json.loads(json.dumps(plan.to_json()))
    reason = "rule 1 (every session): older than 1d"
    assert value["expire"] == [{"key": "key-a", "id": "a", "bytes": 5, "reason": reason, "rule": 1, "goes": "2026-09-06T14:30:00.000Z"}]
    assert value["expiring"] == [{"key": "key-b", "id": "b", "bytes": 6, "reason": reason, "rule": 1, "goes": "2026-09-05T14:30:00.000Z"}]
    assert [each["id"] for each in value["remove"] + value["lift"] + value["keep"]] == ["c", "d", "e"]
    assert value["totals"]["remove"] == {"sessions": 1, "bytes": 7}
    assert {name: total["sessions"] for name, total in value["totals"].items()} == dict.fromkeys(Verdict, 1)
    assert (value["fingerprint"], value["notes"]) == (plan.fingerprint, [])


def test_the_fingerprint_is_of_what_would_be_done_and_to_which_bytes() -> None:
    rule, sessions = Rule(keep_within_ms=DAY), [session("a", 90), marked(session("b", 80), 9), session("c")]
    same = ruled(sessions, rule).fingerprint
    assert len(same) == 16
    assert int(same, 16) >= 0
    grown = [replace(each, lengths=(Length(f"stream-{each.id}", 0, 99),)) for each in sessions]
    assert ruled([*sessions[:2], grown[2], session("d")], rule).fingerprint == same  # others go on
    assert decide(sessions, Retention(rules=(rule,)), NOW + HOUR).fingerprint == same  # time goes on
    others = [
        ruled([grown[0], *sessions[1:]], rule),
        ruled(sessions[1:], rule),
        ruled([sessions[0], *sessions[2:]], rule),
        ruled([*sessions, marked(session("d"), 1)], rule),
    ]
    assert len({same, *(each.fingerprint for each in others)}) == 5


def test_ten_thousand_sessions_take_well_under_a_second() -> None:
    sessions = [
        session(
            str(number), number % 900, 1 + number % 77, project=f"/p/{number % 300}", parents=(str(number - 1),) if number % 9 == 0 else ()
        )
        for number in range(10_000)
    ]
    rules = (Rule(project="/p/1*", keep_within_ms=90 * DAY, keep_daily=9, keep_weekly=9, keep_monthly=9), Rule(tag="x", keep_last=9))
    began = time.process_time()
    plan = decide(sessions, Retention(max_total_bytes=200_000, project_floor_bytes=50, rules=rules), NOW, free_bytes=0)
    assert plan.fingerprint
    assert time.process_time() - began < 1.0
    assert len(plan.of(Verdict.EXPIRE)) == 2_000
