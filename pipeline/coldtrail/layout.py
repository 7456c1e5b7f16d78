"""Where coldtrail's files lie, and the names they may have."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path

_SAFE = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
_ID = re.compile(r"[0-9a-f]{16}")
_OPEN = re.compile(r"([0-9]{16})\.open\.jsonl\.zst")
_SEALED = re.compile(r"([0-9]{16})-([0-9]{16})\.jsonl\.zst")
TEMP_PREFIX = ".tmp-"  # every unfinished file of ours starts so, and lies in a folder of ours
RESTORE_TEMP_PREFIX = f"{TEMP_PREFIX}restore-"  # one on its way to an agent: it may have an old mtime, and its holder has a lock on it


def safe_name(name: str) -> str:
    """A name for a folder that cannot escape, nor collide where upper and lower case are one.

    Good names stay; any other keeps its readable part and gains a hash.

    >>> safe_name("claude-code"), safe_name("../Mine")
    ('claude-code', 'mine-409aef89958d')
    """
    if _SAFE.fullmatch(name) and not name.endswith("."):
        return name
    readable = re.sub(r"[^a-z0-9_-]+", "-", name.lower()).strip("-.")[:40]
    digest = hashlib.sha256(name.encode("utf-8", "surrogateescape")).hexdigest()[:12]
    return f"{readable}-{digest}" if readable else digest


def check_id(text: str) -> str:
    """Give back a stream's or session's id (16 hex digits); ValueError for anything else."""
    if not is_id(text):
        raise ValueError(f"not an id of coldtrail: {text!r}")
    return text


def is_id(text: str) -> bool:
    """Whether it is written as the ids of streams, sessions and hosts are."""
    return _ID.fullmatch(text) is not None


@dataclass(frozen=True, slots=True)
class SegmentName:
    """What a segment's file name says: the plain bytes it holds, [start, end); an open one has no end."""

    start: int
    end: int | None = None

    @property
    def is_open(self) -> bool:
        """Whether this segment may still grow."""
        return self.end is None

    def __str__(self) -> str:
        return f"{self.start:016d}.open.jsonl.zst" if self.end is None else f"{self.start:016d}-{self.end:016d}.jsonl.zst"

    @classmethod
    def parse(cls, name: str) -> SegmentName | None:
        """Read a file name; None where it is not a segment's."""
        if match := _OPEN.fullmatch(name):
            return cls(int(match[1]))
        if match := _SEALED.fullmatch(name):
            start, end = int(match[1]), int(match[2])
            return cls(start, end) if start < end else None
        return None


@dataclass(frozen=True, slots=True)
class Layout:
    """The files under one COLDTRAIL_HOME; `archive` may lie elsewhere."""

    home: Path
    archive: Path

    @classmethod
    def at(cls, home: Path, archive: Path | None = None) -> Layout:
        """The layout of a home; the archive is inside it unless named."""
        return cls(home, archive or home / "archive")

    @property
    def catalog(self) -> Path:
        """The SQLite cache."""
        return self.home / "catalog.db"

    @property
    def daemon_lock(self) -> Path:
        """Whose flock makes one daemon of many."""
        return self.home / "lock"

    @property
    def host_id(self) -> Path:
        """This machine's name in the archive, made once."""
        return self.home / "host-id"

    @property
    def journal(self) -> Path:
        """What was done, append-only."""
        return self.home / "journal.jsonl"

    @property
    def clock(self) -> Path:
        """What the clock said when somebody last looked; see `steady`."""
        return self.home / "clock"

    @property
    def aside(self) -> Path:
        """Agents' own files on their way out: for each a link, named by its stream, that leads to where it waits."""
        return self.home / "aside"

    @property
    def reserve(self) -> Path:
        """Disk space that is held back; see `reserve`."""
        return self.home / "reserve"

    @property
    def archive_reserve(self) -> Path:
        """The same, where the archive lies on another disk."""
        return self.archive / ".reserve"

    @property
    def schedule(self) -> Path:
        """What the service remembers from one run to the next: when its rare jobs last ran, and whether it was told to pause."""
        return self.home / "schedule.json"

    @property
    def state(self) -> Path:
        """How the daemon is, as it says itself."""
        return self.home / "state.json"

    @property
    def control(self) -> Path:
        """The socket on which the daemon takes requests."""
        return self.home / "control"

    @property
    def store(self) -> Path:
        """The open segments."""
        return self.home / "store"

    @property
    def locks(self) -> Path:
        """One flock a session."""
        return self.home / "locks"

    def session_lock(self, session: str) -> Path:
        """Taken by every job that changes this session."""
        return self.locks / check_id(session)

    def compact_lock(self, session: str) -> Path:
        """Taken for the whole of a compaction, so that capture need not wait for it."""
        return self.locks / f"{check_id(session)}.compact"

    def stream(self, stream: str) -> Path:
        """A stream's folder in the store."""
        return self.store / check_id(stream)

    def meta(self, stream: str) -> Path:
        """What is known of a stream besides its bytes."""
        return self.stream(stream) / "meta.json"

    def generation(self, stream: str, generation: int) -> Path:
        """A generation's folder in the store."""
        return self.stream(stream) / f"{generation:06d}"

    @staticmethod
    def source_key(host: str, source: str) -> str:
        """A source's folder in the archive, as a key."""
        return f"{check_id(host)}/{safe_name(source)}"

    @classmethod
    def stream_key(cls, host: str, source: str, stream: str) -> str:
        """A stream's folder in the archive, as a key."""
        return f"{cls.source_key(host, source)}/{check_id(stream)}"

    @classmethod
    def generation_key(cls, host: str, source: str, stream: str, generation: int) -> str:
        """A generation's folder in the archive, as a key."""
        return f"{cls.stream_key(host, source, stream)}/{generation:06d}"

    @classmethod
    def manifest_key(cls, host: str, source: str, session: str) -> str:
        """A session's manifest in the archive, as a key."""
        return f"{cls.source_key(host, source)}/{check_id(session)}.json"
