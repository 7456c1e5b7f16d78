"""Killed at any durable step, once or twice: everything is there, exactly once, and the next start finishes what was begun."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from coldtrail.format.manifest import StreamMeta
from coldtrail.layout import TEMP_PREFIX
from coldtrail.stage.rebuild import adopt, rebuild
from crash.killing import dies_at, steps_of
from crash.scenarios import SCENARIOS, Scenario, Story
from world_of import Held, Lines, World, assert_sound, events, generation_bytes, held, listed, metas, small_sizes

each_scenario = pytest.mark.parametrize("scenario", SCENARIOS, ids=str)


@pytest.fixture(autouse=True)
def _small() -> Iterator[None]:
    with small_sizes():
        yield


@dataclass(frozen=True, slots=True)
class Before:
    """What is held and what is live when the work begins."""

    held: dict[str, list[bytes]]  # by stream
    live: dict[Path, bytes]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run that was never killed leaves."""

    held: dict[Path, list[Held]]  # paths below the world's folder
    listed: list[dict[str, object]]
    events: list[list[tuple[str, str, str | None]]]
    live: dict[Path, bytes]


def begin(folder: Path, scenario: Scenario) -> tuple[World, Before]:
    """A world in which the work is about to begin."""
    world = World(folder)
    story = Story(world, Lines(world.clock), Lines(world.clock, session="child123-0000"))
    scenario.before(story)
    with world.open() as home:
        known = {meta.stream: _generations(world, meta) for meta in metas(home)}
    world.clock.tick(60_000)
    scenario.change(story)
    return world, Before(known, world.live())


def _generations(world: World, meta: StreamMeta) -> list[bytes]:
    with world.open() as home:
        return [generation_bytes(home, meta, each.number) for each in meta.generations]


def outcome(world: World) -> Outcome:
    """All that is to be the same whether it was killed or not."""
    with world.open() as home:
        return Outcome(
            {path.relative_to(world.folder): each for path, each in held(home).items()},
            listed(home, world.folder),
            [events(home, meta) for meta in metas(home) if meta.is_log],
            {path.relative_to(world.folder): data for path, data in world.live().items()},
        )


def assert_nothing_lost(world: World, before: Before, whole: dict[Path, bytes]) -> None:
    """Right after the crash, as a starting daemon finds it: what was held is held, and no file is there in part."""
    with world.open() as home:
        assert adopt(home) == []
        assert_sound(home)
        now = {meta.stream: _generations(world, meta) for meta in metas(home)}
    for stream, generations in before.held.items():
        kept = now[stream][: len(generations)]
        assert kept[:-1] == generations[:-1]
        assert kept[-1].startswith(generations[-1])
    for path, data in world.live().items():
        assert data in (before.live.get(path), whole.get(path.relative_to(world.folder))), f"{path} is there in part"
        assert not path.name.startswith(TEMP_PREFIX)
    assert before.live.keys() <= world.live().keys()


def assert_finished(world: World, reference: Outcome) -> None:
    """After the work was done again: as if nothing had happened, and the catalog says what the files say."""
    found = outcome(world)
    assert found == reference
    with world.open() as home:
        assert_sound(home)
        assert rebuild(home) == []
        assert listed(home, world.folder) == found.listed


def undisturbed(folder: Path, scenario: Scenario) -> tuple[Outcome, list[str]]:
    """The outcome of a run that is not killed, and its durable steps."""
    world, _ = begin(folder, scenario)
    steps = steps_of(lambda: scenario.act(world))
    scenario.act(world)
    return outcome(world), steps


def each_kill(folder: Path, scenario: Scenario, steps: list[str]) -> Iterator[tuple[str, World, Before, Callable[[], None]]]:
    """A world for each step of the work, killed there."""
    for step in range(1, len(steps) + 1):
        world, before = begin(folder / str(step), scenario)

        def work(world: World = world) -> None:
            scenario.act(world)

        assert dies_at(step, work)
        yield f"step {step}: {steps[step - 1]}", world, before, work


@each_scenario
def test_killed_at_any_step_everything_is_there_once_and_the_next_start_finishes_it(scenario: Scenario, tmp_path: Path) -> None:
    reference, steps = undisturbed(tmp_path / "reference", scenario)
    for where, world, before, work in each_kill(tmp_path, scenario, steps):
        try:
            assert_nothing_lost(world, before, reference.live)
            work()
            assert_finished(world, reference)
        except BaseException as error:
            error.add_note(f"killed at {where}")
            raise
