"""`coldtrail show`: one session, its files and generations."""

from __future__ import annotations

from coldtrail.settings import open_home
from daemon.cli.desk import FIRST, SECOND, Desk


def test_the_facts_are_those_of_the_list(desk: Desk) -> None:
    desk.captured()
    said = desk.json("show", FIRST)
    (listed,) = desk.json("ls")["sessions"]
    assert {name: said[name] for name in listed} == listed


def test_a_session_is_named_by_key_id_beginning_or_path(desk: Desk) -> None:
    log = desk.captured()
    key = desk.json("show", FIRST)["key"]
    for name in (key, key[:8], FIRST[:8], str(log), log.relative_to(desk.user)):
        assert desk.json("show", name)["key"] == key


def test_each_stream_has_its_role_path_and_generations(desk: Desk) -> None:
    log = desk.captured()
    child = desk.write(
        log.with_suffix("") / "subagents" / "agent-a1.jsonl",
        {"type": "user", "sessionId": FIRST, "message": {"role": "user", "content": "go"}},
    )
    desk.capture()
    main, sub = desk.json("show", FIRST)["streams"]
    assert (main["role"], main["path"], main["gone"]) == ("main", str(log), None)
    assert (sub["role"], sub["path"]) == ("child", str(child))
    (generation,) = main["generations"]
    assert (generation["generation"], generation["relation"], generation["mixed"]) == (0, None, False)
    assert generation["bytes"] == log.stat().st_size


def test_a_rewritten_log_has_a_second_generation_that_replaces_the_first(desk: Desk) -> None:
    log = desk.captured()
    old = log.stat().st_size
    log.write_text('{"type":"user","message":{"role":"user","content":"anew"}}\n')
    desk.capture()
    first, second = desk.json("show", FIRST)["streams"][0]["generations"]
    assert (first["bytes"], second["bytes"], second["relation"]) == (old, log.stat().st_size, "replaces")
    assert "generation 1: 59 B" in desk.run("show", FIRST).stdout
    assert "replaces the one before" in desk.run("show", FIRST).stdout


def test_a_gone_stream_says_since_when(desk: Desk) -> None:
    desk.captured().unlink()
    desk.capture()
    assert desk.json("show", FIRST)["streams"][0]["gone"].endswith("Z")
    assert "gone since 20" in desk.run("show", FIRST).stdout


def test_how_to_go_on_is_told(desk: Desk) -> None:
    desk.captured()
    assert desk.json("show", FIRST)["resume"] == f"cd /somebody/demo && claude --resume {FIRST}"
    assert f"resume    cd /somebody/demo && claude --resume {FIRST}" in desk.run("show", FIRST).stdout


def test_only_the_faults_of_this_session_are_told(desk: Desk) -> None:
    log = desk.captured()
    with open_home(desk.settings()) as home:
        for place in (log, log.parent, desk.log(SECOND, "-other")):
            home.catalog.note_fault(str(place).encode(), "Permission denied", "", home.now_ms(), 60_000)
    assert {fault["place"] for fault in desk.json("show", FIRST)["faults"]} == {str(log), str(log.parent)}
    assert "faults    2" in desk.run("show", FIRST).stdout


def test_what_would_steer_the_terminal_is_escaped(desk: Desk) -> None:
    desk.converse(said="a \x1b]0;title\x07 b", project="/some\x1bbody")
    desk.capture()
    assert "\x1b" not in desk.run("show", FIRST).stdout


def test_a_session_that_there_is_not_is_a_3(desk: Desk) -> None:
    desk.captured()
    result = desk.run("show", "nothing", code=3)
    assert result.stdout == ""
    assert result.stderr == "coldtrail: nothing: no session has this key, id or path\nhint: `coldtrail ls` shows what there is\n"


def test_a_name_that_several_have_is_a_3_that_lists_them(desk: Desk) -> None:
    desk.converse()
    desk.converse(project="/somebody/else")
    desk.capture()
    result = desk.run("show", FIRST, code=3)
    assert all(session["key"] in result.stderr for session in desk.json("ls")["sessions"])


def test_a_log_that_was_moved_says_where_it_was_and_since_when_it_is_where_it_is(desk: Desk) -> None:
    log = desk.captured()
    moved = log.parent.with_name("-elsewhere") / log.name
    moved.parent.mkdir()
    log.rename(moved)
    desk.capture()
    (stream,) = desk.json("show", FIRST)["streams"]
    assert [seen["path"] for seen in stream["paths"]] == [str(log), str(moved)]
    assert all(seen["since"].endswith("Z") for seen in stream["paths"])
    assert (stream["path"], stream["gone"], len(stream["generations"])) == (str(moved), None, 1)
    assert "  moved 20" in desk.run("show", FIRST).stdout
    assert f"{log.parent.name}/{log.name} from 20" in desk.run("show", FIRST).stdout
