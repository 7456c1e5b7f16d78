"""This machine, as far as it matters: the daemon, the service, the packages, the umask."""

from __future__ import annotations

import fcntl
import os
import platform
import pwd
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from coldtrail.errors import ColdtrailError
from coldtrail.settings import Settings
from coldtrail.stage.doctor import Finding, Severity
from coldtraild.units import Installed, Manager
from coldtraild.units.launchd import Launchd
from coldtraild.units.programs import Real
from coldtraild.units.systemd import MACHINE_FOLDER, Systemd

PACKAGES = ("coldtrail", "orjson", "zstandard", "click", "rich", "watchdog", "apscheduler")
FOR_DAEMON = ("watchdog", "apscheduler")
_SYSTEMD_RUNS = Path("/run/systemd/system")
_NOTE_BYTES = 64


def of_machine(settings: Settings) -> Iterator[Finding]:
    """What is wrong with it."""
    yield from of_python()
    yield from _umask()
    held, pid = lock_holder(settings.layout.daemon_lock)
    yield from _lock(settings, held=held, pid=pid)
    for manager, word in managers(settings):
        try:
            installed = manager.installed()
        except ColdtrailError as error:
            yield Finding(Severity.NOTE, word, f"cannot be asked: {error}", "", error.hint)
            continue
        if installed is not None:
            yield from of_service(installed, running=held)
            return
    if not held:
        means = "what the agents write is captured only by `coldtrail run` or `coldtrail run --once`"
        yield Finding(
            Severity.WARNING, str(settings.layout.home), "no daemon runs, and no service is installed", means, "coldtrail service install"
        )


def versions() -> dict[str, str | None]:
    """Of Python, the system, and every package that we use; None where one is not installed."""
    found: dict[str, str | None] = {"python": platform.python_version(), "system": f"{platform.system()} {platform.release()}"}
    return found | {name: _version(name) for name in PACKAGES}


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def of_python() -> Iterator[Finding]:
    """What is missing for the daemon."""
    missing = [name for name in FOR_DAEMON if _version(name) is None]
    if missing:
        means = "`coldtrail run` needs it; reading and restoring do not"
        yield Finding(Severity.WARNING, "packages", f"not installed: {', '.join(missing)}", means, "pip install 'coldtrail[daemon]'")


def _umask() -> Iterator[Finding]:
    mask = os.umask(0o077)
    os.umask(mask)
    if mask & 0o700:
        what = f"{mask:04o} takes rights from yourself"
        yield Finding(Severity.ERROR, "umask", what, "files that coldtrail makes cannot be read or written by it", "umask 077")


def lock_holder(lock: Path) -> tuple[bool, int | None]:
    """Whether somebody is at work on the home, by the kernel's word; and which process says that it is."""
    try:
        fd = os.open(lock, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False, None
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        note = os.pread(fd, _NOTE_BYTES, 0).split()
        return True, int(note[0]) if note and note[0].isdigit() else None
    finally:
        os.close(fd)
    return False, None


def _lock(settings: Settings, *, held: bool, pid: int | None) -> Iterator[Finding]:
    if held and pid is not None and Path("/proc/self").exists() and not Path(f"/proc/{pid}").exists():
        what = f"is held, but process {pid}, which wrote itself down, is gone (or runs in a container)"
        means = "no other daemon can start, and whoever holds it may not capture"
        yield Finding(Severity.WARNING, str(settings.layout.daemon_lock), what, means, f"fuser {settings.layout.daemon_lock}")


def managers(settings: Settings) -> Iterator[tuple[Manager, str]]:
    """The service managers that may run the daemon here."""
    programs, user = Real.of(settings.env, os.geteuid()), pwd.getpwuid(os.geteuid()).pw_name
    if sys.platform == "darwin":
        library = settings.user_home / "Library"
        yield Launchd(programs, library / "LaunchAgents", library / "Logs" / "coldtrail" / "coldtrail.log", os.getuid()), "launchd"
    elif _SYSTEMD_RUNS.is_dir():
        config = Path(settings.env.get("XDG_CONFIG_HOME") or settings.user_home / ".config")
        yield Systemd(programs, config / "systemd" / "user", user), "systemd --user"
        yield Systemd(programs, MACHINE_FOLDER, user, for_machine=True), "systemd"


def of_service(installed: Installed, *, running: bool) -> Iterator[Finding]:
    """What is wrong with a service that is installed; `running`: whether somebody works on the home."""
    file = installed.file
    if not (installed.runs or running):
        what = f"the service is installed and does not run: {installed.state}" + (f" ({installed.ended})" if installed.ended else "")
        yield Finding(Severity.ERROR, file, what, "nothing is captured", "coldtrail service logs")
    if not installed.starts_by_itself:
        what = "the service does not start by itself"
        yield Finding(Severity.WARNING, file, what, "after a restart nothing is captured", "coldtrail service install")
    if not installed.outlives_logout and installed.manager == "systemd":
        means = "the daemon ends when you log out, and nothing is captured until you are back"
        yield Finding(Severity.WARNING, file, "the user's services end at logout (no linger)", means, "loginctl enable-linger")
