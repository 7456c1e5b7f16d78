"""What the service managers are given, and how they are told: each unit is what its manager reads, each step can be undone."""

from __future__ import annotations

import plistlib
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from coldtrail.errors import ColdtrailError, RefusedError
from coldtraild.units import Service
from coldtraild.units.base import Done
from coldtraild.units.launchd import LABEL, Launchd, kept_from, plist
from coldtraild.units.programs import Real
from coldtraild.units.systemd import UNIT, Systemd, unit, version, word
from daemon.managed import Fake

REPO = Path(__file__).resolve().parents[2]
OF_USER = Service(("/opt/coldtrail/bin/coldtrail", "run"))
OF_MACHINE = Service(("/opt/coldtrail/bin/coldtrail", "run"), user="somebody", places=("/somebody",))
LINGERS = {"loginctl show-user": Done(0, "yes\n")}


def settings_of(text: str) -> dict[str, list[str]]:
    """A unit's settings, those said several times with each value."""
    found: dict[str, list[str]] = {}
    for name, value in re.findall(r"^(\w+)=(.*)$", text, re.MULTILINE):
        found.setdefault(name, []).append(value)
    return found


# --- the unit ---


def test_the_units_in_the_repository_are_what_is_installed() -> None:
    ours = {
        "coldtraild.service": unit(OF_USER, version=252).replace("/opt/coldtrail/bin", "%h/.local/bin"),
        "coldtraild-system.service": unit(OF_MACHINE, version=252),
    }
    assert {path.name: path.read_text() for path in (REPO / "systemd").iterdir()} == ours


def test_a_permanent_error_is_not_tried_again_and_every_other_is() -> None:
    found = settings_of(unit(OF_USER, version=252))
    assert found["Restart"] == ["on-failure"]
    assert found["RestartPreventExitStatus"] == ["2"]
    assert found["StartLimitIntervalSec"] == ["0"]


def test_the_wait_before_a_restart_grows_where_systemd_can_do_that() -> None:
    old, new = (settings_of(unit(OF_USER, version=number)) for number in (253, 254))
    assert "RestartSteps" not in old
    assert (new["RestartSec"], new["RestartSteps"], new["RestartMaxDelaySec"]) == (["1s"], ["8"], ["5min"])


def test_only_the_one_for_the_machine_has_a_user_and_what_needs_root() -> None:
    of_user, of_machine = (settings_of(unit(each, version=254)) for each in (OF_USER, OF_MACHINE))
    assert of_machine["User"] == ["somebody"]
    assert of_machine["WantedBy"] == ["multi-user.target"]
    assert of_user["WantedBy"] == ["default.target"]
    assert set(of_machine) - set(of_user) >= {"User", "ProtectSystem", "CapabilityBoundingSet", "PrivateDevices"}


@pytest.mark.parametrize("service", [OF_USER, OF_MACHINE], ids=["user", "machine"])
def test_nothing_an_agent_has_is_made_read_only_or_hidden(service: Service) -> None:
    found = settings_of(unit(service, version=254))
    assert not set(found) & {"ProtectHome", "PrivateTmp", "ReadOnlyPaths", "InaccessiblePaths", "TemporaryFileSystem", "ProtectProc"}
    assert "strict" not in found.get("ProtectSystem", [])


def test_every_part_of_the_template_is_filled_in() -> None:
    for text in (unit(OF_USER, version=254), unit(OF_MACHINE, version=252)):
        assert not re.findall(r"@[A-Z]+@|^#@", text, re.MULTILINE)


def test_what_systemd_would_read_otherwise_is_escaped() -> None:
    service = Service(("/a b/coldtrail", "--home", 'c"%d$E\\', "run"), {"CODEX_HOME": "/a b/$c%"})
    found = settings_of(unit(service, version=252))
    assert found["ExecStart"] == ['"/a b/coldtrail" --home "c\\"%%d$$E\\\\" run']
    assert found["Environment"] == ['"CODEX_HOME=/a b/$c%%"']
    assert word("/plain/path-1.2") == "/plain/path-1.2"


