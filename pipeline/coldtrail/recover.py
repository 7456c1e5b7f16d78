"""One stream of a session, read as of now: its bytes, records and events, archived and live as one."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from coldtrail import checkpoints, indexes
from coldtrail.agents.base import Agent
from coldtrail.checkpoints import Notes
from coldtrail.content import Content
from coldtrail.errors import AmbiguousError, CorruptionError, NotFoundError
from coldtrail.format.checkpoint import Checkpoint
from coldtrail.format.index import RecordIndex, Row, id_hash
from coldtrail.format.lines import LineSplitter, read_line
from coldtrail.format.manifest import StreamMeta
from coldtrail.home import Home
from coldtrail.indexer import read_record, row_of
from coldtrail.indexes import File, Run
from coldtrail.model import Event, Gap, Position, Reading, Record, RecordKind
from coldtrail.moments import Instant, Moment, RecordId, RecordNumber
from coldtrail.plain import Plain

_STEP_BYTES = 1 << 20
_RESOLVE_MAX = 50  # how often a segment may vanish under a reader before it gives up
_BEYOND = 1 << 62  # behind every record


@dataclass(frozen=True, slots=True)
class Selection:
    """Which records to read; what is None does not matter."""

    mask: int | None = None  # bits of the event types wanted
    since_ms: int | None = None  # inclusive
    until_ms: int | None = None  # inclusive
    begin: Position | None = None  # inclusive; the earlier events of its record come still
    after: Position | None = None  # exclusive; the other events of its record come still
    until: Position | None = None  # inclusive; the later events of its record come still
    id: str | None = None  # the agent's own id

    def has(self, position: Position) -> bool:
        """Whether an event is within the bounds, which may lie inside a record."""
        return (
            (self.begin is None or position >= self.begin)
            and (self.after is None or position > self.after)
            and (self.until is None or position <= self.until)
        )


@dataclass(frozen=True, slots=True)
class Placed:
    """A record in its generation, with its bytes and what it means."""

    generation: int
    record: Record
    raw: bytes
    reading: Reading | None

    @property
    def position(self) -> Position:
        """Where it stands."""
        return Position(self.generation, self.record.offset)

    def events(self) -> Iterator[Event]:
        """The record's events, in order."""
        if self.reading is not None:
            for k, meaning in enumerate(self.reading.events):
                position = Position(self.generation, self.record.offset, k)
                yield Event(meaning.type, position, self.reading.time_ms, self.reading.id, meaning.data)


