"""`coldtrail status`: who runs, what holds, what is kept, what is wrong."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from coldtrail import durable
from coldtrail.client import open_home
from daemon.cli.desk import FIRST, Desk


def test_without_anything_it_still_tells_and_ends_with_0(desk: Desk) -> None:
    said = desk.json("status")
    assert (said["daemon"], said["config"], said["home"]) == ({"running": False, "pid": None}, None, str(desk.trail))
    assert (said["sessions"], said["ratio"], said["faults"]) == ({"total": 0, "live": 0, "gone": 0, "pinned": 0}, None, [])


def test_a_daemon_is_known_by_its_lock(desk: Desk) -> None:
    with durable.locked(desk.trail / "lock", wait=False, note=b"4242\n"):
        assert desk.json("status")["daemon"] == {"running": True, "pid": 4242}
        assert "running (it says that it is process 4242)" in desk.run("status").stdout
    assert desk.json("status")["daemon"]["running"] is False


def test_a_pid_in_the_lock_proves_nothing(desk: Desk) -> None:
    desk.trail.mkdir(parents=True)
    (desk.trail / "lock").write_text("1\n")
    assert desk.json("status")["daemon"] == {"running": False, "pid": None}
    assert "not running" in desk.run("status").stdout


def test_asking_keeps_no_daemon_from_starting(desk: Desk) -> None:
    desk.trail.mkdir(parents=True)
    (desk.trail / "lock").touch()
    desk.run("status")
    with durable.locked(desk.trail / "lock", wait=False):
        pass


def test_the_config_in_force_is_named(desk: Desk) -> None:
    desk.configure("discover = false\n")
    assert desk.json("status")["config"] == str(desk.config)


def test_every_source_is_told_and_whether_it_is_there(desk: Desk) -> None:
    desk.converse()
    desk.configure(f'[[source]]\nname = "mine"\nagent = "event-log"\nroot = "{desk.folder}/unmounted"\n')
    assert desk.json("status")["sources"][:2] == [
        {"name": "mine", "agent": "event-log", "root": f"{desk.folder}/unmounted", "there": False},
        {"name": "claude-code", "agent": "claude-code", "root": str(desk.user / ".claude"), "there": True},
    ]
    assert f"mine: event-log in {desk.folder}/unmounted  (not there)" in desk.run("status").stdout


def test_the_sums_are_those_of_the_sessions(desk: Desk) -> None:
    log = desk.captured()
    size = log.stat().st_size
    desk.run("pin", FIRST)
    desk.write(log, b'{"torn\n')
    desk.capture()
    log.unlink()
    desk.capture()
    said = desk.json("status")
    assert said["sessions"] == {"total": 1, "live": 0, "gone": 1, "pinned": 1}
    assert (said["records"], said["damaged"], said["bytes"]) == (5, 1, size + 7)
    assert said["ratio"] == pytest.approx(said["bytes"] / said["stored_bytes"], abs=0.01)
    shown = desk.run("status").stdout
    assert "1: 0 live, 1 gone, 1 pinned" in shown
    assert "1 of them damaged" in shown


def test_a_fault_is_told_with_its_place_its_hint_and_its_next_try(desk: Desk) -> None:
    with open_home(desk.settings()) as home:
        home.catalog.note_fault(b"/some/\x1b[2Jlog\xff", "Permission denied", "give the right to read it", home.now_ms(), 60_000)
    (fault,) = desk.json("status")["faults"]
    assert (fault["place"], fault["what"], fault["hint"], fault["tries"]) == (
        "/some/\x1b[2Jlog\udcff",
        "Permission denied",
        "give the right to read it",
        1,
    )
    assert fault["since"] < fault["next_try"]
    shown = desk.run("status").stdout
    assert "/some/\\x1b[2Jlog\\udcff: Permission denied" in shown
    assert "give the right to read it" in shown
    assert "tried once, tried again in" in shown


def test_an_archive_of_its_own_place_is_named(desk: Desk, tmp_path: Path) -> None:
    desk.configure(f'[archive]\nurl = "{tmp_path}/elsewhere"\n')
    assert desk.json("status")["archive"] == f"{tmp_path}/elsewhere"
    assert f"archive   {tmp_path}/elsewhere" in desk.run("status").stdout


def test_a_lost_catalog_is_made_again_first(desk: Desk) -> None:
    desk.captured()
    for path in desk.trail.glob("catalog.db*"):
        path.unlink()
    assert desk.json("status")["sessions"]["total"] == 1


def test_a_home_that_cannot_be_made_is_one_line_and_a_1(desk: Desk) -> None:
    shutil.rmtree(desk.trail, ignore_errors=True)
    (desk.user / "file").touch()
    result = desk.run("--home", desk.user / "file" / "below", "status", code=1)
    assert result.stderr.startswith("coldtrail: ")
    assert result.stderr.count("\n") == 1
