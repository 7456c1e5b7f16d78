"""Census: which sessions there are on this machine before anything is captured, and which of them will soon be gone."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from coldtrail.agents.base import HEAD_BYTES
from coldtrail.agents.walk import Candidate, Source, walk
from coldtrail.model import Role
from coldtrail.sweeps import Sweep

SOON_MS = 7 * 86_400_000


@dataclass(slots=True)
class Counted:
    """A source's sessions as its folder has them. Times are mtimes, in milliseconds since 1970 UTC."""

    source: Source
    sessions: int = 0  # main logs
    files: int = 0
    bytes: int = 0
    oldest_ms: int | None = None
    newest_ms: int | None = None
    sweep_days: float | None = None  # after which its agent deletes them; None: never, or nobody knows
    soon: int = 0  # main logs that it deletes within SOON_MS, or should have deleted
    unreadable: list[str] = field(default_factory=list)


def count(sources: Sequence[Source], now_ms: int, progress: Callable[[int], None] = lambda _: None) -> Iterator[Counted]:
    """Look at every file of the sources that are there; of one whose path does not tell whose it is the first bytes are read."""
    done = itertools.count(1)
    for source in sources:
        if source.root.is_dir():
            found = Counted(source, sweep_days=source.agent.sweep_days(source.root))
            for candidate in walk(source, lambda path, error, found=found: found.unreadable.append(f"{path}: {error.strerror}")):  # type: ignore[misc]
                _take(found, candidate, now_ms)
                progress(next(done))
            yield found


def _take(found: Counted, candidate: Candidate, now_ms: int) -> None:
    try:
        place = found.source.agent.place(candidate.rel, lambda: _head(candidate.file))
    except OSError as error:
        found.unreadable.append(f"{candidate.file}: {error.strerror}")
        return
    if place is None:
        return
    mtime_ms = candidate.stat.st_mtime_ns // 1_000_000
    found.files += 1
    found.bytes += candidate.stat.st_size
    found.oldest_ms = min(mtime_ms, found.oldest_ms if found.oldest_ms is not None else mtime_ms)
    found.newest_ms = max(mtime_ms, found.newest_ms if found.newest_ms is not None else mtime_ms)
    if place.role is Role.MAIN:
        due_ms = Sweep.of(found.source).due_ms(mtime_ms, None)
        found.sessions += 1
        found.soon += due_ms is not None and due_ms <= now_ms + SOON_MS


def _head(path: Path) -> bytes:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        return os.pread(fd, HEAD_BYTES, 0)
    finally:
        os.close(fd)
