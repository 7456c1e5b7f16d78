"""Checkpoint: while a log grows, its state is noted now and then, so that no recovery replays it all."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field

from coldtrail import checkpoints, indexes
from coldtrail.catalog import StreamRow, changed
from coldtrail.errors import CorruptionError
from coldtrail.format import segment
from coldtrail.format.segment import BlockHashes, prefix_hash
from coldtrail.home import Home
from coldtrail.model import EventType, Position
from coldtrail.plain import Plain
from coldtrail.recover import Placed, Selection, StreamReader
from coldtrail.recovery import ref_of, start
from coldtrail.state import VERSION
from coldtrail.state.frozen import freeze


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
    for row in home.catalog.all_streams():
        if row.is_log and row.pending >= policy.least_bytes:
            grown = row.pending - row.checkpointed >= policy.least_bytes
            if grown or row.folded_by != VERSION or checkpoints.is_missing(home.layout.generation(row.stream, row.generation)):
                yield row


def advance(home: Home, row: StreamRow, policy: Policy) -> int:
    """Make the checkpoints that are due in a log's newest generation; gives how many. The log itself is not touched.

    They end where our copy is damaged, and at a state that no checkpoint can hold.
    """
    meta = home.store.meta(row.stream)
    if meta is None or meta.newest.number != row.generation:
        return 0
    with StreamReader(home, meta, held_only=True) as reader:
        after, made = _made(home, reader, row, policy)
    with home.changing(row.session):
        fresh = home.catalog.stream(row.stream)
        if fresh is not None and fresh.generation == row.generation:
            checkpoints.add_to_file(home.layout.generation(row.stream, row.generation), made, after=after)
            home.catalog.put(changed(fresh, checkpointed=row.pending, folded_by=VERSION))
    return len(made)


def _made(home: Home, reader: StreamReader, row: StreamRow, policy: Policy) -> tuple[int, list[checkpoints.Entry]]:
    """Where the last checkpoint of this generation stands that holds, and those that are due behind it."""
    fold, used = start(home, reader, None, checkpoints.Notes())
    after = used.offset if used is not None and used.generation == row.generation else 0
    made: list[checkpoints.Entry] = []
    try:
        blocks = _Blocks(home.plain(reader.meta, row.generation), after)
    except CorruptionError:
        return after, made
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
                try:
                    packed = freeze(fold.state, row.stream, row.generation, end, blocks.prefix_sha256()).encode()
                except ValueError:  # too large for a frame
                    break
                made.append((end, packed))
                since = Since(size=len(packed))
    return after, made


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
