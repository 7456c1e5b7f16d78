"""`coldtrail status`: who runs, what holds, what is kept, what is wrong."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from coldtrail import durable
from coldtrail.catalog import SessionRow
from coldtrail.settings import now_ms, open_home
from coldtraild import health, report
from coldtraild.control import Control
from coldtraild.runs import Pause, Runs
from daemon.cli.desk import FIRST, Desk

NOTHING = {"total": 0, "live": 0, "gone": 0, "expiring": 0, "pinned": 0}


def test_without_anything_it_still_tells_and_ends_with_0(desk: Desk) -> None:
    said = desk.status()
    assert (said["daemon"], said["config"], said["home"]) == ({"running": False, "pid": None}, None, str(desk.trail))
    assert (said["sessions"], said["ratio"], said["faults"]) == (NOTHING, None, [])


def test_a_daemon_is_known_by_its_lock(desk: Desk) -> None:
    with durable.locked(desk.trail / "lock", wait=False, note=b"4242\n"):
        assert desk.status()["daemon"] == {"running": True, "pid": 4242}
        assert "running (it says that it is process 4242)" in desk.run("status", code=None).stdout
    assert desk.status()["daemon"]["running"] is False


def test_a_pid_in_the_lock_proves_nothing(desk: Desk) -> None:
    desk.trail.mkdir(parents=True)
    (desk.trail / "lock").write_text("1\n")
    assert desk.status()["daemon"] == {"running": False, "pid": None}
    assert "not running" in desk.run("status", code=None).stdout


def test_asking_keeps_no_daemon_from_starting(desk: Desk) -> None:
    desk.trail.mkdir(parents=True)
    (desk.trail / "lock").touch()
    desk.run("status", code=None)
    with durable.locked(desk.trail / "lock", wait=False):
        pass


def test_the_config_in_force_is_named(desk: Desk) -> None:
    desk.configure("discover = false\n")
    assert desk.status()["config"] == str(desk.config)


def test_every_source_is_told_and_whether_it_is_there(desk: Desk) -> None:
    desk.converse()
    desk.configure(f'[[source]]\nname = "mine"\nagent = "event-log"\nroot = "{desk.folder}/unmounted"\n')
    names = ("name", "agent", "root", "there")
    assert [{name: each[name] for name in names} for each in desk.status()["sources"][:2]] == [
        {"name": "mine", "agent": "event-log", "root": f"{desk.folder}/unmounted", "there": False},
        {"name": "claude-code", "agent": "claude-code", "root": str(desk.user / ".claude"), "there": True},
    ]
    assert f"mine: event-log in {desk.folder}/unmounted  (not there)" in desk.run("status", code=None).stdout


def test_the_sums_are_those_of_the_sessions(desk: Desk) -> None:
    log = desk.captured()
    size = log.stat().st_size
    desk.run("pin", FIRST)
    desk.write(log, b'{"torn\n')
    desk.capture()
    log.unlink()
    desk.capture()
    said = desk.status()
    assert said["sessions"] == NOTHING | {"total": 1, "gone": 1, "pinned": 1}
    assert (said["records"], said["damaged"], said["bytes"]) == (5, 1, size + 7)
    assert said["ratio"] == pytest.approx(said["bytes"] / said["stored_bytes"], abs=0.01)
    shown = desk.run("status", code=None).stdout
    assert "1: 0 live, 1 gone, 1 pinned" in shown
    assert "1 of them damaged" in shown


def test_a_fault_is_told_with_its_place_its_hint_and_its_next_try(desk: Desk) -> None:
    with open_home(desk.settings()) as home:
        home.catalog.note_fault(b"/some/\x1b[2Jlog\xff", "Permission denied", "give the right to read it", home.now_ms(), 60_000)
    (fault,) = desk.status()["faults"]
    assert (fault["place"], fault["what"], fault["hint"], fault["tries"]) == (
        "/some/\x1b[2Jlog\udcff",
        "Permission denied",
        "give the right to read it",
        1,
    )
    assert fault["since"] < fault["next_try"]
    shown = desk.run("status", code=None).stdout
    assert "/some/\\x1b[2Jlog\\udcff: Permission denied" in shown
    assert "give the right to read it" in shown
    assert "tried once, tried again in" in shown


def test_an_archive_of_its_own_place_is_named(desk: Desk, tmp_path: Path) -> None:
    desk.configure(f'[archive]\nurl = "{tmp_path}/elsewhere"\n')
    assert desk.status()["archive"] == f"{tmp_path}/elsewhere"
    assert f"archive   {tmp_path}/elsewhere" in desk.run("status", code=None).stdout


def test_a_lost_catalog_is_made_again_first(desk: Desk) -> None:
    desk.captured()
    for path in desk.trail.glob("catalog.db*"):
        path.unlink()
    assert desk.status()["sessions"]["total"] == 1


def test_a_home_that_is_no_folder_is_told(desk: Desk) -> None:
    (desk.user / "file").touch(mode=0o700)
    result = desk.run("--home", desk.user / "file", "status", code=1)
    assert f"{desk.user}/file: is not a folder" in result.stderr
    assert "--home" in result.stderr


def test_a_home_that_cannot_be_made_is_a_line_a_hint_and_a_1(desk: Desk) -> None:
    shutil.rmtree(desk.trail, ignore_errors=True)
    (desk.user / "file").touch()
    result = desk.run("--home", desk.user / "file" / "below", "status", code=1)
    told, hint = result.stderr.splitlines()
    assert told == f"coldtrail: {desk.user}/file/below: cannot be made to keep sessions in: Not a directory"
    assert "--home" in hint


# --- what the daemon says of itself ---


def pretend(desk: Desk, *, age_ms: int = 0, pid: int = 4242, **more: object) -> None:
    """Let a daemon have written that all is well."""
    with open_home(desk.settings()) as home:
        said = report.alone(home, desk.settings(), report.no_outlook(), mode="daemon", looked_ms=home.now_ms())
        health.write(desk.trail / "state.json", said | {"pid": pid, "written_ms": home.now_ms() - age_ms} | more)


def test_a_daemon_that_says_that_all_is_well_is_believed(desk: Desk) -> None:
    desk.captured()
    pretend(desk)
    with durable.locked(desk.trail / "lock", wait=False, note=b"4242\n"):
        assert desk.run("status").stdout.splitlines()[-1] == "all well  yes"
        assert desk.json("status")["well"] is True


def test_one_that_has_not_said_so_for_a_minute_hangs(desk: Desk) -> None:
    pretend(desk, age_ms=health.OLD_MS + 1000)
    with durable.locked(desk.trail / "lock", wait=False, note=b"4242\n"):
        (found,) = desk.json("status", code=1)["findings"]
        assert (found["state"], "does not say how it is" in found["what"]) == ("hung", True)
        assert found["since"] is not None
        assert "all well  no: 1 finding" in desk.run("status", code=1).stdout


def test_one_whose_disk_is_full_is_asked_over_its_socket(desk: Desk) -> None:
    pretend(desk, age_ms=health.OLD_MS + 1000)
    state = health.read(desk.trail / "state.json")
    assert state is not None
    fresh = state | {"written_ms": now_ms()}
    control = Control(desk.trail / "control", lambda _request: {"state": fresh})
    control.start()
    with durable.locked(desk.trail / "lock", wait=False, note=b"4242\n"):
        assert desk.json("status")["well"] is True
    control.stop()


def test_who_holds_the_lock_for_a_moment_is_no_daemon(desk: Desk) -> None:
    pretend(desk, pid=1)
    with durable.locked(desk.trail / "lock", wait=False, note=b"4242\n"):
        (found,) = desk.json("status", code=1)["findings"]
    assert (found["state"], "did not end in order" in found["what"]) == ("stopped", True)


def test_every_time_in_the_document_is_rfc_3339(desk: Desk) -> None:
    desk.captured()
    pretend(desk)

    def keys(value: object) -> Iterator[str]:
        if isinstance(value, dict):
            yield from value
            for each in value.values():
                yield from keys(each)
        elif isinstance(value, list):
            for each in value:
                yield from keys(each)

    said = desk.status()
    assert [name for name in keys(said) if name.endswith("_ms")] == []
    assert said["written"].endswith("Z")
    assert said["sources"][0]["looked"] is None


def test_polling_is_told_with_its_cause_and_what_to_do_and_is_well(desk: Desk) -> None:
    desk.captured()
    polled = {"folder": "/r/projects", "mode": "polling", "why": "inotify has no watches left", "hint": "raise the sysctl"}
    pretend(desk)
    state = health.read(desk.trail / "state.json")
    assert state is not None
    health.write(desk.trail / "state.json", state | {"sources": [state["sources"][0] | {"watch": [polled]}]})
    with durable.locked(desk.trail / "lock", wait=False, note=b"4242\n"):
        shown = desk.run("status").stdout
    assert "polling: /r/projects: inotify has no watches left (raise the sysctl)" in shown


def test_a_pause_is_shown_without_a_daemon_too(desk: Desk) -> None:
    with open_home(desk.settings()):
        Runs(desk.trail / "schedule.json").set_pause(Pause(now_ms()))
    said = desk.status()
    assert said["paused"]["until"] is None
    assert [each["state"] for each in said["findings"]] == ["stopped", "paused"]


@pytest.mark.bench
def test_with_20_000_sessions_it_takes_less_than_three_tenths_of_a_second(desk: Desk) -> None:
    """But for the start of Python itself, which is measured by `--version`."""
    with open_home(desk.settings()) as home, home.catalog.transaction():
        for number in range(20_000):
            key = f"{number:016x}"
            home.catalog.put(
                SessionRow(
                    key, key, "claude-code", "claude-code", home.host, "/p", "t", 1, number, 9, 0, 9, 9, "live", 0, "[]", "[]", "[]", 0, 1
                )
            )
    pretend(desk)
    with durable.locked(desk.trail / "lock", wait=False, note=b"4242\n"):
        times_s = {words: min(took_s(desk, words) for _ in range(3)) for words in ("--version", "status")}
    assert times_s["status"] - times_s["--version"] < 0.3


def took_s(desk: Desk, words: str) -> float:
    begin_s = time.monotonic()
    assert desk.start(words).returncode == 0
    return time.monotonic() - begin_s
