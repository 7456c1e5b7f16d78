"""Runs the service managers' programs: the one place where this room starts a process."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from coldtraild.units.base import Done

TIMEOUT_S = 600.0  # a first look at many logs may take minutes, and `systemctl start` waits for it
_NO_PROGRAM = 127


@dataclass(frozen=True, slots=True)
class Real:
    """Starts them for real, in these surroundings."""

    env: Mapping[str, str]

    @classmethod
    def of(cls, env: Mapping[str, str], uid: int) -> Real:
        """In the surroundings of a user, whose manager is found although `su` or cron does not tell where it listens."""
        folder = f"/run/user/{uid}"
        told = {} if env.get("XDG_RUNTIME_DIR") or not os.path.isdir(folder) else {"XDG_RUNTIME_DIR": folder}
        return cls({**env, "LC_ALL": "C", "SYSTEMD_COLORS": "0", "SYSTEMD_PAGER": "", **told})

    def run(self, command: Sequence[str], /) -> Done:
        """Run one to its end and give what it said."""
        try:
            done = subprocess.run(
                command, env=self.env, stdin=subprocess.DEVNULL, capture_output=True, errors="replace", timeout=TIMEOUT_S, check=False
            )
        except FileNotFoundError as error:
            return Done(_NO_PROGRAM, err=f"{command[0]}: {error.strerror}")
        except subprocess.TimeoutExpired:
            return Done(1, err=f"no answer within {TIMEOUT_S:.0f} s")
        return Done(done.returncode, done.stdout, done.stderr)

    def show(self, command: Sequence[str], /) -> int:
        """Let one speak to the terminal itself; gives its exit code."""
        try:
            return subprocess.run(command, env=self.env, stdin=subprocess.DEVNULL, check=False).returncode
        except FileNotFoundError:
            return _NO_PROGRAM
