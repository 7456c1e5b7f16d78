"""`coldtrail ls`: every session on a line, the latest first; for programs, the promised keys."""

from __future__ import annotations

import pytest

from coldtrail.settings import now_ms
from coldtraild.cli.say import local
from daemon.cli.desk import DAY_MS, FIRST, JANUARY_MS, SECOND, Desk

PROMISED = {
    "key", "id", "agent", "project", "title", "first_activity", "last_activity", "records", "damaged", "bytes", "stored_bytes",
    "state", "pinned", "tags", "paths", "host",
}  # fmt: skip


@pytest.fixture
def two(desk: Desk) -> Desk:
    """Two sessions, the second a day later in another project; the first one's log is gone."""
    desk.converse()
    desk.converse(SECOND, project="/somebody/else", said="say hello", at_ms=JANUARY_MS + DAY_MS)
    desk.capture()
    desk.log(FIRST).unlink()
    desk.capture()
    return desk


def ids(desk: Desk, *arguments: str) -> list[str]:
    return [session["id"] for session in desk.json("ls", *arguments)["sessions"]]


def test_a_home_that_does_not_exist_yet_lists_nothing_and_says_what_to_do(desk: Desk) -> None:
    result = desk.run("ls")
    assert result.stdout == ""
    assert "nothing is kept yet" in result.stderr
    assert "coldtrail run --once" in result.stderr


def test_nothing_as_json_is_an_empty_list(desk: Desk) -> None:
    assert desk.json("ls") == {"sessions": []}


def test_the_json_has_every_promised_key(two: Desk) -> None:
    assert all(session.keys() >= PROMISED for session in two.json("ls")["sessions"])


def test_the_json_says_what_is_known_of_a_session(two: Desk) -> None:
    session = two.json("ls")["sessions"][1]
    told = {name: session[name] for name in ("id", "agent", "project", "title", "records", "damaged", "state", "pinned", "paths")}
    assert told == {
        "id": FIRST,
        "agent": "claude-code",
        "project": "/somebody/demo",
        "title": "list the files",
        "records": 4,
        "damaged": 0,
        "state": "gone",
        "pinned": False,
        "paths": [str(two.log(FIRST))],
    }
    assert (session["first_activity"], session["last_activity"]) == ("2026-01-01T00:00:00.000Z", "2026-01-01T00:00:03.000Z")


def test_the_latest_session_comes_first(two: Desk) -> None:
    assert ids(two) == [SECOND, FIRST]


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        (["--state", "gone"], [FIRST]),
        (["--state", "live"], [SECOND]),
        (["--agent", "claude-code"], [SECOND, FIRST]),
        (["--agent", "codex"], []),
        (["--project", "demo"], [FIRST]),
        (["--project", "d?m*"], [FIRST]),
        (["--project", "/somebody/*"], [SECOND, FIRST]),
        (["--project", "somebody"], []),
        (["--limit", "1"], [SECOND]),
        (["--project", "demo", "--limit", "1"], [FIRST]),
    ],
)
def test_a_filter_leaves_what_fits(two: Desk, arguments: list[str], found: list[str]) -> None:
    assert ids(two, *arguments) == found


def test_a_tilde_in_a_project_is_the_users_home(desk: Desk) -> None:
    desk.converse(project=str(desk.user / "demo"))
    desk.capture()
    assert ids(desk, "--project", "~/*") == [FIRST]


def test_a_project_below_the_users_home_is_shown_with_a_tilde(desk: Desk) -> None:
    desk.converse(project=str(desk.user / "demo"))
    desk.capture()
    assert " ~/demo " in desk.run("ls").stdout


def test_a_name_that_no_agent_has_is_a_usage_error(two: Desk) -> None:
    result = two.run("ls", "--agent", "cluade", code=2)
    assert "claude-code" in result.stderr


def test_filters_that_nothing_fits_say_so(two: Desk) -> None:
    result = two.run("ls", "--agent", "codex")
    assert (result.stdout, result.stderr) == ("", "coldtrail: no session fits\n")


def test_a_line_tells_title_project_agent_size_and_state(two: Desk) -> None:
    titles, second, first = two.run("ls").stdout.splitlines()
    assert titles.split() == ["KEY", "TITLE", "PROJECT", "AGENT", "LAST", "ACTIVITY", "SIZE", "STATE"]
    assert "say hello" in second
    assert second.endswith("live")
    assert all(word in first for word in ("list the files", "/somebody/demo", "claude-code", local(JANUARY_MS)[:10], " KiB", "gone"))


def test_the_last_activity_of_these_days_is_told_by_how_long_ago_it_was(desk: Desk) -> None:
    desk.converse(at_ms=now_ms() - 7_300_000)
    desk.capture()
    assert " 2 h ago " in desk.run("ls").stdout


def test_the_key_in_the_list_names_its_session(two: Desk) -> None:
    shown = two.run("ls").stdout.splitlines()[1].split()[0]
    assert len(shown) == 8
    assert two.json("show", shown)["id"] == SECOND


def test_damage_has_a_column_only_where_there_is_some(two: Desk) -> None:
    assert "DAMAGED" not in two.run("ls").stdout
    two.write(two.log(SECOND, "-somebody-else"), b'{"torn\n')
    two.capture()
    titles, second, first = two.run("ls").stdout.splitlines()
    assert titles.endswith("DAMAGED")
    assert second.endswith(" 1")
    assert first.endswith("gone")


def test_a_pinned_session_is_marked(two: Desk) -> None:
    two.run("pin", FIRST)
    assert two.run("ls").stdout.splitlines()[2].endswith("gone, pinned")
    assert two.json("ls", "--project", "demo")["sessions"][0]["pinned"] is True


def test_what_would_steer_the_terminal_is_escaped_in_a_title(desk: Desk) -> None:
    desk.converse(said="red \x1b[31m title \x9b2J\u202e back\u2028line\x07")
    desk.capture()
    shown = desk.run("ls").stdout
    assert len(shown.split("\n")) == 3
    assert shown.replace("\n", "").isprintable()
    assert "\\x1b[31m" in shown
    assert desk.json("ls")["sessions"][0]["title"].startswith("red \x1b[31m")


def test_a_title_with_half_a_character_is_shown(desk: Desk) -> None:
    log = desk.converse()
    log.write_bytes(log.read_bytes().replace(b"list the files", b"half \\ud83d of one"))
    desk.capture()
    assert "half ? of one" in desk.run("ls").stdout


def test_without_a_terminal_nothing_is_cut_and_nothing_coloured(desk: Desk) -> None:
    desk.converse(said="x" * 150, project="/somebody/" + "y" * 80)
    desk.capture()
    shown = desk.run("ls").stdout
    assert "x" * 150 in shown
    assert "y" * 80 in shown
    assert "\x1b" not in shown
