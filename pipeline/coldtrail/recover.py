"""One session as one stream: bytes, records and events, archived and live together."""

from __future__ import annotations

import bisect
import os
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass

from coldtrail import indexes
from coldtrail.agents.base import Agent
from coldtrail.errors import AmbiguousError, NotFoundError
from coldtrail.format.index import RecordIndex, Row
from coldtrail.format.lines import LineSplitter, read_line
from coldtrail.format.manifest import StreamMeta
from coldtrail.home import Home
from coldtrail.indexer import read_record, row_of
from coldtrail.model import Event, Gap, Position, Reading, Record, RecordKind
from coldtrail.moments import Instant, Moment, RecordId, RecordNumber
from coldtrail.plain import Plain, SegmentFile

_PROOF_BYTES = 16 << 10


@dataclass(frozen=True, slots=True)
class Selection:
    """Which records to read; what is None does not matter."""

    mask: int | None = None  # bits of the event types wanted
    since_ms: int | None = None  # inclusive
    until_ms: int | None = None  # inclusive
    after: Position | None = None  # exclusive


@dataclass(frozen=True, slots=True)
class Placed:
    """A record in its generation, with its bytes and what it means."""

    generation: int
    record: Record
    raw: bytes
    reading: Reading | None

    def events(self) -> Iterator[Event]:
        """The record's events, in order."""
        if self.reading is None:
            return
        for k, meaning in enumerate(self.reading.events):
            position = Position(self.generation, self.record.offset, k)
            yield Event(meaning.type, position, self.reading.time_ms, self.reading.id, meaning.data)


class Bytes:
    """A generation's bytes by place: the segment and the frame last used are kept."""

    def __init__(self, plain: Plain, gaps: list[Gap] | None) -> None:
        self._plain, self._gaps = plain, gaps
        self._segment: SegmentFile | None = None
        self._start, self._data = 0, b""

    def get(self, start: int, end: int) -> bytes:
        """The bytes in [start, end); those that are damaged are left out, and noted in `gaps` if that was given."""
        if self._start <= start and end <= self._start + len(self._data):
            return self._data[start - self._start : end - self._start]
        segment = self._segment
        if segment is not None and segment.name.start <= start and end <= segment.plain_end and segment.damage is None:
            at = bisect.bisect_right(segment.starts, start) - 1
            if end <= segment.starts[at + 1]:
                self._start, self._data = segment.starts[at], segment.decode(segment.frames[at])
                return self._data[start - self._start : end - self._start]
        self._reopen(start)
        return b"".join(data for _, data in self._plain.read(start, end, self._gaps))

    def _reopen(self, start: int) -> None:
        """Keep the segment that holds `start` open for what comes next."""
        self.close()
        for piece in indexes.cover(self._plain):
            if piece.name.start <= start and (piece.end is None or start < piece.end):
                try:
                    self._segment = self._plain.segment(piece)
                except FileNotFoundError:
                    self._segment = None
                return

    def close(self) -> None:
        """Let the segment go."""
        if self._segment is not None:
            self._segment.close()
        self._segment = None


