"""Many small files at first sight: the same streams as one by one, for a handful of syncs."""

from __future__ import annotations

import os
import sqlite3
from collections import Counter
from pathlib import Path

import pytest

from coldtrail import durable
from coldtrail.catalog import Catalog
from coldtrail.errors import StoreFullError
from coldtrail.home import Home
from coldtrail.stage import firsts
from coldtrail.stage.source import opened
from coldtrail.stage.verify import verify
from crash.killing import dies_at
from world_of import Lines, World, held, small_sizes

pytestmark = pytest.mark.usefixtures("small")


def many(world: World, count: int) -> None:
    """So many sessions, each with a child and a companion."""
    for number in range(count):
        lines = Lines(world.clock, f"{number:08d}-2222-4333-8444-555555555555")
        world.append(world.main(session=lines.session), lines.some(2))
        world.append(world.child(session=lines.session), lines.line())
        world.write(world.companion(session=lines.session), b"output\n")


def contents(home: Home) -> dict[Path, list[bytes]]:
    return {path: [each.data for each in generations] for path, generations in held(home).items()}


def test_they_become_what_they_become_one_by_one(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    many(world, 7)
    world.scan()
    monkeypatch.setattr(firsts, "FILE_MAX_BYTES", 0)
    other = World(tmp_path / "other")
    (world.root / "projects").rename(tmp_path / "projects")
    (other.root / "projects").rmdir()
    (tmp_path / "projects").rename(other.root / "projects")
    other.scan()
    with world.open() as ours, other.open() as theirs:
        mine = {path.relative_to(world.root): data for path, data in contents(ours).items()}
        assert mine == {path.relative_to(other.root): data for path, data in contents(theirs).items()}
        for key in ("id", "state", "records", "bytes", "title", "project", "first_ms", "last_ms"):
            assert sorted(str(getattr(row, key)) for row in ours.catalog.sessions()) == sorted(
                str(getattr(row, key)) for row in theirs.catalog.sessions()
            ), key
        assert len(ours.catalog.sessions()) == 7, "each with its bundle"
        assert verify(ours).word == "ok"


def test_what_is_made_durable_does_not_grow_with_the_files(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    many(world, 40)
    steps: Counter[str] = Counter()
    monkeypatch.setattr(durable, "fault_hook", lambda name, _path: steps.update([name]))
    assert world.scan().captured == 120
    assert steps["sync-all"] == 1
    assert steps["sync"] + steps["sync-folder"] < 12, steps


def test_growth_behind_them_is_appended_to_the_same_streams(world: World) -> None:
    many(world, 3)
    world.scan()
    lines = Lines(world.clock, f"{1:08d}-2222-4333-8444-555555555555", count=2)
    world.append(world.main(session=lines.session), lines.some(3))
    world.scan()
    with world.open() as home:
        assert contents(home)[world.main(session=lines.session)] == [world.main(session=lines.session).read_bytes()]
        assert verify(home).word == "ok"


@pytest.mark.parametrize("power_fails", [False, True])
def test_killed_at_every_step_nothing_is_half_there_and_the_next_pass_has_it_all(world: World, tmp_path: Path, power_fails: bool) -> None:
    many(world, 1)
    live = world.live()
    step = 1
    while dies_at(step, world.scan, power=world.layout.home if power_fails else None):
        with world.open() as home:
            verdict = verify(home)
            assert verdict.word == "ok", (step, verdict.findings)
        world.scan()
        with world.open() as home:
            assert contents(home) == {path: [data] for path, data in live.items()}, step
            assert verify(home).word == "ok"
            assert len(home.catalog.sessions()) == 1
        os.rename(world.layout.home, tmp_path / f"trail-{step}-{power_fails}")
        step += 1
    assert step > 12


def test_a_file_that_cannot_be_read_is_told_as_ever_and_the_others_are_taken(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    many(world, 3)

    def failing(path: Path) -> object:
        if path == world.companion(session=f"{1:08d}-2222-4333-8444-555555555555"):
            raise PermissionError(13, "Permission denied", str(path))
        return opened(path)

    monkeypatch.setattr("coldtrail.stage.capture.opened", failing)
    tally = world.scan()
    assert (tally.captured, tally.failed) == (8, 1)
    with world.open() as home:
        (fault,) = home.catalog.faults()
        assert b"t1.txt" in fault.place
        assert verify(home).word == "ok"


@pytest.mark.parametrize("alone", [b"", b"{}\n" * 400_000], ids=["an empty one", "a large one"])
def test_a_file_that_is_taken_by_itself_joins_those_that_are_taken_together(world: World, alone: bytes) -> None:
    lines = Lines(world.clock)
    for path in (world.main(), world.child(), world.companion()):
        world.write(path, lines.some(2))
    world.write(world.companion().with_name("alone.txt"), alone)
    world.write(world.child().with_name("agent-b2.jsonl"), alone or b"{}\n")
    world.scan()
    with world.open() as home:
        assert len(home.catalog.sessions()) == 1


def test_a_file_with_a_second_name_becomes_one_stream(world: World) -> None:
    many(world, 1)
    (world.root / "projects" / "-linked").symlink_to(world.root / "projects" / "-p")
    world.scan()
    with world.open() as home:
        assert len(contents(home)) == 3


def test_where_the_catalog_cannot_take_them_nothing_of_them_is_left(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    many(world, 3)
    put = Catalog.put
    tries = Counter[str]()

    def full(catalog: Catalog, row: object) -> None:
        tries["put"] += 1
        if tries["put"] == 6:
            raise StoreFullError(world.layout.catalog)
        put(catalog, row)  # type: ignore[arg-type]

    monkeypatch.setattr(Catalog, "put", full)
    with pytest.raises((StoreFullError, sqlite3.Error)):
        world.scan()
    monkeypatch.undo()
    with small_sizes():
        world.scan()
        with world.open() as home:
            assert sorted(contents(home)) == sorted(world.live())
            assert len(home.catalog.sessions()) == 3
            assert verify(home).word == "ok"
