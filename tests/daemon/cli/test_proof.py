"""`coldtrail verify` and `coldtrail rebuild`: whether our copy is right, and whether the catalog is."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from coldtrail.catalog import changed
from coldtrail.settings import open_home
from coldtrail.stage.rebuild import differences, rebuild
from daemon.cli.desk import FIRST, SECOND, Desk

# --- verify ---


def test_what_is_whole_is_ok_and_a_0(desk: Desk) -> None:
    log = desk.captured()
    said = desk.json("verify")
    assert (said["verdict"], said["findings"]) == ("ok", [])
    assert (said["checked"]["sessions"], said["checked"]["streams"], said["checked"]["segments"]) == (1, 1, 1)
    assert said["checked"]["bytes"] == log.stat().st_size
    assert desk.run("verify").stdout.startswith("ok: 1 session, 1 stream, 1 segment, 1.3 KiB read from ")


def test_an_empty_home_is_ok(desk: Desk) -> None:
    assert desk.json("verify")["verdict"] == "ok"


def test_one_flipped_bit_is_bad_and_a_1_with_its_place(desk: Desk) -> None:
    desk.captured()
    segment = desk.damage()
    said = desk.json("verify", code=1)
    (finding,) = said["findings"]
    assert (said["verdict"], finding["path"], finding["offset"]) == ("bad", str(segment), 0)
    assert finding["what"]
    assert finding["hint"]
    lines = desk.run("verify", code=1).stdout.splitlines()
    assert lines[0].startswith(f"{segment}: at byte 0: ")
    assert lines[-1].startswith("bad: ")


def test_what_cannot_be_judged_is_unverifiable_and_a_5(desk: Desk) -> None:
    desk.captured()
    shutil.rmtree(desk.trail / "store")
    said = desk.json("verify", FIRST, code=5)
    assert said["verdict"] == "unverifiable"
    assert [finding["verdict"] for finding in said["findings"]] == ["unverifiable"]


def test_only_the_named_sessions_are_read(desk: Desk) -> None:
    desk.captured()
    desk.damage()
    desk.converse(SECOND, project="/somebody/else")
    desk.capture()
    assert desk.json("verify", SECOND)["checked"]["sessions"] == 1
    assert desk.json("verify", SECOND, FIRST, SECOND, code=1)["checked"]["sessions"] == 2


def test_a_name_that_is_no_sessions_is_a_3_and_the_others_are_read(desk: Desk) -> None:
    desk.captured()
    said = desk.json("verify", "nothing", FIRST, code=3)
    assert (said["verdict"], [error["id"] for error in said["errors"]]) == ("ok", ["nothing"])


def test_no_name_that_is_a_sessions_proves_nothing(desk: Desk) -> None:
    desk.captured()
    assert desk.json("verify", "nothing", code=3)["verdict"] == "unverifiable"
    assert desk.run("verify", "nothing", code=3).stdout == ""


def test_verify_changes_nothing(desk: Desk) -> None:
    desk.captured()
    before = kept(desk)
    desk.run("verify")
    assert kept(desk) == before


# --- rebuild ---


def kept(desk: Desk) -> dict[Path, bytes]:
    """Every file of ours but the catalog, which its own readers touch, and the locks."""
    names = {"catalog.db", "catalog.db-wal", "catalog.db-shm"}
    files = (path for path in desk.trail.rglob("*") if path.is_file() and path.name not in names and path.parent.name != "locks")
    return {path: path.read_bytes() for path in files}


def spoil(desk: Desk) -> None:
    """Let the catalog say something else of the one session than its files do."""
    with open_home(desk.settings()) as home:
        (row,) = home.catalog.all_streams()
        home.catalog.put(changed(row, held=row.held - 1))


def test_a_rebuild_says_how_much_there_is(desk: Desk) -> None:
    desk.captured()
    assert desk.run("rebuild").stdout == "rebuilt: 1 session, 1 stream\n"
    assert desk.json("rebuild") == {"sessions": 1, "streams": 1, "differences": [], "mended": [], "errors": []}


def test_the_catalog_is_made_again_as_it_was(desk: Desk) -> None:
    desk.captured()
    before = desk.json("ls")
    for path in desk.trail.glob("catalog.db*"):
        path.unlink()
    desk.run("rebuild")
    assert desk.json("ls") == before


def test_a_catalog_that_says_what_the_files_say_is_a_0(desk: Desk) -> None:
    log = desk.captured()
    desk.write(log, b'{"more": 1}\n', b'{"torn')
    desk.capture()
    log.unlink()
    desk.capture()
    assert desk.json("rebuild", "--check")["differences"] == []
    assert desk.run("rebuild", "--check").stdout == "ok: the catalog is what the files say\n"


def test_a_touch_is_no_difference(desk: Desk) -> None:
    log = desk.captured()
    log.touch()
    desk.capture()
    assert desk.json("rebuild", "--check")["differences"] == []


def test_a_value_that_differs_is_told_and_a_1(desk: Desk) -> None:
    log = desk.captured()
    size = log.stat().st_size
    spoil(desk)
    said = desk.json("rebuild", "--check", code=1)
    told = [(each["field"], each["catalog"], each["files"]) for each in said["differences"]]
    assert told == [("held", size - 1, size)]
    assert f" held: the catalog has {size - 1}, the files {size}\n" in desk.run("rebuild", "--check", code=1).stdout


def test_a_check_changes_nothing(desk: Desk) -> None:
    desk.captured()
    spoil(desk)
    before = kept(desk)
    desk.run("rebuild", "--check", code=1)
    assert kept(desk) == before
    desk.run("rebuild", "--check", code=1)


def test_a_rebuild_mends_what_the_check_has_found(desk: Desk) -> None:
    desk.captured()
    spoil(desk)
    desk.run("rebuild")
    desk.run("rebuild", "--check")


def test_a_session_that_only_the_files_have_is_told(desk: Desk) -> None:
    desk.captured()
    for path in desk.trail.glob("catalog.db*"):
        path.unlink()
    told = [(each["field"], each["catalog"], each["files"]) for each in desk.json("rebuild", "--check", code=1)["differences"]]
    assert told == [(None, None, "a session"), (None, None, "a stream")]


def test_a_session_that_only_the_catalog_has_is_told_and_forgotten_by_a_rebuild(desk: Desk) -> None:
    desk.captured()
    shutil.rmtree(desk.trail / "store")
    shutil.rmtree(desk.trail / "archive")
    told = [(each["field"], each["catalog"], each["files"]) for each in desk.json("rebuild", "--check", code=1)["differences"]]
    assert told == [(None, "a session", None), (None, "a stream", None)]
    desk.run("rebuild")
    assert desk.json("ls")["sessions"] == []


def test_a_lost_store_comes_back_from_the_archive_by_a_rebuild_and_not_by_a_check(desk: Desk) -> None:
    desk.captured()
    shutil.rmtree(desk.trail / "store")
    desk.run("rebuild", "--check")
    assert not (desk.trail / "store").exists()
    desk.run("rebuild")
    assert list(desk.trail.glob("store/*/meta.json"))


def test_a_session_that_begins_during_a_rebuild_is_not_forgotten(desk: Desk) -> None:
    desk.captured()
    desk.converse(SECOND, project="/somebody/else")
    with open_home(desk.settings()) as home:
        assert rebuild(home, lambda _session: desk.capture()) == []
    assert {session["id"] for session in desk.json("ls")["sessions"]} == {FIRST, SECOND}


def test_a_stream_that_begins_during_a_rebuild_counts_for_its_session(desk: Desk) -> None:
    desk.captured()
    log = desk.converse(SECOND, project="/somebody/else")
    desk.capture()
    alone = log.stat().st_size
    child = log.with_suffix("") / "subagents" / "agent-a1.jsonl"

    def begin(_session: str) -> None:
        if not child.exists():
            desk.write(child, {"type": "user", "sessionId": SECOND, "message": {"role": "user", "content": "go"}})
            desk.capture()

    with open_home(desk.settings()) as home:
        assert rebuild(home, begin) == []
    assert desk.json("show", SECOND)["bytes"] == alone + child.stat().st_size


def test_a_session_that_begins_during_a_check_is_no_difference(desk: Desk) -> None:
    desk.captured()
    desk.converse(SECOND, project="/somebody/else")
    with open_home(desk.settings()) as home:
        assert differences(home, lambda _session: desk.capture()) == ([], [])


@pytest.mark.parametrize("name", ["archive/*/*/*.json", "store/*/meta.json"])
def test_a_damaged_file_is_told_by_a_check_and_written_anew_by_a_rebuild(desk: Desk, name: str) -> None:
    desk.captured()
    (path,) = desk.trail.glob(name)
    whole = path.read_bytes()
    path.write_text("{")
    result = desk.run("rebuild", "--check", "--json", code=1)
    assert [error["exit_code"] for error in json.loads(result.stdout)["errors"]] == [1]
    assert path.name in result.stderr
    assert "hint: run `coldtrail rebuild`" in result.stderr
    assert "ok" not in desk.run("rebuild", "--check", code=1).stdout
    assert path.read_text() == "{", "a check changes nothing"
    (told, _) = desk.run("rebuild").stdout.splitlines()
    assert told.startswith("mended: ")
    assert path.name in told
    assert path.read_bytes() == whole
    assert desk.json("rebuild")["mended"] == []
    assert desk.json("verify")["verdict"] == "ok"


@pytest.mark.parametrize("check", [[], ["--check"]], ids=["rebuild", "check"])
def test_a_file_that_nothing_else_is_known_of_is_told_and_a_1(desk: Desk, check: list[str]) -> None:
    desk.captured()
    for path in (*desk.trail.glob("archive/*/*/*.json"), *desk.trail.glob("store/*/meta.json")):
        path.write_text("{")
    for path in desk.trail.glob("catalog.db*"):
        path.unlink()
    result = desk.run("rebuild", *check, "--json", code=1)
    assert [error["exit_code"] for error in json.loads(result.stdout)["errors"]] == [1, 1]
    assert "meta.json" in result.stderr
