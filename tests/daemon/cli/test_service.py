"""`coldtrail service`: it installs what was asked for, says what it did and how to undo it, and why it does not where it cannot."""

from __future__ import annotations

import json
import os
import plistlib
import sys
from pathlib import Path

import pytest

from coldtraild.cli import service
from coldtraild.units.base import Done
from coldtraild.units.systemd import UNIT
from daemon.cli.desk import Desk
from daemon.managed import Fake

SHOWN = (
    "LoadState=loaded\nActiveState=active\nSubState=running\nMainPID=42\nStatusText=watching; all is well\nNRestarts=1\nResult=success\n"
    "ExecMainStatus=0\nUnitFileState=enabled\nStateChangeTimestamp=Sun 2026-01-04 10:00:00 UTC\nFragmentPath=/units/coldtraild.service\n"
)
ROOT, ANN = 0, 1000


@pytest.fixture
def programs(monkeypatch: pytest.MonkeyPatch) -> Fake:
    fake = Fake({"loginctl show-user": Done(0, "yes\n"), "systemctl --version": Done(0, "systemd 252 (252.1)\n")})
    monkeypatch.setattr(service, "programs", lambda: fake)
    return fake


@pytest.fixture
def on_systemd(desk: Desk, programs: Fake, monkeypatch: pytest.MonkeyPatch) -> Desk:
    """A machine that systemd runs; root asks."""
    monkeypatch.setattr(service, "_SYSTEMD_RUNS", desk.folder)
    monkeypatch.setattr(service, "MACHINE_FOLDER", desk.folder / "etc")
    monkeypatch.setattr(service, "_is_mac", lambda: False)
    monkeypatch.delenv("SUDO_USER", raising=False)
    monkeypatch.setattr(os, "geteuid", lambda: ROOT)
    return desk


@pytest.fixture
def on_mac(desk: Desk, programs: Fake, monkeypatch: pytest.MonkeyPatch) -> Desk:
    """A Mac, as far as the command can tell."""
    monkeypatch.setattr(service, "_is_mac", lambda: True)
    programs.answers["launchctl print"] = Done(113)
    return desk


def unit_file(desk: Desk) -> Path:
    return desk.user / ".config" / "systemd" / "user" / UNIT


def exec_start(text: str) -> str:
    (line,) = (line for line in text.split("\n") if line.startswith("ExecStart="))
    return line.removeprefix("ExecStart=")


def test_install_says_what_it_did_and_how_to_undo_each(on_systemd: Desk, programs: Fake) -> None:
    said = on_systemd.run("service", "install").stdout
    assert f"wrote {unit_file(on_systemd)}\n    undo: rm {unit_file(on_systemd)}" in said
    assert "undo: systemctl --user disable" in said
    assert "coldtrail service uninstall\n" in said
    assert programs.changed()[-1] == f"systemctl --user restart {UNIT}"


def test_print_changes_nothing_and_prints_what_would_be_written(on_systemd: Desk, programs: Fake) -> None:
    printed = on_systemd.run("service", "install", "--print").stdout
    assert programs.changed() == []
    assert not unit_file(on_systemd).exists()
    on_systemd.run("service", "install")
    assert unit_file(on_systemd).read_text() == printed


def test_the_unit_in_the_repository_is_what_print_prints(on_systemd: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "_program", lambda: ("/opt/coldtrail/bin/coldtrail",))
    printed = on_systemd.run("service", "install", "--print").stdout
    ours = Path(__file__).resolve().parents[3] / "systemd" / "coldtraild.service"
    assert printed.replace("/opt/coldtrail/bin", "%h/.local/bin") == ours.read_text()


def test_print_needs_no_service_manager(on_systemd: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "_SYSTEMD_RUNS", on_systemd.folder / "absent")
    assert "ExecStart=" in on_systemd.run("service", "install", "--print").stdout


def test_home_config_and_what_the_environment_says_are_passed_on(on_systemd: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "_program", lambda: ("/opt/coldtrail",))
    monkeypatch.setattr(service, "_TOLD_BY_ENV", ("HOME",))
    config = on_systemd.folder / "other.toml"
    config.write_text("discover = true\n")
    kept = on_systemd.folder / "kept"
    text = on_systemd.run("--home", kept, "--config", config, "service", "install", "--print").stdout
    assert exec_start(text) == f"/opt/coldtrail --home {kept} --config {config} run"
    assert f"\nEnvironment=HOME={on_systemd.user}\n" in text


def test_it_runs_this_very_coldtrail(on_systemd: Desk) -> None:
    program = exec_start(on_systemd.run("service", "install", "--print").stdout).split()[0]
    assert Path(program).parent == Path(sys.executable).parent
    assert os.access(program, os.X_OK)


