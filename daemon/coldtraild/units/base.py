"""The words of this room: what is to run, what was done about it, what became of it; and what every service manager can do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from coldtrail.errors import ColdtrailError


@dataclass(frozen=True, slots=True)
class Service:
    """What is to run."""

    command: tuple[str, ...]  # the program by its absolute path, and its arguments
    env: Mapping[str, str] = field(default_factory=dict)  # what it must be told of the surroundings it was installed from
    user: str = ""  # systemd, for the whole machine: whom it runs as
    places: tuple[str, ...] = ()  # the same: folders whose disks must be there first


@dataclass(frozen=True, slots=True)
class Step:
    """One thing that was done, and the command that undoes it ("": nothing is to be undone)."""

    done: str
    undo: str = ""


@dataclass(frozen=True, slots=True)
class Installed:
    """What the service manager says of the service."""

    manager: str  # "systemd", "launchd"
    file: str  # the unit's or agent's file
    state: str  # the manager's own word: "active", "failed"
    runs: bool
    starts_by_itself: bool  # at boot or login
    outlives_logout: bool
    pid: int | None = None
    since: str = ""  # as the manager writes it
    says: str = ""  # what the daemon says that it is at
    restarts: int | None = None
    ended: str = ""  # why, where it does not run


@dataclass(frozen=True, slots=True)
class Done:
    """How a program ended."""

    code: int
    out: str = ""
    err: str = ""

    @property
    def said(self) -> str:
        """The last thing that it said, on one line."""
        lines = [line.strip() for line in (self.err or self.out).split("\n") if line.strip()]
        return lines[-1] if lines else f"exit code {self.code}"


class Programs(Protocol):
    """How programs are run; tests put in their own."""

    def run(self, command: Sequence[str], /) -> Done:
        """Run one to its end and give what it said."""

    def show(self, command: Sequence[str], /) -> int:
        """Let one speak to the terminal itself; gives its exit code."""


class Manager(Protocol):
    """A service manager, told about one service."""

    def text(self, service: Service) -> str:
        """What `install` writes."""

    def install(self, service: Service) -> Iterator[Step]:
        """Write it, have it started now and by itself from now on; a ColdtrailError leaves the steps before it done."""

    def uninstall(self) -> Iterator[Step]:
        """Undo that; nothing to undo is no error."""

    def installed(self) -> Installed | None:
        """How it is; None where it is not installed."""

    def logs(self, count: int, *, follow: bool) -> int:
        """Print the last `count` lines that the daemon has logged; gives the exit code."""


def must(programs: Programs, *command: str, hint: str = "") -> Done:
    """Run a program that has to succeed; ColdtrailError with what it said."""
    done = programs.run(command)
    if done.code != 0:
        raise ColdtrailError(f"{' '.join(command)}: {done.said}", hint=hint)
    return done
