"""The corpus of real logs laid out as their agents would have it, in a home of its own."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from coldtrail.settings import Settings, settings

CORPUS = Path(__file__).resolve().parents[2].parent / "shared" / "corpus"

MODES = (0o600, 0o644, 0o400)
_HOUR_NS = 3_600_000_000_000
_CONFIG = """
compact.after = "0s"
[[source]]
name = "others"
agent = "jsonl"
root = "~/others"
"""
_GEMINI_ID = re.compile(rb'"sessionId"\s*:\s*"([^"]{8,})"')


@dataclass(frozen=True, slots=True)
class Original:
    """A file as it was before coldtrail saw it."""

    path: Path  # in the made-up home
    sha256: str
    bytes: int
    mode: int
    mtime_ns: int


@dataclass(slots=True)
class CorpusHome:
    """A user's home with all of the corpus in it."""

    folder: Path
    originals: dict[Path, Original] = field(default_factory=dict)

    def fill(self, wanted: Callable[[Path], bool] = lambda _: True) -> None:
        """Copy every file that is wanted to where its agent would have it, with modes of every kind and mtimes over two months."""
        now_ns = time.time_ns()
        for number, source in enumerate(sorted(path for path in CORPUS.rglob("*") if path.is_file() and wanted(path))):
            goal = self.folder / _place(source.relative_to(CORPUS))
            assert not goal.exists(), goal
            goal.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, goal)
            goal.chmod(MODES[number % len(MODES)])
            mtime_ns = now_ns - number * 4 * _HOUR_NS - number
            os.utime(goal, ns=(mtime_ns, mtime_ns))
            found = goal.stat()
            self.originals[goal] = Original(goal, digest(goal), found.st_size, found.st_mode & 0o7777, found.st_mtime_ns)
        config = self.folder / ".config" / "coldtrail" / "config.toml"
        config.parent.mkdir(parents=True)
        config.write_text(_CONFIG)

    @property
    def settings(self) -> Settings:
        """As the command line finds them there."""
        return settings(env={"HOME": str(self.folder)})

    def agents_folders(self) -> Iterator[Path]:
        """Each agent's root."""
        return (self.folder / name for name in (".claude", ".codex", ".gemini", "others"))


def digest(path: Path) -> str:
    """The SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _place(source: Path) -> Path:
    """Where a file of the corpus goes, below the home."""
    agent, *below = source.parts
    match agent:
        case "claude":
            return Path(".claude", "projects", *_claude(below))
        case "codex" if source.suffix == ".jsonl":
            thread = uuid.uuid5(uuid.NAMESPACE_URL, str(source))
            return Path(".codex", "sessions", "2026", "01", "02", f"rollout-2026-01-02T03-04-05-{thread}.jsonl")
        case "gemini":
            said = _GEMINI_ID.search((CORPUS / source).read_bytes()[:65_536])
            short = re.sub(r"[^A-Za-z0-9_-]", "_", said[1].decode())[:8] if said else "00000000"
            return Path(".gemini", "tmp", _slug(below), "chats", f"session-2026-01-02T03-04-{short}{source.suffix}")
        case _:
            suffix = "" if source.suffix == ".jsonl" else ".jsonl"
            return Path("others", *(part.lstrip(".") for part in source.parts[:-1]), source.name.lstrip(".") + suffix)


def _claude(below: list[str]) -> tuple[str, ...]:
    """A session is named by its uuid, where its folder says one; its sub-agents stay beside it, its snapshots apart."""
    if "subagents" in below:
        at = below.index("subagents") - 1
        return (_slug([*below[:at], ""]), *below[at:])
    session = re.search(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$", below[-2])
    if session is not None:
        return _slug(below), f"{session[0]}.jsonl"
    return _slug([*below[:-1], ""]), below[-1]


def _slug(parts: list[str]) -> str:
    return "-" + re.sub(r"[^A-Za-z0-9]", "-", "/".join(parts)).strip("-")
