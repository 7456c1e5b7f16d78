"""`coldtrail events`: what happened, by people's lines, as JSON, and as the records' own bytes."""

from __future__ import annotations

from typing import Any

import pytest

from coldtraild.cli.say import local
from daemon.cli.desk import FIRST, JANUARY_MS, Desk

TYPES = ["session_start", "environment_changed", "message_added", "tool_invoked", "tool_completed", "message_added"]


def types(document: Any) -> list[str]:
    return [event["type"] for event in document["events"]]


def test_the_json_has_key_id_events_and_gaps(desk: Desk) -> None:
    desk.captured()
    said = desk.json("events", FIRST)
    assert list(said) == ["key", "id", "events", "gaps"]
    assert (said["id"], said["gaps"], types(said)) == (FIRST, [], TYPES)
    assert said["events"][3] == {
        "position": said["events"][3]["position"],
        "type": "tool_invoked",
        "time": "2026-01-01T00:00:01.000Z",
        "id": f"1-{FIRST}",
        "data": {"tool_name": "Bash", "input": {"command": "ls"}, "invocation_id": "toolu_1"},
    }


def test_no_events_are_an_empty_list(desk: Desk) -> None:
    desk.captured()
    assert desk.run("events", FIRST, "--type", "session_end", "--json").stdout.endswith('"events": [],\n  "gaps": []\n}\n')


def test_the_document_is_indented_throughout(desk: Desk) -> None:
    desk.captured()
    shown = desk.run("events", FIRST, "--json", "--limit", "1").stdout
    assert shown.startswith('{\n  "key": "')
    assert '\n    {\n      "position": "0:0.0",\n' in shown


def test_a_line_has_position_time_type_and_gist(desk: Desk) -> None:
    desk.captured()
    lines = desk.run("events", FIRST).stdout.splitlines()
    assert [line.split()[3] for line in lines] == TYPES
    assert lines[2].split(maxsplit=4)[4] == "user: list the files"
    assert lines[3].split(maxsplit=4)[4] == 'Bash {"command":"ls"}'
    assert lines[4].split(maxsplit=4)[4] == "a.txt"
    assert lines[0].startswith("0:0.0 ")
    assert local(JANUARY_MS) in lines[0]


def test_an_event_stays_on_its_line_whatever_it_says(desk: Desk) -> None:
    desk.converse(said="one\ntwo \x1b[2J\u2028three\rfour")
    desk.capture()
    shown = desk.run("events", FIRST, "--type", "message_added", "--limit", "1").stdout
    assert shown.endswith("user: one two \\x1b[2J three four\n")


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        (["--type", "tool_invoked"], ["tool_invoked"]),
        (["--type", "tool_invoked", "--type", "tool_completed"], ["tool_invoked", "tool_completed"]),
        (["--limit", "2"], TYPES[:2]),
        (["--since", "2026-01-01T00:00:02Z"], TYPES[4:]),
        (["--until", "2026-01-01T00:00:00Z"], TYPES[:3]),
        (["--until", f"1-{FIRST}"], TYPES[:4]),
        (["--since", "#3"], TYPES[4:]),
        (["--after", "0:0.1"], TYPES[2:]),
        (["--after", f"2-{FIRST}"], TYPES[5:]),
    ],
)
def test_a_choice_leaves_what_fits(desk: Desk, arguments: list[str], found: list[str]) -> None:
    desk.captured()
    assert types(desk.json("events", FIRST, *arguments)) == found


def test_a_childs_events_are_read_by_naming_it(desk: Desk) -> None:
    log = desk.captured()
    desk.write(
        log.with_suffix("") / "subagents" / "agent-a1.jsonl",
        {"type": "user", "uuid": "c1", "sessionId": FIRST, "message": {"role": "user", "content": "go"}},
    )
    desk.capture()
    assert [event["id"] for event in desk.json("events", FIRST, "--stream", "agent-a1.jsonl")["events"]] == ["c1", "c1"]


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["--since", "2026-13-01"], 2),
        (["--until", "#0"], 2),
        (["--type", "tool_called"], 2),
        (["--after", "no-such-id"], 3),
        (["--stream", "no-such-file"], 3),
        (["--raw", "--json"], 2),
        (["--limit", "0"], 2),
    ],
)
@pytest.mark.parametrize("form", [[], ["--json"]], ids=["lines", "json"])
def test_what_there_is_not_is_told_and_nothing_printed(desk: Desk, arguments: list[str], code: int, form: list[str]) -> None:
    desk.captured()
    result = desk.run("events", FIRST, *arguments, *form, code=code)
    assert result.stdout == ""
    assert result.stderr