def test_a_path_that_no_unit_can_hold_is_refused() -> None:
    with pytest.raises(RefusedError, match="cannot hold"):
        word("/a\nExecStartPre=/bin/rm")


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not on this machine")
def test_systemd_itself_finds_no_fault_with_it(tmp_path: Path) -> None:
    """Offline, with a program that is there; the running one is looked at in tests/system."""
    service = Service(("/bin/true", "run"), {"CODEX_HOME": "/a b/$c%"}, "daemon", ("/usr",))
    (tmp_path / "coldtrail-checked.service").write_text(unit(service, version=version(Real({"PATH": "/usr/bin:/bin"}))))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(tmp_path / "coldtrail-checked.service")], capture_output=True, text=True, check=False
    )
    if "Failed to " in done.stderr:
        pytest.skip(f"systemd-analyze does not work here: {done.stderr.strip()}")
    assert [line for line in done.stderr.split("\n") if "coldtrail-checked" in line] == []


# --- systemctl ---


def systemd(tmp_path: Path, answers: Mapping[str, Any] | None = None, *, for_machine: bool = False) -> tuple[Systemd, Fake]:
    programs = Fake({**LINGERS, **(answers or {})})
    return Systemd(programs, tmp_path / "units", "ann", for_machine=for_machine), programs


def test_install_writes_a_readable_unit_then_enables_and_starts_it(tmp_path: Path) -> None:
    manager, programs = systemd(tmp_path)
    steps = list(manager.install(OF_USER))
    assert manager.file.read_text() == unit(OF_USER, version=0)
    assert manager.file.stat().st_mode & 0o777 == 0o644
    assert programs.changed() == [f"systemctl --user {each}" for each in ("daemon-reload", f"enable {UNIT}", f"restart {UNIT}")]
    assert [step.undo for step in steps if step.undo] == [
        f"rm {manager.file}",
        f"systemctl --user disable {UNIT}",
        f"systemctl --user stop {UNIT}",
    ]


def test_the_machines_manager_is_not_asked_for_linger(tmp_path: Path) -> None:
    manager, programs = systemd(tmp_path, for_machine=True)
    list(manager.install(OF_MACHINE))
    assert programs.changed() == ["systemctl daemon-reload", f"systemctl enable {UNIT}", f"systemctl restart {UNIT}"]


def test_linger_is_turned_on_where_it_was_off_and_off_again_by_uninstall(tmp_path: Path) -> None:
    manager, programs = systemd(tmp_path, {"loginctl show-user": Done(0, "no\n")})
    steps = list(manager.install(OF_USER))
    assert "loginctl disable-linger ann" in [step.undo for step in steps]
    list(manager.install(OF_USER))  # an upgrade does not forget who turned it on
    list(manager.uninstall())
    assert programs.changed()[-1] == "loginctl disable-linger ann"
    assert not manager.file.exists()


def test_linger_that_somebody_else_has_turned_on_stays(tmp_path: Path) -> None:
    manager, programs = systemd(tmp_path)
    list(manager.install(OF_USER))
    list(manager.uninstall())
    assert not [each for each in programs.ran if "able-linger" in each]


def test_linger_that_is_refused_is_said_with_the_command_for_it_and_the_rest_is_done(tmp_path: Path) -> None:
    refused = {"loginctl show-user": Done(1), "loginctl --no-ask-password enable-linger": Done(1, err="Access denied")}
    manager, programs = systemd(tmp_path, refused)
    told = [step.done for step in manager.install(OF_USER)]
    assert any("sudo loginctl enable-linger ann" in each and each.startswith("NOT done") for each in told)
    assert programs.changed()[-1] == f"systemctl --user restart {UNIT}"


def test_a_users_manager_that_does_not_run_is_explained(tmp_path: Path) -> None:
    manager, _ = systemd(tmp_path, {"systemctl --user daemon-reload": Done(1, err="Failed to connect to bus: No medium found")})
    with pytest.raises(ColdtrailError, match="connect to bus") as caught:
        list(manager.install(OF_USER))
    assert "enable-linger ann" in caught.value.hint


def test_a_start_that_fails_says_where_to_look(tmp_path: Path) -> None:
    manager, _ = systemd(tmp_path, {f"systemctl --user restart {UNIT}": Done(1, err="Job failed.")})
    with pytest.raises(ColdtrailError, match="Job failed") as caught:
        list(manager.install(OF_USER))
    assert "coldtrail service logs" in caught.value.hint


@pytest.mark.parametrize("act", ["install", "uninstall"])
def test_a_unit_of_somebody_else_is_left_alone(tmp_path: Path, act: str) -> None:
    manager, programs = systemd(tmp_path)
    manager.folder.mkdir()
    manager.file.write_text("[Service]\nExecStart=/bin/true\n")
    with pytest.raises(RefusedError, match="not written by coldtrail"):
        list(manager.install(OF_USER) if act == "install" else manager.uninstall())
    assert "ExecStart=/bin/true" in manager.file.read_text()
    assert programs.changed() == []


