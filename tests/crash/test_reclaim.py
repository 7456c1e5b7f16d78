"""Killed, or without power, at any step of a reclaim, once or twice: every line is somewhere, and the next runs finish or undo it."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from coldtrail import durable
from coldtrail.home import Home
from coldtrail.stage import aside
from coldtrail.stage.adopt import adopt
from coldtrail.stage.rebuild import differences
from coldtrail.stage.reclaim import WAIT_MS, Act
from crash.image import Image
from crash.killing import EVERY, chosen, dies_at, steps_of
from reclaiming import AFTER_MS, Cold, assert_in_order_and_held, lost, settle
from world_of import assert_sound, metas

pytestmark = pytest.mark.usefixtures("small")


@dataclass(frozen=True, slots=True)
class Scene:
    """What a reclaim may be at when it is killed."""

    name: str
    before: Callable[[Cold], None]
    ends: Act  # of a run that is not killed

    def __str__(self) -> str:
        return self.name

    def begin(self, folder: Path) -> Cold:
        """A session right before."""
        cold = Cold.made(folder)
        self.before(cold)
        return cold


def _nothing(cold: Cold) -> None:
    """It may go."""


def _waited(cold: Cold) -> None:
    assert cold.step().act is Act.SET_ASIDE
    cold.world.clock.tick(WAIT_MS)


def _grown_aside(cold: Cold) -> None:
    _waited(cold)
    with cold.world.open() as home:
        meta = next(each for each in metas(home) if each.path == str(cold.world.main()))
    with Path(aside.record(meta).path).open("ab") as file:
        file.write(cold.line())


def _place_taken(cold: Cold) -> None:
    _grown_aside(cold)
    cold.world.append(cold.world.main(), cold.line())
    cold.scan()


SCENES = (
    Scene("the first look", _nothing, Act.SET_ASIDE),
    Scene("the second look", _waited, Act.RECLAIMED),
    Scene("put back", _grown_aside, Act.PUT_BACK),
    Scene("put back where its place is taken", _place_taken, Act.PUT_BACK),
)
each_scene = pytest.mark.parametrize("scene", SCENES, ids=str)


def start_and_step(cold: Cold) -> None:
    """As a daemon that was killed begins again."""
    with cold.world.open() as home:
        assert adopt(home) == []
    cold.step()


def assert_nothing_lost(cold: Cold, contents: dict[Path, set[bytes]]) -> None:
    """Every line is somewhere, nothing of ours is damaged, and what is in the agent's folder is whole."""
    with cold.world.open() as home:
        assert adopt(home) == []
        assert_sound(home)
    assert lost(cold) == []
    for path, data in cold.world.live().items():
        assert data in contents[path], f"{path} is there in part"


def assert_finished(cold: Cold) -> None:
    """After some more passes everything is in order; and when the session is cold again it goes."""
    settle(cold)
    assert_in_order_and_held(cold)
    cold.world.compact(cold=True)
    cold.world.clock.tick(AFTER_MS)
    cold.scan()
    with cold.world.open() as home:
        if _is_live(home):
            assert cold.reclaim().act is Act.RECLAIMED
    assert cold.world.live() == {}
    assert_in_order_and_held(cold)
    with cold.world.open() as home:
        assert_sound(home)
        assert differences(home) == ([], [])


def _is_live(home: Home) -> bool:
    return any(row.gone_ms is None for row in home.catalog.all_streams())


def contents(cold: Cold) -> dict[Path, set[bytes]]:
    """What each file in the agent's folder may be: as it is, as it waits aside, or as it is held."""
    found: dict[Path, set[bytes]] = {}
    with cold.world.open() as home:
        for meta in metas(home):
            places = [Path(meta.path)] + ([Path(meta.aside.path)] if meta.aside is not None else [])
            found[Path(meta.path)] = {path.read_bytes() for path in places if path.exists()}
    return found


@each_scene
def test_killed_at_any_step_nothing_is_lost_and_the_next_runs_finish_it(scene: Scene, tmp_path: Path) -> None:
    steps = steps_of(lambda: _undisturbed(scene, tmp_path / "reference"))
    for step in chosen(len(steps)):
        cold = scene.begin(tmp_path / str(step))
        may_be = contents(cold)
        try:
            assert dies_at(step, cold.step)
            assert_nothing_lost(cold, may_be)
            assert_finished(cold)
        except BaseException as error:
            error.add_note(f"killed at step {step} of {len(steps)}, {steps[step - 1]}")
            raise


def _undisturbed(scene: Scene, folder: Path) -> None:
    """Only the steps of the last act count, so the scene is made without them being told."""
    hook, durable.fault_hook = durable.fault_hook, None
    cold = scene.begin(folder)
    durable.fault_hook = hook
    assert cold.step().act is scene.ends


@each_scene
def test_killed_twice_nothing_is_lost_and_the_run_after_that_finishes_it(scene: Scene, tmp_path: Path) -> None:
    count = len(steps_of(lambda: _undisturbed(scene, tmp_path / "reference")))
    chance = random.Random(count)
    for number in range(count if EVERY else 4):
        cold = scene.begin(tmp_path / str(number))
        may_be = contents(cold)
        first, second = (chance.randint(1, count) for _ in range(2))
        try:
            for step in (first, second):
                dies_at(step, lambda cold=cold: start_and_step(cold))  # type: ignore[misc]
                assert_nothing_lost(cold, may_be)
            assert_finished(cold)
        except BaseException as error:
            error.add_note(f"killed at step {first}, then at step {second}")
            raise


@pytest.mark.skipif(not os.path.exists("/proc/self/fd"), reason="names of open folders are read from /proc")
@each_scene
def test_at_a_power_cut_nothing_is_lost(scene: Scene, tmp_path: Path) -> None:
    steps = steps_of(lambda: _undisturbed(scene, tmp_path / "reference"))
    for step in chosen(len(steps), 4):
        cold = scene.begin(tmp_path / str(step))
        may_be = contents(cold)
        try:
            assert dies_at(step, cold.step, power=cold.world.folder, disk=Image)
            assert_nothing_lost(cold, may_be)
            assert_finished(cold)
        except BaseException as error:
            error.add_note(f"no power at step {step} of {len(steps)}, {steps[step - 1]}")
            raise