# --- raw ---


def test_raw_without_a_choice_is_the_log_byte_for_byte(desk: Desk) -> None:
    log = desk.converse()
    desk.write(log, b'{"torn": "abc{"n":2}\n', b"\x00" * 50, b"\xff\xfe\r\n\n", b'{"no newline at the end": 1}')
    desk.capture()
    desk.seal()
    desk.write(log, b"\n", b'{"live": 1}\n')
    assert desk.run("events", FIRST, "--raw").stdout_bytes == log.read_bytes()


def test_raw_with_a_type_is_the_records_that_hold_one(desk: Desk) -> None:
    log = desk.captured()
    second = log.read_bytes().split(b"\n")[1] + b"\n"
    assert desk.run("events", FIRST, "--raw", "--type", "tool_invoked").stdout_bytes == second


def test_raw_behind_a_record_begins_with_the_next_one(desk: Desk) -> None:
    log = desk.captured()
    rest = b"\n".join(log.read_bytes().split(b"\n")[2:])
    assert desk.run("events", FIRST, "--raw", "--after", f"1-{FIRST}").stdout_bytes == rest


def test_raw_with_a_time_keeps_damaged_records(desk: Desk) -> None:
    log = desk.converse()
    torn = b'{"torn": "abc\n'
    desk.write(log, torn)
    desk.capture()
    last_two = b"\n".join(log.read_bytes().split(b"\n")[3:])
    assert last_two.endswith(torn)
    assert desk.run("events", FIRST, "--raw", "--since", "2026-01-01T00:00:03Z").stdout_bytes == last_two


def test_raw_counts_records(desk: Desk) -> None:
    log = desk.captured()
    assert desk.run("events", FIRST, "--raw", "--limit", "1").stdout_bytes == log.read_bytes().split(b"\n")[0] + b"\n"


# --- damage to our copy ---


@pytest.mark.parametrize("form", [[], ["--json"], ["--raw", "--limit", "9"]], ids=["lines", "json", "raw"])
def test_bytes_of_ours_that_cannot_be_read_are_told_and_a_1(desk: Desk, form: list[str]) -> None:
    desk.captured().unlink()
    desk.damage()
    result = desk.run("events", FIRST, *form, code=1)
    assert "of generation 0 cannot be read" in result.stderr
    assert "hint: run `coldtrail verify`" in result.stderr


def test_gaps_stand_in_the_document(desk: Desk) -> None:
    log = desk.captured()
    size = log.stat().st_size
    log.unlink()
    desk.damage()
    said = desk.json("events", FIRST, code=1)
    assert [(gap["generation"], gap["start"], gap["end"]) for gap in said["gaps"]] == [(0, 0, size)]


def test_a_gap_is_told_even_where_the_limit_is_reached(desk: Desk) -> None:
    log = desk.captured()
    desk.damage()
    desk.write(log, *[{"type": "user", "timestamp": "2026-01-02T00:00:00Z", "message": {"role": "user", "content": "on"}}] * 5)
    desk.capture()
    desk.run("events", FIRST, "--limit", "1", code=1)


def test_raw_stops_at_damage_with_a_1(desk: Desk) -> None:
    desk.captured().unlink()
    segment = desk.damage()
    result = desk.run("events", FIRST, "--raw", code=1)
    assert str(segment) in result.stderr


def test_what_the_agent_made_again_and_nobody_captured_is_a_5_that_names_it(desk: Desk) -> None:
    log = desk.captured()
    log.unlink()
    desk.converse(said="begun anew")
    size = log.stat().st_size
    result = desk.run("events", FIRST, code=5)
    assert "list the files" in result.stdout
    assert f"the {size} bytes that are in {log} now are not captured yet; `coldtrail run --once` does it" in result.stderr
    (gap,) = desk.json("events", FIRST, code=5)["gaps"]
    assert (gap["generation"], gap["end"]) == (1, size)
    assert f"{size} bytes" in desk.run("state", FIRST, code=5).stderr
    desk.capture()
    assert "begun anew" in desk.run("events", FIRST).stdout
