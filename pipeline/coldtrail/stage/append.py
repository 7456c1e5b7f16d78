"""Append proven bytes to a generation: frames on disk, then the index, then the row."""

from __future__ import annotations

from collections import OrderedDict
from pathlib import Path

from coldtrail import indexes
from coldtrail.catalog import StreamRow, changed, text_facts
from coldtrail.errors import CorruptionError
from coldtrail.format.frames import Compressor
from coldtrail.format.manifest import Stamp
from coldtrail.home import Home
from coldtrail.indexer import Indexer
from coldtrail.sessions import facts_of
from coldtrail.stage import prove
from coldtrail.store import ROLL_FRAMES, OpenSegment

FRAME_BYTES = 1 << 20
LEVEL = 3  # capture must keep up; compaction makes it small
ROLL_BYTES = 64 << 20
ROLL_INDEX_BYTES = 24 << 20  # about half a million records: their index is held in memory when the segment is sealed
_INDEXERS_MAX = 64  # how many streams' unfinished records are kept in memory


class SetAsideError(CorruptionError):
    """The open segment holds less than the row says, for a damaged one was cut to what is whole; nothing was appended to it."""


class Appender:
    """Writes batches of plain bytes, each durable when `write` returns. One thread's alone."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._compressor = Compressor(LEVEL)
        self._indexers: OrderedDict[tuple[str, int], Indexer] = OrderedDict()

    def write(self, row: StreamRow, plain: bytes, stamp: Stamp, before: bytes) -> StreamRow:
        """Append `plain` behind `held`; `before` is what stands in front of it (see prove.with_ends). The caller holds the lock."""
        indexer = self._indexer(row) if row.is_log else None
        rolled = row.rolled
        with self._segment(row) as segment:
            if segment.end != row.held:
                raise SetAsideError(segment.path, segment.size, "was damaged from here on, and set aside")
            rolled |= segment.start == row.held > 0
            parts = (plain[at : at + FRAME_BYTES] for at in range(0, len(plain), FRAME_BYTES))
            segment.append([(self._compressor.frame(part), len(part)) for part in parts], stamp)
            open_bytes = segment.size
        row = changed(
            prove.with_ends(row, plain, before),
            open_bytes=open_bytes,
            plain_bytes=row.plain_bytes + len(plain),
            grew_ms=min(stamp.at_ms, stamp.mtime_ns // 1_000_000),  # when a file is met for the first time its mtime stands for the growth
            rolled=int(rolled),
            settled=0,
        )
        if indexer is not None:
            row = self._noted(row, indexer, plain)
        self._home.catalog.put(row)
        return row

    def forget(self, row: StreamRow) -> None:
        """Drop what is remembered of a stream: the store has been found to differ."""
        self._indexers.pop((row.stream, row.generation), None)

    def _folder(self, row: StreamRow) -> Path:
        return self._home.layout.generation(row.stream, row.generation)

    def _segment(self, row: StreamRow) -> OpenSegment:
        """The segment to append to: the newest open one, or a new one where that is full or was sealed away."""
        folder = self._folder(row)
        names = self._home.store.open_names(row.stream, row.generation)
        if not names:
            return OpenSegment.create(folder, row.held)
        segment = OpenSegment.resume(folder, names[-1])
        held = segment.end - segment.start
        full = held >= ROLL_BYTES or segment.frame_count >= ROLL_FRAMES or indexes.file_bytes(folder) >= ROLL_INDEX_BYTES
        if full and (row.pending == row.held or held >= 2 * ROLL_BYTES):
            segment.close()
            return OpenSegment.create(folder, row.held)
        return segment

    def _indexer(self, row: StreamRow) -> Indexer:
        key = (row.stream, row.generation)
        indexer = self._indexers.pop(key, None)
        if indexer is None or indexer.end != row.held:
            indexer = Indexer(self._home.agents[row.agent], row.pending)
            if row.pending < row.held:
                plain = self._home.plain_of(row.source, row.stream, row.generation)
                for _, data in plain.read(row.pending, row.held):
                    indexer.feed(data)
        self._indexers[key] = indexer
        if len(self._indexers) > _INDEXERS_MAX:
            self._indexers.popitem(last=False)
        return indexer

    def _noted(self, row: StreamRow, indexer: Indexer, plain: bytes) -> StreamRow:
        start = row.pending
        rows = indexer.feed(plain)
        indexes.append_rows(self._folder(row), rows, start=start)
        facts = facts_of(row.facts)
        facts.merge(indexer.take_facts())
        tail = indexer.tail_facts() if indexer.pending < indexer.end else None
        return changed(row, pending=indexer.pending, facts=text_facts(facts.to_json()), tail=text_facts(tail.to_json() if tail else {}))
