"""A generation's record index: from the sealed segments, from the index file beside the open ones, or made anew from the bytes."""

from __future__ import annotations

import contextlib
import itertools
import os
from array import array
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from coldtrail import durable
from coldtrail.agents.base import Agent
from coldtrail.errors import CorruptionError
from coldtrail.facts import Facts
from coldtrail.filesource import FileSource
from coldtrail.format.frames import Work
from coldtrail.format.ids import IdTable, count
from coldtrail.format.index import HEADER_BYTES, ROW_BYTES, Base, Part, RecordIndex, Row, pack_header, pack_rows, read_file, split_file
from coldtrail.format.segment import SegmentMeta
from coldtrail.indexer import Indexer
from coldtrail.model import Gap, RecordKind
from coldtrail.plain import Piece, Plain

INDEX_NAME = "index"
_STEP_BYTES = 4 << 20
_RUN_ROWS = 4096  # of the index file that are read at a time
_PARTS_HELD = 8  # of it at hand
_RESOLVE_MAX = 50  # how often a segment may vanish under a reader before it gives up


@dataclass(frozen=True, slots=True)
class Indexed:
    """The index of a run of a generation's bytes."""

    start: int
    end: int
    index: RecordIndex
    facts: Facts
    meta: SegmentMeta | None = None  # of a sealed segment


@dataclass(slots=True)
class Run:
    """A run of a generation's bytes, whose index is read when somebody asks for it."""

    start: int
    end: int
    read: Callable[[], RecordIndex]  # FileNotFoundError where the segment has been compacted away
    ids: Callable[[], array[int] | None] = lambda: None  # see format.ids; None: it has no such table. The same error
    keeps: bool = True  # what was read; else it is read each time
    file: File | None = None  # of which it is a part
    _index: RecordIndex | None = None
    _ids: array[int] | None = None
    _newest: tuple[int | None] | None = None

    @property
    def index(self) -> RecordIndex:
        """The records whose last byte lies in it."""
        if self._index is not None:
            return self._index
        index = self.read()
        if self.keeps:
            self._index = index
        return index

    @property
    def newest_ms(self) -> int | None:
        """The maximum of all times up to its end."""
        if self._newest is None:
            self._newest = (self.index.running_ms,)
        return self._newest[0]

    def having_id(self, hashed: int, known: int = 0) -> list[Row]:
        """The records whose id has this hash, in order; none where there are only so many as are known, or the index need not be read."""
        if self._ids is None:
            self._ids = self.ids()
        if self._ids is not None and count(self._ids, hashed) <= known:
            return []
        return [self.index.row(at) for at in self.index.having_id(hashed)]


class File:
    """The index file beside the open segments: read in parts, of which few are at hand, and asked for an id as one."""

    def __init__(self, source: Callable[[], FileSource]) -> None:
        self.runs: list[Run] = []
        self._source = source
        self._held: OrderedDict[int, RecordIndex] = OrderedDict()
        self._table: IdTable | None = None
        self._firsts: list[int] = []  # of each run the number of its first row

    @property
    def start(self) -> int:
        """Where its records begin."""
        return self.runs[0].start

    @property
    def end(self) -> int:
        """Behind its last record."""
        return self.runs[-1].end

    def part(self, part: Part, otherwise: Callable[[RecordIndex], RecordIndex]) -> RecordIndex:
        """The index of a part, read now or a short time ago, as `otherwise` has it."""
        if part.at not in self._held:
            with closing(self._source()) as source:
                read = part.read(source)
            self._held[part.at] = otherwise(read)
            if len(self._held) > _PARTS_HELD:
                self._held.popitem(last=False)
        self._held.move_to_end(part.at)
        return self._held[part.at]

    def having_id(self, hashed: int, known: int = 0) -> list[Row]:
        """The records whose id has this hash, in order; none where there are only so many as are known."""
        if self._table is None:
            hashes: array[int] = array("Q")
            for run in self.runs:
                self._firsts.append(len(hashes))
                hashes.extend(run.index.id_hashes)
            self._table = IdTable(hashes)
        found = self._table.having(hashed)
        return [self._row(at) for at in found] if len(found) > known else []

    def _row(self, at: int) -> Row:
        which = bisect_right(self._firsts, at) - 1
        return self.runs[which].index.row(at - self._firsts[which])


def by_id(runs: list[Run]) -> list[Run | File]:
    """Whom to ask for an id, in order: instead of all the runs of a file the file."""
    asked: list[Run | File] = []
    for run in runs:
        if run.file is None:
            asked.append(run)
        elif run.file not in asked[-1:]:
            asked.append(run.file)
    return asked


def cover(plain: Plain) -> list[Piece]:
    """The segments to read a generation by, none inside another: the widest at each place, sealed before open."""
    chosen: list[Piece] = []
    at = -1
    for piece in sorted(plain.pieces(), key=lambda piece: (piece.name.start, piece.name.is_open, -(piece.end or 0))):
        overlaps = piece.name.start < at
        if overlaps and (not piece.name.is_open or _end(plain, piece) <= at):
            continue  # sealed or merged already, and about to be removed
        chosen.append(piece)
        at = at if piece.end is None else piece.end
    return chosen


