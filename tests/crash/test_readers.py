"""Readers beside a process that captures and compacts: none ever fails, and none is given less than was captured before it began."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing.context import SpawnProcess
from multiprocessing.queues import Queue
from pathlib import Path
from queue import Empty

import pytest

from coldtrail.recover import Selection, StreamReader
from coldtrail.session import Session
from crash.readers import WHOLE, read_on
from crash.workers import captured, until, working
from crash.working import RealClock
from world_of import World, metas

pytestmark = pytest.mark.usefixtures("small")

READERS = int(os.environ.get("COLDTRAIL_READERS") or 16)
SECONDS = float(os.environ.get("COLDTRAIL_READERS_SECONDS") or 2)
WAL_MAX_BYTES = 16 << 20  # SQLite begins it anew at 4 MB, unless a reader keeps it from that


@contextmanager
def reading(world: World) -> Iterator[tuple[list[SpawnProcess], Queue[tuple[int, str]]]]:
    """Processes that read for a while, and what they tell."""
    spawning = multiprocessing.get_context("spawn")
    started, told = spawning.Barrier(READERS), spawning.Queue()
    readers = [spawning.Process(target=read_on, args=(world, number, SECONDS, started, told)) for number in range(READERS)]
    for reader in readers:
        reader.start()
    try:
        yield readers, told
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
        with reading(world) as (readers, told):
            results: list[tuple[int, str]] = []
            while len(results) < READERS:
                with suppress(Empty):
                    results.append(told.get(timeout=0.05))
                largest = max(largest, wal_bytes(world))
                assert process.poll() is None
                assert not any(reader.exitcode for reader in readers)
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
