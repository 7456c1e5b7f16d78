"""The service under a real systemd, hardened as it is installed: it captures, restores, and comes back from whatever stops it."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator

import pytest

from daemon.waiting import until
from system.machine import PROGRAM, UNIT, USER, Machine, Service

pytestmark = pytest.mark.system

SESSION = "11111111-2222-4333-8444-555555555555"
PROJECT = f"/home/{USER}/.claude/projects/-home-{USER}-demo"
LOG = f"{PROJECT}/{SESSION}.jsonl"
HOME = f"/home/{USER}/.local/share/coldtrail"
CONFIG = f"/home/{USER}/.config/coldtrail/config.toml"
EXPOSURE_MAX = 4.0
STOP_MAX_S = 20.0
SIGHUP = 1
_QUICK = "[Service]\nWatchdogSec=6s\nRestartSec=1s\nTimeoutStopSec=15s\n"  # so that the tests need not wait for minutes


def line(number: int, session: str = SESSION) -> str:
    """A line as Claude Code writes it."""
    record = {"type": "user", "uuid": f"{number}-{session}", "sessionId": session, "message": {"role": "user", "content": f"line {number}"}}
    return json.dumps(record) + "\n"


def captured(machine: Machine) -> bool:
    """Whether everything that is in the log is held."""
    return [each["bytes"] for each in machine.sessions() if each["id"] == SESSION] == [machine.file(LOG).stat().st_size]


@pytest.fixture(scope="module")
def installed(machine: Machine) -> Iterator[Service]:
    """The service for the whole machine."""
    machine.append(LOG, line(0))
    said = machine.run(PROGRAM, "service", "install", "--system", "--user", USER)
    assert "undo: systemctl disable" in said
    dropin = f"/etc/systemd/system/{UNIT}.d"
    machine.run("mkdir", "-p", dropin)
    machine.file(f"{dropin}/quick.conf").write_text(_QUICK)
    machine.run("systemctl", "daemon-reload")
    machine.run("systemctl", "restart", UNIT)
    yield Service(machine)
    machine.run(PROGRAM, "service", "uninstall", "--system")
    machine.run("rm", "-r", dropin)
    machine.run("systemctl", "daemon-reload")


@pytest.fixture
def service(installed: Service) -> Service:
    """The same, running."""
    if not installed.is_active():
        installed.ctl("restart", UNIT)
        installed.wait_active()
    return installed


def test_the_unit_has_no_fault_that_systemd_knows_of(service: Service) -> None:
    done = service.machine.tried("systemd-analyze", "verify", f"/etc/systemd/system/{UNIT}")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_its_exposure_is_low(service: Service) -> None:
    said = service.machine.run("systemd-analyze", "security", UNIT, "--no-pager")
    level = re.search(r"Overall exposure level for \S+: ([\d.]+)", said)
    assert level is not None, said
    assert float(level[1]) < EXPOSURE_MAX


def test_it_runs_as_its_user_without_any_right_of_root(service: Service) -> None:
    facts = service.process_facts()
    uid = service.machine.run("id", "-u", USER).strip()
    assert facts["Uid"].split() == [uid] * 4
    assert int(facts["CapEff"], 16) == int(facts["CapBnd"], 16) == 0
    assert facts["NoNewPrivs"] == "1"


def test_it_is_active_only_after_it_is_ready(service: Service) -> None:
    """While somebody else holds the home it waits; systemd has it as starting then, and no more."""
    machine = service.machine
    service.ctl("stop", UNIT)
    machine.run("runuser", "-u", USER, "--", "sh", "-c", f"flock {HOME}/lock sleep 3 >/dev/null 2>&1 &")
    until(lambda: machine.tried("flock", "--nonblock", f"{HOME}/lock", "true").returncode != 0)
    service.ctl("start", "--no-block", UNIT)
    until(lambda: service.pid != 0)
    assert service.told("ActiveState") == "activating"
    service.wait_active()
    assert service.told("StatusText").startswith("watching")


def test_what_an_agent_writes_is_captured(service: Service) -> None:
    for number in range(1, 4):
        service.machine.append(LOG, line(number))
    until(lambda: captured(service.machine))


def test_an_agent_that_appears_later_is_captured(service: Service) -> None:
    """What hardening lets in is not fixed when the service starts."""
    thread = "22222222-2222-4333-8444-555555555555"
    path = f"/home/{USER}/.codex/sessions/2026/01/01/rollout-2026-01-01T00-00-00-{thread}.jsonl"
    meta = {"timestamp": "2026-01-01T00:00:00.000Z", "type": "session_meta", "payload": {"id": thread, "cwd": "/somebody"}}
    service.machine.append(path, json.dumps(meta) + "\n")
    until(lambda: any(each["agent"] == "codex" for each in service.machine.sessions()), within_s=60)


def test_a_restore_works_under_the_same_hardening_and_what_it_forbids_does_not(service: Service) -> None:
    """The unit's own lines, around another command."""
    machine = service.machine
    until(lambda: captured(machine))
    before = machine.file(LOG).read_bytes()
    machine.run("rm", "-r", PROJECT)
    key = next(each["key"] for each in machine.sessions() if each["id"] == SESSION)
    assert run_hardened(machine, f"{PROGRAM} restore {key}") == "success"
    assert machine.file(LOG).read_bytes() == before
    assert machine.file(LOG).stat().st_mode & 0o777 == 0o644, "the mode that it had"
    assert run_hardened(machine, "touch /usr/x /etc/x") == "exit-code"
    assert run_hardened(machine, f"unshare --user {PROGRAM} --version") == "exit-code"


