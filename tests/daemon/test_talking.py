"""Talking to a real daemon: status, sync, pause, resume, reload, and what it does with a wrong config."""

from __future__ import annotations

import json
import os
import signal
import stat
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from daemon.test_daemon import SESSION, Daemon, World
from daemon.waiting import until

QUICK = '[capture]\ndebounce = "100ms"\n'
FAR_S = 4_000_000_000  # in the year 2096


@pytest.fixture
def world(tmp_path: Path) -> World:
    made = World(tmp_path / "user")
    made.append(3)
    return made


def trail(world: World) -> Path:
    return world.home / ".local" / "share" / "coldtrail"


def status(world: World) -> dict[str, Any]:
    """What `status --json` tells, whatever it ends with."""
    done = world.run("status", "--json")
    assert done.returncode in (0, 1), done.stderr
    said: dict[str, Any] = json.loads(done.stdout)
    assert said["well"] is (done.returncode == 0)
    return said


def states(world: World) -> list[str]:
    return [each["state"] for each in status(world)["findings"]]


def before_long(world: World, condition: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
    """The status as soon as it is so."""
    until(lambda: condition(status(world)), 30)
    return status(world)


# --- status ---


def test_a_daemon_that_is_well_says_so_and_ends_with_0(world: World) -> None:
    with world.daemon() as daemon:
        said = before_long(world, lambda found: found["well"])
        assert said["daemon"] == {"running": True, "pid": daemon.process.pid}
        assert (said["mode"], said["ready"], said["paused"], said["no_space"], said["clock"]) == ("daemon", True, None, None, "")
        (source,) = [each for each in said["sources"] if each["there"]]
        assert (source["name"], source["freshness"], source["uncaptured_bytes"]) == ("claude-code", "fresh", 0)
        assert {each["folder"]: each["mode"] for each in source["watch"]}[str(world.log.parent.parent)] == "events"
        assert {"capture", "compact", "retain", "reclaim", "clock", "outlook", "scan", "mend"} <= {each["name"] for each in said["jobs"]}
        assert said["wal_bytes"] > 0
        assert stat.S_IMODE((trail(world) / "state.json").stat().st_mode) == 0o600
        assert world.run("status").stdout.splitlines()[-1] == "all well  yes"


def test_the_file_is_replaced_on_a_change_and_not_all_the_time(world: World) -> None:
    file = trail(world) / "state.json"
    with world.daemon():
        before_long(world, lambda found: found["well"])
        time.sleep(1.2)  # what the start has set off is written down
        seen, end_s = set[int](), time.monotonic() + 4
        while time.monotonic() < end_s:
            seen.add(file.stat().st_ino)
            time.sleep(0.02)
        assert len(seen) <= 3, "at rest it is written every 10 seconds"
        world.append()
        until(lambda: json.loads(file.read_bytes())["sessions"]["records"] == 4)


def test_one_that_was_stopped_or_killed_is_missed_and_the_difference_is_told(world: World) -> None:
    with world.daemon() as daemon:
        daemon.stop()
    (stopped,) = status(world)["findings"]
    assert (stopped["state"], "in order" in stopped["what"]) == ("stopped", False)
    with world.daemon() as daemon:
        daemon.process.kill()
        daemon.process.wait()
    (killed,) = status(world)["findings"]
    assert "did not end in order" in killed["what"]


def test_a_pass_of_late_is_as_good_as_a_daemon(world: World) -> None:
    assert states(world) == ["stopped"]
    assert world.run("run", "--once").returncode == 0
    assert status(world)["well"]
    assert states(world) == []


def test_a_log_that_cannot_be_read_is_a_finding_until_it_can(world: World) -> None:
    world.configure(QUICK)
    loop = world.log.parent / "loop"
    loop.symlink_to("loop")
    with world.daemon():
        found = before_long(world, lambda found: found["faults"])
        assert [each["state"] for each in found["findings"]] == ["fault"]
        assert found["faults"][0]["place"] == str(loop)
        loop.unlink()
        world.run("sync", "--wait")
        before_long(world, lambda found: found["well"])


# --- sync ---


def test_sync_takes_an_unfinished_line_at_once_and_proves_it(world: World) -> None:
    with world.daemon() as daemon:
        for words in (["sync", "--wait"], ["sync", SESSION[:8], "--wait"], ["sync", str(world.log), "--wait"]):
            with world.log.open("ab") as file:
                file.write(b'{"half')
            os.utime(world.log, (FAR_S, FAR_S))  # it will not have been quiet for long
            assert world.run(*words).returncode == 0
            assert world.held() == world.log.read_bytes()
        assert daemon.process.poll() is None


def test_sync_of_a_log_that_nobody_has_met_takes_it(world: World) -> None:
    with world.daemon():
        other = world.log.with_name("99999999-2222-4333-8444-555555555555.jsonl")
        other.write_bytes(world.log.read_bytes())
        done = world.run("sync", str(other), "--wait", "--json")
        assert (done.returncode, json.loads(done.stdout)) == (0, {"safe": True, "by_daemon": True, "errors": []})
        assert other.stem in world.run("ls", "--json").stdout


def test_without_a_daemon_sync_captures_by_itself(world: World) -> None:
    done = world.run("sync", "--json")
    assert (done.returncode, json.loads(done.stdout)["by_daemon"]) == (0, False)
    world.append()
    assert world.run("sync", SESSION).returncode == 0
    assert world.held() == world.log.read_bytes()


def test_what_cannot_be_captured_is_a_5_that_names_it(world: World) -> None:
    world.run("run", "--once")
    with world.daemon():
        assert world.run("pause", "--capture").returncode == 0
        world.append()
        done = world.run("sync", "--wait", "--timeout", "300ms")
        assert (done.returncode, "capture is paused" in done.stderr) == (4, True)
        assert world.run("sync", "nobody-knows-it").returncode == 3
        assert world.run("sync", "--timeout", "soon").returncode == 2
        assert world.run("resume").returncode == 0
        assert world.run("sync", "--wait").returncode == 0


# --- pause and resume ---


def test_a_pause_stops_compaction_and_not_capture_and_outlives_a_restart(world: World) -> None:
    world.configure(QUICK + '[compact]\nafter = "0s"\n')
    with world.daemon() as daemon:
        until(lambda: list(trail(world).glob("archive/*/*/*/*/*.zst")))
        assert world.run("pause").returncode == 0
        found = before_long(world, lambda found: found["paused"])
        assert [each["state"] for each in found["findings"]] == ["paused"]
        sealed = sorted(trail(world).glob("archive/*/*/*/*/*.zst"))
        world.append(5)
        until(lambda: world.held() == world.log.read_bytes())
        daemon.stop()
    with world.daemon():
        assert "paused" in states(world)
        time.sleep(2.5)  # compaction's first turn comes after 1 s
        assert sorted(trail(world).glob("archive/*/*/*/*/*.zst")) == sealed
        assert world.run("resume").stdout == "the work goes on\n"
        until(lambda: sorted(trail(world).glob("archive/*/*/*/*/*.zst")) != sealed)
        before_long(world, lambda found: found["well"])
        assert world.run("resume").stdout == "nothing was paused\n"


def test_a_pause_of_capture_ends_by_itself_and_what_was_written_meanwhile_is_taken(world: World) -> None:
    world.configure(QUICK)
    with world.daemon():
        before = world.held()
        assert world.run("pause", "--capture", "--for", "8s").returncode == 0
        world.append()
        time.sleep(1.5)
        assert world.held() == before
        until(lambda: world.held() == world.log.read_bytes())


def test_a_paused_daemon_stops_in_order_without_capturing(world: World) -> None:
    world.configure(QUICK)
    with world.daemon() as daemon:
        before = world.held()
        world.run("pause", "--capture")
        world.append()
        assert daemon.stop() == 0
    assert world.held() == before


@pytest.mark.parametrize("words", [["pause"], ["resume"], ["reload"]], ids=" ".join)
def test_without_a_daemon_there_is_nobody_to_talk_to(world: World, words: list[str]) -> None:
    done = world.run(*words)
    assert (done.returncode, "no daemon answers" in done.stderr) == (3, True)


@pytest.mark.parametrize("span", ["0s", "-1h", "1Y", "", "400d"])
def test_a_span_that_is_none_is_a_2(world: World, span: str) -> None:
    with world.daemon():
        assert world.run("pause", "--for", span).returncode == 2
        assert status(world)["paused"] is None


# --- reload ---


def source_of(folder: Path) -> str:
    return f'[[source]]\nname = "mine"\nagent = "event-log"\nroot = "{folder}"\n'


def hang_up(_world: World, daemon: Daemon) -> None:
    daemon.process.send_signal(signal.SIGHUP)


def ask_for_it(world: World, _daemon: Daemon) -> None:
    world.run("reload")


@pytest.mark.parametrize("reload", [hang_up, ask_for_it])
def test_a_source_comes_and_goes_without_a_restart(world: World, tmp_path: Path, reload: Callable[[World, Daemon], None]) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    (logs / "a.jsonl").write_bytes(b'{"event_type":"session_start","session_id":"a"}\n')
    world.configure(QUICK)
    with world.daemon() as daemon:
        world.configure(QUICK + source_of(logs))
        reload(world, daemon)
        before_long(world, lambda found: found["sessions"]["total"] == 2)
        (logs / "b.jsonl").write_bytes(b'{"event_type":"session_start","session_id":"b"}\n')
        before_long(world, lambda found: found["sessions"]["total"] == 3)
        world.configure(QUICK)
        reload(world, daemon)
        before_long(world, lambda found: [each for each in found["sources"] if each["name"] == "mine"] == [])
        (logs / "c.jsonl").write_bytes(b'{"event_type":"session_start","session_id":"c"}\n')
        world.append()
        before_long(world, lambda found: found["records"] == 6)
        assert status(world)["sessions"]["total"] == 3
        assert daemon.process.poll() is None


def looked_ms(world: World) -> object:
    """When the last scan of everything came to its end."""
    return json.loads((trail(world) / "state.json").read_bytes())["sources"][0]["looked_ms"]


def test_a_reload_looks_at_what_is_new_alone_unless_a_scan_is_overdue_by_it(world: World, tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    (logs / "a.jsonl").write_bytes(b'{"event_type":"session_start","session_id":"a"}\n')
    world.configure(QUICK)
    with world.daemon():
        before_long(world, lambda found: found["well"])
        scanned_ms = looked_ms(world)
        world.configure(QUICK + source_of(logs))
        assert world.run("reload").returncode == 0
        before_long(world, lambda found: found["sessions"]["total"] == 2)
        assert world.run("sync", SESSION, "--wait").returncode == 0
        before_long(world, lambda found: found["well"])
        assert looked_ms(world) == scanned_ms
        world.configure(QUICK + 'scan_every = "4m"\n' + source_of(logs))
        assert world.run("reload").returncode == 0
        until(lambda: looked_ms(world) != scanned_ms)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("colour = 1\n", "config.toml:1: colour"),
        ("[capture]\ndebounce = 3\n", "config.toml:2: capture.debounce"),
        ('[archive]\nurl = "/elsewhere/archive"\n', "at a restart only"),
    ],
    ids=["unknown", "bad unit", "another archive"],
)
def test_a_config_that_cannot_hold_is_refused_by_line_and_key_and_the_old_one_goes_on(world: World, text: str, said: str) -> None:
    world.configure(QUICK)
    state = trail(world) / "state.json"
    with world.daemon() as daemon:
        world.configure(text)
        daemon.process.send_signal(signal.SIGHUP)
        until(lambda: said in json.loads(state.read_bytes())["config"]["refused"])
        assert "the config was not taken, the old one holds" in daemon.said()
        assert [each["state"] for each in json.loads(state.read_bytes())["findings"]] == ["config"]
        world.append()
        world.configure(QUICK)
        until(lambda: world.held() == world.log.read_bytes())
        assert "config" in states(world)
        assert world.run("reload").returncode == 0
        before_long(world, lambda found: found["well"])


