"""`coldtrail restore`: what is put back, what is in the way, and how it is told."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

import pytest

from daemon.cli.desk import FIRST, SECOND, Desk


@pytest.fixture
def gone(desk: Desk) -> Desk:
    """A session that is captured, sealed, and no longer with its agent."""
    desk.captured().unlink()
    desk.capture()
    return desk


def test_the_json_has_the_promised_keys(gone: Desk) -> None:
    said = gone.json("restore", FIRST)
    assert said.keys() >= {"restored", "skipped", "failed", "resume"}
    (file,) = said["restored"]
    assert file.keys() >= {"path", "bytes", "sha256", "mtime"}


def test_the_file_is_back_and_the_document_says_its_hash(gone: Desk) -> None:
    said = gone.json("restore", FIRST)
    data = gone.log().read_bytes()
    (file,) = said["restored"]
    assert (file["path"], file["bytes"], file["sha256"]) == (str(gone.log()), len(data), hashlib.sha256(data).hexdigest())
    assert said["resume"] == f"cd /somebody/demo && claude --resume {FIRST}"
    assert gone.json("show", FIRST)["state"] == "live"


def test_people_are_told_each_file_and_how_to_go_on(gone: Desk) -> None:
    file, resume = gone.run("restore", FIRST).stdout.splitlines()
    assert file == f"restored  ~/.claude/projects/-somebody-demo/{FIRST}.jsonl, 1.3 KiB"
    assert resume == f"resume    cd /somebody/demo && claude --resume {FIRST}"


def test_twice_is_once(gone: Desk) -> None:
    gone.run("restore", FIRST)
    said = gone.json("restore", FIRST)
    assert (said["restored"], said["skipped"]) == ([], [{"path": str(gone.log()), "why": "it is there already"}])
    assert said["resume"].endswith(FIRST)


def test_a_dry_run_writes_nothing(gone: Desk) -> None:
    said = gone.json("restore", FIRST, "--dry-run")
    assert not gone.log().exists()
    assert said["restored"] == []
    assert [(file["path"], file["action"]) for file in said["planned"]] == [(str(gone.log()), "create")]
    assert "would create" in gone.run("restore", FIRST, "--dry-run").stdout


def test_another_folder_gets_it_as_below_the_agents_root_and_there_is_no_going_on_there(gone: Desk, tmp_path: Path) -> None:
    said = gone.json("restore", FIRST, "--to", tmp_path / "looked-at")
    assert [file["path"] for file in said["restored"]] == [str(tmp_path / "looked-at" / "projects" / "-somebody-demo" / f"{FIRST}.jsonl")]
    assert said["resume"] is None
    assert not gone.log().exists()


def test_a_file_that_differs_is_not_touched_and_that_is_a_4(gone: Desk) -> None:
    gone.write(gone.log(), b'{"other":1}\n')
    result = gone.run("restore", FIRST, code=4)
    assert gone.log().read_bytes() == b'{"other":1}\n'
    assert result.stdout == ""
    assert "hint: use --overwrite" in result.stderr


def test_a_refusal_stands_in_the_document(gone: Desk) -> None:
    gone.write(gone.log(), b'{"other":1}\n')
    said = gone.json("restore", FIRST, code=4)
    assert (said["restored"], said["resume"]) == ([], None)
    assert [(error["id"], error["exit_code"]) for error in said["errors"]] == [(FIRST, 4)]


def test_overwrite_replaces_what_is_held(gone: Desk) -> None:
    gone.run("restore", FIRST)
    whole = gone.log().read_bytes()
    gone.log().write_bytes(whole[:300])
    gone.run("restore", FIRST, code=4)
    gone.run("restore", FIRST, "--overwrite")
    assert gone.log().read_bytes() == whole


def test_mtimes_are_kept_where_that_is_asked(desk: Desk) -> None:
    log = desk.captured()
    mtime_ns = log.stat().st_mtime_ns
    log.unlink()
    desk.run("restore", FIRST, "--mtime", "keep")
    assert log.stat().st_mtime_ns == mtime_ns


def test_an_older_generation_comes_back_where_it_is_asked_for(desk: Desk) -> None:
    log = desk.captured()
    old = log.read_bytes()
    log.write_bytes(b'{"anew":1}\n')
    desk.capture()
    log.unlink()
    desk.run("restore", FIRST, "--generation", "0")
    assert log.read_bytes() == old


def test_a_generation_that_there_is_not_is_a_3(gone: Desk) -> None:
    assert "it has 0 to 0" in gone.run("restore", FIRST, "--generation", "7", code=3).stderr


def test_a_generation_is_for_one_session(gone: Desk) -> None:
    gone.run("restore", FIRST, SECOND, "--generation", "0", code=2)


def test_damage_to_our_copy_is_a_1_and_nothing_half_written(gone: Desk) -> None:
    gone.damage()
    said = gone.json("restore", FIRST, code=1)
    assert not gone.log().exists()
    assert [file["path"] for file in said["failed"]] == [str(gone.log())]
    assert said["resume"] is None


def test_a_folder_that_cannot_be_written_to_is_a_1_for_its_session_only(gone: Desk) -> None:
    gone.converse(SECOND, project="/somebody/else")
    gone.capture()
    gone.log(SECOND, "-somebody-else").unlink()
    (gone.user / ".claude" / "projects" / "-somebody-demo").rmdir()
    (gone.user / ".claude" / "projects" / "-somebody-demo").touch()
    gone.run("restore", FIRST, SECOND, code=1)
    assert gone.log(SECOND, "-somebody-else").exists()


def test_the_others_go_on_and_the_worst_code_is_the_end(gone: Desk) -> None:
    result = gone.run("restore", "nothing", FIRST, "--json", code=3)
    said = json.loads(result.stdout)
    assert [error["id"] for error in said["errors"]] == ["nothing"]
    assert [file["path"] for file in said["restored"]] == [str(gone.log())]
    assert [session["id"] for session in said["sessions"]] == [FIRST]


def test_several_sessions_have_each_their_own_way_on(gone: Desk) -> None:
    gone.converse(SECOND, project="/somebody/else")
    gone.capture()
    said = gone.json("restore", FIRST, SECOND)
    assert said["resume"] is None
    assert [session["resume"] for session in said["sessions"]] == [
        f"cd /somebody/demo && claude --resume {FIRST}",
        f"cd /somebody/else && claude --resume {SECOND}",
    ]


def test_a_warning_about_a_file_goes_to_stderr(desk: Desk) -> None:
    log = desk.converse()
    os.utime(log, (1_000_000_000, 1_000_000_000))
    desk.capture()
    log.unlink()
    result = desk.run("restore", FIRST, "--json")
    assert "mtime set to now" in json.loads(result.stdout)["restored"][0]["note"]
    assert f"coldtrail: {log}: mtime set to now" in result.stderr


def test_without_an_id_it_is_a_usage_error(desk: Desk) -> None:
    desk.run("restore", code=2)
