"""A log that goes on from a part of another one is recovered with that part before it, as generations below 0."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import PurePosixPath

from coldtrail.catalog import StreamRow
from coldtrail.checkpoints import Notes
from coldtrail.content import Content
from coldtrail.format.checkpoint import Checkpoint
from coldtrail.format.index import RecordIndex
from coldtrail.format.lines import MAX_LINE_BYTES, LineSplitter, read_line
from coldtrail.format.manifest import StreamMeta
from coldtrail.home import Home
from coldtrail.indexer import read_record
from coldtrail.indexes import Run
from coldtrail.model import Elsewhere, EventType, Gap, Position, Reading, RecordKind, Role
from coldtrail.plain import Plain
from coldtrail.recover import StreamReader
from coldtrail.sessions import facts_of

_STEP_BYTES = 64 << 10
_DEPTH_MAX = 200  # logs one behind the other: Python recurses once for each


@dataclass(frozen=True, slots=True)
class Base:
    """Which part of which log comes before a log's own first byte, as its first record says."""

    log: str  # by its agent's id of it
    bytes: int  # from its first one
    records: int | None = None  # that it has, with all that it goes on from


class LineageReader(StreamReader):
    """A log behind the part of another one that it goes on from. What that one goes on from is in it too.

    Generation -1 is the last one before its own first, -2 the one before that; they cannot be asked for by themselves.
    """

    def __init__(self, own: StreamReader, before: StreamReader | None, ends: Mapping[int, int], base: list[object]) -> None:
        """`ends`: of the generations of `before` those that count, each with the end of what counts of it."""
        super().__init__(own.home, own.meta, generation=own.chain[-1], held_only=own.held_only)
        self.gaps, self.base = own.gaps, base
        self._own, self._before, self._ends = own, before, dict(ends)
        self._names = _numbered(ends)
        self._theirs = {ours: theirs for theirs, ours in self._names.items()}
        self.chain = [*self._theirs, *own.chain]

    def close(self) -> None:
        """Let every file go, those of the other logs too."""
        super().close()
        self._own.close()
        if self._before is not None:
            self._before.close()

    def again(self) -> LineageReader:
        """Another reader of the same generations, for who goes on when this one is closed."""
        return self._again(self._own.again())

    def _again(self, own: StreamReader) -> LineageReader:
        before = self._before
        if before is not None:
            first = (before._own if isinstance(before, LineageReader) else before).again()
            first.gaps = _Elsewhere(own.gaps, before.meta.path, self._names)
            before = before._again(first) if isinstance(before, LineageReader) else first
        return LineageReader(own, before, self._ends, self.base)

    def aside(self) -> LineageReader:
        """Another reader of the same records."""
        before = self._before.aside() if self._before is not None else None
        aside = LineageReader(self._own, before, self._ends, self.base)
        aside._runs = self._runs
        self._asides.append(aside)
        return aside

    def content(self, number: int) -> Content:
        """A generation's bytes by place."""
        found = self._from(number)
        return super().content(number) if found is None else found[0].content(found[1])

    def plain(self, number: int) -> Plain:
        """A generation's bytes as segments hold them."""
        found = self._from(number)
        return super().plain(number) if found is None else found[0].plain(found[1])

    def end(self, number: int) -> int:
        """Behind the last byte that counts of a generation."""
        return super().end(number) if self._from(number) is None else self._ends[self._theirs[number]]

    def checkpoints(self, number: int, limit: int, notes: Notes) -> Iterator[Checkpoint]:
        """The checkpoints of a generation at or before `limit`, the nearest first; those of another log as if they were this one's."""
        found = self._from(number)
        if found is None:
            yield from super().checkpoints(number, limit, notes)
            return
        for each in found[0].checkpoints(found[1], limit, notes):
            yield _as_ours(each, self._names, self.base)

    def _known_runs(self, number: int) -> tuple[list[Run], int]:
        found = self._from(number)
        if found is None:
            return super()._known_runs(number)
        if number not in self._runs:
            end = self.end(number)
            runs = [run for run in found[0]._known_runs(found[1])[0] if run.start < end]
            self._runs[number] = [Run(run.start, min(run.end, end), partial(_cut, run, end), run.ids) for run in runs], end
        return self._runs[number]

    def _forget(self, number: int) -> None:
        found = self._from(number)
        if found is None:
            super()._forget(number)
        else:
            self._runs.pop(number, None)
            found[0]._forget(found[1])

    def _from(self, number: int) -> tuple[StreamReader, int] | None:
        """Who reads a generation that is another log's, and its number there."""
        return None if self._before is None or number not in self._theirs else (self._before, self._theirs[number])