def test_a_wrong_config_is_told_by_reload_itself(world: World) -> None:
    with world.daemon():
        world.configure("colour = 1\n")
        done = world.run("reload")
        assert (done.returncode, "config.toml:1: colour" in done.stderr) == (2, True)


# --- alarm and metrics ---


def test_the_alarm_is_run_and_the_metrics_are_shown_and_both_can_change(world: World, tmp_path: Path) -> None:
    told, figures, more = tmp_path / "told", tmp_path / "c.prom", tmp_path / "d.prom"
    service = f'[service]\nalarm_on = ["config"]\nalarm = ["sh", "-c", "echo $COLDTRAIL_ALARM >> {told}"]\n'
    world.configure(service + f'metrics = "{figures}"\n')
    with world.daemon() as daemon:
        until(lambda: figures.exists() and "coldtrail_up 1" in figures.read_text())
        world.configure("colour = 1\n")
        daemon.process.send_signal(signal.SIGHUP)
        until(lambda: told.exists() and told.read_text() == "config\n")
        until(lambda: 'coldtrail_findings{state="config"} 1' in figures.read_text())
        world.configure(service + f'metrics = "{more}"\n')
        daemon.process.send_signal(signal.SIGHUP)
        until(more.exists)


# --- its log ---


def test_without_a_terminal_each_line_of_the_log_is_json_without_a_word_of_a_session(world: World) -> None:
    with world.daemon() as daemon:
        world.append()
        until(lambda: world.held() == world.log.read_bytes())
        daemon.stop()
        lines = [json.loads(line) for line in daemon.said().splitlines()]
    assert {"time", "level", "message"} <= set.intersection(*(set(line) for line in lines))
    assert "x" * 20 not in daemon.said()
    assert any(line["message"].startswith("ready: ") and line["fields"]["files"] == 1 for line in lines)


def test_nothing_of_the_service_is_open_to_others(world: World) -> None:
    with world.daemon():
        before_long(world, lambda found: found["well"])
        world.run("pause", "--for", "1h")
        for path in trail(world).rglob("*"):
            mode = stat.S_IMODE(os.lstat(path).st_mode)
            assert mode == (0o700 if path.is_dir() else 0o600), path
