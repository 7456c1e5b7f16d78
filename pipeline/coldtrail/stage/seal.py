"""Write one sealed segment into the archive, and believe it only after reading it back."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from coldtrail import checkpoints, durable, indexes
from coldtrail.agents.base import Agent
from coldtrail.archive.base import Opened
from coldtrail.errors import CorruptionError
from coldtrail.facts import Facts
from coldtrail.filesource import FileSource
from coldtrail.format import segment
from coldtrail.format.checkpoint import directory
from coldtrail.format.frames import Compressor, Frame, Work
from coldtrail.format.index import RecordIndex
from coldtrail.format.manifest import StreamMeta
from coldtrail.format.segment import BLOCK_BYTES, BlockHashes, SegmentMeta
from coldtrail.home import Home
from coldtrail.indexer import Indexer
from coldtrail.layout import SegmentName
from coldtrail.plain import Piece, Plain, SegmentFile

FAST_FRAME_BYTES = 1 << 20
FAST_LEVEL = 3
DENSE_FRAME_BYTES = 4 << 20  # larger ones gain nothing on real sessions, and cost memory and latency
DENSE_WINDOW_LOG = 22


@dataclass(frozen=True, slots=True)
class Order:
    """A segment to be made: which bytes, and how hard to compress them."""

    start: int
    end: int
    dense: bool
    level: int  # of a dense one


@dataclass(frozen=True, slots=True)
class Sealing:
    """What was sealed."""

    meta: SegmentMeta
    live_same: bool  # the agent's live file, where there is one, still has the same bytes


Pace = Callable[[int], None]


def at_once(_size: int) -> None:
    """The pace of who does not wait."""


def seal(home: Home, stream: StreamMeta, plain: Plain, order: Order, live_fd: int | None, pace: Pace = at_once) -> Sealing:
    """Make, publish and read back the sealed segment [start, end) of a stream's generation, at a `pace`.

    CorruptionError where the bytes cannot be read, or what was published does not decode to them; the sources stay.
    """
    name = SegmentName(order.start, order.end)
    key = f"{home.layout.generation_key(stream.host, stream.source, stream.stream, plain.generation)}/{name}"
    describer = _Describer(home.agents[stream.agent] if stream.is_log else None, plain, order)
    with durable.unfinished(home.archive.staging(key) / str(name)) as (fd, temp):
        writer = _Writer(fd, temp, order)
        live_same = _copy(plain, order, writer, describer, live_fd, pace)
        meta = SegmentMeta(
            agent=stream.agent,
            stream=stream.stream,
            generation=plain.generation,
            start=order.start,
            end=order.end,
            sha256=writer.sha256.hexdigest(),
            blocks=writer.blocks.digests(),
            dense=order.dense,
            tail_bytes=order.end - describer.pending,
            facts=describer.facts.to_json(),
        )
        kept = _checkpoints(plain, home.layout.generation(stream.stream, plain.generation), order)
        durable.write_all(fd, segment.close(writer.frames, meta, describer.index, kept), temp)
        durable.sync_fd(fd, temp)
        try:
            home.archive.publish(temp, key)
        except FileExistsError:  # an interrupted run's, or the very source, which was made for speed: it stays until this is proven
            _prove(FileSource(temp, home.work), name, meta, home.work)
            home.archive.supersede(temp, key)
            return Sealing(meta, live_same)
    try:
        _prove(home.archive.open(key), name, meta, home.work)
    except CorruptionError:
        home.archive.remove(key)  # its sources are still there
        raise
    return Sealing(meta, live_same)


def _prove(written: Opened, name: SegmentName, meta: SegmentMeta, work: Work) -> None:
    """Decode a finished segment from end to end; CorruptionError where that does not give the bytes that were sealed."""
    digest = hashlib.sha256()
    with closing(SegmentFile(written, name, work)) as found:
        if found.footer().meta.sha256 != meta.sha256:
            raise CorruptionError(written.label, 0, "the published segment holds other bytes than were sealed")
        for _, data in found.chunks(name.start, meta.end):
            digest.update(data)
    if digest.hexdigest() != meta.sha256:
        raise CorruptionError(written.label, 0, "the published segment does not decode to the bytes that were sealed")


class _Describer:
    """Index and facts of a segment: joined from its sealed sources, made anew for what comes behind them."""

    def __init__(self, agent: Agent | None, plain: Plain, order: Order) -> None:
        self.facts = Facts()
        base_ms, record_start = _before(plain, order.start)
        self.index = RecordIndex(base_ms, record_start)
        self._at = order.start
        for piece in indexes.cover(plain):
            if not piece.name.is_open and piece.name.start == self._at and (piece.end or 0) <= order.end:
                record_start = self._join(plain, piece)
        self._indexer = Indexer(agent, record_start) if agent else None
        self.pending = record_start if agent else order.end
        if self._indexer is not None:
            for _, data in plain.read(record_start, self._at):
                self._indexer.feed(data)

    def _join(self, plain: Plain, piece: Piece) -> int:
        with closing(plain.segment(piece)) as source:
            footer = source.footer()
            for row in source.index(footer).rows():
                self.index.add(row)
        self.facts.merge(Facts.from_json(footer.meta.facts))
        self._at = footer.meta.end
        return self._at - footer.meta.tail_bytes

    def feed(self, offset: int, data: bytes) -> None:
        """Take the segment's next bytes; those of sealed sources are known already."""
        if self._indexer is None or offset + len(data) <= self._at:
            return
        for row in self._indexer.feed(data[max(0, self._at - offset) :]):
            self.index.add(row)
        self.facts.merge(self._indexer.take_facts())
        self.pending = self._indexer.pending