@pytest.mark.parametrize("words", [["install"], ["uninstall"], ["status"], ["logs"]])
def test_a_machine_without_a_service_manager_is_told_what_to_do(
    on_systemd: Desk, programs: Fake, monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    monkeypatch.setattr(service, "_SYSTEMD_RUNS", on_systemd.folder / "absent")
    told = on_systemd.run("service", *words, code=2).stderr
    assert "neither systemd nor launchd" in told
    assert "--supervised" in told
    assert (programs.ran, programs.shown) == ([], [])


def test_a_bad_config_installs_nothing(on_systemd: Desk, programs: Fake) -> None:
    on_systemd.configure("colour = 1\n")
    on_systemd.run("service", "install", code=2)
    assert programs.changed() == []
    assert not unit_file(on_systemd).exists()


# --- for the whole machine ---


def test_for_the_machine_it_runs_as_the_named_user_in_that_users_home(on_systemd: Desk, programs: Fake) -> None:
    on_systemd.run("service", "install", "--system", "--user", "daemon")
    text = (on_systemd.folder / "etc" / UNIT).read_text()
    assert "\nUser=daemon\n" in text
    assert str(on_systemd.user) not in text, "nothing of who asks"
    assert programs.changed()[-1] == f"systemctl restart {UNIT}"
    on_systemd.run("service", "uninstall", "--system")
    assert not (on_systemd.folder / "etc" / UNIT).exists()


def test_an_alarm_that_the_unit_would_keep_from_the_network_is_told_of(on_systemd: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    config = on_systemd.folder / "alarm.toml"
    config.write_text('[service]\nalarm = ["/usr/bin/curl", "https://alarm.example"]\n')
    told = on_systemd.run("--config", config, "service", "install", "--system", "--user", "daemon").stderr
    assert "/usr/bin/curl reaches nobody" in told
    assert "IPAddressAllow=any" in told
    assert "reaches nobody" not in on_systemd.run("--config", config, "service", "install").stderr


@pytest.mark.parametrize("words", [["--system"], ["--user", "daemon"]])
def test_system_and_user_belong_together(on_systemd: Desk, programs: Fake, words: list[str]) -> None:
    assert "belong together" in on_systemd.run("service", "install", *words, code=2).stderr
    assert programs.ran == []


def test_a_user_who_does_not_exist_is_a_3(on_systemd: Desk, programs: Fake) -> None:
    assert "no user nobody-at-all" in on_systemd.run("service", "install", "--system", "--user", "nobody-at-all", code=3).stderr
    assert programs.changed() == []


def test_only_root_may_install_for_the_machine(on_systemd: Desk, programs: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: ANN)
    assert "sudo" in on_systemd.run("service", "install", "--system", "--user", "daemon", code=2).stderr
    assert "ExecStart=" in on_systemd.run("service", "install", "--system", "--user", "daemon", "--print").stdout
    assert programs.changed() == []


def test_sudo_without_system_is_no_service_of_root_by_mistake(on_systemd: Desk, programs: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUDO_USER", "ann")
    assert "--system --user ann" in on_systemd.run("service", "install", code=2).stderr
    assert programs.changed() == []


# --- how it is ---


def test_status_says_it_for_people_and_for_programs(on_systemd: Desk, programs: Fake) -> None:
    programs.answers["systemctl --user show"] = Done(0, SHOWN)
    said = on_systemd.run("service", "status").stdout
    assert said.startswith("systemd says: active since Sun 2026-01-04 10:00:00 UTC, process 42\n")
    assert "it says: watching; all is well" in said
    assert "coldtrail status" in said
    told = on_systemd.json("service", "status")
    assert (told["installed"], told["runs"], told["pid"], told["restarts"]) == (True, True, 42, 1)


def test_a_service_that_ended_is_a_1_and_says_why(on_systemd: Desk, programs: Fake) -> None:
    ended = (
        SHOWN.replace("=active", "=failed").replace("=running", "=failed").replace("=success", "=exit-code").replace("Status=0", "Status=2")
    )
    programs.answers["systemctl --user show"] = Done(0, ended)
    said = on_systemd.run("service", "status", code=1).stdout
    assert "ended by: exit-code, status 2" in said
    assert "it says" not in said, "what it said last is no longer so"


def test_a_service_that_is_not_installed_is_a_3(on_systemd: Desk, programs: Fake) -> None:
    programs.answers["systemctl --user show"] = Done(0, "LoadState=not-found\n")
    assert "coldtrail service install" in on_systemd.run("service", "status", code=3).stderr
    assert json.loads(on_systemd.run("service", "status", "--json", code=3).stdout) == {"installed": False}


def test_a_manager_that_fails_is_a_1_with_its_own_words(on_systemd: Desk, programs: Fake) -> None:
    programs.answers["systemctl --user"] = Done(1, err="Failed to connect to bus: No medium found")
    assert "No medium found" in on_systemd.run("service", "status", code=1).stderr


def test_uninstall_touches_nothing_that_is_kept(on_systemd: Desk) -> None:
    on_systemd.captured()
    before = sorted(on_systemd.trail.rglob("*"))
    on_systemd.run("service", "install")
    assert "untouched" in on_systemd.run("service", "uninstall").stdout
    assert sorted(on_systemd.trail.rglob("*")) == before


def test_logs_are_handed_over_to_who_has_them(on_systemd: Desk, programs: Fake) -> None:
    on_systemd.run("service", "logs", "-f", "-n", "5")
    assert programs.shown == [f"journalctl --user-unit={UNIT} --lines=5 --output=cat --no-pager --follow"]


# --- on macOS ---


def test_on_a_mac_the_agent_is_supervised_and_its_file_well_formed(on_mac: Desk, programs: Fake) -> None:
    on_mac.run("service", "install")
    (file,) = (on_mac.user / "Library" / "LaunchAgents").iterdir()
    assert plistlib.loads(file.read_bytes())["ProgramArguments"][-2:] == ["run", "--supervised"]
    assert programs.changed()[-1].startswith("launchctl bootstrap gui/")
    on_mac.run("service", "uninstall")
    assert not file.exists()


def test_on_a_mac_there_is_none_for_the_whole_machine(on_mac: Desk, programs: Fake) -> None:
    on_mac.run("service", "install", "--system", "--user", "daemon", code=2)
    assert programs.ran == []


def test_on_a_mac_a_folder_that_privacy_keeps_from_us_is_named(on_mac: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "kept_from", lambda folders: [next(iter(folders))])
    told = on_mac.run("service", "install").stderr
    assert "macOS does not let coldtrail look into it" in told
    assert "Full Disk Access" in told
