"""Files and folders that the user who runs coldtrail may not read: told once each, tried again, and no deletion."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from coldtrail.stage.restore import Passed
from pipeline.stage.places import faults, put_back, the_session, the_stream
from world_of import Lines, World, metas

NOBODY = 65_534
HOUR_MS = 3_600_000


@contextlib.contextmanager
def as_nobody() -> Iterator[None]:
    """Root may read everything: for a while, be somebody who may not."""
    is_root = os.geteuid() == 0
    if is_root:
        os.setegid(NOBODY)
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        if is_root:
            os.seteuid(0)
            os.setegid(0)


@pytest.fixture
def foreign(world: World, lines: Lines) -> Iterator[World]:
    """A world that belongs to nobody."""
    world.write(world.main(), lines.some(1))
    world.scan()  # loads what nobody might not be allowed to load
    folder = Path(tempfile.mkdtemp(prefix="coldtrail-"))
    if os.geteuid() == 0:
        os.chown(folder, NOBODY, NOBODY)
    with as_nobody():
        world = World(folder)
        world.write(world.main("-mine", "mine"), Lines(world.clock, "mine").some(2))
    yield world
    for path in folder.rglob("*"):
        if path.is_dir():
            path.chmod(0o700)
    shutil.rmtree(folder)


def test_a_file_without_any_right_is_one_warning_and_the_others_go_on(foreign: World) -> None:
    closed = foreign.main("-mine", "closed")
    with as_nobody():
        foreign.write(closed, Lines(foreign.clock, "closed").some(2))
        closed.chmod(0)
        for _ in range(3):
            foreign.scan()
            foreign.clock.tick(HOUR_MS)
        assert list(faults(foreign)) == [closed]
        with foreign.open() as home:
            (fault,) = home.catalog.faults()
            assert (fault.tries, fault.hint) == (3, "give the user that runs coldtrail the right to read it")
            assert {row.id: row.bytes > 0 for row in home.catalog.sessions()} == {"mine": True, "closed": False}
        closed.chmod(0o600)
        foreign.scan()
        assert faults(foreign) == {}
        with foreign.open() as home:
            assert all(row.bytes for row in home.catalog.sessions())


def test_a_folder_that_may_no_longer_be_read_is_no_deletion_of_what_is_in_it(foreign: World) -> None:
    with as_nobody():
        folder = foreign.main("-other", "other").parent
        foreign.write(foreign.main("-other", "other"), Lines(foreign.clock, "other").some(2))
        foreign.scan()
        folder.chmod(0)
        assert foreign.scan().gone == 0
        assert list(faults(foreign)) == [folder]
        with foreign.open() as home:
            assert {row.state for row in home.catalog.sessions()} == {"live"}
        folder.chmod(0o700)
        assert foreign.scan().gone == 0
        assert faults(foreign) == {}


def test_a_root_that_may_not_be_read_is_told_and_no_deletion(foreign: World) -> None:
    with as_nobody():
        foreign.scan()
        foreign.root.chmod(0)
        assert foreign.scan().gone == 0
        assert list(faults(foreign)) == [foreign.root]
        foreign.root.chmod(0o700)
        foreign.scan()
        assert faults(foreign) == {}


def test_a_file_that_was_held_and_may_no_longer_be_read_stays_as_it_was_held(foreign: World) -> None:
    with as_nobody():
        foreign.scan()
        log = foreign.main("-mine", "mine")
        data = log.read_bytes()
        foreign.append(log, Lines(foreign.clock, "mine").line())
        log.chmod(0)
        foreign.scan()
        with foreign.open() as home:
            meta = the_stream(home)
            assert b"".join(part for _, part in home.plain(meta, 0).read()) == data
            assert b"".join(the_session(home).raw()) == data
        log.chmod(0o400)
        foreign.clock.tick(HOUR_MS)
        assert foreign.scan().captured == 1


def test_a_folder_that_may_not_be_written_to_holds_up_only_its_own_files(foreign: World) -> None:
    with as_nobody():
        foreign.write(foreign.companion("-mine", "mine"), b"output")
        foreign.scan()
        folder = foreign.main("-mine", "mine").parent
        shutil.rmtree(folder / "mine")
        foreign.main("-mine", "mine").unlink()
        foreign.scan()
        folder.chmod(0o500)
        with foreign.open() as home:
            done = put_back(home)
            assert [isinstance(each, Passed) and each.failed for each in done] == [True, True]
            folder.chmod(0o700)
            put_back(home)
            assert {Path(meta.path) for meta in metas(home)} == set(foreign.live())
