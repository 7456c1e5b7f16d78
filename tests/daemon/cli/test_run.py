"""`coldtrail run`: one pass works without the daemon's packages; two daemons do not."""

from __future__ import annotations

import signal
import subprocess

import pytest

from coldtrail import durable
from daemon.cli.desk import Desk
from daemon.waiting import until

WITHOUT = "import sys\nsys.modules['apscheduler'] = sys.modules['watchdog'] = None"


def test_one_pass_captures_what_there_is(desk: Desk) -> None:
    log = desk.converse()
    done = desk.start("run", "--once")
    assert (done.returncode, done.stdout) == (0, "")
    assert [session["bytes"] for session in desk.json("ls")["sessions"]] == [log.stat().st_size]


def test_one_pass_that_could_not_look_into_a_folder_is_a_1_and_names_it(desk: Desk) -> None:
    log = desk.converse()
    loop = log.parent.parent / "loop"
    loop.symlink_to("loop")
    done = desk.start("run", "--once")
    assert done.returncode == 1
    assert f"{loop}: Too many levels of symbolic links" in done.stderr
    assert len(desk.json("ls")["sessions"]) == 1
    loop.unlink()
    assert desk.start("run", "--once").returncode == 0


def test_one_pass_needs_neither_apscheduler_nor_watchdog(desk: Desk) -> None:
    desk.converse()
    assert desk.start("run", "--once", before=WITHOUT).returncode == 0
    assert len(desk.json("ls")["sessions"]) == 1


def test_the_daemon_without_them_is_a_2_that_says_what_to_install(desk: Desk) -> None:
    told = desk.start("run", before=WITHOUT)
    assert told.returncode == 2
    assert told.stderr.endswith("hint: pip install 'coldtrail[daemon]'\n")


@pytest.mark.parametrize("arguments", [["run"], ["run", "--once"]], ids=" ".join)
def test_a_second_one_is_refused_with_a_4(desk: Desk, arguments: list[str]) -> None:
    with durable.locked(desk.trail / "lock", wait=False):
        told = desk.start(*arguments, before="import coldtraild.service as s; s.LOCK_PATIENCE_S = 0")
    assert told.returncode == 4
    assert "another coldtrail is at work here" in told.stderr


def test_a_bad_config_starts_nothing(desk: Desk) -> None:
    desk.configure("colour = 1\n")
    assert desk.start("run").returncode == 2
    assert not desk.trail.exists()


def test_the_daemon_captures_until_it_is_asked_to_stop_and_status_sees_it(desk: Desk) -> None:
    log = desk.converse()
    process = subprocess.Popen(desk.argv("run"), env=desk.process_env(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        until(lambda: desk.status()["bytes"] == log.stat().st_size)
        assert desk.status()["daemon"] == {"running": True, "pid": process.pid}
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()
    assert desk.status()["daemon"]["running"] is False
