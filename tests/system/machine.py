"""A small machine with a real systemd: a Debian in a folder, booted in a container, with the wheel installed and one user on it."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

from daemon.waiting import until

RELEASE = "bookworm"
PYTHON = "3.11"  # the one that this release has
PACKAGES = "systemd,systemd-sysv,libpam-systemd,dbus,python3,python3-venv"
TOOLS = ("debootstrap", "systemd-nspawn", "nsenter")
USER = "ann"
PROGRAM = "/opt/coldtrail/bin/coldtrail"
UNIT = "coldtraild.service"
REPO = Path(__file__).resolve().parents[2]
_ENV = {"PATH": "/opt/coldtrail/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8"}
_COMMAND_S = 120.0
_POWER_OFF = signal.SIGRTMIN + 4  # as systemd takes it


def missing() -> str:
    """Why no such machine can be had here; empty where it can."""
    if sys.platform != "linux" or os.geteuid() != 0:
        return "a real systemd is booted by root on Linux only"
    absent = [tool for tool in TOOLS if shutil.which(tool) is None]
    if absent:
        return f"not on this machine: {', '.join(absent)}"
    apart = subprocess.run(["unshare", "--mount", "--pid", "--net", "--fork", "true"], capture_output=True, check=False)
    return "" if apart.returncode == 0 else "no container may be made on this machine"


def root_folder(cache: Path) -> Path:
    """A Debian that has never been booted, made once and kept: it takes minutes and some 300 MB."""
    wanted = hashlib.sha256(f"{RELEASE} {PACKAGES}".encode()).hexdigest()[:12]
    root = cache / f"{RELEASE}-{wanted}"
    if not root.is_dir():
        making = cache / f"making-{os.getpid()}"
        cache.mkdir(parents=True, exist_ok=True)
        try:
            ran("debootstrap", "--variant=minbase", f"--include={PACKAGES}", RELEASE, str(making), within_s=900)
            making.rename(root)
        finally:
            shutil.rmtree(making, ignore_errors=True)
    return root


def wheels(folder: Path) -> Path:
    """Our wheel and all that it needs there; a built one is taken from $COLDTRAIL_TEST_WHEEL."""
    folder.mkdir()
    built = os.environ.get("COLDTRAIL_TEST_WHEEL")
    if built:
        shutil.copy(built, folder)
    else:
        ran(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", f"--wheel-dir={folder}", str(REPO), within_s=300)
    (ours,) = folder.glob("coldtrail-*.whl")
    fitting = ("--only-binary=:all:", f"--python-version={PYTHON}", "--implementation=cp")
    ran(sys.executable, "-m", "pip", "download", "--quiet", *fitting, f"--dest={folder}", f"{ours}[daemon]", within_s=300)
    return folder


def ran(*command: str, within_s: float = _COMMAND_S) -> str:
    """What a command printed; it must succeed."""
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=within_s, check=False)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
    return done.stdout


class Machine:
    """A copy of a root folder, booted."""

    def __init__(self, root: Path, folder: Path) -> None:
        self.folder = folder
        ran("cp", "-a", str(root), str(folder), within_s=300)
        words = ["systemd-nspawn", "--directory", str(folder), "--register=no", "--keep-unit", "--private-network", "--boot"]
        with open(f"{folder}.log", "wb") as log:
            self._container = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self._leader = 0

    def wait_booted(self) -> None:
        """Until its systemd has started everything."""
        until(self._has_leader)
        until(lambda: self.tried("systemctl", "is-system-running").stdout.strip() in ("running", "degraded"), within_s=60)

    def _has_leader(self) -> bool:
        """Whether the container's first process is there, which has another one start it."""
        assert self._container.poll() is None, Path(f"{self.folder}.log").read_text()
        for child in Path(f"/proc/{self._container.pid}/task/{self._container.pid}/children").read_text().split():
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                if re.search(r"^NSpid:.*\t1$", Path(f"/proc/{child}/status").read_text(), re.MULTILINE):
                    self._leader = int(child)
        return self._leader != 0

    def furnish(self, wheelhouse: Path) -> None:
        """Make the user, and install what is tested."""
        self.run("useradd", "--create-home", "--shell=/bin/bash", USER)
        shutil.copytree(wheelhouse, self.folder / "opt" / "wheels")
        self.run("python3", "-m", "venv", "/opt/coldtrail")
        self.run("/opt/coldtrail/bin/pip", "install", "--quiet", "--no-index", "--find-links=/opt/wheels", "coldtrail[daemon]")

    def power_off(self) -> None:
        """End it and everything in it."""
        if self._container.poll() is None and self._leader:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._leader, _POWER_OFF)
        try:
            self._container.wait(30 if self._leader else 0)
        except subprocess.TimeoutExpired:
            for pid in (self._leader, self._container.pid):  # everything in it dies with the first
                if pid:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
            self._container.wait()
        shutil.rmtree(self.folder)

    # --- commands on it ---

    def tried(self, *command: str, user: str = "root", given: str = "") -> subprocess.CompletedProcess[str]:
        """A command on the machine, to its end."""
        enter = ["nsenter", f"--target={self._leader}", "--all", "--", "env", "-i", *(f"{name}={value}" for name, value in _ENV.items())]
        become = [] if user == "root" else ["runuser", "-u", user, "--", "env", f"HOME=/home/{user}"]
        words = [*enter, *become, *command]
        return subprocess.run(words, input=given, capture_output=True, text=True, timeout=_COMMAND_S, check=False)

    def run(self, *command: str, user: str = "root", code: int = 0) -> str:
        """What it printed; it must end with `code`."""
        done = self.tried(*command, user=user)
        assert done.returncode == code, f"{' '.join(command)}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def sessions(self) -> list[dict[str, object]]:
        """What `coldtrail ls` tells its user."""
        listed: list[dict[str, object]] = json.loads(self.run("coldtrail", "ls", "--json", user=USER))["sessions"]
        return listed

    def append(self, path: str, data: str) -> None:
        """Write to a file of the user's, as an agent does."""
        self.run("mkdir", "-p", os.path.dirname(path), user=USER)
        done = self.tried("tee", "-a", path, user=USER, given=data)
        assert done.returncode == 0, done.stderr

    def file(self, path: str) -> Path:
        """A file on it, as seen from here."""
        return self.folder / path.lstrip("/")


