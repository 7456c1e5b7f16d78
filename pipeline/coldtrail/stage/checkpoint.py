"""Checkpoint: while a log grows, its state is noted now and then, so that no recovery replays it all."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field, replace

from coldtrail import checkpoints, indexes, sums
from coldtrail.catalog import StreamRow, changed
from coldtrail.errors import CorruptionError
from coldtrail.format import segment
from coldtrail.format.checkpoint import Checkpoint
from coldtrail.format.segment import BlockHashes, prefix_hash
from coldtrail.home import Home
from coldtrail.lineage import whole
from coldtrail.model import EventType, Position
from coldtrail.plain import Plain
from coldtrail.recover import Placed, Selection, StreamReader
from coldtrail.recovery import ref_of, run_reader, starts, tail_sha256, tail_start
from coldtrail.state import VERSION, Fold, UnreadError
from coldtrail.state.frozen import freeze, settle


@dataclass(frozen=True, slots=True)
class Policy:
    """What proposes a checkpoint, and the bounds that decide."""

    every_events: int = 50
    every_ms: int = 300_000  # by the times in the log
    on: frozenset[EventType] = field(default_factory=lambda: frozenset({EventType.TOOL_COMPLETED}))
    least_bytes: int = 64 << 10  # of log between two checkpoints
    cost_factor: int = 50  # so many times its own size of log lies before the next one
    replay_max_bytes: int = 4 << 20  # with so much log behind the last one, the next one waits for nothing
    replay_max_records: int = 20_000


@dataclass(slots=True)
class Since:
    """What has come since the last checkpoint."""

    size: int = 0  # of the last one, packed
    bytes: int = 0
    records: int = 0
    events: int = 0
    first_ms: int | None = None
    last_ms: int | None = None
    triggered: bool = False

    def take(self, placed: Placed, policy: Policy) -> None:
        """Count a record."""
        self.bytes += placed.record.length
        self.records += 1
        if placed.reading is None:
            return
        self.events += len(placed.reading.events)
        self.triggered = self.triggered or any(meaning.type in policy.on for meaning in placed.reading.events)
        when_ms = placed.reading.time_ms
        if when_ms is not None:
            self.first_ms = when_ms if self.first_ms is None else self.first_ms
            self.last_ms = when_ms if self.last_ms is None else max(self.last_ms, when_ms)

    def is_due(self, policy: Policy) -> bool:
        """Whether a checkpoint is to be made here."""
        if self.bytes >= policy.replay_max_bytes or self.records >= policy.replay_max_records:
            return True
        waited_ms = (self.last_ms or 0) - (self.first_ms or 0)
        proposed = self.triggered or self.events >= policy.every_events or waited_ms >= policy.every_ms
        return proposed and self.bytes >= max(policy.least_bytes, policy.cost_factor * self.size)


def due(home: Home, policy: Policy) -> Iterator[StreamRow]:
    """The logs that have grown enough since their last checkpoint, or have lost them, or have those of another fold."""
    for row in sums.long_logs(home.catalog, policy.least_bytes):
        grown = row.pending - row.checkpointed >= policy.least_bytes
        if grown or row.folded_by != VERSION or checkpoints.is_missing(home.layout.generation(row.stream, row.generation)):
            yield row


def advance(home: Home, row: StreamRow, policy: Policy) -> int:
    """Make the checkpoints that are due in a log's newest generation; gives how many. The log itself is not touched.

    They end where our copy is damaged.
    """
    meta = home.store.meta(row.stream)
    if meta is None or meta.newest.number != row.generation:
        return 0
    with StreamReader(home, meta, held_only=True) as log, whole(log) as reader:
        after, made = _made(reader, row, policy)
    with home.changing(row.session):
        fresh = home.catalog.stream(row.stream)
        if fresh is not None and fresh.generation == row.generation:
            checkpoints.add_to_file(home.layout.generation(row.stream, row.generation), made, after=after)
            home.catalog.put(changed(fresh, checkpointed=row.pending, folded_by=VERSION))
    return len(made)


def _made(reader: StreamReader, row: StreamRow, policy: Policy) -> tuple[int, list[checkpoints.Entry]]:
    """Where the last checkpoint of this generation stands that holds, and those that are due behind it."""
    for fold, used in starts(reader, None, checkpoints.Notes()):
        after = used.offset if used is not None and used.generation == row.generation else 0
        try:
            return after, _behind(reader, row, policy, fold, used)
        except UnreadError:
            continue
    raise AssertionError("the start of the log always holds")


def _behind(reader: StreamReader, row: StreamRow, policy: Policy, fold: Fold, used: Checkpoint | None) -> list[checkpoints.Entry]:
    """The checkpoints that are due behind the one that a fold begins with."""
    made: list[checkpoints.Entry] = []
    try:
        blocks = _Blocks(reader.plain(row.generation), used.offset if used and used.generation == row.generation else 0)
    except CorruptionError:
        return made
    since = Since(size=len(used.encode()) if used is not None else 0)
    for placed in reader.placed(Selection(begin=Position(used.generation, used.offset) if used is not None else None)):
        end = placed.record.offset + placed.record.length
        is_new = placed.generation == row.generation
        if is_new and (end > row.pending or placed.record.offset != blocks.end):
            break  # not complete yet, or behind a gap
        if placed.reading is not None:
            fold.apply(ref_of(placed), placed.reading)
        since.take(placed, policy)
        if is_new:
            blocks.feed(placed.raw)
            if since.is_due(policy):
                tail = tail_sha256(reader.content(row.generation).get(tail_start(end), end))
                frozen = freeze(fold.state, row.stream, row.generation, end, blocks.prefix_sha256(), tail)
                packed = replace(frozen, small={**frozen.small, "base": reader.base} if reader.base else frozen.small).encode()
                settle(fold.state, frozen, reader.agent.ids, run_reader(reader))
                made.append((end, packed))
                since = Since(size=len(packed))
    return made


class _Blocks:
    """The hash of a generation's prefix, from the sealed segments' block hashes and the bytes behind them."""

    def __init__(self, plain: Plain, offset: int) -> None:
        known: list[str] = []
        at = 0
        for piece in indexes.cover(plain):
            if piece.name.is_open or piece.name.start != at or (piece.end or 0) > offset:
                break
            with closing(plain.segment(piece)) as sealed:
                known[at // segment.BLOCK_BYTES :] = sealed.footer().meta.blocks
            at = piece.end or 0
        whole = min(at, offset) // segment.BLOCK_BYTES
        self._known = known[:whole]
        self._rest = BlockHashes(whole * segment.BLOCK_BYTES)
        for _, data in plain.read(whole * segment.BLOCK_BYTES, offset):
            self._rest.feed(data)

    @property
    def end(self) -> int:
        """Behind the last byte fed."""
        return self._rest.end

    def feed(self, data: bytes) -> None:
        """Take the next bytes."""
        self._rest.feed(data)

    def prefix_sha256(self) -> str:
        """The hash of all that was fed."""
        return prefix_hash((*self._known, *self._rest.digests()))
