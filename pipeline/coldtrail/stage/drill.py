"""Drill: sessions that chance chooses are put back into a scratch folder, read there and recovered, as if they were needed."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from coldtrail import durable
from coldtrail.catalog import SessionRow
from coldtrail.errors import ColdtrailError, SourceError
from coldtrail.format import lines
from coldtrail.format.fields import json_object
from coldtrail.format.manifest import Manifest, StreamMeta
from coldtrail.format.segment import BlockHashes, prefix_hash
from coldtrail.home import Home
from coldtrail.lineage import whole
from coldtrail.model import instant_text
from coldtrail.recover import StreamReader
from coldtrail.recovery import recover
from coldtrail.sessions import read_manifest
from coldtrail.stage import prove
from coldtrail.stage.restore import Passed, Piece, Restored, Wish, carry_out, plan_restore
from coldtrail.stage.sample import Sample
from coldtrail.stage.source import chunks, opened
from coldtrail.stage.verify import promise

VERSION = 1
NAME = "drill.json"
SCRATCH_PREFIX = "coldtrail-drill-"
_STEP_BYTES = 1 << 20


@dataclass(slots=True)
class Tried:
    """One session's turn."""

    key: str
    id: str
    agent: str
    files: int = 0  # put back and read
    live: int = 0  # of these so many were held against the agent's own file, too
    logs: int = 0  # whose state was recovered both ways
    bytes: int = 0
    bad: list[str] = field(default_factory=list)  # what is wrong with our copy
    doubts: list[str] = field(default_factory=list)  # what could not be told

    @property
    def word(self) -> str:
        """ok, bad or unverifiable."""
        return "bad" if self.bad else "unverifiable" if self.doubts else "ok"

    def to_json(self) -> dict[str, object]:
        """As the report shows it."""
        counts = {"files": self.files, "live": self.live, "logs": self.logs, "bytes": self.bytes}
        return {"key": self.key, "id": self.id, "agent": self.agent, "verdict": self.word, "reasons": [*self.bad, *self.doubts], **counts}


@dataclass(slots=True)
class Report:
    """What a drill has shown; `tried` are the sessions in turn."""

    at_ms: int
    sessions: int  # that there are
    tried: list[Tried] = field(default_factory=list)
    took_ms: int = 0

    def count(self, word: str) -> int:
        """How many ended so."""
        return sum(each.word == word for each in self.tried)

    @property
    def word(self) -> str:
        """ok, bad or unverifiable: the worst of all."""
        return next((word for word in ("bad", "unverifiable") if self.count(word)), "ok")

    def sums(self) -> dict[str, object]:
        """Everything but the sessions one by one."""
        counts = {word: self.count(word) for word in ("ok", "bad", "unverifiable")}
        sums = {name: sum(getattr(each, name) for each in self.tried) for name in ("files", "live", "logs", "bytes")}
        head = {"verdict": self.word, "at": instant_text(self.at_ms), "took_ms": self.took_ms}
        return {**head, "sessions": self.sessions, "tried": len(self.tried), **counts, **sums}


def drill(
    home: Home,
    sample: Sample,
    rng: Random,
    scratch: Path,
    *,
    progress: Callable[[Report], None] = lambda _: None,
    stopping: Callable[[], bool] = lambda: False,
) -> Report:
    """Try to get a sample of the sessions back, and keep what came of it in the home's `drill.json`.

    `scratch` is a folder (the system's for temporary files) in which a folder of our own is made, 0700, and removed again whatever
    happens; at any moment it holds one session. Each file is read back and its SHA-256 held against what was sealed and what is
    captured, and against the agent's own file where that is as it was captured; each log's state is recovered with checkpoints and
    by a replay from its start. `stopping` is asked between two sessions.
    """
    rows = sorted(home.catalog.sessions(), key=lambda row: row.key)
    report = Report(home.now_ms(), len(rows))
    with _folder(scratch) as folder:
        for row in rng.sample(rows, sample.of(len(rows))):
            if stopping():
                break
            tried = _tried(home, row, folder / row.key)
            if home.catalog.session(row.key) is not None:  # else it was removed meanwhile
                report.tried.append(tried)
            progress(report)
    report.took_ms = home.now_ms() - report.at_ms
    failures = [each.to_json() for each in report.tried if each.word != "ok"]
    durable.replace(home.layout.home / NAME, lines.dumps({"version": VERSION, **report.sums(), "failures": failures}, sort=True) + b"\n")
    return report


def last(home_folder: Path) -> Mapping[str, object] | None:
    """What came of the last drill, as `Report.sums` has it, with `failures`; None where there was none, or nobody can read it."""
    try:
        value = json_object(lines.loads((home_folder / NAME).read_bytes()), NAME)
    except (OSError, ValueError):
        return None
    return value if value.get("version") == VERSION else None


@contextlib.contextmanager
def _folder(scratch: Path) -> Iterator[Path]:
    """A folder of our own for the block; those that killed drills have left go too."""
    for left in scratch.glob(f"{SCRATCH_PREFIX}*"):
        _remove_left(left)
    made = Path(tempfile.mkdtemp(prefix=SCRATCH_PREFIX, dir=scratch))
    fd = os.open(made, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)  # dropped with the process
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)
        os.close(fd)