def _end(plain: Plain, piece: Piece) -> int:
    """Behind the last byte of an open segment; nothing where it has just been sealed away."""
    if piece.end is not None:
        return piece.end
    try:
        with closing(plain.segment(piece)) as segment:
            return segment.plain_end
    except FileNotFoundError:
        return -1


def of_generation(plain: Plain, agent: Agent, *, gaps: list[Gap] | None = None) -> list[Indexed]:
    """Index and facts of every run of a generation, in order; what is in open segments is read from the bytes."""
    found = sealed(plain, agent, gaps)
    at, end = found[-1].end if found else 0, plain.end()
    if end > at:
        found.append(made_anew(plain, agent, _pending_start(found, at), end, _base_ms(found), gaps))
    return found


def to_read(plain: Plain, agent: Agent, folder: Path, gaps: list[Gap] | None = None) -> tuple[list[Run], int]:
    """Every run of a generation, in order, and where the last complete record in them ends.

    The index of open segments is that of the index file, as far as it proves right.
    """
    for _ in range(_RESOLVE_MAX):
        with contextlib.suppress(FileNotFoundError):  # compacted since it was listed: what took its place is looked for
            return _to_read(plain, agent, folder, gaps)
    raise CorruptionError(f"stream {plain.stream}, generation {plain.generation}", 0, "its segments keep vanishing")


def _to_read(plain: Plain, agent: Agent, folder: Path, gaps: list[Gap] | None) -> tuple[list[Run], int]:
    runs: list[Run] = []
    before: Piece | None = None
    for piece in itertools.takewhile(lambda piece: not piece.name.is_open, cover(plain)):
        read = partial(_read_index, plain, agent, piece, before, _newest(runs), gaps)
        runs.append(Run(piece.name.start, piece.end or 0, read, partial(_read_ids, plain, piece)))
        before = piece
    start = _unfinished(plain, before)
    saved = _saved(plain, agent, folder, start, runs, gaps)
    if saved:
        runs += saved
        start = runs[-1].end
    end = plain.end()
    if end > start:
        runs.append(_known(made_anew(plain, agent, start, end, _newest(runs), gaps).index, start))
        start = runs[-1].end
    return runs, start


def _read_index(plain: Plain, agent: Agent, piece: Piece, before: Piece | None, base_ms: Base, gaps: list[Gap] | None) -> RecordIndex:
    """A sealed segment's index, from its footer; from the bytes where that is damaged."""
    try:
        with closing(plain.segment(piece)) as segment:
            return segment.index(segment.footer())
    except CorruptionError:
        start = _unfinished(plain, before) if before is not None and before.end == piece.name.start else piece.name.start
        return made_anew(plain, agent, start, piece.end or 0, base_ms, gaps).index


def _read_ids(plain: Plain, piece: Piece) -> array[int] | None:
    with closing(plain.segment(piece)) as segment:
        return segment.ids()


def _unfinished(plain: Plain, piece: Piece | None) -> int:
    """Where the record begins that goes on behind a sealed segment: at its end, if none does."""
    if piece is None or piece.end is None:
        return 0
    try:
        with closing(plain.segment(piece)) as segment:
            return piece.end - segment.footer().meta.tail_bytes
    except CorruptionError:
        return piece.end


def _known(index: RecordIndex, start: int) -> Run:
    return Run(start, max(index.end, start), lambda: index)


def _newest(runs: list[Run]) -> Base:
    """Where to ask for the maximum of the times in these runs: in order, for each asks the one before it."""
    if not runs:
        return None
    before = runs[:]
    return lambda: [run.newest_ms for run in before][-1]


def sealed(plain: Plain, agent: Agent, gaps: list[Gap] | None) -> list[Indexed]:
    """Index and facts of the sealed segments, from their footers; from the bytes where a footer is damaged."""
    for _ in range(_RESOLVE_MAX):
        with contextlib.suppress(FileNotFoundError):  # compacted since it was listed: what took its place is looked for
            return _sealed(plain, agent, gaps)
    raise CorruptionError(f"stream {plain.stream}, generation {plain.generation}", 0, "its segments keep vanishing")


def _sealed(plain: Plain, agent: Agent, gaps: list[Gap] | None) -> list[Indexed]:
    found: list[Indexed] = []
    for piece in cover(plain):
        if piece.name.is_open:
            break
        try:
            with closing(plain.segment(piece)) as segment:
                footer = segment.footer()
                index = segment.index(footer)
                found.append(Indexed(piece.name.start, piece.end or 0, index, Facts.from_json(footer.meta.facts), footer.meta))
        except (CorruptionError, ValueError):
            start = _pending_start(found, piece.name.start)
            found.append(made_anew(plain, agent, start, piece.end or 0, _base_ms(found), gaps))
    return found


def _base_ms(found: list[Indexed]) -> int | None:
    return found[-1].index.running_ms if found else None


