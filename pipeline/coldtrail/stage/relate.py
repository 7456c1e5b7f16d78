"""Begin the next generation of a stream, and say how it relates to the one before."""

from __future__ import annotations

import os
from dataclasses import replace
from functools import cache

from coldtrail import indexes
from coldtrail.catalog import StreamRow, changed
from coldtrail.format.index import id_hash
from coldtrail.format.lines import MAX_LINE_BYTES, LineSplitter
from coldtrail.format.manifest import Generation, Stamp, StreamMeta
from coldtrail.home import Home
from coldtrail.indexer import read_record
from coldtrail.model import Ids, Reading, Relation
from coldtrail.stage.identify import known_meta, row_of

_FIRST_BYTES = 256 << 10
_FIRST_RECORDS = 64


def next_generation(home: Home, row: StreamRow, fd: int, found: os.stat_result, *, mixed: bool) -> StreamRow:
    """Close the stream's generation (`mixed`: it may hold bytes of two lives) and begin one at byte 0 of the file `fd`."""
    meta = known_meta(home, row)
    relation = _relation(home, meta, row, fd, found)
    old = replace(meta.newest, stamp=home.store.last_stamp(meta, meta.newest.number), mixed=mixed or meta.newest.mixed)
    now_ms = home.now_ms()
    new = Generation(old.number + 1, now_ms, Stamp(0, found.st_mode & 0o7777, found.st_mtime_ns, now_ms), relation)
    meta = replace(meta.with_generation(old).with_generation(new), gone_ms=None, restored=None)
    home.store.write_meta(meta)
    fresh = row_of(meta)
    if relation is Relation.CONTINUES:
        fresh = changed(fresh, facts=row.facts, plain_bytes=row.plain_bytes)
    return changed(fresh, grew_ms=now_ms, stored_bytes=row.stored_bytes, rolled=1)


def _relation(home: Home, meta: StreamMeta, row: StreamRow, fd: int, found: os.stat_result) -> Relation:
    if row.is_log and _goes_on(home, meta, row, fd):  # told by the records alone: a new file is often given the lost one's inode
        return Relation.CONTINUES
    mark = meta.restored
    if mark is not None and (mark.device, mark.inode) == (found.st_dev, found.st_ino):
        return Relation.RESTORED
    return Relation.REPLACES


def _goes_on(home: Home, meta: StreamMeta, row: StreamRow, fd: int) -> bool:
    """Ask the agent whether the new file's first records go on where the lost one ended."""
    agent = home.agents[row.agent]

    @cache
    def runs() -> list[indexes.Indexed]:
        plains = (home.plain(meta, generation.number) for generation in reversed(meta.chain()))
        return [run for plain in plains for run in indexes.of_generation(plain, agent, gaps=[])]

    def held(record_id: str) -> bool:
        return any(run.index.having_id(id_hash(record_id)) for run in runs())

    first = _first_readings(home, row, fd)
    own_ids = [reading.id for reading in first if reading.id is not None]
    if agent.ids is not Ids.RESTATED and own_ids and held(own_ids[0]):
        return False  # it begins with a record that was held: its head is there
    return agent.continues(first, held)


def _first_readings(home: Home, row: StreamRow, fd: int) -> list[Reading]:
    """The first records, at most _FIRST_RECORDS: those in the first _FIRST_BYTES, else the one that is longer."""
    splitter, readings = LineSplitter(0), list[Reading]()
    for at in range(0, MAX_LINE_BYTES, _FIRST_BYTES):
        records = splitter.feed(os.pread(fd, _FIRST_BYTES, at))
        readings += [found for record in records if (found := read_record(home.agents[row.agent], record)) is not None]
        if readings or splitter.pending_start + splitter.pending_length < at + _FIRST_BYTES:
            break
    return readings[:_FIRST_RECORDS]