def _remove_left(folder: Path) -> None:
    """Remove a drill's folder that nobody holds. It may be somebody else's, or a trap: then it is let be."""
    with contextlib.suppress(OSError):
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            if os.fstat(fd).st_uid == os.geteuid():
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
        finally:
            os.close(fd)


def _tried(home: Home, row: SessionRow, folder: Path) -> Tried:
    tried = Tried(row.key, row.id, row.agent)
    folder.mkdir(mode=0o700)
    try:
        _put_back(home, row, folder, tried)
        for stream in home.catalog.streams_of(row.key):
            meta = home.store.meta(stream.stream)
            if meta is not None and meta.is_log:
                _recover(home, meta, tried)
    except (ColdtrailError, OSError) as error:
        tried.bad.append(str(error).replace(f"{folder}/", ""))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return tried


# ---- its files ----------------------------------------------------------------------------------------------------------


def _put_back(home: Home, row: SessionRow, folder: Path, tried: Tried) -> None:
    plan = plan_restore(home, row, Wish(to=folder))
    disk = os.statvfs(folder)
    if sum(piece.bytes for piece in plan.pieces) > disk.f_bavail * disk.f_frsize:
        tried.doubts.append(f"{folder.parent.parent}: has no room for its {sum(piece.bytes for piece in plan.pieces)} bytes")
        return
    pieces = {piece.target: piece for piece in plan.pieces}
    for done in carry_out(home, plan):
        if isinstance(done, Passed):
            tried.bad.append(f"{done.path}: {done.why}".replace(f"{folder}/", ""))
        else:
            _compare(home, pieces[done.path], done, tried)


def _compare(home: Home, piece: Piece, done: Restored, tried: Tried) -> None:
    """Read a file that was put back, and hold it against all that is known of it."""
    done.path.chmod(stat.S_IRUSR)
    manifest = read_manifest(home, piece.meta.source, piece.meta.session, piece.meta.host)
    found = _read_back(home, piece, done.path, manifest, tried)
    if found.sha256 != done.sha256:
        tried.bad.append(f"{piece.meta.path}: what was put back is not what was captured")
    _compare_live(home, piece, found, tried)
    tried.files += 1
    tried.bytes += found.size


@dataclass(frozen=True, slots=True)
class _Found:
    """A file as it was read back."""

    size: int
    sha256: str
    newest_size: int  # of its last generation
    newest_sha256: str


def _read_back(home: Home, piece: Piece, path: Path, manifest: Manifest, tried: Tried) -> _Found:
    """Hash a file, generation by generation, and each against what the manifest says was sealed of it."""
    digest, own, size, length = hashlib.sha256(), hashlib.sha256(), 0, 0
    with path.open("rb") as file:
        for number in piece.generations:
            newest = number == piece.generations[-1]
            left = None if newest else home.plain(piece.meta, number).end()
            promised = promise(manifest, piece.meta.stream, number)
            own, length, blocks = hashlib.sha256(), 0, BlockHashes()
            while data := file.read(_STEP_BYTES if left is None else min(_STEP_BYTES, left - length)):
                digest.update(data)
                own.update(data)
                length += len(data)
                if promised is not None and blocks.end < promised.end:
                    blocks.feed(data[: promised.end - blocks.end])
            size += length
            if promised is not None and prefix_hash(blocks.digests()) != promised.prefix_sha256:
                tried.bad.append(f"{piece.meta.path}: generation {number} is not what was sealed of it")
    return _Found(size, digest.hexdigest(), length, own.hexdigest())


def _compare_live(home: Home, piece: Piece, found: _Found, tried: Tried) -> None:
    """Where the agent's file is as it was captured last it has the same bytes."""
    row = home.catalog.stream(piece.meta.stream)
    if row is None or row.gone_ms is not None or row.generation != piece.generations[-1]:
        return
    with contextlib.suppress(SourceError), opened(Path(piece.meta.path)) as fd:
        there = os.fstat(fd)
        if not prove.unchanged(row, there) or there.st_size != found.newest_size:
            return
        digest = hashlib.sha256()
        for data in chunks(fd, _STEP_BYTES):
            digest.update(data)
        if digest.hexdigest() == found.newest_sha256:
            tried.live += 1
        elif prove.unchanged(row, os.fstat(fd)):
            tried.bad.append(f"{piece.meta.path}: the agent's file has other bytes, though it looks as it did when it was captured")


# ---- its state ----------------------------------------------------------------------------------------------------------


def _recover(home: Home, meta: StreamMeta, tried: Tried) -> None:
    """Recover a log's state with checkpoints, and by a replay from its start; up to the same record, for it may grow meanwhile."""
    with StreamReader(home, meta, held_only=True) as reader, whole(reader) as logs:
        until = recover(logs).position
        if until is None:
            return
        found = recover(logs, until, verify=True)
    tried.logs += 1
    told = "; ".join(found.notes) or "; ".join(gap.what for gap in found.gaps)
    if found.verified is False:
        tried.bad.append(f"{meta.path}: its state is another one when it is replayed from the start ({told})")
    elif found.verified is None:
        tried.doubts.append(f"{meta.path}: its state cannot be verified ({told})")
