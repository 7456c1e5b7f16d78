"""The state of a log that is being written: from its checkpoints, where it has been captured, else from the file alone."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

from coldtrail.agents.event_log import AGENT as EVENT_LOG
from coldtrail.catalog import Catalog
from coldtrail.errors import SourceError
from coldtrail.filesource import FileSource
from coldtrail.format.frames import Work
from coldtrail.format.manifest import Generation, PathSeen, Stamp, StreamMeta
from coldtrail.home import Home, new_id
from coldtrail.model import Role
from coldtrail.recover import StreamReader
from coldtrail.recovery import recover
from coldtrail.state import State

_PROOF_BYTES = 4096


def state_of(home: Home, path: Path) -> State:
    """The state at the end of an event log, what nobody has captured yet included; `home` may be closed, or another thread's."""
    with replace(home, catalog=Catalog(home.layout.catalog), work=Work()) as own, _reader(own, path) as reader:
        return recover(reader).state


@contextmanager
def _reader(home: Home, path: Path) -> Iterator[StreamReader]:
    """The log at `path`, with what is archived of it if that goes on to the end of the file."""
    try:
        with FileSource(path) as file:
            size, tail = file.size, file.read_at(max(0, file.size - _PROOF_BYTES), _PROOF_BYTES)
    except OSError as error:
        raise SourceError(path, error.strerror or str(error)) from error
    row = home.catalog.stream_at(os.fsencode(path))
    meta = home.store.meta(row.stream) if row is not None else None
    if meta is not None:
        with closing(StreamReader(home, meta)) as reader:
            number = meta.newest.number
            if reader.end(number) >= size and reader.content(number).get(size - len(tail), size) == tail:
                yield reader
                return
    with closing(StreamReader(home, _uncaptured(home, path))) as reader:
        yield reader


def _uncaptured(home: Home, path: Path) -> StreamMeta:
    """What there is to say of a file of which nothing is held."""
    return StreamMeta(
        stream=new_id(),
        session=new_id(),
        host=home.host,
        source=path.parent.name,
        agent=EVENT_LOG.name,
        root=str(path.parent),
        session_id=path.stem,
        scope="",
        role=Role.MAIN,
        is_log=True,
        paths=(PathSeen(str(path), 0),),
        generations=(Generation(0, 0, Stamp(0, 0, 0, 0)),),
    )