class StreamReader:
    """One stream's newest chain of generations, as of now, the agent's live file included. Close it after use."""

    def __init__(self, home: Home, meta: StreamMeta, *, generation: int | None = None) -> None:
        self._home, self.meta = home, meta
        self._agent: Agent = home.agents[meta.agent]
        self.gaps: list[Gap] = []
        self.chain = [each.number for each in meta.chain()] if generation is None else [meta.generation(generation).number]

    def raw(self) -> Iterator[bytes]:
        """Every byte of the chain, joined, then what the live file has beyond it."""
        for number in self.chain:
            plain = self._home.plain(self.meta, number)
            end = plain.end()
            for _, data in plain.read(0, end):
                yield data
            if number == self.meta.newest.number:
                yield from self._live_tail(plain, end)

    def placed(self, wanted: Selection) -> Iterator[Placed]:
        """The records selected, in order; frames that hold none of them are not decoded."""
        for number in self.chain:
            if wanted.after is None or number >= wanted.after.generation:
                if not self.meta.is_log:
                    yield from self._document(number)
                elif (yield from self._generation(number, wanted)):
                    return

    def _generation(self, number: int, wanted: Selection) -> Iterator[Placed]:
        """The selected records of one generation; returns whether the end of the selection was met."""
        plain = self._home.plain(self.meta, number)
        runs = indexes.to_read(plain, self._agent, self._home.layout.generation(self.meta.stream, number), gaps=self.gaps)
        after = wanted.after.offset if wanted.after and wanted.after.generation == number else -1
        beyond = False
        with closing(Bytes(plain, self.gaps)) as content:
            for index in runs:
                first, last, beyond = _range(index, wanted, after)
                for at in range(first, last):
                    row = index.row(at)
                    if wanted.mask is None or row.mask & wanted.mask:
                        yield from self._read(number, row, content.get(row.offset, row.offset + row.length))
                if beyond:
                    return True
        pending = runs[-1].end if runs else 0
        base_ms = runs[-1].running_ms if runs else None
        return (yield from self._tail(number, plain, pending, base_ms, wanted, after))

    def _read(self, number: int, row: Row, raw: bytes) -> Iterator[Placed]:
        if row.kind != RecordKind.DATA or len(raw) != row.length:
            yield Placed(number, Record(row.offset, row.length, RecordKind(row.kind)), raw, None)
            return
        for record in read_line(raw, row.offset):
            yield Placed(number, record, raw[record.offset - row.offset :][: record.length], read_record(self._agent, record))

    def _tail(self, number: int, plain: Plain, pending: int, base_ms: int | None, wanted: Selection, after: int) -> Iterator[Placed]:
        """What no index knows yet: the unfinished record, and what the live file has beyond it."""
        end = plain.end()
        splitter, running, kept = LineSplitter(pending), base_ms, bytearray()
        chunks = [data for _, data in plain.read(pending, end, self.gaps)]
        if number == self.meta.newest.number:
            chunks += list(self._live_tail(plain, end))
        records: list[Record] = []
        for chunk in chunks:
            kept += chunk
            records += splitter.feed(chunk)
        records += splitter.finish()
        for record in records:
            reading = read_record(self._agent, record)
            row = row_of(record, reading)
            running = max((ms for ms in (running, row.time_ms) if ms is not None), default=None)
            if wanted.until_ms is not None and running is not None and running > wanted.until_ms:
                return True
            early = wanted.since_ms is not None and (running is None or running < wanted.since_ms)
            if record.offset > after and not early and (wanted.mask is None or row.mask & wanted.mask):
                at = record.offset - pending
                yield Placed(number, record, bytes(kept[at : at + record.length]), reading)
        return False

    def _live_tail(self, plain: Plain, end: int) -> Iterator[bytes]:
        """What the agent's file has behind `end`, if it still begins and goes on as what we hold."""
        try:
            fd = os.open(self.meta.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError:
            return
        try:
            if os.fstat(fd).st_size <= end or not self._goes_on(plain, end, fd):
                return
            at = end
            while data := os.pread(fd, 1 << 20, at):
                yield data
                at += len(data)
        finally:
            os.close(fd)

    @staticmethod
    def _goes_on(plain: Plain, end: int, fd: int) -> bool:
        for start, stop in ((0, min(_PROOF_BYTES, end)), (max(0, end - _PROOF_BYTES), end)):
            held = b"".join(data for _, data in plain.read(start, stop, gaps=[]))
            if os.pread(fd, stop - start, start) != held:
                return False
        return True

    def _document(self, number: int) -> Iterator[Placed]:
        """A file rewritten whole, as one record."""
        data = b"".join(part for _, part in self._home.plain(self.meta, number).read(gaps=self.gaps))
        for record in read_line(data, 0):
            yield Placed(number, record, data[record.offset : record.offset + record.length], read_record(self._agent, record))

    def locate(self, moment: Moment) -> Position:
        """The position of the last record that a moment includes; NotFoundError, AmbiguousError."""
        if isinstance(moment, Position):
            return moment
        if isinstance(moment, RecordId):
            return self._by_id(moment.id)
        if isinstance(moment, RecordNumber):
            return self._by_number(moment.number)
        return self._by_time(moment)

    def _by_id(self, record_id: str) -> Position:
        found = [
            Position(placed.generation, placed.record.offset)
            for placed in self.placed(Selection())
            if placed.reading is not None and placed.reading.id == record_id
        ]
        if not found:
            raise NotFoundError(f"{record_id}: no record of this session has that id")
        if len(found) > 1:
            raise AmbiguousError(f"{record_id}: {len(found)} records have that id", [str(each) for each in found], hint="name a position instead")
        return found[0]

    def _by_number(self, number: int) -> Position:
        left = number
        for placed in self.placed(Selection()):
            left -= placed.record.kind is not RecordKind.BLANK
            if left == 0:
                return Position(placed.generation, placed.record.offset)
        raise NotFoundError(f"#{number}: the main log has only {number - left} records")

    def _by_time(self, moment: Instant) -> Position:
        last = None
        for placed in self.placed(Selection(until_ms=moment.ms)):
            last = Position(placed.generation, placed.record.offset)
        if last is None:
            raise NotFoundError("the session has no record as early as that")
        return last


def _range(index: RecordIndex, wanted: Selection, after: int) -> tuple[int, int, bool]:
    """The rows from, the rows to, and whether the selection ends within this index."""
    first = 0 if wanted.since_ms is None else index.first_beyond(wanted.since_ms - 1)
    if after >= 0:
        first = max(first, index.first_at_or_after(after + 1))
    last = len(index) if wanted.until_ms is None else index.first_beyond(wanted.until_ms)
    return first, last, last < len(index)