def _before(plain: Plain, start: int) -> tuple[int | None, int]:
    """The running maximum of the times before `start`, and where the record begins that goes on there."""
    for piece in indexes.cover(plain):
        if piece.end == start and not piece.name.is_open:
            with closing(plain.segment(piece)) as source:
                footer = source.footer()
                return source.index(footer).running_ms, start - footer.meta.tail_bytes
    return None, start


def _checkpoints(plain: Plain, folder: Path, order: Order) -> bytes:
    """The checkpoints within the segment, from its sealed sources and from the file beside the open ones; none is made."""
    entries: dict[int, bytes] = {}
    for piece in indexes.cover(plain):
        if not piece.name.is_open and order.start <= piece.name.start and (piece.end or 0) <= order.end:
            entries.update(checkpoints.sealed_entries(plain, piece))
    entries.update(each for each in checkpoints.read_file(folder) if order.start < each[0] <= order.end)
    return directory(sorted(entries.items())) if entries else b""


def _copy(plain: Plain, order: Order, writer: _Writer, describer: _Describer, live_fd: int | None, pace: Pace) -> bool:
    """Feed writer and describer; gives whether the live file has the same bytes in the same places."""
    for _, data in plain.read(writer.blocks.start, order.start):
        writer.blocks.feed(data)
    same = True
    for offset, data in plain.read(order.start, order.end):
        pace(len(data))
        writer.feed(data)
        describer.feed(offset, data)
        if live_fd is not None and same:
            same = os.pread(live_fd, len(data), offset) == data
    writer.finish()
    return same


class _Writer:
    """Plain bytes in, frames out, cut at line ends where there are any."""

    def __init__(self, fd: int, path: Path, order: Order) -> None:
        self._fd, self._path = fd, path
        self._goal = DENSE_FRAME_BYTES if order.dense else FAST_FRAME_BYTES
        self._compressor = Compressor(order.level, window_log=DENSE_WINDOW_LOG) if order.dense else Compressor(FAST_LEVEL)
        self._held = bytearray()
        self.frames: list[Frame] = []
        self.sha256 = hashlib.sha256()
        self.blocks = BlockHashes(order.start // BLOCK_BYTES * BLOCK_BYTES)

    def feed(self, data: bytes) -> None:
        """Take the segment's next bytes."""
        self.sha256.update(data)
        self.blocks.feed(data)
        self._held += data
        while len(self._held) >= self._goal:
            self._flush(self._held.rfind(b"\n", 0, self._goal) + 1 or self._goal)

    def finish(self) -> None:
        """Write what is left."""
        if self._held:
            self._flush(len(self._held))

    def _flush(self, length: int) -> None:
        frame = self._compressor.frame(self._held[:length])
        del self._held[:length]
        durable.write_all(self._fd, frame, self._path)
        self.frames.append(Frame(self.frames[-1].end if self.frames else 0, len(frame), length))