def test_uninstalling_what_is_not_there_is_no_error(tmp_path: Path) -> None:
    manager, programs = systemd(tmp_path)
    (step,) = manager.uninstall()
    assert "nothing to undo" in step.done
    assert programs.changed() == []


SHOWN = """LoadState=loaded
ActiveState=active
SubState=running
MainPID=42
StatusText=watching; all is well
NRestarts=3
Result=success
ExecMainStatus=0
UnitFileState=enabled
StateChangeTimestamp=Sun 2026-01-04 10:00:00 UTC
FragmentPath=/units/coldtraild.service
"""


def test_status_is_what_systemctl_shows(tmp_path: Path) -> None:
    manager, _ = systemd(tmp_path, {"systemctl --user show": Done(0, SHOWN)})
    found = manager.installed()
    assert found is not None
    assert (found.state, found.runs, found.pid, found.restarts, found.says) == ("active", True, 42, 3, "watching; all is well")
    assert found.starts_by_itself
    assert found.outlives_logout
    assert found.ended == ""


@pytest.mark.parametrize(
    ("shown", "state"),
    [
        (SHOWN.replace("=active", "=activating").replace("=running", "=auto-restart"), "activating (auto-restart)"),
        (SHOWN.replace("=active", "=failed").replace("=running", "=failed"), "failed"),
        (SHOWN.replace("=active", "=inactive").replace("=running", "=dead"), "inactive"),
    ],
)
def test_what_waits_to_be_restarted_or_has_ended_does_not_run(tmp_path: Path, shown: str, state: str) -> None:
    failed = shown.replace("Result=success", "Result=exit-code").replace("ExecMainStatus=0", "ExecMainStatus=2")
    manager, _ = systemd(tmp_path, {"systemctl --user show": Done(0, failed)})
    found = manager.installed()
    assert found is not None
    assert (found.state, found.runs, found.ended) == (state, False, "exit-code, status 2")


def test_a_unit_that_is_not_loaded_is_not_installed(tmp_path: Path) -> None:
    manager, _ = systemd(tmp_path, {"systemctl --user show": Done(0, "LoadState=not-found\n")})
    assert manager.installed() is None


def test_logs_are_the_journals(tmp_path: Path) -> None:
    for for_machine, whose in ((False, "--user-unit"), (True, "--unit")):
        manager, programs = systemd(tmp_path, for_machine=for_machine)
        manager.logs(20, follow=True)
        assert programs.shown == [f"journalctl {whose}={UNIT} --lines=20 --output=cat --no-pager --follow"]


# --- launchd ---

# The keys that launchd.plist(5) has and that we use, with their types.
KEYS = {
    "Label": str,
    "ProgramArguments": list,
    "EnvironmentVariables": dict,
    "RunAtLoad": bool,
    "KeepAlive": dict,
    "ThrottleInterval": int,
    "ExitTimeOut": int,
    "ProcessType": str,
    "LowPriorityIO": bool,
    "Nice": int,
    "Umask": int,
    "StandardErrorPath": str,
    "StandardOutPath": str,
}


def launchd(tmp_path: Path, answers: Mapping[str, Any] | None = None) -> tuple[Launchd, Fake]:
    programs = Fake({"launchctl print": Done(113), **(answers or {})})
    return Launchd(programs, tmp_path / "agents", tmp_path / "logs" / "coldtrail.log", 501, sleep=lambda _: None), programs


def test_the_property_list_comes_back_as_it_was_meant() -> None:
    service = Service(("/a b/coldtrail", "run", "--supervised"), {"CODEX_HOME": "/a & b"})
    found = plistlib.loads(plist(service, Path("/logs/coldtrail.log")))
    assert {name: type(value) for name, value in found.items()} == KEYS
    assert found["ProgramArguments"] == list(service.command)
    assert found["EnvironmentVariables"] == {"CODEX_HOME": "/a & b"}
    assert found["KeepAlive"] == {"SuccessfulExit": False}
    assert found["ProcessType"] in ("Background", "Standard", "Adaptive", "Interactive")
    assert found["Umask"] == 0o077


