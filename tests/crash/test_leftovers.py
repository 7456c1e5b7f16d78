"""What a killed pin or restore leaves behind: the next start, or the next restore, finishes or removes it."""

from __future__ import annotations

from pathlib import Path

import pytest

from coldtrail.layout import TEMP_PREFIX
from coldtrail.sessions import read_manifest
from coldtrail.stage.adopt import adopt_wishes
from coldtrail.stage.rebuild import differences
from coldtrail.stage.wish import set_pin
from crash.killing import dies_at, steps_of
from crash.scenarios import restore_all
from world_of import Lines, World

pytestmark = pytest.mark.usefixtures("small")


def captured(folder: Path, *, pinned: bool, sealed: bool) -> World:
    """A session that was pinned, or not."""
    world = World(folder)
    world.write(world.main(), Lines(world.clock).some(5))
    world.scan()
    if sealed:
        world.compact(cold=True)
    pin(world, pinned)
    return world


def pin(world: World, wanted: bool) -> None:
    with world.open() as home:
        (session,) = home.catalog.sessions()
        set_pin(home, session, pinned=wanted)


def pins(world: World) -> tuple[bool, bool]:
    """By the manifest and by the catalog."""
    with world.open() as home:
        (row,) = home.catalog.sessions()
        return read_manifest(home, row.source, row.key).pinned, bool(row.pinned)


@pytest.mark.parametrize("sealed", [False, True], ids=["no manifest yet", "sealed"])
@pytest.mark.parametrize("wanted", [True, False], ids=["pin", "unpin"])
def test_a_pin_killed_at_any_step_is_in_the_catalog_after_the_next_start_if_it_is_in_the_manifest(
    tmp_path: Path, wanted: bool, sealed: bool
) -> None:
    reference = captured(tmp_path / "reference", pinned=not wanted, sealed=sealed)
    steps = steps_of(lambda: pin(reference, wanted))
    apart = 0
    for step in range(1, len(steps) + 1):
        world = captured(tmp_path / str(step), pinned=not wanted, sealed=sealed)
        assert dies_at(step, lambda world=world: pin(world, wanted)), steps[step - 1]  # type: ignore[misc]
        by_manifest, by_catalog = pins(world)
        apart += by_manifest != by_catalog
        with world.open() as home:
            assert adopt_wishes(home) == []
            assert differences(home) == ([], []), steps[step - 1]
        assert pins(world) == (by_manifest, by_manifest), steps[step - 1]
        pin(world, wanted)
        assert pins(world) == (wanted, wanted)
    assert apart, "no step comes between the two"


def test_a_running_daemon_takes_it_up_with_the_sessions_next_compaction(tmp_path: Path) -> None:
    world = captured(tmp_path, pinned=False, sealed=True)
    with world.open() as home:
        (row,) = home.catalog.sessions()
        set_pin(home, row, pinned=True)
        home.catalog.put(row)
    assert pins(world) == (True, False)
    world.append(world.main(), Lines(world.clock, count=5).some(5))
    world.scan()
    world.compact(cold=True)
    assert pins(world) == (True, True)


def test_an_archive_that_is_not_there_lifts_no_pin(tmp_path: Path) -> None:
    world = captured(tmp_path, pinned=True, sealed=True)
    world.layout.archive.rename(tmp_path / "unmounted")
    with world.open() as home:
        assert adopt_wishes(home) == []
        assert home.catalog.sessions()[0].pinned


def cut_back(folder: Path) -> World:
    """Everything is captured, and the live file is shorter than what is held, so that a restore overwrites it."""
    world = captured(folder, pinned=False, sealed=True)
    world.write(world.main(), world.main().read_bytes()[:300])
    return world


def test_of_a_restore_killed_at_any_step_no_temp_is_left_after_the_next_one(tmp_path: Path) -> None:
    def put_back(world: World) -> None:
        with world.open() as home:
            restore_all(home, overwrite=True)

    reference = cut_back(tmp_path / "reference")
    steps, left = steps_of(lambda: put_back(reference)), 0
    whole = reference.main().read_bytes()
    for step in range(1, len(steps) + 1):
        world = cut_back(tmp_path / str(step))
        assert dies_at(step, lambda world=world: put_back(world)), steps[step - 1]  # type: ignore[misc]
        left += len(temps(world))
        put_back(world)
        assert temps(world) == [], steps[step - 1]
        assert world.main().read_bytes() == whole
    assert left, "no step leaves one"


def temps(world: World) -> list[Path]:
    return list(world.folder.rglob(f"{TEMP_PREFIX}restore-*"))