class Service:
    """The service on a machine, through systemctl."""

    def __init__(self, machine: Machine, *, of_user: bool = False) -> None:
        self.machine, self._of_user = machine, of_user

    def ctl(self, *words: str) -> str:
        """What `systemctl` says."""
        if self._of_user:
            uid = self.machine.run("id", "-u", USER).strip()
            return self.machine.run("env", f"XDG_RUNTIME_DIR=/run/user/{uid}", "systemctl", "--user", *words, user=USER)
        return self.machine.run("systemctl", *words)

    def told(self, name: str) -> str:
        """A property of the unit."""
        return self.ctl("show", UNIT, f"--property={name}", "--value").strip()

    def signal(self, name: str) -> None:
        """Send the daemon a signal."""
        self.ctl("kill", "--kill-whom=main", f"--signal={name}", UNIT)

    @property
    def pid(self) -> int:
        """The daemon's process, as the machine counts."""
        return int(self.told("MainPID"))

    @property
    def restarts(self) -> int:
        """How often it was started anew."""
        return int(self.told("NRestarts"))

    def is_active(self) -> bool:
        """Whether it runs, and has said that it is ready."""
        return self.told("ActiveState") == "active" and self.told("SubState") == "running"

    def wait_active(self, within_s: float = 60.0) -> None:
        """Until it is."""
        until(self.is_active, within_s)

    def journal(self) -> str:
        """Everything that it has logged, and what systemd said of it."""
        which = "--user-unit" if self._of_user else "--unit"
        return self.machine.run("journalctl", f"{which}={UNIT}", "--output=cat", "--no-pager")

    def process_facts(self) -> dict[str, str]:
        """/proc/PID/status of the daemon."""
        text = self.machine.run("cat", f"/proc/{self.pid}/status")
        return dict(re.findall(r"^(\w+):\s*(.*)$", text, re.MULTILINE))
