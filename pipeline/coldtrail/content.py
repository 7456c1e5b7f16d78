"""One generation's bytes by place: segments first, then what the agent's live file has beyond them."""

from __future__ import annotations

import bisect
import os
from collections.abc import Iterator
from pathlib import Path

from coldtrail import indexes
from coldtrail.errors import CorruptionError
from coldtrail.model import Gap
from coldtrail.plain import Plain, SegmentFile

_PROOF_BYTES = 16 << 10
_STEP_BYTES = 1 << 20


class Content:
    """The segment and the frame last used are kept, so records next to each other cost one decode. Close it after use."""

    def __init__(self, plain: Plain, gaps: list[Gap], live: Path | None) -> None:
        self._plain, self._gaps = plain, gaps
        self._segment: SegmentFile | None = None
        self._start, self._data = 0, b""
        self._lost: set[int] = set()  # where frames begin that cannot be read
        self.held = plain.end()  # behind the last byte in a segment
        self._fd = _open_live(plain, self.held, live) if live else None
        self.end = self.held if self._fd is None else os.fstat(self._fd).st_size  # behind the last byte there is

    def get(self, start: int, end: int) -> bytes:
        """The bytes in [start, end); those that are damaged are left out and noted as gaps."""
        if start >= self.held:
            return self._live(start, end)
        held = self._held(start, min(end, self.held))
        return held + self._live(self.held, end) if end > self.held else held

    def stream(self, start: int, end: int) -> Iterator[bytes]:
        """The same, a piece at a time; CorruptionError at a damaged one."""
        for _, data in self._plain.read(start, min(end, self.held)):
            yield data
        for at in range(max(start, self.held), end, _STEP_BYTES):
            yield self._live(at, min(at + _STEP_BYTES, end))

    def pieces(self, start: int, end: int) -> Iterator[tuple[int, bytes]]:
        """The same with the offset of each; damaged ones are left out and noted."""
        yield from self._plain.read(start, min(end, self.held), self._gaps)
        for at in range(max(start, self.held), end, _STEP_BYTES):
            data = self._live(at, min(at + _STEP_BYTES, end))
            yield at, data

    def _live(self, start: int, end: int) -> bytes:
        data = os.pread(self._fd, end - start, start) if self._fd is not None else b""
        if len(data) < end - start:
            self._gaps.append(Gap(self._plain.generation, start + len(data), end, "the agent's file was cut while it was read"))
        return data

    def _held(self, start: int, end: int) -> bytes:
        if self._start <= start and end <= self._start + len(self._data):
            return self._data[start - self._start : end - self._start]
        if not self._is_in_segment(start, end):
            self._reopen(start)
        segment = self._segment
        if segment is not None and self._is_in_segment(start, end):
            at = bisect.bisect_right(segment.starts, start) - 1
            if end <= segment.starts[at + 1]:
                return self._data[start - self._start : end - self._start] if self._load(segment, at) else b""
        return b"".join(data for _, data in self._plain.read(start, end, self._gaps))

    def _is_in_segment(self, start: int, end: int) -> bool:
        segment = self._segment
        return segment is not None and segment.name.start <= start and end <= segment.plain_end

    def _load(self, segment: SegmentFile, at: int) -> bool:
        """Keep a frame's content at hand; False where it is damaged and nothing else holds it, which is noted once."""
        start, end = segment.starts[at], segment.starts[at + 1]
        if start in self._lost:
            return False
        try:
            data = segment.decode(segment.frames[at])
        except CorruptionError:
            data = b"".join(part for _, part in self._plain.read(start, end, self._gaps))
            if len(data) < end - start:
                self._lost.add(start)
                return False
        self._start, self._data = start, data
        return True

    def _reopen(self, start: int) -> None:
        """Keep the segment that holds `start` open for what comes next."""
        if self._segment is not None:
            self._segment.close()
            self._segment = None
        for piece in indexes.cover(self._plain):
            if piece.name.start <= start and (piece.end is None or start < piece.end):
                try:
                    self._segment = self._plain.segment(piece)
                except FileNotFoundError:
                    return

    def close(self) -> None:
        """Let everything go."""
        if self._segment is not None:
            self._segment.close()
        if self._fd is not None:
            os.close(self._fd)
        self._segment, self._fd = None, None


def _open_live(plain: Plain, held: int, live: Path) -> int | None:
    """The agent's file, if it is longer than what we hold and both ends of that are in it."""
    try:
        fd = os.open(live, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return None
    if os.fstat(fd).st_size > held and goes_on(plain, held, fd):
        return fd
    os.close(fd)
    return None


def goes_on(plain: Plain, held: int, fd: int) -> bool:
    """Whether both ends of the `held` bytes that we have are in the agent's file."""
    for start, end in ((0, min(_PROOF_BYTES, held)), (max(0, held - _PROOF_BYTES), held)):
        ours = b"".join(data for _, data in plain.read(start, end, gaps=[]))
        if os.pread(fd, end - start, start) != ours:
            return False
    return True
