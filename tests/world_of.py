"""A small world for tests of the spine: an agent's folder, a home, a clock that is told, and what coldtrail holds of it all."""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from coldtrail.agents import agent, agents
from coldtrail.agents.walk import Source
from coldtrail.catalog import Catalog
from coldtrail.format.manifest import StreamMeta
from coldtrail.home import Home
from coldtrail.layout import Layout
from coldtrail.model import Relation, instant_text
from coldtrail.recover import Selection, StreamReader
from coldtrail.stage.compact import Compactor, due
from coldtrail.stage.scan import Scanner, Tally
from coldtrail.stage.verify import verify

START_MS = 1_767_225_600_000  # 2026-01-01
FOR_EVER_MS = 1 << 50
SESSION = "11111111-2222-4333-8444-555555555555"

# So small that a few kilobytes go through every branch that real logs take at megabytes.
SMALL = {
    "coldtrail.stage.capture": {"BATCH_BYTES": 4 << 10},
    "coldtrail.stage.append": {"FRAME_BYTES": 1 << 10, "ROLL_BYTES": 4 << 10},
    "coldtrail.stage.whole": {"_BATCH_BYTES": 4 << 10, "FRAME_BYTES": 1 << 10},
    "coldtrail.stage.prove": {"HEAD_BYTES": 256, "WINDOW_BYTES": 512},
    "coldtrail.stage.seal": {"FAST_FRAME_BYTES": 1 << 10, "DENSE_FRAME_BYTES": 4 << 10, "BLOCK_BYTES": 1 << 10},
    "coldtrail.stage.mend": {"BLOCK_BYTES": 1 << 10},
    "coldtrail.format.segment": {"BLOCK_BYTES": 1 << 10},
    "coldtrail.indexes": {"_STEP_BYTES": 1 << 10},
    "coldtrail.content": {"_STEP_BYTES": 1 << 10},
    "coldtrail.recover": {"_STEP_BYTES": 1 << 10},
}


@contextlib.contextmanager
def small_sizes() -> Iterator[None]:
    """Batches, frames, segments and windows of kilobytes; with fsync left out, for a killed process loses nothing by that."""
    before: list[tuple[object, str, object]] = [(os, "fsync", os.fsync), (Catalog, "_prepare", Catalog._prepare)]
    os.fsync = lambda fd: None
    setattr(Catalog, "_prepare", _prepared_unsynced)  # noqa: B010 - it is a method
    for module_name, sizes in SMALL.items():
        module = importlib.import_module(module_name)
        for name, size in sizes.items():
            before.append((module, name, getattr(module, name)))
            setattr(module, name, size)
    try:
        yield
    finally:
        for holder, name, value in before:
            setattr(holder, name, value)


_prepared = Catalog._prepare


def _prepared_unsynced(catalog: Catalog, db: sqlite3.Connection) -> None:
    _prepared(catalog, db)
    db.execute("PRAGMA synchronous=OFF")


@dataclass(slots=True)
class Clock:
    """Milliseconds since 1970 that move when they are told to."""

    now_ms: int = START_MS

    def __call__(self) -> int:
        return self.now_ms

    def tick(self, ms: int) -> None:
        """Time goes by."""
        self.now_ms += ms


