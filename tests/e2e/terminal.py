"""Claude Code at a terminal: some of what it does, such as moving a session to another folder, it does only there."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pty
import re
import select
import struct
import termios
from collections.abc import Iterator
from pathlib import Path

from e2e.processes import TURN_S, wait_until
from e2e.world import World

_ROWS, _COLUMNS = 40, 140
_STEERING = re.compile(r"\x1b\[[0-9;?<>=]*[a-zA-Z]|\x1b\][^\x07]*\x07|\x1b[()=>][A-Z0-9]?")


class Terminal:
    """A program's screen and keyboard."""

    def __init__(self, fd: int) -> None:
        self._fd, self._raw, self._told = fd, b"", 0

    def _shown(self) -> str:
        """What was written since the last `wait_for`; without spaces, for some are steered."""
        while select.select([self._fd], [], [], 0)[0]:
            self._raw += os.read(self._fd, 1 << 16)
        return "".join(_STEERING.sub("", self._raw[self._told :].decode("utf-8", "replace")).split())

    def wait_for(self, text: str) -> None:
        """Come back when this is on the screen, written since the last time."""
        wanted = "".join(text.split())
        wait_until(f"the screen says {text!r}", lambda: wanted in self._shown(), TURN_S)
        self._told = len(self._raw)

    def enter(self, line: str) -> None:
        """Type a line, and send it when the screen has it."""
        os.write(self._fd, line.encode())
        self.wait_for(line)
        os.write(self._fd, b"\r")


def trust(world: World, *folders: Path) -> None:
    """Let Claude Code ask nothing before it begins: no first steps, no doubt about the key or these folders."""
    file = world.home / ".claude.json"
    settings = json.loads(file.read_bytes())
    settings |= {"hasCompletedOnboarding": True, "theme": "dark", "customApiKeyResponses": {"approved": ["not-a-key"], "rejected": []}}
    for folder in folders:
        settings.setdefault("projects", {}).setdefault(str(folder), {}).update(
            hasTrustDialogAccepted=True, hasCompletedProjectOnboarding=True
        )
    file.write_text(json.dumps(settings))


@contextlib.contextmanager
def terminal(world: World, *arguments: str) -> Iterator[Terminal]:
    """The agent at a terminal during the block; it is asked to leave after it."""
    ours, theirs = pty.openpty()
    try:
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", _ROWS, _COLUMNS, 0, 0))
        process = world.start_agent_at(theirs, *arguments)
        os.close(theirs)
        screen = Terminal(ours)
        screen.wait_for("? for shortcuts")
        yield screen
        screen.enter("/exit")
        process.popen.wait(TURN_S)
    finally:
        os.close(ours)
