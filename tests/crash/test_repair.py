"""A repair that is killed at any step leaves a segment that is damaged as before, or whole; the next one ends it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from coldtrail.home import Home
from coldtrail.stage.adopt import adopt, tidy
from coldtrail.stage.rebuild import differences
from coldtrail.stage.repair import repair
from coldtrail.stage.verify import verify
from coldtrail.store import DAMAGED_SUFFIX
from crash.killing import dies_at, steps_of
from world_of import Lines, World, assert_sound, generation_bytes, metas

pytestmark = pytest.mark.usefixtures("small")


def flipped(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 3] ^= 0x10
    path.write_bytes(data)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-10])


def removed(path: Path) -> None:
    path.unlink()


def begin(folder: Path, damage: Callable[[Path], None]) -> World:
    """A world with a damaged segment, whose bytes the agent's file still has."""
    world = World(folder)
    world.write(world.main(), Lines(world.clock).some(40, size=300))
    with world.kept_open():
        world.scan()
        world.compact(cold=True)
    (segment,) = world.layout.archive.rglob("*.jsonl.zst")
    damage(segment)
    return world


def mend(world: World) -> None:
    with world.open() as home:
        list(repair(home, verify(home).damaged))


def assert_nothing_worse(world: World) -> None:
    """What the archive holds is the damaged segment, or a whole one under its name, and no part of one."""
    whole = world.main().read_bytes()
    with world.open() as home:
        assert adopt(home) == []
        if not [each for each in verify(home).findings if each.spot is not None]:
            assert held(home) == whole
    kept = list(world.layout.archive.rglob(f"*{DAMAGED_SUFFIX}"))
    assert len(kept) <= 1


def held(home: Home) -> bytes:
    (meta,) = metas(home)
    return generation_bytes(home, meta, 0)


@pytest.mark.parametrize("power", [False, True], ids=["killed", "power cut"])
@pytest.mark.parametrize("damage", [flipped, cut, removed])
def test_killed_at_any_step_a_repair_is_ended_by_the_next(damage: Callable[[Path], None], power: bool, tmp_path: Path) -> None:
    world = begin(tmp_path / "reference", damage)
    steps = steps_of(lambda: mend(world))
    for step in range(1, len(steps) + 1):
        world = begin(tmp_path / str(step), damage)
        assert dies_at(step, lambda world=world: mend(world), power=world.folder if power else None), steps[step - 1]  # type: ignore[misc]
        assert_nothing_worse(world)
        mend(world)
        with world.open() as home:
            assert_sound(home)
            assert differences(home) == ([], [])
            assert held(home) == world.main().read_bytes()
            world.clock.tick(1 << 40)
            tidy(home, 0)
        assert not list(world.layout.home.rglob(f"*{DAMAGED_SUFFIX}")), steps[step - 1]
