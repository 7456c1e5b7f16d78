"""The contract of an agent: where its sessions lie, what its records mean, how a session goes back."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Protocol

from coldtrail.model import Ids, Reading, Role

HEAD_BYTES = 65_536  # how much of a file an agent may look at to tell whose it is


@dataclass(frozen=True, slots=True)
class Place:
    """Whose a file is, told by its path (and, where the path does not say, by its first bytes)."""

    session_id: str  # the agent's own id of the session
    scope: str  # what keeps two sessions of one id apart (Claude Code: the project folder); "" where the file does not say
    role: Role


@dataclass(frozen=True, slots=True)
class RestoreAdvice:
    """What an agent wants of a restored file's mtime, and what the user should hear."""

    mtime_ns: int
    warning: str = ""


@dataclass(frozen=True, slots=True)
class Fork:
    """How the beginning of a log becomes a session of its own, that the program goes on with."""

    session_id: str  # the new session's own id
    path: PurePosixPath  # where its log lies, relative to the root
    owner: Callable[[object], Sequence[str]] | None = None  # under which keys a record says whose log it is; None: the name says it


class Agent(Protocol):
    """One agent's habits. Pure but for `roots`, `sweep_days`, `advise` and `busy`, which may look at the agent's settings and marks.

    A new agent is one new file in this folder with one such object named `AGENT`; nothing else changes.
    """

    @property
    def name(self) -> str:
        """The word in the config and in `ls`: `claude-code`."""

    @property
    def folders(self) -> Sequence[str]:
        """The folders under a root that hold sessions, `/`-separated; `("",)` for the whole root."""

    @property
    def ids(self) -> Ids:
        """What the ids of its records are good for."""

    def roots(self, env: Mapping[str, str], home: Path) -> Sequence[Path]:
        """Where this agent keeps its sessions on this machine; folders that need not exist."""

    def place(self, path: PurePosixPath, head: Callable[[], bytes]) -> Place | None:
        """Whose the file at `path` (relative to the root) is; None: not a session's.

        `head()` reads its first `HEAD_BYTES` at most; call it only where the path does not tell. It raises OSError.
        """

    def log_id(self, path: PurePosixPath) -> str | None:
        """By which id other logs name the main log at `path` as the one they go on from; None: none ever does.

        Of a session's main logs that with the greatest id is the newest: what the agent goes on with.
        """

    def plain_path(self, path: PurePosixPath) -> PurePosixPath | None:
        """The path of which this file is a compressed twin; None for a plain file (Codex: `x.jsonl.zst` -> `x.jsonl`)."""

    def read(self, value: object) -> Reading:
        """What one parsed record means. Never raises: what it does not know is one `unknown` event."""

    def continues(self, first: Sequence[Reading], held: Callable[[str], bool]) -> bool:
        """Whether a file that was made again goes on where the lost one ended.

        `first` are the new file's first records, at most 64; `held(id)` tells whether the lost one had a record of that id.
        """

    def ordinal(self, value: object) -> int | None:
        """Which record of its conversation one parsed record says it is, counted from 0; None: it does not say."""

    def sweep_days(self, root: Path) -> float | None:
        """After how many days this agent deletes its own logs, from its settings; None: never."""

    def sweep_key_is_mtime(self) -> bool:
        """Whether the sweep goes by the file's mtime (else by the newest time inside)."""

    def advise(self, root: Path, mtime_ns: int, last_ms: int | None, now_ns: int) -> RestoreAdvice:
        """Which mtime a restored file gets; `mtime_ns` is the original, `last_ms` the newest in-file time."""

    def busy(self, root: Path, session_id: str) -> str | None:
        """Why a program that runs now may yet write to this session, though it has no file of it open; None: nothing says so.

        Asked before a session's files are taken away, so doubt is a reason. Who has a file open is found out elsewhere.
        """

    def fork(self, path: PurePosixPath, fresh: str) -> Fork | None:
        """How a copy of the log at `path` (relative to the root) becomes a session of its own; None: it cannot.

        `fresh` is a new uuid. Of a record nothing is changed but its owner, and that only where it is the copied session.
        """

    def resume(self, session_id: str, cwd: str | None) -> str | None:
        """The shell command that goes on with a restored session; None: the agent has none."""


def first_existing(candidates: Sequence[Path]) -> Iterator[Path]:
    """Those of the candidates that are folders, each real folder once."""
    seen: set[Path] = set()
    for path in candidates:
        if path.is_dir() and (real := path.resolve()) not in seen:
            seen.add(real)
            yield path
