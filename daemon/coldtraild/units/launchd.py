"""Under launchd, on macOS: the agent's property list, and the words with launchctl."""

from __future__ import annotations

import errno
import os
import plistlib
import re
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from coldtrail import durable
from coldtrail.errors import ColdtrailError, RefusedError
from coldtraild.units.base import Done, Installed, Programs, Service, Step, must

LABEL = "local.coldtrail"
THROTTLE_S = 10
STOP_S = 30
_TRIES = 20  # `bootout` answers before the old one is gone, and until then `bootstrap` is refused
_TRY_EVERY_S = 0.5


def plist(service: Service, log: Path) -> bytes:
    """The property list of a LaunchAgent."""
    values: dict[str, object] = {
        "Label": LABEL,
        "ProgramArguments": list(service.command),
        "RunAtLoad": True,
        "KeepAlive": {"SuccessfulExit": False},  # who stopped it meant it; what fell over is set up again
        "ThrottleInterval": THROTTLE_S,  # there is no back-off, and no error that is not tried again: `--supervised` waits these out
        "ExitTimeOut": STOP_S,
        "ProcessType": "Background",  # everybody else goes first
        "LowPriorityIO": True,
        "Nice": 5,
        "Umask": 0o077,
        "StandardErrorPath": str(log),
        "StandardOutPath": str(log),
    }
    if service.env:
        values["EnvironmentVariables"] = dict(service.env)
    return plistlib.dumps(values)


def kept_from(folders: Iterable[Path], look: Callable[[Path], object] = os.listdir) -> list[Path]:
    """The folders that macOS keeps from us, whatever their modes say: it asks for Full Disk Access by EPERM."""
    kept = []
    for folder in folders:
        try:
            look(folder)
        except OSError as error:
            if error.errno == errno.EPERM:
                kept.append(folder)
    return kept


@dataclass(frozen=True, slots=True)
class Launchd:
    """The launchd of a user who is logged in; `agents` is ~/Library/LaunchAgents."""

    programs: Programs
    agents: Path
    log: Path
    uid: int
    sleep: Callable[[float], None] = time.sleep

    @property
    def file(self) -> Path:
        """The agent's file."""
        return self.agents / f"{LABEL}.plist"

    @property
    def _domain(self) -> str:
        return f"gui/{self.uid}"

    @property
    def _target(self) -> str:
        return f"{self._domain}/{LABEL}"

    def text(self, service: Service) -> str:
        """What `install` writes."""
        return plist(service, self.log).decode()

    def install(self, service: Service) -> Iterator[Step]:
        """Write it, have it started now and at each login."""
        self._written()
        self.log.parent.mkdir(parents=True, exist_ok=True)
        self.agents.mkdir(parents=True, exist_ok=True)
        durable.replace(self.file, self.text(service).encode())
        os.chmod(self.file, 0o644)
        yield Step(f"wrote {self.file}", f"rm {self.file}")
        must(self.programs, "launchctl", "enable", self._target)
        if self._is_loaded():
            must(self.programs, "launchctl", "bootout", self._target)
        self._bootstrap()
        yield Step("it runs, and starts at each login", f"launchctl bootout {self._target}")

    def uninstall(self) -> Iterator[Step]:
        """Undo that."""
        if not self._written() and not self._is_loaded():
            yield Step(f"{self.file} is not there: nothing to undo")
            return
        if self._is_loaded():
            must(self.programs, "launchctl", "bootout", self._target)
            yield Step("stopped it; it does not start by itself any more")
        self.file.unlink(missing_ok=True)
        yield Step(f"removed {self.file}")
        if self.log.exists():
            yield Step(f"its log stays: {self.log}", f"rm {self.log}")

    def installed(self) -> Installed | None:
        """How it is."""
        done = self._print()
        if done.code != 0 and not self.file.exists():
            return None
        state = _told(done.out, "state") or "not loaded"
        ended = _told(done.out, "last exit code")
        pid = _told(done.out, "pid")
        runs = _told(done.out, "runs")
        return Installed(
            manager="launchd",
            file=str(self.file),
            state=state,
            runs=state == "running",
            starts_by_itself=done.code == 0,
            outlives_logout=False,
            pid=int(pid) if pid.isdigit() else None,
            restarts=max(0, int(runs) - 1) if runs.isdigit() else None,
            ended="" if state == "running" or ended in ("", "0", "(never exited)") else f"status {ended}",
        )

    def logs(self, count: int, *, follow: bool) -> int:
        """Print the last lines that the daemon has logged."""
        return self.programs.show(["tail", "-n", str(count), *(["-F"] if follow else []), str(self.log)])

    def _written(self) -> bool:
        """Whether our file is there; RefusedError where one of that name is not ours."""
        try:
            label = plistlib.loads(self.file.read_bytes()).get("Label")
        except FileNotFoundError:
            return False
        except (plistlib.InvalidFileException, ValueError, AttributeError):
            label = None
        if label != LABEL:
            raise RefusedError(f"{self.file}: it was not written by coldtrail", hint="look at it; move it away if it is not needed")
        return True

    def _print(self) -> Done:
        return self.programs.run(["launchctl", "print", self._target])

    def _is_loaded(self) -> bool:
        return self._print().code == 0

    def _bootstrap(self) -> None:
        command = ["launchctl", "bootstrap", self._domain, str(self.file)]
        done = self.programs.run(command)
        for _ in range(_TRIES):
            if done.code == 0:
                return
            self.sleep(_TRY_EVERY_S)
            done = self.programs.run(command)
        raise ColdtrailError(
            f"launchctl bootstrap {self._domain}: {done.said}",
            hint="it needs a login at the screen of this Mac, not by ssh alone; it starts at the next login by itself",
        )


def _told(text: str, name: str) -> str:
    """A value of `launchctl print`, whose own lines are indented by one tab."""
    found = re.search(rf"^\t{re.escape(name)} = (.*)$", text, re.MULTILINE)
    return found[1].strip() if found else ""
