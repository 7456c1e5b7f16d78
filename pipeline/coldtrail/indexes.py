"""A generation's record index: from the sealed segments, from the index file beside the open ones, or made anew from the bytes."""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from coldtrail import durable
from coldtrail.agents.base import Agent
from coldtrail.errors import CorruptionError
from coldtrail.facts import Facts
from coldtrail.format.index import HEADER_BYTES, ROW_BYTES, Base, RecordIndex, Row, pack_header, pack_rows, read_file, split_file
from coldtrail.format.segment import SegmentMeta
from coldtrail.indexer import Indexer
from coldtrail.model import Gap, RecordKind
from coldtrail.plain import Piece, Plain

INDEX_NAME = "index"
_STEP_BYTES = 4 << 20
_RUN_ROWS = 4096  # of the index file that are read at a time
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
    _index: RecordIndex | None = None

    @property
    def index(self) -> RecordIndex:
        """The records whose last byte lies in it."""
        if self._index is None:
            self._index = self.read()
        return self._index


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
        runs.append(Run(piece.name.start, piece.end or 0, read))
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
    """Where to ask for the maximum of the times in these runs."""
    if not runs:
        return None
    last = runs[-1]
    return lambda: last.index.running_ms


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
    try:
        parts = split_file((folder / INDEX_NAME).read_bytes(), _RUN_ROWS)
        last = read_file(parts[-1][1])[0] if parts else RecordIndex()
    except (FileNotFoundError, ValueError):
        return []
    if not len(last) or parts[0][0] != start or not _is_there(plain, last):
        return []
    runs: list[Run] = []
    for (offset, part), end in zip(parts, [*(offset for offset, _ in parts[1:]), last.end], strict=True):
        newest = _newest([*before, *runs])  # a file begun behind sealed segments does not know their times
        runs.append(Run(offset, end, partial(_read_part, plain, agent, part, end, newest, gaps)))
    return runs


def _is_there(plain: Plain, index: RecordIndex) -> bool:
    """Whether the last record of an index file is where it says."""
    if index.end > plain.end():
        return False
    last = index.row(len(index) - 1)
    line = b"".join(data for _, data in plain.read(max(last.offset - 1, 0), index.end, gaps=[]))
    starts_a_line = last.offset == 0 or line.startswith(b"\n") or last.kind != RecordKind.DATA
    return line.endswith(b"\n") and starts_a_line


def _read_part(plain: Plain, agent: Agent, part: bytes, end: int, base_ms: Base, gaps: list[Gap] | None) -> RecordIndex:
    """A part of the index file; from the bytes where a row of it is damaged."""
    index, _ = read_file(part)
    return index.based(base_ms) if index.end == end else made_anew(plain, agent, index.start, end, base_ms, gaps).index


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
