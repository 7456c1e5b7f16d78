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
from coldtrail.format.manifest import Stamp
from coldtrail.home import Home
from coldtrail.indexer import DOCUMENT_MAX_BYTES, document_facts
from coldtrail.model import Role
from coldtrail.stage import prove
from coldtrail.stage.append import Appender
from coldtrail.stage.identify import known_meta
from coldtrail.stage.relate import next_generation
from coldtrail.stage.source import chunks, decoded

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
    row = _append(home, appender, row, found, itertools.chain([first], _rest(fd, len(first), found.st_size)))
    if _differs(fd, found) and len(first) < found.st_size:
        _drop_newest(home, row)
        raise _unsteady(row)
    if row.role == Role.MAIN and row.held <= DOCUMENT_MAX_BYTES:
        held = b"".join(data for _, data in home.plain_of(row.source, row.stream, row.generation).read(0, row.held))
        row = changed(row, facts=text_facts(document_facts(home.agents[row.agent], held).to_json()))
    return prove.seen(row, found)


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


def _rest(fd: int, at: int, end: int) -> Iterator[bytes]:
    while data := os.pread(fd, min(_BATCH_BYTES, end - at), at):
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
