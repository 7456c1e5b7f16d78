"""`coldtrail restore --at`: a session up to a moment, as another one that its agent goes on with."""

from __future__ import annotations

from pathlib import Path

import pytest

from daemon.cli.desk import FIRST, SECOND, Desk


@pytest.fixture
def talked(desk: Desk) -> Desk:
    """A session of four lines that is captured, sealed, and still with its agent."""
    desk.captured()
    return desk


def first_lines(desk: Desk, count: int) -> bytes:
    return b"".join(line + b"\n" for line in desk.log().read_bytes().split(b"\n")[:count])


def test_the_document_says_whence_the_new_session_is_and_what_was_changed(talked: Desk) -> None:
    whole = talked.log().read_bytes()
    said = talked.json("restore", FIRST, "--at", "#2")
    forked, (file,) = said["forked"], said["restored"]
    assert (forked["from"], forked["changed_lines"], forked["newline_added"]) == (FIRST, 0, False)
    assert forked["at"] == f"0:{len(first_lines(talked, 1))}.0"
    assert forked["path"] == file["path"] == str(talked.log(forked["id"]))
    assert talked.log(forked["id"]).read_bytes() == first_lines(talked, 2)
    assert said["resume"] == f"cd /somebody/demo && claude --resume {forked['id']}"
    assert said["sessions"][0]["id"] == FIRST
    assert talked.log().read_bytes() == whole


def test_people_are_told_the_new_file_and_how_to_go_on(talked: Desk) -> None:
    file, resume = talked.run("restore", FIRST, "--before", "#3").stdout.splitlines()
    (new,) = (path for path in talked.log().parent.iterdir() if path != talked.log())
    size = len(first_lines(talked, 2))
    assert (
        file
        == f"forked    ~/.claude/projects/-somebody-demo/{new.name}, {size} B: up to 0:{len(first_lines(talked, 1))}.0, nothing changed"
    )
    assert resume == f"resume    cd /somebody/demo && claude --resume {new.stem}"


def test_a_dry_run_writes_nothing_and_promises_no_id(talked: Desk) -> None:
    said = talked.json("restore", FIRST, "--at", "#2", "--dry-run")
    assert [file["action"] for file in said["planned"]] == ["fork"]
    assert (said["restored"], said["resume"]) == ([], None)
    assert talked.run("restore", FIRST, "--at", "#2", "--dry-run").stdout.startswith("would fork ")
    assert list(talked.log().parent.iterdir()) == [talked.log()]


def test_another_folder_gets_it_and_there_is_no_going_on_there(talked: Desk, tmp_path: Path) -> None:
    said = talked.json("restore", FIRST, "--at", "#2", "--to", tmp_path / "looked-at")
    assert Path(said["forked"]["path"]).parent == tmp_path / "looked-at" / "projects" / "-somebody-demo"
    assert said["resume"] is None


def test_a_whole_restore_forks_nothing(talked: Desk) -> None:
    assert talked.json("restore", FIRST)["forked"] is None


def test_a_moment_is_for_one_session(talked: Desk) -> None:
    assert "--at is for one session" in talked.run("restore", FIRST, SECOND, "--at", "#1", code=2).stderr


def test_a_moment_is_given_in_one_way(talked: Desk) -> None:
    talked.run("restore", FIRST, "--at", "#1", "--before", "#2", code=2)


def test_a_moment_that_there_is_not_is_a_3(talked: Desk) -> None:
    assert "the log has only 4 records" in talked.run("restore", FIRST, "--at", "#5", code=3).stderr


def test_damage_to_our_copy_is_a_1_and_nothing_half_written(talked: Desk) -> None:
    talked.log().unlink()
    talked.capture()
    talked.damage()
    said = talked.json("restore", FIRST, "--at", "#2", code=1)
    assert (said["forked"], said["resume"]) == (None, None)
    assert [path.name for path in talked.log().parent.iterdir()] == []