def _saved(plain: Plain, agent: Agent, folder: Path, start: int, before: list[Run], gaps: list[Gap] | None) -> list[Run]:
    """The runs of the index file, if it begins at `start` and the last record it claims is there."""
    path = folder / INDEX_NAME
    try:
        with closing(FileSource(path, plain.work)) as source:
            stated, parts = split_file(source, _RUN_ROWS)
            last = parts[-1].read(source) if parts else RecordIndex()
    except (FileNotFoundError, ValueError):
        return []
    if not len(last) or parts[0].offset != start or not _is_there(plain, last):
        return []
    file = File(partial(_same_file, path, plain.work, stated))
    for part, end in zip(parts, [*(part.offset for part in parts[1:]), last.end], strict=True):
        newest = _newest([*before, *file.runs])  # a file begun behind sealed segments does not know their times
        read = partial(file.part, part, partial(_part_of, plain, agent, part.offset, end, newest, gaps))
        file.runs.append(Run(part.offset, end, read, keeps=False, file=file))
    return file.runs


def _same_file(path: Path, work: Work, start: int) -> FileSource:
    """The index file again; FileNotFoundError where it begins elsewhere by now, for segments were sealed."""
    source = FileSource(path, work)
    with contextlib.suppress(ValueError):
        if split_file(source, source.size)[0] == start:
            return source
    source.close()
    raise FileNotFoundError(path)


def _is_there(plain: Plain, index: RecordIndex) -> bool:
    """Whether the last record of an index file is where it says."""
    if index.end > plain.end():
        return False
    last = index.row(len(index) - 1)
    line = b"".join(data for _, data in plain.read(max(last.offset - 1, 0), index.end, gaps=[]))
    starts_a_line = last.offset == 0 or line.startswith(b"\n") or last.kind != RecordKind.DATA
    return line.endswith(b"\n") and starts_a_line


def _part_of(plain: Plain, agent: Agent, start: int, end: int, base_ms: Base, gaps: list[Gap] | None, index: RecordIndex) -> RecordIndex:
    """A part of the index file that should hold [start, end); from the bytes where a row of it is damaged."""
    if len(index) and (index.row(0).offset, index.end) == (start, end):
        return index.based(base_ms)
    return made_anew(plain, agent, start, end, base_ms, gaps).index


def _pending_start(found: list[Indexed], at: int) -> int:
    """Where the record begins that the last sealed segment left unfinished."""
    return at - found[-1].meta.tail_bytes if found and found[-1].meta else at


def made_anew(plain: Plain, agent: Agent, start: int, end: int, base_ms: Base, gaps: list[Gap] | None = None) -> Indexed:
    """The index of the records in [start, end), `start` being where one begins, from the bytes themselves."""
    index, facts, indexer = RecordIndex(base_ms), Facts(), Indexer(agent, start)
    for offset, data in plain.read(start, end, gaps):
        if offset != indexer.end:  # behind a gap a new line is waited for
            facts.merge(indexer.take_facts())
            indexer = Indexer(agent, offset)
        for row in indexer.feed(data):
            index.add(row)
    facts.merge(indexer.take_facts())
    return Indexed(start, end, index, facts)


def append_rows(folder: Path, rows: list[Row], *, start: int) -> None:
    """Add rows to the index file of the open segments, made where it is missing; not synced, for it can be made anew."""
    if not rows:
        return
    path = folder / INDEX_NAME
    with durable.full_disk_told(path), open(path, "a+b", opener=durable.private_opener) as file:
        if _last_end(file.fileno()) != rows[0].offset:  # new, torn, or a crash came between bytes and rows: no row may hide a hole
            file.truncate(0)
            file.write(pack_header(start, None))
        file.write(pack_rows(rows))


def _last_end(fd: int) -> int | None:
    """Behind the last record that an index file has a row for; None where that row is not whole."""
    size = os.fstat(fd).st_size
    if size <= HEADER_BYTES or (size - HEADER_BYTES) % ROW_BYTES:
        return None
    last, _ = read_file(pack_header(0, None) + os.pread(fd, ROW_BYTES, size - ROW_BYTES))
    return last.end if len(last) else None


def file_bytes(folder: Path) -> int:
    """The length of the index file beside the open segments."""
    try:
        return (folder / INDEX_NAME).stat().st_size
    except FileNotFoundError:
        return 0


def trim_index_file(folder: Path, start: int) -> None:
    """Drop the rows of records that end at or before `start`: the segments that held them are sealed."""
    path = folder / INDEX_NAME
    try:
        index, _ = read_file(path.read_bytes())
    except (FileNotFoundError, ValueError):
        drop_index_file(folder)
        return
    kept = index.drop_before(start)
    if len(kept) < len(index):
        durable.replace(path, pack_header(kept.start, kept.base_ms) + pack_rows(kept.rows()))


def drop_index_file(folder: Path) -> None:
    """Remove the index file: it is made anew where it is needed."""
    durable.remove(folder / INDEX_NAME)
