"""What the tests of the stages share: worlds of other agents, restoring, counting reads, doing damage."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import zstandard

from coldtrail import Session
from coldtrail.agents import agent
from coldtrail.agents.walk import Source
from coldtrail.catalog import SessionRow
from coldtrail.format.manifest import StreamMeta
from coldtrail.home import Home
from coldtrail.model import instant_text
from coldtrail.stage.placing import unnamed
from coldtrail.stage.restore import Passed, Restored, Wish, carry_out, plan_restore
from coldtrail.stage.scan import Scanner, Tally
from world_of import World, metas

THREAD = "019dc0d3-6b22-7052-b168-4487a38e0f4d"
DAY_MS = 86_400_000
MTIME_NS = 1_700_000_000_123_456_789


@dataclass(slots=True)
class CodexWorld(World):
    """Codex's root in place of Claude Code's."""

    count: int = 0

    @property
    def root(self) -> Path:
        return self.folder / "codex"

    @property
    def sources(self) -> list[Source]:
        return [Source("codex", agent("codex"), self.root)]

    def rollout(self, thread: str = THREAD) -> Path:
        """A thread's log."""
        return self.root / "sessions" / "2026" / "01" / "01" / f"rollout-2026-01-01T00-00-00-{thread}.jsonl"

    def archived(self, thread: str = THREAD) -> Path:
        """The same once Codex has archived it."""
        return self.root / "archived_sessions" / self.rollout(thread).name

    def some(self, count: int, thread: str = THREAD) -> bytes:
        """The thread's next lines."""
        lines = []
        for _ in range(count):
            said = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": f"said {self.count} " * 20}]}
            kind, payload = ("response_item", said) if self.count else ("session_meta", {"id": thread, "cwd": "/there"})
            line = {"timestamp": instant_text(self.clock.now_ms + self.count), "type": kind, "payload": payload}
            lines.append(json.dumps(line).encode() + b"\n")
            self.count += 1
        return b"".join(lines)


@dataclass(slots=True)
class FolderWorld(World):
    """A folder of JSONL files of which nothing is known."""

    @property
    def root(self) -> Path:
        return self.folder / "logs"

    @property
    def sources(self) -> list[Source]:
        return [Source("mine", agent("jsonl"), self.root)]


@dataclass(frozen=True)
class Place:
    """An agent's root and coldtrail's home, side by side."""

    folder: Path

    @property
    def root(self) -> Path:
        return self.folder / "agent"

    @property
    def home(self) -> Path:
        return self.folder / "trail"

    @property
    def target(self) -> Path:
        return self.root / "projects" / "-p" / "log.jsonl"

    def files(self) -> dict[str, bytes]:
        return {str(path.relative_to(self.folder)): path.read_bytes() for path in sorted(self.folder.rglob("*")) if path.is_file()}

    def put(self, data: bytes = b"ours", *, overwrite: bool = False) -> None:
        with unnamed(self.target, self.root, self.home, overwrite=overwrite) as file:
            file.write(data)
            file.finish(0o640, MTIME_NS)
            file.place(overwrite=overwrite)


def look(world: World, *paths: Path) -> Tally:
    """What the daemon does when these paths were touched."""
    with world.open() as home:
        return Scanner(home).look(world.sources, paths)


def twin_of(path: Path) -> Path:
    """The compressed form that Codex makes of a rollout, with its mtime; the plain one stays."""
    twin = path.with_name(path.name + ".zst")
    twin.write_bytes(zstandard.ZstdCompressor(level=3).compress(path.read_bytes()))
    os.utime(twin, ns=(path.stat().st_mtime_ns,) * 2)
    return twin


def the_stream(home: Home, path: Path | None = None) -> StreamMeta:
    """The only stream there is, or the one at `path`."""
    (found,) = (meta for meta in metas(home) if path in (None, Path(meta.path)))
    return found


def the_session(home: Home) -> Session:
    """The only session there is, as the API gives it."""
    (row,) = home.catalog.sessions()
    return Session(home, row)


def put_back(home: Home, session: SessionRow | None = None, wish: Wish | None = None) -> list[Restored | Passed]:
    """Restore a session: the only one unless it is named."""
    return list(carry_out(home, plan_restore(home, session or the_session(home).row, wish or Wish())))


def older(world: World, generation: int, to: Path) -> bytes:
    """What a restore of an older generation of the only session's main log writes below `to`."""
    with world.open() as home:
        (done,) = put_back(home, wish=Wish(to=to, generation=generation))
    assert isinstance(done, Restored), done
    return done.path.read_bytes()


def faults(world: World) -> dict[Path, str]:
    """What `status` would say is wrong, by place."""
    with world.open() as home:
        return {Path(os.fsdecode(fault.place)): fault.what for fault in home.catalog.faults()}


def flip_bit(path: Path, at: int) -> None:
    """One bit of a file is another; `at` may count from the end."""
    data = bytearray(path.read_bytes())
    data[at] ^= 0x10
    path.write_bytes(data)


def sealed_files(world: World) -> list[Path]:
    """Every sealed segment, by path."""
    return sorted(world.layout.archive.rglob("*.jsonl.zst"))


def fill(disk: Path) -> None:
    """Leave not one byte free."""
    with open(disk / "filler", "ab", buffering=0) as file:
        for size in (1 << 16, 1 << 12, 1):
            with contextlib.suppress(OSError):
                while file.write(bytes(size)):
                    pass


def run_with_mounts(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a Python program that may mount what it likes, seen by nobody else; the test is skipped where that is not permitted."""
    if shutil.which("unshare") is None or subprocess.run(["unshare", "-m", "true"], capture_output=True, check=False).returncode:
        pytest.skip("mounting is not permitted here")
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    command = ["unshare", "-m", sys.executable, "-c", code, *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)


@contextlib.contextmanager
def reads_of(path: Path) -> Iterator[list[int]]:
    """How many bytes each read of the file at `path` gave, by whichever call."""
    counts: list[int] = []
    pread, read = os.pread, os.read
    wanted = os.stat(path)

    def noted(fd: int, data: bytes) -> bytes:
        found = os.fstat(fd)
        if (found.st_dev, found.st_ino) == (wanted.st_dev, wanted.st_ino):
            counts.append(len(data))
        return data

    try:
        os.pread = lambda fd, length, offset: noted(fd, pread(fd, length, offset))
        os.read = lambda fd, length: noted(fd, read(fd, length))
        yield counts
    finally:
        os.pread, os.read = pread, read