def test_launchd_is_told_to_load_it_and_what_undoes_that(tmp_path: Path) -> None:
    manager, programs = launchd(tmp_path)
    steps = list(manager.install(OF_USER))
    assert programs.changed() == [f"launchctl enable gui/501/{LABEL}", f"launchctl bootstrap gui/501 {manager.file}"]
    assert [step.undo for step in steps] == [f"rm {manager.file}", f"launchctl bootout gui/501/{LABEL}"]
    assert plistlib.loads(manager.file.read_bytes())["Label"] == LABEL


def test_one_that_is_loaded_is_unloaded_first_and_waited_for(tmp_path: Path) -> None:
    busy = iter([Done(5, err="Bootstrap failed: 5: Input/output error"), Done(37), Done(0)])
    manager, programs = launchd(tmp_path, {"launchctl print": Done(0), "launchctl bootstrap": lambda: next(busy)})
    list(manager.install(OF_USER))
    assert programs.changed()[1] == f"launchctl bootout gui/501/{LABEL}"
    assert len([each for each in programs.ran if "bootstrap" in each]) == 3


def test_a_launchd_that_refuses_for_good_is_told_of(tmp_path: Path) -> None:
    manager, _ = launchd(tmp_path, {"launchctl bootstrap": Done(125, err="Domain does not support specified action")})
    with pytest.raises(ColdtrailError, match="Domain does not support") as caught:
        list(manager.install(OF_USER))
    assert "ssh" in caught.value.hint


def test_uninstalled_from_launchd_nothing_is_left_but_the_log(tmp_path: Path) -> None:
    manager, programs = launchd(tmp_path)
    list(manager.install(OF_USER))
    manager.log.write_text("said\n")
    programs.answers["launchctl print"] = Done(0)
    steps = list(manager.uninstall())
    assert programs.changed()[-1] == f"launchctl bootout gui/501/{LABEL}"
    assert not manager.file.exists()
    assert steps[-1].undo == f"rm {manager.log}"


def test_a_property_list_of_somebody_else_is_left_alone(tmp_path: Path) -> None:
    manager, _ = launchd(tmp_path)
    manager.agents.mkdir()
    for data in (plistlib.dumps({"Label": "other"}), b"no list at all", plistlib.dumps([1])):
        manager.file.write_bytes(data)
        with pytest.raises(RefusedError, match="not written by coldtrail"):
            list(manager.install(OF_USER))
        assert manager.file.read_bytes() == data


PRINTED = "gui/501/local.coldtrail = {\n\tactive count = 1\n\tstate = running\n\n\truns = 3\n\tpid = 42\n\tlast exit code = 1\n}\n"


def test_status_is_what_launchctl_prints(tmp_path: Path) -> None:
    manager, programs = launchd(tmp_path, {"launchctl print": Done(0, PRINTED)})
    found = manager.installed()
    assert found is not None
    assert (found.state, found.runs, found.pid, found.restarts, found.ended) == ("running", True, 42, 2, "")
    programs.answers["launchctl print"] = Done(0, PRINTED.replace("running", "not running").replace("\tpid = 42\n", ""))
    found = manager.installed()
    assert found is not None
    assert (found.runs, found.pid, found.ended) == (False, None, "status 1")


def test_what_is_neither_loaded_nor_there_is_not_installed(tmp_path: Path) -> None:
    manager, _ = launchd(tmp_path)
    assert manager.installed() is None


def test_a_folder_that_macos_keeps_from_us_is_told_from_one_that_modes_keep(tmp_path: Path) -> None:
    def look(folder: Path) -> None:
        raise PermissionError(1 if folder.name == "kept" else 13, "no")

    assert kept_from([tmp_path / "kept", tmp_path / "modes"], look) == [tmp_path / "kept"]
    assert kept_from([tmp_path, tmp_path / "absent"]) == []


# --- programs ---


def test_a_program_that_is_not_there_is_an_answer_and_no_fault() -> None:
    real = Real({"PATH": "/nowhere"})
    assert real.run(["coldtrail-no-such-program"]).code == 127
    assert real.show(["coldtrail-no-such-program"]) == 127


def test_a_program_speaks_plain_english_to_us_and_its_last_line_is_told() -> None:
    done = Real.of({"PATH": "/usr/bin:/bin", "LC_ALL": "de_DE.UTF-8"}, 0).run(["sh", "-c", "echo $LC_ALL; echo a >&2; echo b >&2; exit 3"])
    assert (done.code, done.out, done.said) == (3, "C\n", "b")
