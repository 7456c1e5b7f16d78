"""Compact: open segments are sealed, small ones merged, cold ones made dense; at every moment each byte is held."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

from coldtrail import checkpoints, durable, indexes, sums
from coldtrail.catalog import StreamRow, changed
from coldtrail.errors import CorruptionError, LockedError, SourceError
from coldtrail.format.index import ROW_BYTES
from coldtrail.format.manifest import StreamMeta
from coldtrail.home import Home
from coldtrail.layout import SegmentName
from coldtrail.plain import Piece, Plain, SegmentFile
from coldtrail.sessions import refresh, take_wishes
from coldtrail.stage.mend import put_manifest
from coldtrail.stage.rebuild import stored_bytes
from coldtrail.stage.seal import Order, Pace, at_once, seal
from coldtrail.stage.source import opened
from coldtrail.store import OpenSegment

SEGMENT_MAX_BYTES = 256 << 20
SEGMENT_MAX_RECORDS = 700_000  # its index is held in memory while it is made
INDEX_FILE_MAX_BYTES = 32 << 20  # the file beside the open segments, which is read whole to be trimmed
TIER_FACTOR = 2  # a neighbour up to this many times larger is merged, so that a byte is rewritten a few times only


@dataclass(frozen=True, slots=True)
class Part:
    """A segment as the plan sees it."""

    start: int
    end: int
    records: int
    sealed: bool
    dense: bool


def plan(parts: Sequence[Part], *, cold: bool, level: int) -> list[Order]:
    """Which segments to make of these neighbours, in order. Pure.

    An open part must be sealed, and of a cold stream every part made dense; a part that needs nothing is
    merged in only where it is small beside what follows it.
    """
    orders: list[Order] = []
    group: list[Part] = []
    for part in reversed(parts):
        if group and not _joins(part, group, needs=_needs(part, cold)):
            orders.append(_order(group, cold, level))
            group = []
        if group or _needs(part, cold):
            group.insert(0, part)
    if group:
        orders.append(_order(group, cold, level))
    return orders[::-1]


def _needs(part: Part, cold: bool) -> bool:
    return not part.sealed or (cold and not part.dense)


def _joins(part: Part, group: list[Part], *, needs: bool) -> bool:
    size = group[-1].end - group[0].start
    fits = group[-1].end - part.start <= SEGMENT_MAX_BYTES and part.records + sum(each.records for each in group) <= SEGMENT_MAX_RECORDS
    return part.end == group[0].start and fits and (needs or part.end - part.start <= TIER_FACTOR * size)


def _order(group: list[Part], cold: bool, level: int) -> Order:
    return Order(group[0].start, group[-1].end, cold, level)


def due(home: Home, after_ms: int) -> Iterator[tuple[StreamRow, bool]]:
    """The streams that compaction has work in, and whether they are cold.

    Cold: the newest time inside the session and the last growth seen are both older than `after_ms`.
    """
    now_ms = home.now_ms()
    for row in sums.unsettled(home.catalog, now_ms - after_ms):
        session = home.catalog.session(row.session)
        newest = max(session.last_ms or 0, session.grew_ms) if session is not None else 0
        cold = now_ms - max(newest, row.grew_ms) >= after_ms
        if row.rolled or (cold and not row.settled):
            yield row, cold


@dataclass(frozen=True, slots=True)
class Compacted:
    """What a compaction did."""

    sealed: int = 0  # segments made
    plain_bytes: int = 0  # in them
    live_differs: bool = False  # the agent's file is not what we hold: it must be checked whole


class Compactor:
    """Compacts one stream at a time. One thread's alone; capture may go on meanwhile."""

    def __init__(self, home: Home, level: int, pace: Pace = at_once) -> None:
        """`pace` is told how many plain bytes are about to be sealed, a few at a time, and may take its time."""
        self._home, self._level, self._pace = home, level, pace

    def compact(self, row: StreamRow, *, cold: bool) -> Compacted:
        """Seal what has stopped growing and, if `cold`, make all of it dense; does nothing where another compaction is at it."""
        with contextlib.ExitStack() as stack:
            try:
                stack.enter_context(durable.locked(self._home.layout.compact_lock(row.session), wait=False))
            except LockedError:
                return Compacted()
            meta = self._begin(row)
            if meta is None:
                return Compacted()
            done, damaged = list[Compacted](), dict[int, CorruptionError]()
            for each in meta.generations:
                try:
                    done.append(self._compact_generation(meta, each.number, cold=cold))
                except CorruptionError as error:  # one generation's damage is that one's alone
                    damaged[each.number] = error
            result = Compacted(
                sum(each.sealed for each in done), sum(each.plain_bytes for each in done), any(each.live_differs for each in done)
            )
            self._settle(meta, cold=cold, check=result.live_differs or meta.newest.number in damaged)  # the live file may be whole
        for damage in damaged.values():
            raise damage
        return result

    def _begin(self, row: StreamRow) -> StreamMeta | None:
        """A stream's metadata; until all is done its row says that there is work in it, so that a start after a crash looks at it."""
        with self._home.changing(row.session):
            fresh = self._home.catalog.stream(row.stream)
            if fresh is not None and not fresh.rolled:
                self._home.catalog.put(changed(fresh, rolled=1))
            return self._home.store.meta(row.stream)

    def _compact_generation(self, meta: StreamMeta, generation: int, *, cold: bool) -> Compacted:
        plain = self._home.plain(meta, generation)
        newest = generation == meta.newest.number
        if cold and newest:
            self._roll(meta)
        self._clear(plain, meta)
        made, size, differs = 0, 0, False
        for order in plan(self._parts(plain, grows=newest), cold=cold or not newest, level=self._level):
            with self._live(meta) if newest else contextlib.nullcontext() as live_fd:
                sealing = seal(self._home, meta, plain, order, live_fd, self._pace)
            self._clear(plain, meta, SegmentName(order.start, order.end))
            made, size, differs = made + 1, size + order.end - order.start, differs or not sealing.live_same
        with self._home.changing(meta.session):
            self._trim(meta, plain)
        return Compacted(made, size, differs)

    def _roll(self, meta: StreamMeta) -> None:
        """Begin a new open segment, so that the one there stops growing."""
        with self._home.changing(meta.session):
            folder = self._home.layout.generation(meta.stream, meta.newest.number)
            for name in self._home.store.open_names(meta.stream, meta.newest.number)[-1:]:
                with OpenSegment.resume(folder, name) as segment:
                    end, stamp = segment.end, segment.stamp
                if end == name.start:
                    return
                if stamp is not None:
                    fresh = self._home.store.meta(meta.stream) or meta
                    newest = fresh.newest
                    if stamp.end > newest.stamp.end:
                        self._home.store.write_meta(fresh.with_generation(replace(newest, stamp=stamp)))
                OpenSegment.create(folder, end).close()
                row = self._home.catalog.stream(meta.stream)
                if row is not None:
                    self._home.catalog.put(changed(row, open_bytes=0))

    def _parts(self, plain: Plain, *, grows: bool) -> list[Part]:
        """What there is to plan with; the open segment that may still grow is left out."""
        pieces = indexes.cover(plain)
        if grows and pieces and pieces[-1].name.is_open:
            pieces.pop()
        parts = [self._part(plain, piece) for piece in pieces]
        return [part for part in parts if part.end > part.start]

    def _part(self, plain: Plain, piece: Piece) -> Part:
        with closing(plain.segment(piece)) as segment:
            if piece.name.is_open:
                return Part(piece.name.start, segment.plain_end, self._records(plain, segment), sealed=False, dense=False)
            about = segment.footer().meta
        records = about.facts.get("records", 0)
        return Part(about.start, about.end, records if isinstance(records, int) else 0, sealed=True, dense=about.dense)

    def _clear(self, plain: Plain, meta: StreamMeta, proven: SegmentName | None = None) -> None:
        """Remove every segment whose bytes a proven wider one holds, and what only served them."""
        with self._home.changing(meta.session):
            kept = indexes.cover(plain)
            names = {piece.name for piece in kept}
            for piece in plain.pieces():
                if piece.name not in names:
                    self._prove_cover(plain, piece, kept, proven)
                    self._remove(plain, meta, piece.name)

    def _prove_cover(self, plain: Plain, piece: Piece, kept: list[Piece], proven: SegmentName | None) -> None:
        """CorruptionError unless sealed segments hold all that `piece` does."""
        wide = [each for each in kept if not each.name.is_open and (each.end or 0) > piece.name.start and each.name != proven]
        with closing(plain.segment(piece)) as segment:
            end = segment.plain_end
            covering = [each for each in wide if each.name.start < end]
            if not covering and proven is not None and proven.start <= piece.name.start and end <= (proven.end or 0):
                return
            for offset, data in segment.chunks(piece.name.start, end):
                same = b"".join(part for _, part in self._sealed_bytes(plain, covering, offset, offset + len(data)))
                if same != data:
                    raise CorruptionError(segment.source.label, 0, "a wider segment does not hold its bytes; both are kept")

    @staticmethod
    def _sealed_bytes(plain: Plain, covering: list[Piece], start: int, end: int) -> Iterator[tuple[int, bytes]]:
        for each in covering:
            with closing(plain.segment(each)) as segment:
                yield from segment.chunks(max(start, each.name.start), end)

    def _remove(self, plain: Plain, meta: StreamMeta, name: SegmentName) -> None:
        if name.is_open:
            durable.remove(self._home.layout.generation(meta.stream, plain.generation) / str(name))
        else:
            key = self._home.layout.generation_key(meta.host, meta.source, meta.stream, plain.generation)
            self._home.archive.remove(f"{key}/{name}")

    def _trim(self, meta: StreamMeta, plain: Plain) -> None:
        """Cut the index file down to the open segments left; with none that holds bytes the folder goes."""
        folder = self._home.layout.generation(meta.stream, plain.generation)
        names = self._home.store.open_names(meta.stream, plain.generation)
        if not names or (len(names) == 1 and (folder / str(names[0])).stat().st_size == 0 and names[0].start > 0):
            for name in names:
                durable.remove(folder / str(name))
            indexes.drop_index_file(folder)
            if not checkpoints.trim_file(plain, folder):
                checkpoints.drop_file(folder)
            with contextlib.suppress(OSError):
                folder.rmdir()
        else:
            self._trim_index(folder, names[0].start)
            checkpoints.trim_file(plain, folder)

    @staticmethod
    def _trim_index(folder: Path, start: int) -> None:
        """Drop what is sealed from the index file, or all of it where it would not go into memory: it is made anew."""
        if indexes.file_bytes(folder) > INDEX_FILE_MAX_BYTES:
            indexes.drop_index_file(folder)
        else:
            indexes.trim_index_file(folder, start)

    def _records(self, plain: Plain, segment: SegmentFile) -> int:
        """How many records an open segment has, roughly: looked for where there may be so many that it matters."""
        noted = indexes.file_bytes(self._home.layout.generation(plain.stream, plain.generation)) // ROW_BYTES
        if 0 < noted <= SEGMENT_MAX_RECORDS // 2:
            return 0
        try:
            return sum(data.count(b"\n") for _, data in segment.chunks(segment.name.start, segment.plain_end))
        except CorruptionError:  # whoever seals it tells
            return 0

    @contextlib.contextmanager
    def _live(self, meta: StreamMeta) -> Iterator[int | None]:
        """The agent's own file, if it is there to compare with."""
        with contextlib.ExitStack() as stack:
            fd = None
            with contextlib.suppress(SourceError):
                fd = stack.enter_context(opened(Path(meta.path)))
            yield fd

    def _settle(self, meta: StreamMeta, *, cold: bool, check: bool) -> None:
        """Bring manifest and catalog up to what the archive holds now."""
        with self._home.changing(meta.session):
            rows = self._home.catalog.streams_of(meta.session)
            streams = [found for row in rows if (found := self._home.store.meta(row.stream)) is not None]
            manifest = put_manifest(self._home, meta.source, meta.session, streams)
            row = self._home.catalog.stream(meta.stream)
            if row is None:
                return
            fresh = self._home.store.meta(meta.stream) or meta
            left = [self._home.store.open_names(meta.stream, each.number) for each in fresh.generations]
            row = changed(
                row,
                stored_bytes=stored_bytes(self._home, fresh),
                rolled=int(any(len(names) > 1 for names in left)),
                settled=int(cold and not any(left)),
                check_due=int(check or row.check_due),
            )
            with self._home.catalog.transaction():
                self._home.catalog.put(row)
                refresh(self._home, meta.session)
                take_wishes(self._home, meta.session, manifest)
