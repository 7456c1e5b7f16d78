"""`coldtrail ls --expiring` and `status`: what the agents will delete of their own, whether it is held, and what is an alarm."""

from __future__ import annotations

import os
import time

import pytest

from coldtrail.model import instant_text
from coldtrail.settings import open_home
from daemon.cli.desk import DAY_MS, FIRST, SECOND, Desk

NOW_MS = time.time_ns() // 1_000_000


@pytest.fixture
def two(desk: Desk) -> Desk:
    """Of Claude Code's two sessions one is swept in five days and one in twenty; both are held."""
    for session, days in ((FIRST, 25), (SECOND, 10)):
        log = desk.converse(session, project=f"/somebody/{session[:4]}")
        os.utime(log, ns=((NOW_MS - days * DAY_MS) * 1_000_000,) * 2)
    desk.capture()
    return desk


def lose_a_byte(desk: Desk, session: str) -> None:
    """The catalog says that not all of it is held."""
    with open_home(desk.settings()) as home:
        (row,) = home.catalog.streams_with(session_id=session, source="claude-code")
        home.catalog.put(row._replace(size=row.held + 1))


def test_every_session_has_the_day_on_which_its_agent_deletes_it_and_whether_it_is_kept(two: Desk) -> None:
    told = {each["id"]: (each["agent_deletes"], each["kept"]) for each in two.json("ls")["sessions"]}
    assert told == {FIRST: (instant_text(NOW_MS + 5 * DAY_MS), True), SECOND: (instant_text(NOW_MS + 20 * DAY_MS), True)}
    assert two.json("show", FIRST)["agent_deletes"] == instant_text(NOW_MS + 5 * DAY_MS)
    two.log(FIRST, "-somebody-ae3d").unlink()
    two.capture()
    assert next(each["agent_deletes"] for each in two.json("ls")["sessions"] if each["id"] == FIRST) is None


def test_those_that_go_soon_are_listed_the_first_one_first(two: Desk) -> None:
    assert [each["id"] for each in two.json("ls", "--expiring")["sessions"]] == [FIRST]
    assert [each["id"] for each in two.json("ls", "--expiring", "--within", "30d")["sessions"]] == [FIRST, SECOND]
    assert two.json("ls", "--expiring", "--within", "1d") == {"sessions": []}
    assert "within 1d" in two.run("ls", "--expiring", "--within", "1d").stderr


def test_the_list_says_when_and_whether_it_is_kept(two: Desk) -> None:
    lose_a_byte(two, SECOND)
    kept, lost = two.run("ls", "--expiring", "--within", "30d").stdout.splitlines()[1:]
    assert "deleted by claude-code on " in kept
    assert kept.endswith(", kept")
    assert lost.endswith(", NOT KEPT")


@pytest.mark.parametrize("arguments", [["--within", "7d"], ["--expiring", "--within", "0"], ["--expiring", "--within", "1Y"]])
def test_what_is_no_span_is_a_usage_error(two: Desk, arguments: list[str]) -> None:
    assert "--within" in two.run("ls", *arguments, code=2).stderr


def test_status_counts_what_goes_within_a_week(two: Desk) -> None:
    assert two.status()["agents_delete"] == {"within": "7d", "sessions": 1, "not_kept": 0}
    assert two.status()["alarms"] == []
    assert "will delete 1 session within 7d, all of them kept" in two.run("status", code=None).stdout


def test_what_is_not_held_two_days_before_is_an_alarm(two: Desk) -> None:
    log = two.log(FIRST, "-somebody-ae3d")
    os.utime(log, ns=((NOW_MS - 29 * DAY_MS) * 1_000_000,) * 2)
    two.capture()
    assert two.status()["alarms"] == []
    lose_a_byte(two, FIRST)
    (alarm,) = two.status()["alarms"]
    assert (alarm["id"], alarm["path"], alarm["agent_deletes"]) == (FIRST, str(log), instant_text(NOW_MS + DAY_MS))
    shown = two.run("status", code=None).stdout
    assert "1 of them NOT KEPT" in shown
    assert "ALARM     claude-code deletes ~/.claude/projects/" in shown


def test_a_file_that_was_never_captured_is_an_alarm_too(two: Desk) -> None:
    log = two.converse("c7c01122-0000-4000-8000-000000000003", project="/somebody/third")
    os.utime(log, ns=((NOW_MS - 29 * DAY_MS) * 1_000_000,) * 2)
    with open_home(two.settings()) as home:
        home.catalog.note_fault(os.fsencode(log), "Permission denied", "", NOW_MS, 5_000)
    (alarm,) = two.status()["alarms"]
    assert (alarm["key"], alarm["path"], alarm["what"]) == (None, str(log), "never captured: Permission denied")


def test_what_retention_has_marked_is_a_state_of_its_own(two: Desk) -> None:
    two.configure('[[retention.rule]]\nkeep_within = "30d"\n')
    two.run("prune", "--yes")
    assert len(two.json("ls", "--state", "expiring")["sessions"]) == 2
    assert two.status()["sessions"]["expiring"] == 2
    assert "2 expiring" in two.run("status", code=None).stdout
