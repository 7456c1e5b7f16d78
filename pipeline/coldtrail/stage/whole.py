"""Capture what is not appended to: files rewritten whole, and logs that their agent has compressed."""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from coldtrail import durable
from coldtrail.catalog import StreamRow, changed, text_facts
from coldtrail.errors import SourceError
from coldtrail.format import frames
from coldtrail.format.frames import Compressor
from coldtrail.format.manifest import Stamp
from coldtrail.home import Home
from coldtrail.indexer import DOCUMENT_MAX_BYTES, document_facts
from coldtrail.layout import SegmentName
from coldtrail.model import Role
from coldtrail.stage import prove
from coldtrail.stage.append import FRAME_BYTES, LEVEL, Appender
from coldtrail.stage.relate import next_generation
from coldtrail.stage.source import decoded

_BATCH_BYTES = 8 << 20


def take_document(home: Home, appender: Appender, row: StreamRow, fd: int) -> StreamRow:
    """A file that its writer rewrites whole: each different content is a generation, which holds nothing before it holds all.

    SourceError where it changed while it was read; nothing of the torn read is kept.
    """
    found = os.fstat(fd)
    plain = home.plain_of(row.source, row.stream, row.generation)
    if row.held and row.held == found.st_size and prove.same_bytes(plain, row.held, fd):
        return prove.seen(changed(row, check_due=0), found)
    with _staged(home, row, found, fd) as staged:
        if _differs(fd, found):
            raise SourceError(os.fsdecode(row.path), "it changed while it was read", hint="it is read again in a moment")
        if row.held:
            row = next_generation(home, row, fd, found, mixed=False)
        if staged is not None:
            row = _published(home, row, staged)
    appender.forget(row)
    if row.role == Role.MAIN and row.held <= DOCUMENT_MAX_BYTES:
        held = b"".join(data for _, data in home.plain_of(row.source, row.stream, row.generation).read(0, row.held))
        row = changed(row, facts=text_facts(document_facts(home.agents[row.agent], held).to_json()))
    return prove.seen(row, found)


@dataclass(frozen=True, slots=True)
class _Staged:
    """A segment that holds all of a file, and has no final name yet."""

    temp: Path
    ends: StreamRow  # has the length and the digests of its bytes
    stamp: Stamp
    size: int  # of the segment


@contextlib.contextmanager
def _staged(home: Home, row: StreamRow, found: os.stat_result, fd: int) -> Iterator[_Staged | None]:
    """All of a file as an open segment has it; None for an empty one. Gone if the block fails."""
    if not found.st_size:
        yield None
        return
    with durable.unfinished(home.layout.meta(row.stream)) as (staged_fd, temp):
        yield _written(home, changed(row, held=0, head=b"", head_length=0), found, fd, staged_fd, temp)


def _written(home: Home, row: StreamRow, found: os.stat_result, fd: int, staged_fd: int, temp: Path) -> _Staged:
    compressor, before, size = Compressor(LEVEL), b"", 0
    for part in _parts(fd, found.st_size):
        block = b"".join(compressor.frame(part[at : at + FRAME_BYTES]) for at in range(0, len(part), FRAME_BYTES))
        durable.write_all(staged_fd, block, temp)
        row, size = prove.with_ends(row, part, before), size + len(block)
        before = (before + part)[-prove.WINDOW_BYTES :]
    stamp = Stamp(row.held, found.st_mode & 0o7777, found.st_mtime_ns, home.now_ms())
    block = frames.skippable(stamp.encode())
    durable.write_all(staged_fd, block, temp)
    durable.sync_fd(staged_fd, temp)
    return _Staged(temp, row, stamp, size + len(block))


def _published(home: Home, row: StreamRow, staged: _Staged) -> StreamRow:
    """Make the staged segment all that the row's generation holds."""
    folder, ends, stamp = home.layout.generation(row.stream, row.generation), staged.ends, staged.stamp
    durable.make_folder(folder)
    durable.supersede(staged.temp, folder / str(SegmentName(0)))  # an empty one may be there, of a start that was cut short
    return changed(
        row,
        held=ends.held,
        head=ends.head,
        head_length=ends.head_length,
        window=ends.window,
        window_length=ends.window_length,
        open_bytes=staged.size,
        plain_bytes=row.plain_bytes + ends.held,
        grew_ms=min(stamp.at_ms, stamp.mtime_ns // 1_000_000),
        settled=0,
    )


def take_twin(home: Home, appender: Appender, row: StreamRow, fd: int) -> StreamRow:
    """A log of which only the agent's own compressed form is there: its plain bytes are compared, only new ones captured."""
    found, file = os.fstat(fd), Path(os.fsdecode(row.path) + ".zst")
    plain = decoded(file, fd)
    rest = prove.begins_with(plain, home.plain_of(row.source, row.stream, row.generation), row.held)
    if rest is None:
        row = next_generation(home, row, fd, found, mixed=False)
        plain, rest = decoded(file, fd), b""
    row = _append(home, appender, row, found, itertools.chain([rest], plain))
    return prove.seen(changed(row, check_due=0), found)  # every byte was compared


def _append(home: Home, appender: Appender, row: StreamRow, found: os.stat_result, parts: Iterable[bytes]) -> StreamRow:
    before = b""
    if row.held:
        start = max(0, row.held - prove.WINDOW_BYTES)
        before = b"".join(data for _, data in home.plain_of(row.source, row.stream, row.generation).read(start, row.held))
    for part in _batches(parts):
        stamp = Stamp(row.held + len(part), found.st_mode & 0o7777, found.st_mtime_ns, home.now_ms())
        row = appender.write(row, part, stamp, before)
        before = (before + part)[-prove.WINDOW_BYTES :]
    return row


def _batches(parts: Iterable[bytes]) -> Iterator[bytes]:
    """The same bytes in fewer, larger parts."""
    held: list[bytes] = []
    size = 0
    for part in parts:
        held.append(part)
        size += len(part)
        if size >= _BATCH_BYTES:
            yield b"".join(held)
            held, size = [], 0
    if size:
        yield b"".join(held)


def _parts(fd: int, end: int) -> Iterator[bytes]:
    """A file's bytes up to `end`, or as far as it reaches."""
    at = 0
    while at < end and (data := os.pread(fd, min(_BATCH_BYTES, end - at), at)):
        yield data
        at += len(data)


def _differs(fd: int, found: os.stat_result) -> bool:
    now = os.fstat(fd)
    return (now.st_size, now.st_mtime_ns, now.st_ctime_ns) != (found.st_size, found.st_mtime_ns, found.st_ctime_ns)
