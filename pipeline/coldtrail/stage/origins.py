"""Origins: what may still have the bytes of a generation, our own copy first; whether it really has them, their hashes tell."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from pathlib import Path, PurePosixPath
from typing import Protocol

from coldtrail import durable
from coldtrail.errors import CorruptionError, SourceError
from coldtrail.filesource import FileSource
from coldtrail.format.frames import Work
from coldtrail.format.manifest import StreamMeta
from coldtrail.home import Home
from coldtrail.layout import SegmentName
from coldtrail.plain import Plain, SegmentFile
from coldtrail.stage.restore import TWIN_SUFFIX
from coldtrail.stage.source import decoded, opened
from coldtrail.store import DAMAGED_SUFFIX


class Origin(Protocol):
    """Something that may have the bytes."""

    name: str

    def read(self, start: int, end: int) -> bytes:
        """The bytes in [start, end) of the generation; fewer where it does not have them all."""


class _Kept:
    """A generation's segments, as far as they are whole."""

    def __init__(self, name: str, plain: Plain) -> None:
        self.name, self._plain = name, plain

    def read(self, start: int, end: int) -> bytes:
        try:
            return b"".join(data for _, data in self._plain.read(start, end))
        except (CorruptionError, OSError):
            return b""


class _Live:
    """The agent's own file."""

    def __init__(self, name: str, fd: int) -> None:
        self.name, self._fd = name, fd

    def read(self, start: int, end: int) -> bytes:
        try:
            return os.pread(self._fd, end - start, start)
        except OSError:
            return b""


class _SetAside:
    """An open segment that was set aside as damaged."""

    def __init__(self, path: Path, segment: SegmentFile) -> None:
        self.name, self._segment = str(path), segment

    def read(self, start: int, end: int) -> bytes:
        try:
            return b"".join(data for _, data in self._segment.chunks(start, end)) if start >= self._segment.name.start else b""
        except (CorruptionError, OSError):
            return b""


@contextlib.contextmanager
def origins_of(home: Home, meta: StreamMeta, generation: int) -> Iterator[Sequence[Origin]]:
    """Everything there is, open for the block: our own segments, the agent's file, other generations, what was set aside."""
    with ExitStack() as stack:
        found: list[Origin] = [_Kept("what is whole of our own segments", home.plain(meta, generation))]
        found += _live(home, meta, stack)
        others = [each.number for each in reversed(meta.generations) if each.number != generation]
        found += [_Kept(f"generation {number}", home.plain(meta, number)) for number in others]
        for aside in sorted(home.layout.stream(meta.stream).glob(f"*/*{DAMAGED_SUFFIX}")):
            name = SegmentName.parse(aside.name.partition(".jsonl.zst")[0] + ".jsonl.zst")
            if name is not None:
                segment = stack.enter_context(closing(SegmentFile(FileSource(aside), name, Work())))
                found.append(_SetAside(aside, segment))
        yield found


def _live(home: Home, meta: StreamMeta, stack: ExitStack) -> Iterator[Origin]:
    """The agent's file: in its place, compressed by its agent, or on its way out."""
    path = Path(meta.path)
    for place in (path, home.layout.aside / meta.stream):
        with contextlib.suppress(SourceError):
            yield _Live(f"the agent's file {path}", stack.enter_context(opened(place)))
            return
    twin = path.with_name(path.name + TWIN_SUFFIX)
    if home.agents[meta.agent].plain_path(PurePosixPath(twin.name)) == PurePosixPath(path.name):
        with contextlib.suppress(SourceError), opened(twin) as fd:
            yield _Live(f"the agent's file {twin}", _unpacked(home, meta, twin, fd, stack))


def _unpacked(home: Home, meta: StreamMeta, twin: Path, fd: int, stack: ExitStack) -> int:
    """What an agent has compressed, in a file without a name."""
    file = stack.enter_context(tempfile.TemporaryFile(dir=home.layout.stream(meta.stream)))  # noqa: SIM115 - the stack closes it
    for data in decoded(twin, fd):
        durable.write_all(file.fileno(), data, twin)
    return file.fileno()