@dataclass(slots=True)
class Lines:
    """Makes a session's lines, each with an id of its own and the one before as its parent."""

    clock: Clock
    session: str = SESSION
    count: int = 0

    def line(self, *, size: int = 200, parent: str | None = None, root: bool = False) -> bytes:
        """The next line, about `size` bytes; hung on `parent` if one is named, on nothing if it is a `root`."""
        number, self.count = self.count, self.count + 1
        hung_on = None if root or number == 0 else parent or self.id_of(number - 1)
        record = {
            "type": "user",
            "uuid": self.id_of(number),
            "parentUuid": hung_on,
            "sessionId": self.session,
            "timestamp": instant_text(self.clock.now_ms),
            "cwd": "/there",
            "message": {"role": "user", "content": f"{number} "},
        }
        text = json.dumps(record)
        filler = f"{number * 7919 % 999_983:x}" * (size // 2)
        return (text[:-3] + filler[: max(0, size - len(text) - 1)] + text[-3:] + "\n").encode()

    def some(self, count: int, *, size: int = 200) -> bytes:
        """Several lines."""
        return b"".join(self.line(size=size) for _ in range(count))

    def id_of(self, number: int) -> str:
        """The id of the line made as number `number`."""
        return f"{self.session[:8]}-{number:06d}"


@dataclass(slots=True)
class World:
    """An agent's root, a coldtrail home, and the clock of both."""

    folder: Path
    clock: Clock = field(default_factory=Clock)
    _kept: Home | None = None

    def __post_init__(self) -> None:
        (self.root / "projects").mkdir(parents=True, exist_ok=True)

    @property
    def root(self) -> Path:
        """Where the agent keeps its logs."""
        return self.folder / "claude"

    @property
    def layout(self) -> Layout:
        """Where coldtrail keeps its own."""
        return Layout.at(self.folder / "trail")

    @property
    def sources(self) -> list[Source]:
        """The one source there is."""
        return [Source("claude-code", agent("claude-code"), self.root)]

    def main(self, project: str = "-p", session: str = SESSION) -> Path:
        """A main log's path."""
        return self.root / "projects" / project / f"{session}.jsonl"

    def child(self, project: str = "-p", session: str = SESSION) -> Path:
        """The path of a sub-agent's log."""
        return self.main(project, session).with_suffix("") / "subagents" / "agent-a1.jsonl"

    def companion(self, project: str = "-p", session: str = SESSION) -> Path:
        """The path of a tool's output."""
        return self.main(project, session).with_suffix("") / "tool-results" / "t1.txt"

    def write(self, path: Path, data: bytes) -> None:
        """Give a file this content, in place where it is there already."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        self.stamp(path)

    def append(self, path: Path, data: bytes) -> None:
        """Add to a file, made where it is missing."""
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab") as file:
            file.write(data)
        self.stamp(path)

    def stamp(self, path: Path) -> None:
        """The file's mtime is now."""
        os.utime(path, ns=(self.clock.now_ms * 1_000_000,) * 2)

    def live(self) -> dict[Path, bytes]:
        """Every file in the agent's root with its content."""
        return {path: path.read_bytes() for path in sorted(self.root.rglob("*")) if path.is_file()}

    def open(self) -> Home:
        """The home, opened as the daemon opens it."""
        return Home.open(self.layout, agents(), self.clock)

    @contextlib.contextmanager
    def kept_open(self) -> Iterator[None]:
        """For the block, passes share one open home: opening it is most of their work."""
        with self.open() as self._kept:
            yield
        self._kept = None

    def _at_work(self) -> contextlib.AbstractContextManager[Home]:
        return self.open() if self._kept is None else contextlib.nullcontext(self._kept)

    def scan(self) -> Tally:
        """One pass over everything, by a process that has just started."""
        with self._at_work() as home:
            return Scanner(home).scan(self.sources)

    def compact(self, *, cold: bool) -> None:
        """Compact what is due, all of it as cold or nothing."""
        with self._at_work() as home:
            compact(home, cold=cold)

    def forget_catalog(self) -> None:
        """Lose the catalog."""
        for path in self.layout.home.glob("catalog.db*"):
            path.unlink()


def compact(home: Home, *, cold: bool) -> None:
    """One pass of compaction: everything as `cold`, or only what has stopped growing."""
    compactor = Compactor(home, 9)
    for row, is_cold in list(due(home, 0 if cold else FOR_EVER_MS)):
        compactor.compact(row, cold=is_cold)


def generation_bytes(home: Home, meta: StreamMeta, number: int) -> bytes:
    """All that is held of a generation."""
    parts, at = [], 0
    for offset, data in home.plain(meta, number).read():
        assert offset == at, f"bytes at {offset} where {at} was due"
        parts.append(data)
        at += len(data)
    return b"".join(parts)


def chain_bytes(home: Home, meta: StreamMeta, last: int | None = None) -> bytes:
    """A generation joined with those that it continues: what a restore writes."""
    return b"".join(generation_bytes(home, meta, each.number) for each in meta.chain(last))


@dataclass(frozen=True, slots=True)
class Held:
    """What is held of one generation."""

    relation: Relation | None
    mixed: bool
    data: bytes

    def __repr__(self) -> str:
        return f"<{self.relation or 'first'}{', mixed' if self.mixed else ''}: {len(self.data)} bytes, {hash(self.data) & 0xFFFF:04x}>"


def metas(home: Home) -> list[StreamMeta]:
    """Every stream's metadata, by path."""
    found = [meta for stream in home.store.streams() if (meta := home.store.meta(stream)) is not None]
    return sorted(found, key=lambda meta: meta.path)


def held(home: Home) -> dict[Path, list[Held]]:
    """Every generation of every stream, by the stream's path."""
    return {
        Path(meta.path): [Held(each.relation, each.mixed, generation_bytes(home, meta, each.number)) for each in meta.generations]
        for meta in metas(home)
    }


UNLIKE = ("key", "host", "stored_bytes", "grew_ms")  # what two runs over the same bytes may differ in


def listed(home: Home, folder: Path) -> list[dict[str, object]]:
    """What `ls` says, without ids, times of ours, and the world's own folder."""
    rows = []
    for row in home.catalog.sessions():
        value = {name: each for name, each in row._asdict().items() if name not in UNLIKE}
        value["paths"] = row.paths.replace(str(folder), "")
        rows.append(value)
    return sorted(rows, key=repr)


def events(home: Home, meta: StreamMeta) -> list[tuple[str, str, str | None]]:
    """Position, type and id of each event of a stream, as a reader gets them, with nothing missing."""
    with StreamReader(home, meta) as reader:
        found = [(str(e.position), e.type.value, e.id) for placed in reader.placed(Selection()) for e in placed.events()]
        assert reader.gaps == []
    return found


def assert_sound(home: Home) -> None:
    """Nothing that is held is damaged, and the records read by the index are those that the bytes have."""
    verdict = verify(home)
    assert verdict.word == "ok", verdict.findings + verdict.unverifiable
    for meta in metas(home):
        if meta.is_log:
            for each in meta.generations:
                assert_tiled(home, meta, each.number)


def assert_tiled(home: Home, meta: StreamMeta, number: int) -> None:
    """The records of a chain, read by the index, follow each other without hole and are its bytes."""
    with StreamReader(home, meta, generation=number) as reader:
        raw = [placed.raw for placed in reader.placed(Selection()) if placed.generation == number]
        rows = [row for generation, row in reader.rows(Selection()) if generation == number]
    at = 0
    for row in rows:
        assert row.offset == at, f"{meta.path} generation {number}: the index has a record at {row.offset}, where {at} was due"
        at += row.length
    whole = b"".join(raw)
    data = generation_bytes(home, meta, number)
    assert whole[: len(data)] == data, f"{meta.path} generation {number}: the records are not the bytes"
