"""The ledger of a soak: every life of every file that an agent writes, byte by byte and minute by minute, as the agent itself knows it."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass(slots=True)
class Life:
    """One append-only life of a file; times are seconds on the monotonic clock, which all processes of a machine share."""

    name: str  # unique in the ledger
    path: Path
    is_log: bool
    source: str
    head: str | None  # the life whose bytes stand before its own: the file was made again without its head
    still_s: float  # since when its bytes stand as they are
    ended_s: float | None = None  # before its agent began to end it
    how: str = ""  # it ended


class Writing:
    """One agent's pages of the ledger; it notes a write when the kernel has taken it, and an end before it comes."""

    def __init__(self, folder: Path, agent: str) -> None:
        self._folder, self._agent, self._count = folder, agent, 0
        self._events = os.open(folder / f"{agent}.events", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def begin(self, path: Path, data: bytes, *, source: str, is_log: bool, head: str | None = None) -> str:
        """A new life of a file; gives its name."""
        name, self._count = f"{self._agent}-{self._count:05d}", self._count + 1
        (self._folder / f"{name}.life").write_bytes(data)
        self._note("begins", name, path=str(path), source=source, is_log=is_log, head=head)
        return name

    def wrote(self, life: str, data: bytes) -> None:
        """It has grown."""
        with open(self._folder / f"{life}.life", "ab") as file:
            file.write(data)
        self._note("grows", life, bytes=len(data))

    def ends(self, life: str, how: str) -> None:
        """It is about to end."""
        self._note("ends", life, how=how)

    def _note(self, act: str, life: str, **more: object) -> None:
        os.write(self._events, json.dumps({"at_s": time.monotonic(), "act": act, "life": life, **more}).encode() + b"\n")


class Reading:
    """All pages of the ledger."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def events(self) -> list[dict[str, object]]:
        """What all agents did, in order of time."""
        found = [json.loads(line) for path in self._folder.glob("*.events") for line in path.read_bytes().split(b"\n") if line]
        return sorted(found, key=lambda event: event["at_s"])

    def lives(self) -> list[Life]:
        """Every life there was."""
        found: dict[str, Life] = {}
        for event in self._typed():
            name, at_s = event["life"], event["at_s"]
            if event["act"] == "begins":
                found[name] = Life(name, Path(event["path"]), event["is_log"], event["source"], event["head"], at_s)
            elif event["act"] == "grows":
                found[name].still_s = at_s
            else:
                found[name].ended_s, found[name].how = at_s, event["how"]
        return list(found.values())

    def _typed(self) -> Iterator[dict]:  # type: ignore[type-arg] # it is what `json` gives
        yield from self.events()

    def bytes_of(self, life: str) -> bytes:
        """What its agent has written in it."""
        return (self._folder / f"{life}.life").read_bytes()