def _numbered(ends: Iterable[int]) -> dict[int, int]:
    """Another log's generations by their numbers in front of this one's."""
    theirs = list(ends)
    return {number: at - len(theirs) for at, number in enumerate(theirs)}


def _cut(run: Run, end: int) -> RecordIndex:
    return run.index.keep_before(end)


def _as_ours(found: Checkpoint, names: Mapping[int, int], base: list[object]) -> Checkpoint:
    """Another log's checkpoint with the numbers that its generations have in front of this one."""

    def placed(rows: Sequence[tuple[object, ...]], at: int) -> tuple[tuple[object, ...], ...]:
        return tuple((*row[:at], names[row[at]], *row[at + 1 :]) for row in rows)  # type: ignore[index] # a number stands there

    small, last = {**found.small, "base": base}, found.small.get("last_event")
    if isinstance(last, str):
        at = Position.parse(last)
        small["last_event"] = str(replace(at, generation=names[at.generation]))
    places = {
        "runs": placed(found.runs, 0),
        "told": placed(found.told, 1),
        "tools": placed(found.tools, 1),
        "early": placed(found.early, 1),
    }
    return replace(found, generation=names[found.generation], small=small, **places)  # type: ignore[arg-type] # of the shapes they had


class _Elsewhere(list[Gap]):
    """Gaps met in another log, told by whoever goes on from it."""

    def __init__(self, told: list[Gap], path: str, names: Mapping[int, int]) -> None:
        super().__init__()
        self._told, self._path, self._names = told, path, names

    def append(self, gap: Gap) -> None:
        """Note one under the number that its generation has there."""
        super().append(gap)
        self._told.append(replace(gap, generation=self._names.get(gap.generation, -1), what=f"{self._path}: {gap.what}"))


@contextlib.contextmanager
def whole(reader: StreamReader) -> Iterator[StreamReader]:
    """The reader or, where its log goes on from a part of another one, one that has that part too, closed after the block.

    A part that is not held is a gap that names it.
    """
    found = _whole(reader, frozenset({reader.meta.stream}))
    try:
        yield found
    finally:
        if found is not reader:
            found.close()


def streams_before(reader: StreamReader) -> set[str]:
    """The streams that a log goes on from, and those that they do."""
    with whole(reader) as found:
        return {str(each[0]) for each in found.base if isinstance(each, list) and each[0]}


def _whole(reader: StreamReader, seen: frozenset[str]) -> StreamReader:
    base = base_of(reader)
    if base is None:
        return reader
    for meta in _metas(reader, base.log):
        if meta.stream not in seen and len(seen) < _DEPTH_MAX and (found := _that_ends_so(reader, meta, base)) is not None:
            return _behind(reader, found, base, seen)
    reader.gaps.append(Elsewhere(-1, 0, base.bytes, f"the {base.bytes} bytes of the log {base.log} that come before this one are not held"))
    return LineageReader(reader, None, {}, [["", base.log, base.bytes]])


def _behind(own: StreamReader, found: StreamReader, base: Base, seen: frozenset[str]) -> LineageReader:
    """A reader of `own` behind the part of `found`, and what that goes on from."""
    names: dict[int, int] = {}
    found.gaps = _Elsewhere(own.gaps, found.meta.path, names)
    before = _whole(found, seen | {found.meta.stream})
    ends = {number: before.end(number) for number in before.chain if number < 0} | _ends(found, base.bytes)
    names.update(_numbered(ends))
    parts = [[found.meta.stream, number, end] for number, end in ends.items() if number >= 0]
    return LineageReader(own, before, ends, [*before.base, *parts])


def base_of(reader: StreamReader) -> Base | None:
    """What a log's first record says that comes before it."""
    if reader.meta.role is not Role.MAIN or _log_id(reader, reader.meta.path) is None:
        return None
    first = _first(reader)
    for meaning in first.events if first is not None else ():
        said = meaning.data.get("base") if meaning.type is EventType.SESSION_START else None
        match said:
            case {"log": str(log), "bytes": int(size), **others} if size > 0:
                records = others.get("records")
                return Base(log, size, records if isinstance(records, int) else None)
    return None


def _first(reader: StreamReader) -> Reading | None:
    """The first record of a log; no index is read for it."""
    content, splitter = reader.content(reader.chain[0]), LineSplitter(0)
    for at in range(0, min(content.end, MAX_LINE_BYTES), _STEP_BYTES):
        for record in splitter.feed(content.get(at, min(at + _STEP_BYTES, content.end))):
            return read_record(reader.agent, record)
    return None


