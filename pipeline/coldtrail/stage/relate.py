"""Begin the next generation of a stream, and say how it relates to the one before."""

from __future__ import annotations

import os
from dataclasses import replace

from coldtrail import indexes
from coldtrail.catalog import StreamRow, changed
from coldtrail.format.manifest import Generation, Stamp, StreamMeta
from coldtrail.home import Home
from coldtrail.model import Relation
from coldtrail.stage.identify import known_meta, row_of
from coldtrail.stage.succession import FIRST_BYTES, Succession


def next_generation(home: Home, row: StreamRow, fd: int, found: os.stat_result, *, mixed: bool) -> StreamRow:
    """Close the stream's generation (`mixed`: it may hold bytes of two lives) and begin one at byte 0 of the file `fd`."""
    meta = known_meta(home, row)
    old = replace(meta.newest, stamp=home.store.last_stamp(meta, meta.newest.number), mixed=mixed or meta.newest.mixed)
    now_ms = home.now_ms()
    stamp = Stamp(0, found.st_mode & 0o7777, found.st_mtime_ns, now_ms)
    new = _related(home, meta, Generation(old.number + 1, now_ms, stamp), fd, found)
    meta = replace(meta.with_generation(old).with_generation(new), gone_ms=None, restored=None)
    home.store.write_meta(meta)
    return changed(row_of(meta), grew_ms=now_ms, stored_bytes=row.stored_bytes, rolled=1)


def is_in_doubt(home: Home, row: StreamRow) -> bool:
    """Whether how the newest generation relates to the one before may still come out: none of its records told who it is."""
    if not row.generation or not row.is_log or row.held > FIRST_BYTES:
        return False
    if known_meta(home, row).newest.relation is not Relation.REPLACES:
        return False
    plain = home.plain_of(row.source, row.stream, row.generation)
    return not any(any(run.index.id_hashes) for run in indexes.of_generation(plain, home.agents[row.agent]))


def related_anew(home: Home, row: StreamRow, fd: int) -> bool:
    """Ask again how the newest generation relates to the ones before; whether it is otherwise than was thought."""
    meta = known_meta(home, row)
    before = replace(meta, generations=meta.generations[:-1])
    new = _related(home, before, meta.newest, fd, os.fstat(fd))
    if new == meta.newest:
        return False
    home.store.write_meta(meta.with_generation(new))
    return True


def _related(home: Home, before: StreamMeta, new: Generation, fd: int, found: os.stat_result) -> Generation:
    """The new generation with its links to those `before`.

    Told by the bytes and the records alone: a new file is often given the lost one's inode.
    """
    if before.is_log:
        succession = Succession(home, before, fd)
        lost = succession.lost
        if lost.continues is not None and succession.begins_alike():  # cut back, or captured anew: it stands where the lost one stood
            return replace(new, relation=Relation.REPLACES, continues=lost.continues)
        if succession.goes_on():
            return replace(new, relation=Relation.CONTINUES, continues=lost.number)
    mark = before.restored
    put_back = mark is not None and (mark.device, mark.inode) == (found.st_dev, found.st_ino)
    return replace(new, relation=Relation.RESTORED if put_back else Relation.REPLACES, continues=None)
