"""Ways to read a session, each of which says how far it came: run by processes of their own beside one that captures and compacts."""

from __future__ import annotations

import time
import traceback
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Barrier

from coldtrail.home import Home
from coldtrail.model import Position
from coldtrail.recover import Selection, StreamReader
from coldtrail.session import Session
from crash.workers import captured
from crash.working import id_of, truth
from world_of import World, metas, small_sizes

WHOLE = truth()


def read_plain(home: Home) -> int:
    """Every byte held; gives how many."""
    (meta,) = metas(home)
    at = 0
    for offset, data in home.plain(meta, 0).read():
        assert offset == at
        assert WHOLE[at : at + len(data)] == data
        at += len(data)
    return at


def read_records(home: Home) -> int:
    """Every record, what only the live file has yet too."""
    (meta,) = metas(home)
    at = 0
    with StreamReader(home, meta) as reader:
        for placed in reader.placed(Selection()):
            assert placed.record.offset == at
            assert len(placed.raw) == placed.record.length, f"a record at {at} without its bytes"
            assert WHOLE[at : at + len(placed.raw)] == placed.raw
            at += len(placed.raw)
        assert reader.gaps == []
    return at


def read_events(home: Home) -> int:
    """Every event, by the API; none left out."""
    (row,) = home.catalog.sessions()
    session, number, last = Session(home, row), -1, -1
    for event in session.events():
        if event.position.offset != last:
            number, last = number + 1, event.position.offset
        assert event.id == id_of(number)
        assert WHOLE.startswith(b'{"type":"user","uuid":"' + id_of(number).encode(), last)
    assert session.gaps == []
    return WHOLE.index(b"\n", last) + 1


def read_state(home: Home) -> int:
    """The state at the end and half-way, from wherever checkpoints lie now; right in every message."""
    (row,) = home.catalog.sessions()
    session = Session(home, row)
    found = session.recover()
    assert found.position is not None
    end = WHOLE.index(b"\n", found.position.offset) + 1
    half = WHOLE.rindex(b"\n", 0, end // 2) + 1
    for recovered, behind in ((found, end), (session.recover(before=Position(0, half)), half)):
        ids = [message.id for message in recovered.state.messages()]
        assert ids == [id_of(number) for number in range(WHOLE.count(b"\n", 0, behind))]
        assert (recovered.gaps, recovered.recovery.notes) == ([], [])
    return end


READS = (read_plain, read_records, read_events, read_state)


def read_on(world: World, number: int, seconds: float, started: Barrier, told: Queue[tuple[int, str]]) -> None:
    """A process of its own that reads the same way again and again; tells how often, and what went wrong."""
    count, read = 0, READS[number % len(READS)]
    try:
        with small_sizes(), world.open() as home:
            started.wait()
            end_s = time.monotonic() + seconds
            while time.monotonic() < end_s:
                floor = captured(world)
                length = read(home)
                assert length >= floor, f"{length} bytes, though {floor} were captured before"
                count += 1
    except BaseException:  # noqa: BLE001 - whoever has started it wants to know
        told.put((count, f"{read.__name__}: {traceback.format_exc()}"))
    else:
        told.put((count, ""))