def _log_id(reader: StreamReader, path: str) -> str | None:
    return reader.agent.log_id(PurePosixPath(path))


def _metas(reader: StreamReader, log: str) -> Iterator[StreamMeta]:
    """The main logs of that id in the same source: mostly near, else all are looked at."""
    catalog = reader.home.catalog
    for rows in (_near(reader, log), catalog.all_streams()):
        found = [row for row in rows if _is_main(reader, row) and _log_id(reader, row.path.decode("utf-8", "replace")) == log]
        for row in found:
            meta = reader.home.store.meta(row.stream)
            if meta is not None:
                yield meta
        if found:
            return


def _is_main(reader: StreamReader, row: StreamRow) -> bool:
    return row.source == reader.meta.source and row.role == Role.MAIN


def _near(reader: StreamReader, log: str) -> Iterator[StreamRow]:
    """The logs of the session of that id, of the reader's own, and of those that it was made from: a reverted one has others besides."""
    catalog, own = reader.home.catalog, reader.meta
    row = catalog.session(own.session)
    made_from = facts_of(f'{{"parents":{row.parents}}}').parents if row is not None else []
    for session_id in dict.fromkeys([log, own.session_id, *made_from]):
        yield from catalog.streams_with(session_id=session_id, source=own.source)


def _that_ends_so(own: StreamReader, meta: StreamMeta, base: Base) -> StreamReader | None:
    """A reader of that generation in which the named part ends with the line that was meant, the newest first."""
    for number in dict.fromkeys([own.home.newest_chain(meta)[-1], *(each.number for each in reversed(meta.generations))]):
        found = StreamReader(own.home, meta, generation=number, held_only=own.held_only)
        at, end = next(reversed(_ends(found, base.bytes).items()), (0, 0))
        if sum(_ends(found, base.bytes).values()) == base.bytes and _ends_with(found, at, end, base.records):
            return found
        found.close()
    return None


def _ends_with(reader: StreamReader, number: int, end: int, records: int | None) -> bool:
    """Whether a line ends at a place, and it is the one of that number, if lines are numbered."""
    content = reader.content(number)
    if content.get(end - 1, end) != b"\n":
        return False
    line = b""
    for at in range(end - 1, max(-1, end - 1 - MAX_LINE_BYTES), -_STEP_BYTES):
        _, newline, line = (content.get(max(0, at - _STEP_BYTES), at) + line).rpartition(b"\n")
        if newline:
            break
    said = [reader.agent.ordinal(record.value) for record in read_line(line, 0) if record.kind is RecordKind.DATA]
    return records is None or said in ([], [None], [records - 1])


def _ends(reader: StreamReader, length: int) -> dict[int, int]:
    """Of a log's own generations how far its first `length` bytes reach in each."""
    ends: dict[int, int] = {}
    for number in reader.chain:
        if length > 0 and (end := min(reader.content(number).end, length)):
            ends[number], length = end, length - end
    return ends


class Successors:
    """Looks out for newer main logs of a session: its agent goes on there. The catalog is not asked."""

    def __init__(self, home: Home, meta: StreamMeta) -> None:
        self._home, self._meta = home, meta
        self._id = home.agents[meta.agent].log_id(PurePosixPath(meta.path)) if meta.role is Role.MAIN else None
        self._looked: int | None = None
        self._known: set[str] = set() if self._id is None else set(home.store.streams())

    @property
    def may_come(self) -> bool:
        """Whether its agent ever begins another one."""
        return self._id is not None

    def look(self) -> StreamMeta | None:
        """The next one that has come since; it costs a stat where no log has, and nothing where there never is one."""
        if self._id is None:
            return None
        changed_ns = os.stat(self._home.layout.store).st_mtime_ns
        if changed_ns == self._looked:
            return None
        for stream in sorted(set(self._home.store.streams()) - self._known):
            meta = self._home.store.meta(stream)
            if meta is None:
                return None  # it is being made
            self._known.add(stream)
            log_id = self._home.agents[meta.agent].log_id(PurePosixPath(meta.path))
            if meta.session == self._meta.session and meta.role is Role.MAIN and (log_id or "") > self._id:
                return meta
        self._looked = changed_ns
        return None


def newest_first(home: Home, metas: Iterable[StreamMeta]) -> list[StreamMeta]:
    """A session's main logs in the order of their ids, the greatest first; in the order given where they have none."""
    return sorted(metas, key=lambda meta: home.agents[meta.agent].log_id(PurePosixPath(meta.path)) or "", reverse=True)
