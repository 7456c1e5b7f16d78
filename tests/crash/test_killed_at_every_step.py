"""Killed at any durable step, once or twice: everything is there, exactly once, and the next start finishes what was begun."""

from __future__ import annotations

import os
import random
from dataclasses import dataclass
from pathlib import Path

import pytest

from coldtrail.home import Home
from coldtrail.layout import TEMP_PREFIX
from coldtrail.stage.adopt import adopt
from coldtrail.stage.rebuild import differences
from crash.killing import EVERY, chosen, dies_at, noted, steps_of
from crash.scenarios import COMPACTIONS, LOST_STORE, SCENARIOS, Scenario, Story
from world_of import Held, Lines, World, assert_sound, events, generation_bytes, held, listed, metas

pytestmark = pytest.mark.usefixtures("small")

each_scenario = pytest.mark.parametrize("scenario", SCENARIOS, ids=str)


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
    with world.kept_open():
        scenario.before(story)
        with world.open() as home:
            known = generations(home)
        world.clock.tick(60_000)
        scenario.change(story)
    return world, Before(known, world.live())


def generations(home: Home) -> dict[str, list[bytes]]:
    """What is held of each stream's generations, by the stream's id."""
    return {meta.stream: [generation_bytes(home, meta, each.number) for each in meta.generations] for meta in metas(home)}


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
        now = generations(home)
    for stream, held_then in before.held.items():
        kept = now[stream][: len(held_then)]
        assert kept[:-1] == held_then[:-1]
        assert kept[-1].startswith(held_then[-1])
    for path, data in world.live().items():
        assert data in (before.live.get(path), whole.get(path.relative_to(world.folder))), f"{path} is there in part"
        assert not path.name.startswith(TEMP_PREFIX)
    assert before.live.keys() <= world.live().keys()


def assert_finished(world: World, reference: Outcome) -> None:
    """After the work was done again: as if nothing had happened, and the catalog says what the files say."""
    assert outcome(world) == reference
    with world.open() as home:
        assert_sound(home)
        assert differences(home) == ([], [])


def undisturbed(folder: Path, scenario: Scenario) -> tuple[Outcome, list[str]]:
    """The outcome of a run that is not killed, and its durable steps."""
    world, _ = begin(folder, scenario)
    steps = steps_of(lambda: scenario.act(world))
    scenario.act(world)
    return outcome(world), steps


@each_scenario
def test_killed_at_any_step_everything_is_there_once_and_the_next_start_finishes_it(scenario: Scenario, tmp_path: Path) -> None:
    reference, steps = undisturbed(tmp_path / "reference", scenario)
    for step in chosen(len(steps)):
        world, before = begin(tmp_path / str(step), scenario)
        with noted(f"killed at step {step} of {len(steps)}, {steps[step - 1]}"):
            assert dies_at(step, lambda world=world: scenario.act(world))  # type: ignore[misc]
            assert_nothing_lost(world, before, reference.live)
            scenario.act(world)
            assert_finished(world, reference)


@pytest.mark.parametrize("scenario", COMPACTIONS, ids=str)
def test_killed_while_it_compacts_the_next_start_tells_what_the_files_say(scenario: Scenario, tmp_path: Path) -> None:
    _, steps = undisturbed(tmp_path / "reference", scenario)
    for step in chosen(len(steps)):
        world, _ = begin(tmp_path / str(step), scenario)
        with noted(f"killed at step {step} of {len(steps)}, {steps[step - 1]}"):
            assert dies_at(step, lambda world=world: scenario.act(world))  # type: ignore[misc]
            with world.open() as home:
                assert adopt(home) == []
                assert differences(home) == ([], [])


@each_scenario
def test_killed_again_at_the_next_start_it_is_finished_by_the_one_after(scenario: Scenario, tmp_path: Path) -> None:
    reference, steps = undisturbed(tmp_path / "reference", scenario)
    chance = random.Random(len(steps))
    for number in range(len(steps) if EVERY else 1):
        world, before = begin(tmp_path / str(number), scenario)
        first, second = (chance.randint(1, len(steps)) for _ in range(2))
        with noted(f"killed at step {first}, then at step {second}"):
            for step in (first, second):
                dies_at(step, lambda world=world: start_and_act(world, scenario))  # type: ignore[misc]
                assert_nothing_lost(world, before, reference.live)
            scenario.act(world)
            assert_finished(world, reference)


@pytest.mark.skipif(not os.path.exists("/proc/self/fd"), reason="names of open folders are read from /proc")
@each_scenario
@pytest.mark.parametrize("catalog", ["kept", "behind"])
def test_at_a_power_cut_nothing_is_lost_but_what_was_not_done(scenario: Scenario, catalog: str, tmp_path: Path) -> None:
    """SQLite's own last transactions may be lost with the power too."""
    reference, steps = undisturbed(tmp_path / "reference", scenario)
    for step in chosen(len(steps), 2):
        world, before = begin(tmp_path / str(step), scenario)
        with noted(f"killed at step {step} of {len(steps)}, {steps[step - 1]}"):
            old = copied_catalog(world)
            assert dies_at(step, lambda world=world: scenario.act(world), power=world.folder)  # type: ignore[misc]
            if catalog == "behind":
                put_back_catalog(world, old)
            assert_nothing_lost(world, before, reference.live)
            scenario.act(world)
            assert_finished(world, reference)


def copied_catalog(world: World) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in world.layout.home.glob("catalog.db*")}


def put_back_catalog(world: World, old: dict[str, bytes]) -> None:
    world.forget_catalog()
    for name, data in old.items():
        (world.layout.home / name).write_bytes(data)


def test_a_rebuild_from_the_archive_alone_that_was_killed_is_finished_by_the_next(tmp_path: Path) -> None:
    """In between verify is right to say that the store does not know every stream."""
    reference, steps = undisturbed(tmp_path / "reference", LOST_STORE)
    for step in chosen(len(steps)):
        world, _ = begin(tmp_path / str(step), LOST_STORE)
        with noted(f"killed at step {step} of {len(steps)}, {steps[step - 1]}"):
            assert dies_at(step, lambda world=world: start_and_act(world, LOST_STORE))  # type: ignore[misc]
            LOST_STORE.act(world)
            assert_finished(world, reference)


def start_and_act(world: World, scenario: Scenario) -> None:
    """As a daemon that was killed begins again."""
    with world.open() as home:
        assert adopt(home) == []
    scenario.act(world)
