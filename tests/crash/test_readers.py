"""Readers beside a process that captures and compacts: none ever fails, and none is given less than was captured before it began."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from coldtrail.home import Home
from coldtrail.model import Position
from coldtrail.recover import Selection, StreamReader
from coldtrail.session import Session
from crash.workers import captured, until, working
from crash.working import RealClock, id_of, truth
from world_of import World, metas, small_sizes

READERS = int(os.environ.get("COLDTRAIL_READERS") or 4)
SECONDS = float(os.environ.get("COLDTRAIL_READERS_SECONDS") or 4)
WHOLE = truth()


@pytest.fixture(autouse=True)
def _small() -> Iterator[None]:
    with small_sizes():
        yield


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


class Reader:
    """A thread with a home of its own that reads the same way again and again."""

    def __init__(self, world: World, read: Callable[[Home], int]) -> None:
        self._world, self._read = world, read
        self.count = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.failed: BaseException | None = None
        self._thread.start()

    def _run(self) -> None:
        try:
            with self._world.open() as home:
                while not self._stop.is_set():
                    floor = captured(self._world)
                    length = self._read(home)
                    assert length >= floor, f"{length} bytes, though {floor} were captured before"
                    self.count += 1
        except BaseException as error:  # noqa: BLE001 - a thread has no caller
            self.failed = error

    def stop(self) -> None:
        """End it."""
        self._stop.set()
        self._thread.join()


def test_readers_never_fail_nor_fall_short_while_their_segments_are_compacted(tmp_path: Path) -> None:
    world = World(tmp_path, RealClock())
    world.main().parent.mkdir()
    with working(world, writes=True) as process:
        until(lambda: captured(world) > 10_000, process)
        readers = [Reader(world, READS[number % len(READS)]) for number in range(READERS)]
        end_s = time.monotonic() + SECONDS
        try:
            while time.monotonic() < end_s and not any(reader.failed for reader in readers):
                threading.Event().wait(0.05)
        finally:
            for reader in readers:
                reader.stop()
    for reader in readers:
        if reader.failed is not None:
            raise reader.failed
        assert reader.count > 1
