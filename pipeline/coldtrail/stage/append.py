"""Append proven bytes to a generation: frames on disk, then the index; the row, as it is then, is the caller's to keep."""

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
from coldtrail.store import ROLL_FRAMES, OpenSegment, OpenState

FRAME_BYTES = 1 << 20
LEVEL = 3  # capture must keep up; compaction makes it small
ROLL_BYTES = 64 << 20
ROLL_INDEX_BYTES = 24 << 20  # about half a million records: their index is held in memory when the segment is sealed
_INDEX_STEP_BYTES = 1 << 20
_LEFT_MAX = 4096
# What an agent's reader may die of. It should not; but then it is the records that cannot be told, and never the bytes that are lost.
AGENT_FAULTS = (ArithmeticError, AttributeError, LookupError, MemoryError, RecursionError, TypeError)
_INDEXERS_MAX = 64  # how many streams' unfinished records are kept in memory


class SetAsideError(CorruptionError):
    """The open segment holds less than the row says, for a damaged one was cut to what is whole; nothing was appended to it."""


class Appender:
    """Writes batches of plain bytes, each durable when `write` returns. One thread's alone."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._compressor = Compressor(LEVEL)
        self._indexers: OrderedDict[tuple[str, int], Indexer] = OrderedDict()
        self._left: OrderedDict[tuple[str, int], OpenState] = OrderedDict()  # how we left each open segment: walked once, then known
        self.unread: Exception | None = None

    def write(self, row: StreamRow, plain: bytes, stamp: Stamp, before: bytes) -> StreamRow:
        """Append `plain` behind `held`; `before` is what stands in front of it (see prove.with_ends). The caller holds the lock."""
        rolled = row.rolled
        with self._segment(row) as segment:
            if segment.end != row.held:
                raise SetAsideError(segment.path, segment.size, "was damaged from here on, and set aside")
            rolled |= segment.start == row.held > 0
            parts = (plain[at : at + FRAME_BYTES] for at in range(0, len(plain), FRAME_BYTES))
            segment.append([(self._compressor.frame(part), len(part)) for part in parts], stamp)
            open_bytes = segment.size
            self._remember(row, segment.state())
        row = changed(
            prove.with_ends(row, plain, before),
            open_bytes=open_bytes,
            plain_bytes=row.plain_bytes + len(plain),
            grew_ms=min(stamp.at_ms, stamp.mtime_ns // 1_000_000),  # when a file is met for the first time its mtime stands for the growth
            rolled=int(rolled),
            settled=0,
        )
        if row.is_log and self.unread is None:
            row = self._noted(row, plain)
        return row

    def forget(self, row: StreamRow) -> None:
        """Drop what is remembered of a stream: the store has been found to differ."""
        self._indexers.pop((row.stream, row.generation), None)
        self._left.pop((row.stream, row.generation), None)

    def take_unread(self) -> Exception | None:
        """Why the records of what was written since this was last asked could not be read; their bytes are held all the same."""
        unread, self.unread = self.unread, None
        return unread

    def _remember(self, row: StreamRow, state: OpenState) -> None:
        self._left[row.stream, row.generation] = state
        if len(self._left) > _LEFT_MAX:
            self._left.popitem(last=False)

    def _folder(self, row: StreamRow) -> Path:
        return self._home.layout.generation(row.stream, row.generation)

    def _segment(self, row: StreamRow) -> OpenSegment:
        """The segment to append to: the newest open one, or a new one where that is full or was sealed away."""
        folder = self._folder(row)
        names = self._home.store.open_names(row.stream, row.generation)
        if not names:
            return OpenSegment.create(folder, row.held)
        segment = OpenSegment.resume(folder, names[-1], self._left.get((row.stream, row.generation)))
        held = segment.end - segment.start
        full = held >= ROLL_BYTES or segment.frame_count >= ROLL_FRAMES or indexes.file_bytes(folder) >= ROLL_INDEX_BYTES
        if full and (row.pending == row.held or held >= 2 * ROLL_BYTES):
            segment.close()
            return OpenSegment.create(folder, row.held)
        return segment

    def _indexer(self, row: StreamRow, start: int) -> Indexer:
        """The one that has been fed up to `start`."""
        key = (row.stream, row.generation)
        indexer = self._indexers.pop(key, None)
        if indexer is None or indexer.end != start:
            indexer = Indexer(self._home.agents[row.agent], row.pending)
            if row.pending < start:
                plain = self._home.plain_of(row.source, row.stream, row.generation)
                for _, data in plain.read(row.pending, start):
                    indexes.append_rows(self._folder(row), indexer.feed(data), start=row.pending)
        self._indexers[key] = indexer
        if len(self._indexers) > _INDEXERS_MAX:
            self._indexers.popitem(last=False)
        return indexer

    def _noted(self, row: StreamRow, plain: bytes) -> StreamRow:
        """Index and facts of what was just appended; where they cannot be had the bytes are held all the same."""
        try:
            indexer = self._indexer(row, row.held - len(plain))
            for at in range(0, len(plain), _INDEX_STEP_BYTES):
                indexes.append_rows(self._folder(row), indexer.feed(plain[at : at + _INDEX_STEP_BYTES]), start=row.pending)
        except AGENT_FAULTS as error:
            self.forget(row)
            self.unread = error
            return row
        facts = facts_of(row.facts)
        facts.merge(indexer.take_facts())
        tail = indexer.tail_facts() if indexer.pending < indexer.end else None
        return changed(row, pending=indexer.pending, facts=text_facts(facts.to_json()), tail=text_facts(tail.to_json() if tail else {}))
