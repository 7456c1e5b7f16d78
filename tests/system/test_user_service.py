"""The same for one user's own systemd: it captures while that user is not logged in."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from daemon.waiting import until
from system.machine import PROGRAM, UNIT, USER, Machine, Service

pytestmark = pytest.mark.system

LOG = f"/home/{USER}/.claude/projects/-home-{USER}-own/99999999-2222-4333-8444-555555555555.jsonl"
FILE = f"/home/{USER}/.config/systemd/user/{UNIT}"


@pytest.fixture(scope="module")
def service(machine: Machine) -> Iterator[Service]:
    """Installed by a user whom root has let linger."""
    machine.run("loginctl", "enable-linger", USER)
    uid = machine.run("id", "-u", USER).strip()
    until(lambda: machine.tried("test", "-S", f"/run/user/{uid}/systemd/private").returncode == 0)
    said = machine.run(PROGRAM, "service", "install", user=USER)
    assert "linger" in said
    yield Service(machine, of_user=True)
    machine.run(PROGRAM, "service", "uninstall", user=USER)


def test_it_runs_and_status_says_so(service: Service) -> None:
    told = json.loads(service.machine.run(PROGRAM, "service", "status", "--json", user=USER))
    assert (told["manager"], told["state"], told["runs"]) == ("systemd", "active", True)
    assert told["starts_by_itself"] is told["outlives_logout"] is True
    assert (told["pid"], told["file"]) == (service.pid, FILE)
    assert told["says"].startswith("watching")


def test_the_unit_has_no_fault_that_systemd_knows_of(service: Service) -> None:
    done = service.machine.tried("systemd-analyze", "verify", FILE)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_nobody_is_logged_in_and_it_captures(service: Service) -> None:
    assert USER not in service.machine.run("loginctl", "list-sessions", "--no-legend")
    service.machine.append(LOG, '{"type":"user","uuid":"1","message":{"role":"user","content":"hello"}}\n')
    until(lambda: any(LOG in each["paths"] for each in service.machine.sessions()))  # type: ignore[operator]


def test_killed_it_is_started_anew(service: Service) -> None:
    pid = service.pid
    service.signal("KILL")
    until(lambda: service.restarts == 1 and service.is_active(), within_s=60)
    assert service.pid != pid


def test_its_log_can_be_read_by_its_user(service: Service) -> None:
    said = service.machine.run(PROGRAM, "service", "logs", "--lines", "1000", user=USER)
    assert '"message": "ready' in said


def test_a_second_install_changes_nothing_and_starts_it_anew(service: Service) -> None:
    before = service.machine.file(FILE).read_text()
    service.machine.run(PROGRAM, "service", "install", user=USER)
    assert service.machine.file(FILE).read_text() == before
    assert service.is_active()