def run_hardened(machine: Machine, command: str) -> str:
    """How a command ends under the service's hardening, by systemd's word."""
    unit = machine.file(f"/etc/systemd/system/{UNIT}").read_text()
    unit = re.sub("(?m)^ExecStart=.*$", f"ExecStart={command}", unit)
    for setting, value in (("Type", "oneshot"), ("Restart", "no"), ("WatchdogSec", "0")):
        unit = re.sub(f"(?m)^{setting}=.*$", f"{setting}={value}", unit)
    machine.file("/run/systemd/system").mkdir(exist_ok=True)
    machine.run("sh", "-c", "mkdir -p /run/systemd/system")
    done = machine.tried("tee", "/run/systemd/system/hardened.service", given=unit)
    assert done.returncode == 0, done.stderr
    machine.run("systemctl", "daemon-reload")
    machine.tried("systemctl", "restart", "hardened.service")
    return machine.run("systemctl", "show", "hardened.service", "--property=Result", "--value").strip()


def test_killed_it_is_started_anew_and_nothing_is_lost(service: Service) -> None:
    before, pid = service.restarts, service.pid
    service.machine.append(LOG, line(10))
    service.signal("KILL")
    service.machine.append(LOG, line(11))
    until(lambda: service.restarts == before + 1 and service.is_active(), within_s=60)
    assert service.pid != pid
    until(lambda: captured(service.machine))


def test_a_hang_is_caught_by_the_watchdog(service: Service) -> None:
    before = service.restarts
    service.signal("STOP")
    service.machine.append(LOG, line(20))
    until(lambda: service.restarts == before + 1 and service.is_active(), within_s=90)
    assert "Watchdog timeout" in service.journal()
    until(lambda: captured(service.machine))


def test_the_watchdog_leaves_alone_who_moves(service: Service) -> None:
    before, pid, start_s = service.restarts, service.pid, time.monotonic()
    until(lambda: time.monotonic() - start_s > 10, within_s=30)  # its time is 6 s
    assert (service.restarts, service.pid) == (before, pid)


def test_a_reload_takes_up_a_new_source_without_a_new_process(service: Service) -> None:
    if not handles_sighup(service):
        pytest.skip("the daemon does not reload yet: it has no handler for SIGHUP")
    machine, pid = service.machine, service.pid
    mine = f"/home/{USER}/mine"
    machine.append(f"{mine}/one.jsonl", '{"n":1}\n')
    machine.append(CONFIG, f'[[source]]\nname = "mine"\nagent = "jsonl"\nroot = "{mine}"\n')
    try:
        service.ctl("reload", UNIT)
        until(lambda: any(each["agent"] == "jsonl" for each in machine.sessions()), within_s=60)
        assert service.pid == pid
    finally:
        machine.run("rm", CONFIG)


def test_a_reload_of_a_bad_config_is_refused_and_the_old_one_goes_on(service: Service) -> None:
    if not handles_sighup(service):
        pytest.skip("the daemon does not reload yet: it has no handler for SIGHUP")
    machine, pid = service.machine, service.pid
    machine.append(CONFIG, "nonsense = 1\n")
    try:
        service.ctl("reload", UNIT)
        until(lambda: "nonsense" in service.journal())
        machine.append(LOG, line(30))
    finally:
        machine.run("rm", CONFIG)  # whoever asks reads it too
    until(lambda: captured(machine))
    assert (service.pid, service.is_active()) == (pid, True)


def handles_sighup(service: Service) -> bool:
    """Whether the daemon catches it; else it would end."""
    return bool(int(service.process_facts()["SigCgt"], 16) >> (SIGHUP - 1) & 1)


def test_it_stops_within_the_limit(service: Service) -> None:
    start_s = time.monotonic()
    service.ctl("stop", UNIT)
    took_s = time.monotonic() - start_s
    assert took_s < STOP_MAX_S
    assert (service.told("Result"), service.told("ExecMainStatus")) == ("success", "0")


def test_a_bad_config_is_not_tried_again_and_again(service: Service) -> None:
    machine = service.machine
    service.ctl("stop", UNIT)
    machine.append(CONFIG, "nonsense = 1\n")
    try:
        assert machine.tried("systemctl", "start", UNIT).returncode != 0
        assert (service.told("ActiveState"), service.told("ExecMainStatus"), service.restarts) == ("failed", "2", 0)
        assert "nonsense" in service.journal()
        machine.run(PROGRAM, "service", "status", "--system", code=1)
    finally:
        machine.run("rm", CONFIG)


def test_uninstalled_it_is_gone_and_what_it_kept_is_there(service: Service) -> None:
    machine = service.machine
    held = machine.sessions()
    machine.run(PROGRAM, "service", "uninstall", "--system")
    try:
        assert not machine.file(f"/etc/systemd/system/{UNIT}").exists()
        assert service.told("ActiveState") == "inactive"
        machine.run(PROGRAM, "service", "status", "--system", code=3)
        assert machine.sessions() == held
    finally:
        machine.run(PROGRAM, "service", "install", "--system", "--user", USER)
