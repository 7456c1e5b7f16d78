"""Under systemd: the unit's text, and the words with systemctl and loginctl, for a user's manager or the whole machine's."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from coldtrail import durable
from coldtrail.errors import ColdtrailError, RefusedError
from coldtraild.units.base import Done, Installed, Programs, Service, Step, must

UNIT = "coldtraild.service"
MACHINE_FOLDER = Path("/etc/systemd/system")
BACKS_OFF = 254  # the first version that lets the wait before a restart grow
_OURS = "# Written by `coldtrail service install`"
_LINGERS = "\n[X-Coldtrail]\n# `install` has let the user's services run without a login; `uninstall` takes that back.\nLinger=yes\n"
_PLAIN = re.compile(r"[A-Za-z0-9_@+=:,./~-]+")
_ASKED = "LoadState,ActiveState,SubState,MainPID,StatusText,NRestarts,Result,ExecMainStatus,UnitFileState,StateChangeTimestamp,FragmentPath"
_RUNS = frozenset({"active", "reloading", "activating"})
_NO_MANAGER = "the user's manager does not run: log in as that user (not by su), or first run `sudo loginctl enable-linger {user}`"


def unit(service: Service, *, version: int) -> str:
    """The unit's text for a version of systemd; with `service.user` it is one for the whole machine.

    The template is a unit file in which a line `#@ system`, `user`, `254`, `older` or `all` says for whom what follows is.
    """
    holds = {"all", "system" if service.user else "user", "254" if version >= BACKS_OFF else "older"}
    template = (files("coldtraild.units") / "coldtraild.service.in").read_text("utf-8")
    text = "".join(_lines_for(template, holds))
    environment = [f"Environment={word(f'{name}={value}', dollars=False)}" for name, value in sorted(service.env.items())]
    told = "# What it was told when it was installed.\n" + "\n".join(environment) + "\n" if environment else ""
    values = {
        "@COMMAND@": " ".join(word(each) for each in service.command),
        "@USER@": service.user,
        "@PLACES@": " ".join(word(each, dollars=False) for each in service.places),
        "@ENVIRONMENT@\n": told,
        "@CTL@": "" if service.user else "--user ",
    }
    for name, value in values.items():
        text = text.replace(name, value)
    return text


def _lines_for(template: str, holds: Collection[str]) -> Iterator[str]:
    wanted = True
    for line in template.splitlines(keepends=True):
        if line.startswith("#@ "):
            wanted = line.split()[1] in holds
        elif wanted:
            yield line


def word(text: str, *, dollars: bool = True) -> str:
    r"""One word of a unit file, which systemd reads back as `text`; `dollars`: where it also fills in variables.

    >>> word("/opt/my tools/coldtrail"), word("100%"), word("$HOME")
    ('"/opt/my tools/coldtrail"', '"100%%"', '"$$HOME"')
    """
    if _PLAIN.fullmatch(text):
        return text
    if not text.isprintable():
        raise RefusedError(f"{text!r}: a unit file cannot hold this", hint="give the folder another name")
    for each, meant in (("\\", "\\\\"), ('"', '\\"'), ("%", "%%"), ("$", "$$" if dollars else "$")):
        text = text.replace(each, meant)
    return f'"{text}"'


def version(programs: Programs) -> int:
    """Which systemd this is; 0 where there is none."""
    found = re.match(r"systemd (\d+)", programs.run(["systemctl", "--version"]).out)
    return int(found[1]) if found else 0


@dataclass(frozen=True, slots=True)
class Systemd:
    """The manager of a user, or of the machine; `folder` is where it looks for units, `user` whose linger is asked for."""

    programs: Programs
    folder: Path
    user: str
    for_machine: bool = False

    @property
    def file(self) -> Path:
        """The unit's file."""
        return self.folder / UNIT

    def text(self, service: Service) -> str:
        """What `install` writes."""
        return unit(service, version=version(self.programs))

    def install(self, service: Service) -> Iterator[Step]:
        """Write it, have it started now and by itself from now on."""
        old = self._written()
        text = self.text(service) + (_LINGERS if _LINGERS in old else "")
        self._write(text)
        yield Step(f"wrote {self.file}", f"rm {self.file}")
        if not self.for_machine:
            yield self._linger(text)
        self._ctl("daemon-reload")
        self._ctl("enable", UNIT)
        yield Step("it starts with the machine" if self.for_machine else "it starts with the user's manager", self._said("disable", UNIT))
        self._ctl("restart", UNIT, hint=f"`{self._said('status', UNIT)}` and `coldtrail service logs` tell why")
        yield Step("it runs", self._said("stop", UNIT))

    def uninstall(self) -> Iterator[Step]:
        """Undo that."""
        text = self._written()
        if not text:
            yield Step(f"{self.file} is not there: nothing to undo")
            return
        self._ctl("disable", "--now", UNIT)
        yield Step("stopped it; it does not start by itself any more")
        self.file.unlink()
        self._ctl("daemon-reload")
        self.programs.run(self._command("reset-failed", UNIT))  # it is an error that nothing had failed
        yield Step(f"removed {self.file}")
        if _LINGERS in text:
            must(self.programs, "loginctl", "disable-linger", self.user, hint=f"sudo loginctl disable-linger {self.user}")
            yield Step(f"the services of {self.user} end at logout again, as before")

    def installed(self) -> Installed | None:
        """How it is."""
        done = self._ctl("show", UNIT, f"--property={_ASKED}")
        told = dict(line.split("=", 1) for line in done.out.split("\n") if "=" in line)
        if told.get("LoadState") != "loaded":
            return None
        state = told["ActiveState"]
        return Installed(
            manager="systemd",
            file=told["FragmentPath"],
            state=state if told["SubState"] in (state, "running", "dead") else f"{state} ({told['SubState']})",
            runs=state in _RUNS and told["SubState"] != "auto-restart",
            starts_by_itself=told["UnitFileState"] == "enabled",
            outlives_logout=self.for_machine or self._lingers(),
            pid=int(told["MainPID"]) or None,
            since=told["StateChangeTimestamp"],
            says=told["StatusText"],
            restarts=int(told["NRestarts"]),
            ended="" if told["Result"] == "success" else f"{told['Result']}, status {told['ExecMainStatus']}",
        )

    def logs(self, count: int, *, follow: bool) -> int:
        """Print the last lines that the daemon has logged."""
        whose = "--unit" if self.for_machine else "--user-unit"
        return self.programs.show(
            ["journalctl", f"{whose}={UNIT}", f"--lines={count}", "--output=cat", "--no-pager", *(["--follow"] if follow else [])]
        )

    def _written(self) -> str:
        """The unit that is there; RefusedError where somebody else has written it."""
        try:
            text = self.file.read_text("utf-8")
        except FileNotFoundError:
            return ""
        if not text.startswith(_OURS):
            raise RefusedError(f"{self.file}: it was not written by coldtrail", hint="look at it; move it away if it is not needed")
        return text

    def _write(self, text: str) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        durable.replace(self.file, text.encode())
        os.chmod(self.file, 0o644)  # a unit is no secret, and systemd complains of one that others cannot read

    def _linger(self, text: str) -> Step:
        """Let the user's services run while nobody is logged in."""
        why = "it runs from boot on, and after logout"
        if self._lingers():
            return Step(f"{why}: {self.user} has that already (linger)")
        if self.programs.run(["loginctl", "--no-ask-password", "enable-linger", self.user]).code != 0:
            return Step(
                f"NOT done: it will end when {self.user} logs out, and nothing is captured until the next login. "
                f"To let it run always: sudo loginctl enable-linger {self.user}"
            )
        self._write(text + _LINGERS)
        return Step(f"{why} (linger, for all services of {self.user})", f"loginctl disable-linger {self.user}")

    def _lingers(self) -> bool:
        return self.programs.run(["loginctl", "show-user", self.user, "--property=Linger", "--value"]).out.strip() == "yes"

    def _command(self, *words: str) -> list[str]:
        return ["systemctl", *([] if self.for_machine else ["--user"]), *words]

    def _said(self, *words: str) -> str:
        return " ".join(self._command(*words))

    def _ctl(self, *words: str, hint: str = "") -> Done:
        try:
            return must(self.programs, *self._command(*words), hint=hint)
        except ColdtrailError as error:
            if "connect to bus" in str(error):
                raise ColdtrailError(str(error), hint=_NO_MANAGER.format(user=self.user)) from error
            raise
