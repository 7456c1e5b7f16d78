"""How soon what an agent writes is safe, seen from the agent: while nothing else is going on, and no scan is due."""

from __future__ import annotations

import statistics
import time
from pathlib import Path

import pytest

from bench.measuring import show
from daemon.test_daemon import World
from daemon.waiting import until

pytestmark = pytest.mark.bench
TIMES = 5
LINE_MAX_S = 3.0


def held_after_s(world: World) -> float:
    """How long it takes until all that was written is in the store."""
    began_s = time.monotonic()
    until(lambda: world.held() == world.log.read_bytes())
    return time.monotonic() - began_s


def test_a_whole_line_is_held_within_3_seconds(tmp_path: Path) -> None:
    world = World(tmp_path / "user")
    world.append()
    took_s = []
    with world.daemon():
        for _ in range(TIMES):
            world.append()
            took_s.append(held_after_s(world))
    show("a line", median_s=statistics.median(took_s), most_s=max(took_s))
    assert max(took_s) < LINE_MAX_S


def test_the_first_line_of_an_agent_installed_later_is_held_within_3_seconds(tmp_path: Path) -> None:
    world = World(tmp_path / "user")
    for folder in (world.log.parent, *world.log.parents[1:3]):
        folder.rmdir()
    with world.daemon():
        world.log.parent.mkdir(parents=True)
        world.append()
        took_s = held_after_s(world)
    show("the first line of an agent", took_s=took_s)
    assert took_s < LINE_MAX_S
