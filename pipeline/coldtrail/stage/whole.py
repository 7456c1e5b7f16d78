"""Capture what is not appended to: files rewritten whole, and logs that their agent has compressed."""

from __future__ import annotations

import itertools
import os
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from coldtrail.catalog import StreamRow, changed, text_facts
from coldtrail.errors import SourceError
from coldtrail.format.frames import FrameError, decode_foreign
from coldtrail.format.manifest import Stamp
from coldtrail.home import Home
from coldtrail.indexer import DOCUMENT_MAX_BYTES, document_facts
from coldtrail.model import Role
from coldtrail.stage import prove
from coldtrail.stage.append import Appender
from coldtrail.stage.identify import known_meta
from coldtrail.stage.relate import next_generation
from coldtrail.stage.source import chunks

_BATCH_BYTES = 8 << 20


def take_document(home: Home, appender: Appender, row: StreamRow, fd: int) -> StreamRow:
    """A file that its writer rewrites whole: each different content is a generation.

    SourceError where it changed while it was read; nothing of the torn read is kept.
    """
    found = os.fstat(fd)
    plain = home.plain_of(row.source, row.stream, row.generation)
    if row.held and row.held == found.st_size and prove.same_bytes(plain, row.held, fd):
        return prove.seen(changed(row, check_due=0), found)
    first = next(chunks(fd, _BATCH_BYTES), b"")
    if _differs(fd, found):
        raise _unsteady(row)
    if row.held:
        row = next_generation(home, row, fd, found, mixed=False)
    row = _append(home, appender, row, found, itertools.chain([first], _rest(fd, len(first))))
    if _differs(fd, found) and len(first) < found.st_size:
        _drop_newest(home, row)
        raise _unsteady(row)
    if row.role == Role.MAIN and len(first) == row.held and row.held <= DOCUMENT_MAX_BYTES:
        row = changed(row, facts=text_facts(document_facts(home.agents[row.agent], first).to_json()))
    return prove.seen(row, found)


def take_twin(home: Home, appender: Appender, row: StreamRow, fd: int) -> StreamRow:
    """A log of which only the agent's own compressed form is there: its plain bytes are compared, only new ones captured."""
    found = os.fstat(fd)
    try:
        plain = decode_foreign(chunks(fd, 1 << 20))
        rest = prove.begins_with(plain, home.plain_of(row.source, row.stream, row.generation), row.held)
        if rest is None:
            row = next_generation(home, row, fd, found, mixed=False)
            plain, rest = decode_foreign(chunks(fd, 1 << 20)), b""
        row = _append(home, appender, row, found, itertools.chain([rest], plain))
    except FrameError as error:
        raise SourceError(
            os.fsdecode(row.path) + ".zst", str(error), hint="perhaps it is still being written; it is tried again later"
        ) from error
    return prove.seen(row, found)


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


def _rest(fd: int, at: int) -> Iterator[bytes]:
    while data := os.pread(fd, _BATCH_BYTES, at):
        yield data
        at += len(data)


def _differs(fd: int, found: os.stat_result) -> bool:
    now = os.fstat(fd)
    return (now.st_size, now.st_mtime_ns, now.st_ctime_ns) != (found.st_size, found.st_mtime_ns, found.st_ctime_ns)


def _unsteady(row: StreamRow) -> SourceError:
    return SourceError(os.fsdecode(row.path), "it changed while it was read", hint="it is read again in a moment")


def _drop_newest(home: Home, row: StreamRow) -> None:
    """Undo a torn read: the generation it began never held a content that the file had."""
    meta = known_meta(home, row)
    if len(meta.generations) > 1:
        home.store.write_meta(replace(meta, generations=meta.generations[:-1]))
    folder: Path = home.layout.generation(row.stream, row.generation)
    shutil.rmtree(folder, ignore_errors=True)
