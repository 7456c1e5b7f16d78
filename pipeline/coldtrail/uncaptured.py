"""What stands in an agent's file and is in no answer yet: it was made again or rewritten, and nobody has captured it since."""

from __future__ import annotations

import os
from pathlib import Path

from coldtrail.catalog import StreamRow
from coldtrail.errors import SourceError
from coldtrail.format.manifest import StreamMeta
from coldtrail.home import Home
from coldtrail.model import Elsewhere, Gap
from coldtrail.stage import prove
from coldtrail.stage.source import opened


def uncaptured(home: Home, meta: StreamMeta) -> Gap | None:
    """The bytes of the generation that the next capture will begin; None where the file is what is held, or has only grown.

    It costs a stat where nothing has changed, both ends of the file where it has grown, and all of it where it was only touched.
    """
    row = home.catalog.stream(meta.stream)
    if row is None or row.generation != meta.newest.number:
        return None  # it is being captured now
    try:
        with opened(Path(meta.path)) as fd:
            found = os.fstat(fd)
            if not found.st_size or prove.unchanged(row, found) or _goes_on(home, row, fd, found) or _was_put_back(home, meta, found):
                return None
    except SourceError:
        return None
    what = f"the {found.st_size} bytes that are in {meta.path} now are not captured yet; `coldtrail run --once` does it"
    return Elsewhere(meta.newest.number + 1, 0, found.st_size, what)


def _goes_on(home: Home, row: StreamRow, fd: int, found: os.stat_result) -> bool:
    """Whether the file begins with what is held of it.

    Of one that has grown its ends tell, and of one that was not met since a rebuild; of any other all is compared.
    """
    if not prove.ends_match(row, fd) or (not row.is_log and found.st_size != row.held):
        return False
    has_grown = found.st_size > row.held and row.identity == prove.identity(found)
    return has_grown or not row.identity or prove.same_bytes(home.plain_of(row.source, row.stream, row.generation), row.held, fd)


def _was_put_back(home: Home, meta: StreamMeta, found: os.stat_result) -> bool:
    """Whether we wrote the file, joined from several generations, and it is as we did."""
    mark = meta.restored
    if mark is None or (mark.device, mark.inode) != (found.st_dev, found.st_ino):
        return False
    return found.st_size == sum(home.plain(meta, number).end() for number in home.newest_chain(meta))
