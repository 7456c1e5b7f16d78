"""Readers beside a process that captures and compacts: none ever fails, and none is given less than was captured before it began."""

from __future__ import annotations

import multiprocessing
import os
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Barrier
from pathlib import Path
from queue import Empty

import pytest

from coldtrail.home import Home
from coldtrail.model import Position
from coldtrail.recover import Selection, StreamReader
from coldtrail.session import Session
from crash.workers import captured, until, working
from crash.working import RealClock, id_of, truth
from world_of import World, metas, small_sizes

READERS = int(os.environ.get("COLDTRAIL_READERS") or 16)
SECONDS = float(os.environ.get("COLDTRAIL_READERS_SECONDS") or 2)
WAL_MAX_BYTES = 16 << 20  # SQLite begins it anew at 4 MB, unless a reader keeps it from that
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


@contextmanager
def reading(world: World) -> Iterator[Queue[tuple[int, str]]]:
    """Processes that read for a while, and what they tell."""
    spawning = multiprocessing.get_context("spawn")
    started, told = spawning.Barrier(READERS), spawning.Queue()
    readers = [spawning.Process(target=read_on, args=(world, number, SECONDS, started, told)) for number in range(READERS)]
    for reader in readers:
        reader.start()
    try:
        yield told
        for reader in readers:
            reader.join(60)
            assert reader.exitcode == 0
    finally:
        for reader in readers:
            reader.kill()


def test_sixteen_processes_read_while_all_is_captured_and_compacted_and_none_fails_nor_falls_short(tmp_path: Path) -> None:
    world = World(tmp_path, RealClock())
    world.main().parent.mkdir()
    largest = 0
    with working(world, writes=True) as process:
        until(lambda: captured(world) > 10_000, process)
        with reading(world) as told:
            results: list[tuple[int, str]] = []
            while len(results) < READERS:
                with suppress(Empty):
                    results.append(told.get(timeout=0.05))
                largest = max(largest, wal_bytes(world))
                assert process.poll() is None
    assert [failure for _, failure in results if failure] == []
    assert min(count for count, _ in results) >= 1
    assert sum(count for count, _ in results) > READERS
    assert 0 < largest < WAL_MAX_BYTES


def wal_bytes(world: World) -> int:
    with world.open() as home, suppress(FileNotFoundError):
        return home.layout.catalog.with_name(home.layout.catalog.name + "-wal").stat().st_size
    return 0


def test_who_reads_for_long_while_all_is_compacted_again_and_again_reads_each_record_once(tmp_path: Path) -> None:
    """The reader holds its place in the records and in the catalog; that keeps nobody from going on, nor the catalog's log from ending."""
    world = World(tmp_path, RealClock())
    world.main().parent.mkdir()
    with working(world, writes=True) as process, world.open() as home:
        until(lambda: captured(world) > 60_000, process)
        streams = home.catalog.all_streams()
        stream = next(streams)  # the rest is never asked for
        goal, at = captured(world), 0
        with StreamReader(home, metas(home)[0]) as reader:
            for placed in reader.placed(Selection()):
                assert placed.record.offset == at
                assert WHOLE[at : at + len(placed.raw)] == placed.raw
                at += len(placed.raw)
                if at % 16 == 0:
                    before = captured(world)
                    until(lambda before=before: captured(world) > before, process)  # type: ignore[misc] # of each turn its own
                if at >= goal:
                    break
            assert reader.gaps == []
        assert at >= goal
        until(lambda: captured(world) > goal, process)
        assert wal_bytes(world) < WAL_MAX_BYTES
        (row,) = home.catalog.sessions()
        assert (row.key, list(streams)) == (stream.session, [])
        assert Session(home, row).recover().position is not None