class StreamReader:
    """One stream's newest chain of generations (or one generation), the agent's live file included. Close it after use."""

    def __init__(self, home: Home, meta: StreamMeta, *, generation: int | None = None, held_only: bool = False) -> None:
        """`held_only`: without the live file, and without an unfinished last line."""
        self.home, self.meta, self.held_only = home, meta, held_only
        self.agent: Agent = home.agents[meta.agent]
        self.gaps: list[Gap] = []
        self.base: list[object] = []  # which parts of other logs are read before it, see lineage
        self.chain = list(home.newest_chain(meta)) if generation is None else [each.number for each in meta.chain(generation)]
        self._contents: dict[int, Content] = {}
        self._runs: dict[int, tuple[list[Run], int]] = {}  # of each generation, and where the last indexed record ends
        self._askable: dict[int, tuple[list[Run], list[Run | File]]] = {}
        self._asides: list[StreamReader] = []

    def close(self) -> None:
        """Let every file go."""
        for aside in self._asides:
            aside.close()
        for content in self._contents.values():
            content.close()
        self._contents.clear()
        self._runs, self._askable = {}, {}  # who holds what was made of it need not hold these

    def aside(self) -> StreamReader:
        """Another reader of the same records, so that this one keeps its place in them; it is closed with this one."""
        aside = StreamReader(self.home, self.meta, generation=self.chain[-1], held_only=self.held_only)
        aside.gaps, aside._runs = self.gaps, self._runs
        self._asides.append(aside)
        return aside

    def again(self) -> StreamReader:
        """Another reader of the same generations, as they are by then; for who goes on when this one is closed."""
        return StreamReader(self.home, self.meta, generation=self.chain[-1], held_only=self.held_only)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def content(self, number: int) -> Content:
        """A generation's bytes by place."""
        if number not in self._contents:
            live = Path(self.meta.path) if number == self.meta.newest.number and not self.held_only else None
            self._contents[number] = Content(self.plain(number), self.gaps, live)
        return self._contents[number]

    def plain(self, number: int) -> Plain:
        """A generation's bytes as segments hold them."""
        return self.home.plain(self.meta, number)

    def checkpoints(self, number: int, limit: int, notes: Notes) -> Iterator[Checkpoint]:
        """The checkpoints of a generation at or before `limit`, the nearest first, with the same before it as now."""
        folder = self.home.layout.generation(self.meta.stream, number)
        for found in checkpoints.nearest(self.plain(number), folder, limit, notes):
            if found.small.get("base", []) == self.base:
                yield found
            else:
                notes.passed(f"{number}:{found.offset}", "when it was made, other logs came before this one, or more or less of them")

    def raw(self) -> Iterator[bytes]:
        """Every byte of the chain, joined, and what the live file has beyond it; CorruptionError at a damaged place."""
        for number in self.chain:
            content = self.content(number)
            yield from content.stream(0, content.end)

    def placed(self, wanted: Selection) -> Iterator[Placed]:
        """The records selected, in order; frames that hold none of them are not decoded."""
        for number, row in self.rows(wanted):
            raw = self.content(number).get(row.offset, row.offset + row.length)
            if len(raw) < row.length:
                continue  # a gap, which is noted
            if row.kind != RecordKind.DATA:
                yield Placed(number, Record(row.offset, row.length, RecordKind(row.kind)), raw, None)
                continue
            for record in read_line(raw, row.offset):
                yield Placed(number, record, raw, read_record(self.agent, record))

    def rows(self, wanted: Selection) -> Iterator[tuple[int, Row]]:
        """The index rows selected, each with its generation; no index is read that holds none of them."""
        if wanted.id:
            found = reversed(list(self.having_id(id_hash(wanted.id))))
            yield from ((number, row) for number, row in found if wanted.mask is None or row.mask & wanted.mask)
            return
        for number in self.chain:
            if wanted.until is not None and number > wanted.until.generation:
                return
            for index in self._indexes(number, _lower(wanted, number)):
                first, last, ends = _range(index, wanted, number)
                for at in range(first, last):
                    row = index.row(at)
                    if wanted.mask is None or row.mask & wanted.mask:
                        yield number, row
                if ends:
                    return

    def having_id(self, hashed: int, own: Position | None = None) -> Iterator[tuple[int, Row]]:
        """The rows whose id has this hash, each with its generation, the last one first; few indexes are read for it.

        `own`: where a record of that id is known to end; where it is the only one in its segment it is left out.
        """
        for number in reversed(self.chain):
            yield from ((number, row) for row in self._having_id(number, hashed, own if own and own.generation == number else None))

    def _having_id(self, number: int, hashed: int, own: Position | None) -> list[Row]:
        for _ in range(_RESOLVE_MAX):
            with contextlib.suppress(FileNotFoundError):
                rows: list[Row] = []
                for run in self._asked_for_ids(number):
                    is_there = own is not None and run.start < own.offset <= run.end
                    rows += reversed(run.having_id(hashed, int(is_there)))
                return rows
            self._forget(number)
        raise CorruptionError(f"stream {self.meta.stream}, generation {number}", 0, "its segments keep vanishing")

    def _asked_for_ids(self, number: int) -> list[Run | File]:
        """Whom to ask for an id, the last first."""
        runs = self._known_runs(number)[0]
        if self._askable.get(number, (None,))[0] is not runs:
            self._askable[number] = runs, indexes.by_id(runs)[::-1]
        return self._askable[number][1]

    def _indexes(self, number: int, begin: int = 0) -> Iterator[RecordIndex]:
        """The indexes of a generation's runs that end behind `begin`, in order, whatever is compacted meanwhile."""
        at, is_new = begin, False
        for _ in range(_RESOLVE_MAX):
            with contextlib.suppress(FileNotFoundError):
                for run in self._known_runs(number)[0]:
                    if run.end > at:
                        index = run.index.drop_before(at) if is_new and run.start < at else run.index
                        at = max(at, index.end)  # a record that goes on behind the run is the next one's
                        yield index
                return
            self._forget(number)
            is_new = True
        raise CorruptionError(f"stream {self.meta.stream}, generation {number}", 0, "its segments keep vanishing")

    def _forget(self, number: int) -> None:
        """A segment has been compacted away: the index is looked up again, and the bytes, which must be all that it names."""
        self._runs.pop(number, None)
        for reader in (self, *self._asides):
            if number in reader._contents:
                reader._contents.pop(number).close()

    def _known_runs(self, number: int) -> tuple[list[Run], int]:
        if number not in self._runs:
            if self.meta.is_log:
                folder = self.home.layout.generation(self.meta.stream, number)
                runs, end = indexes.to_read(self.plain(number), self.agent, folder, self.gaps)
                content = self.content(number)  # opened after the index was read, so that it has all that this names
                if not self.held_only:
                    runs.append(self._tail(content, runs, end))
            else:
                document = self._document(self.content(number))
                runs, end = [Run(0, document.end, lambda: document)], document.end
            self._runs[number] = runs, end
        return self._runs[number]

    def end(self, number: int) -> int:
        """Behind the last byte of a generation, as far as its records are known: the index is looked up first."""
        self._known_runs(number)
        return self.content(number).end

    def indexes(self) -> Iterator[tuple[int, RecordIndex]]:
        """Each run's index, in order, with its generation."""
        for number in self.chain:
            for index in self._indexes(number):
                yield number, index

    def indexed_end(self, number: int) -> int:
        """Behind the last record of a generation that an index has."""
        return self._known_runs(number)[1]

    def newest_ms(self, number: int) -> int | None:
        """The newest time in a generation."""
        newest = None
        for index in self._indexes(number):
            newest = index.running_ms
        return newest

    def _tail(self, content: Content, runs: list[Run], start: int) -> Run:
        """What no index knows yet: the unfinished record, and what the live file has beyond it."""
        before = runs[-1] if runs else None
        index = RecordIndex((lambda: before.newest_ms) if before is not None else None, start)
        splitter, behind = LineSplitter(start), start
        for offset, data in content.pieces(start, content.end):
            if offset != behind:  # behind a gap a new line is waited for
                splitter = LineSplitter(offset)
            behind = offset + len(data)
            for record in splitter.feed(data):
                index.add(row_of(record, read_record(self.agent, record)))
        for record in splitter.finish():
            index.add(row_of(record, read_record(self.agent, record)))
        return Run(start, index.end, lambda: index)

    def _document(self, content: Content) -> RecordIndex:
        """A file rewritten whole, as its records."""
        index = RecordIndex()
        for record in read_line(content.get(0, content.end), 0):
            index.add(row_of(record, read_record(self.agent, record)))
        return index

    def locate(self, moment: Moment) -> Position:
        """The position of the last record that a moment includes; NotFoundError, AmbiguousError."""
        if isinstance(moment, Position):
            return moment
        if isinstance(moment, RecordId):
            return self._by_id(moment.id)
        if isinstance(moment, RecordNumber):
            return self._by_number(moment.number)
        return self._by_time(moment)

    def before(self, position: Position) -> Position | None:
        """The last record that begins before a place; None where there is none."""
        for number in reversed([number for number in self.chain if number <= position.generation]):
            found = self._last_in(number, position.offset if number == position.generation else _BEYOND)
            if found is not None:
                return found
        return None

    def _last_in(self, number: int, limit: int) -> Position | None:
        """The last record of a generation that begins before `limit`."""
        for _ in range(_RESOLVE_MAX):
            with contextlib.suppress(FileNotFoundError):
                for run in reversed(self._known_runs(number)[0]):
                    if run.start < limit and (at := run.index.first_at_or_after(limit)):
                        return Position(number, run.index.row(at - 1).offset)
                return None
            self._forget(number)
        raise CorruptionError(f"stream {self.meta.stream}, generation {number}", 0, "its segments keep vanishing")

    def _by_id(self, record_id: str) -> Position:
        wanted = self.placed(Selection(id=record_id))
        found = [placed.position for placed in wanted if placed.reading is not None and placed.reading.id == record_id]
        if not found:
            raise NotFoundError(f"{record_id}: no record of this session has that id")
        if len(found) > 1:
            raise AmbiguousError(
                f"{record_id}: {len(found)} records have that id", [str(each) for each in found], hint="name a position instead"
            )
        return found[0]

    def _by_number(self, number: int) -> Position:
        left = number
        for generation, index in self.indexes():
            count = len(index) - index.kinds.count(RecordKind.BLANK)
            if left <= count:
                rows = (row for row in index.rows() if row.kind != RecordKind.BLANK)
                return Position(generation, next(itertools.islice(rows, left - 1, None)).offset)
            left -= count
        raise NotFoundError(f"#{number}: the log has only {number - left} records")

    def _by_time(self, moment: Instant) -> Position:
        last = None
        for generation, index in self.indexes():
            count = index.first_beyond(moment.ms)
            if count:
                last = Position(generation, index.row(count - 1).offset)
            if count < len(index):
                break
        if last is None:
            raise NotFoundError("the session has no record as early as that")
        return last


def _lower(wanted: Selection, number: int) -> int:
    """Before which offset of a generation no record is wanted."""
    lower = 0
    for bound in (wanted.begin, wanted.after):
        if bound is not None and number <= bound.generation:
            lower = max(lower, bound.offset if number == bound.generation else _BEYOND)
    return lower


def _range(index: RecordIndex, wanted: Selection, number: int) -> tuple[int, int, bool]:
    """The first row, the row behind the last, and whether the selection ends within this index."""
    first = 0 if wanted.since_ms is None else index.first_beyond(wanted.since_ms - 1)
    last = len(index) if wanted.until_ms is None else index.first_beyond(wanted.until_ms)
    for bound in (wanted.begin, wanted.after):
        if bound is not None and number <= bound.generation:
            first = max(first, index.first_at_or_after(bound.offset) if number == bound.generation else len(index))
    if wanted.until is not None and number >= wanted.until.generation:
        last = min(last, index.first_at_or_after(wanted.until.offset + 1) if number == wanted.until.generation else 0)
    is_last = wanted.until is not None and number == wanted.until.generation and index.end > wanted.until.offset
    return first, last, last < len(index) or is_last
