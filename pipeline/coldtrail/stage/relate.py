"""Begin the next generation of a stream, and say how it relates to the one before."""

from __future__ import annotations

import itertools
import os
from dataclasses import replace

from coldtrail import indexes
from coldtrail.catalog import StreamRow, changed
from coldtrail.format.index import id_hash
from coldtrail.format.lines import LineSplitter
from coldtrail.format.manifest import Generation, Stamp, StreamMeta
from coldtrail.home import Home
from coldtrail.indexer import read_record
from coldtrail.model import Reading, Relation
from coldtrail.stage import prove
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
    mark = meta.restored
    if mark is not None and (mark.device, mark.inode) == (found.st_dev, found.st_ino):
        return Relation.RESTORED
    made_again = row.gone_ms is not None or row.identity not in ("", prove.identity(found))
    if row.is_log and made_again and _goes_on(home, meta, row, fd):
        return Relation.CONTINUES
    return Relation.REPLACES


def _goes_on(home: Home, meta: StreamMeta, row: StreamRow, fd: int) -> bool:
    """Ask the agent whether the new file's first records go on where the lost one ended."""
    agent = home.agents[row.agent]

    def held(record_id: str) -> bool:
        wanted = id_hash(record_id)
        runs = itertools.chain.from_iterable(
            indexes.of_generation(home.plain(meta, generation.number), agent, gaps=[]) for generation in reversed(meta.chain())
        )
        return any(run.index.having_id(wanted) for run in runs)

    return agent.continues(_first_readings(home, row, fd), held)


def _first_readings(home: Home, row: StreamRow, fd: int) -> list[Reading]:
    records = LineSplitter(0).feed(os.pread(fd, _FIRST_BYTES, 0))
    readings = (read_record(home.agents[row.agent], record) for record in records)
    return list(itertools.islice((reading for reading in readings if reading is not None), _FIRST_RECORDS))
