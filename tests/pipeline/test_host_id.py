"""The host id: made once, found again where it was lost, and never silently another one."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from coldtrail.agents import agents
from coldtrail.errors import ColdtrailError
from coldtrail.home import Home
from coldtrail.layout import Layout
from world_of import Clock, Lines, World, metas

DAMAGES: dict[str, Callable[[Path], object]] = {
    "emptied": lambda path: path.write_bytes(b""),
    "cut": lambda path: path.write_bytes(path.read_bytes()[:7]),
    "zeroed": lambda path: path.write_bytes(b"\0" * 17),
    "no text": lambda path: path.write_bytes(b"\xff\xfe" * 8),
    "another text": lambda path: path.write_text("not a host id at all\n"),
    "removed": lambda path: path.unlink(),
}
each_damage = pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)


@pytest.fixture
def world(tmp_path: Path) -> World:
    """One session, captured and sealed."""
    made = World(tmp_path)
    made.write(made.main(), Lines(made.clock).some(5))
    made.scan()
    made.compact(cold=True)
    return made


def hosts(world: World) -> list[str]:
    return sorted(path.name for path in world.layout.archive.iterdir())


def grow_and_seal(world: World) -> None:
    world.append(world.main(), Lines(world.clock, count=5).some(5))
    world.scan()
    world.compact(cold=True)


@each_damage
@pytest.mark.parametrize("lost", ["nothing else", "the store", "the catalog"])
def test_a_damaged_or_lost_one_is_found_again_in_what_is_kept(world: World, damage: Callable[[Path], object], lost: str) -> None:
    before = world.layout.host_id.read_bytes()
    if lost == "the store":
        shutil.rmtree(world.layout.store)
    if lost == "the catalog":
        world.forget_catalog()
    damage(world.layout.host_id)
    with world.open() as home:
        assert home.host == before.decode().strip()
    assert world.layout.host_id.read_bytes() == before
    assert world.layout.host_id.stat().st_mode & 0o7777 == 0o600
    if lost == "nothing else":
        grow_and_seal(world)
    assert hosts(world) == [before.decode().strip()]


@each_damage
def test_where_what_is_kept_is_of_several_hosts_it_is_asked_and_not_guessed(world: World, damage: Callable[[Path], object]) -> None:
    with world.open() as home:
        ours, (meta,) = home.host, metas(home)
        home.store.write_meta(replace(meta, stream="00000000000000aa", host="00000000000000bb"))
    damage(world.layout.host_id)
    with pytest.raises(ColdtrailError, match="host-id: lost or damaged") as raised:
        world.open()
    assert ours in str(raised.value)
    assert "00000000000000bb" in str(raised.value)
    assert "write the one" in raised.value.hint
    world.layout.host_id.write_text(f"{ours}\n")
    with world.open() as home:
        assert home.host == ours


def test_a_damaged_one_of_a_home_in_which_nothing_is_kept_is_an_error_that_says_what_to_do(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.open().close()
    world.layout.host_id.write_bytes(b"")
    with pytest.raises(ColdtrailError, match="host-id: damaged") as raised:
        world.open()
    assert "remove the file" in raised.value.hint
    world.layout.host_id.unlink()
    world.open().close()


def test_the_archive_of_several_machines_makes_nobody_one_of_them(world: World) -> None:
    """It lies outside the home: a new machine that shares it has an id of its own."""
    shared = world.folder / "shared"
    world.layout.archive.rename(shared)
    layout = Layout.at(world.folder / "new", shared)
    with Home.open(layout, agents(), Clock()) as home:
        assert home.host not in hosts_of(shared)
    layout.host_id.write_bytes(b"")
    with pytest.raises(ColdtrailError, match="host-id: damaged"):
        Home.open(layout, agents(), Clock())


def hosts_of(archive: Path) -> list[str]:
    return [path.name for path in archive.iterdir()]


def test_a_damaged_stream_tells_nothing_of_the_host_and_stops_nobody(world: World) -> None:
    (path,) = world.layout.store.glob("*/meta.json")
    path.write_bytes(path.read_bytes().replace(b'"host": "', b'"host": "f'))
    before = world.layout.host_id.read_bytes()
    world.layout.host_id.unlink()
    with world.open() as home:
        assert home.host == before.decode().strip()
