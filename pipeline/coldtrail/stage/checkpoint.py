"""Checkpoint: while a log grows, its state is noted now and then, so that no recovery replays it all."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field

from coldtrail import checkpoints, indexes
from coldtrail.catalog import StreamRow, changed
from coldtrail.format.segment import BLOCK_BYTES, BlockHashes, prefix_hash
from coldtrail.home import Home
from coldtrail.model import EventType, Position
from coldtrail.plain import Plain
from coldtrail.recover import Placed, Selection, StreamReader
from coldtrail.recovery import ref_of, start
from coldtrail.state.frozen import freeze

LEAST_BYTES = 64 << 10  # of log between two checkpoints
COST_FACTOR = 50  # so many times its own size of log lies before the next one
REPLAY_MAX_BYTES = 4 << 20  # with this much log behind the last one, the next one does not wait for a trigger
REPLAY_MAX_RECORDS = 20_000


@dataclass(frozen=True, slots=True)
class Policy:
    """What proposes a checkpoint; the cost bound decides."""

    every_events: int = 50
    every_ms: int = 300_000
    on: frozenset[EventType] = field(default_factory=lambda: frozenset({EventType.TOOL_COMPLETED}))


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
        if placed.reading.time_ms is not None:
            self.first_ms = placed.reading.time_ms if self.first_ms is None else self.first_ms
            self.last_ms = placed.reading.time_ms

    def is_due(self, policy: Policy) -> bool:
        """Whether a checkpoint is to be made here."""
        if self.bytes >= REPLAY_MAX_BYTES or self.records >= REPLAY_MAX_RECORDS:
            return True
        waited_ms = (self.last_ms or 0) - (self.first_ms or 0)
        proposed = self.triggered or self.events >= policy.every_events or waited_ms >= policy.every_ms
        return proposed and self.bytes >= max(LEAST_BYTES, COST_FACTOR * self.size)


def due(home: Home) -> Iterator[StreamRow]:
    """The logs that have grown enough since their last checkpoint."""
    return (row for row in home.catalog.all_streams() if row.is_log and row.pending - row.checkpointed >= LEAST_BYTES)


def advance(home: Home, row: StreamRow, policy: Policy) -> int:
    """Make the checkpoints that are due in a log's newest generation; gives how many. The log itself is not touched."""
    meta = home.store.meta(row.stream)
    if meta is None or meta.newest.number != row.generation:
        return 0
    with StreamReader(home, meta) as reader:
        made = _made(home, reader, row, policy)
    with home.changing(row.session):
        checkpoints.add_to_file(home.layout.generation(row.stream, row.generation), made)
        fresh = home.catalog.stream(row.stream)
        if fresh is not None and fresh.generation == row.generation:
            home.catalog.put(changed(fresh, checkpointed=row.pending))
    return len(made)


def _made(home: Home, reader: StreamReader, row: StreamRow, policy: Policy) -> list[tuple[int, bytes]]:
    fold, used = start(home, reader, None, [])
    begin = Position(used.generation, used.offset) if used is not None else None
    blocks = _Blocks(home.plain(reader.meta, row.generation), used.offset if used is not None and used.generation == row.generation else 0)
    since, made = Since(size=len(used.encode()) if used is not None else 0), []
    for placed in reader.placed(Selection(begin=begin)):
        end = placed.record.offset + placed.record.length
        if placed.generation == row.generation and (end > row.pending or placed.record.offset != blocks.end):
            break  # not complete yet, or behind a gap
        if placed.reading is not None:
            fold.apply(ref_of(placed), placed.reading)
        since.take(placed, policy)
        if placed.generation == row.generation:
            blocks.feed(placed.raw)
            if since.is_due(policy):
                packed = freeze(fold.state, row.generation, end, blocks.prefix_sha256()).encode()
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
            with closing(plain.segment(piece)) as segment:
                known[at // BLOCK_BYTES :] = segment.footer().meta.blocks
            at = piece.end or 0
        whole = min(at, offset) // BLOCK_BYTES
        self._known = known[:whole]
        self._rest = BlockHashes(whole * BLOCK_BYTES)
        for _, data in plain.read(whole * BLOCK_BYTES, offset):
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
