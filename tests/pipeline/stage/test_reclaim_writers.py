"""An agent that comes back at any step of a reclaim loses no line it has written, whatever its way to write."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from coldtrail.stage.reclaim import WAIT_MS, Act
from crash.killing import steps_of
from reclaiming import AGENTS, Agent, Cold, Holder, Mapper, Reopener, assert_in_order_and_held, at_step, lost, settle
from world_of import small_sizes

pytestmark = pytest.mark.skipif(not os.path.exists("/proc/locks"), reason="who waits for a lease is read from /proc/locks")

EVERY = bool(os.environ.get("COLDTRAIL_EVERY_STEP"))
SOME = 7

each_agent = pytest.mark.parametrize("kind", AGENTS, ids=[kind.__name__ for kind in AGENTS])


@pytest.fixture(autouse=True)
def _small() -> Iterator[None]:
    with small_sizes():
        yield


def chosen(count: int) -> list[int]:
    """Some of the steps, or all where that is asked for."""
    every = list(range(1, count + 1))
    return every if EVERY or count <= SOME else sorted(random.Random(count).sample(every, SOME))


def steps(folder: Path, *, second: bool) -> int:
    """How many durable steps the first or the second look has."""
    cold = Cold.made(folder, companion=False)
    if second:
        assert cold.step().act is Act.SET_ASIDE
        cold.world.clock.tick(WAIT_MS)
    return len(steps_of(cold.step))


@each_agent
@pytest.mark.parametrize("second", [False, True], ids=["the first look", "the second look"])
@pytest.mark.parametrize("lasting", [False, True], ids=["ends", "goes on"])
def test_an_agent_that_comes_back_at_any_step_loses_nothing(kind: type[Agent], *, second: bool, lasting: bool, tmp_path: Path) -> None:
    """One that goes on writes between the looks, and after them, and is still there when everything is over."""
    for step in chosen(steps(tmp_path / "count", second=second)):
        cold = Cold.made(tmp_path / str(step), companion=False)
        agent = kind(cold)
        if second:
            assert cold.step().act is Act.SET_ASIDE
            cold.world.clock.tick(WAIT_MS)
        assert at_step(step, agent.act, cold.step)
        if lasting:
            for _ in range(3):
                agent.act()
                assert lost(cold) == [], f"at step {step}"
                cold.world.clock.tick(WAIT_MS)
                cold.step()
                cold.scan()
            agent.act()
        agent.end()
        assert lost(cold) == [], f"at step {step}"
        settle(cold)
        assert lost(cold) == [], f"at step {step}"
        assert_in_order_and_held(cold)


@each_agent
def test_an_agent_that_is_there_before_keeps_its_session_where_it_is(kind: type[Agent], tmp_path: Path) -> None:
    """One that holds its file by being seen, one that does not by what it has written."""
    cold = Cold.made(tmp_path)
    agent = kind(cold)
    agent.act()
    outcome = cold.step()
    assert outcome.act is Act.KEPT
    assert cold.world.main().exists()
    agent.end()
    settle(cold)
    assert_in_order_and_held(cold)


@pytest.mark.parametrize("kind", [Holder, Mapper], ids=["Holder", "Mapper"])
def test_one_that_holds_a_captured_file_without_writing_keeps_it(kind: type[Agent], tmp_path: Path) -> None:
    cold = Cold.made(tmp_path)
    agent = kind(cold)
    agent.act()
    cold.scan()
    cold.world.compact(cold=True)
    cold.world.clock.tick(40 * 86_400_000)
    cold.scan()
    outcome = cold.step()
    assert outcome.act is Act.KEPT
    assert "open: pid" in outcome.reason
    agent.end()
    assert cold.step().act is Act.SET_ASIDE


def test_one_that_waits_while_its_file_is_taken_gets_it_back_in_its_place(tmp_path: Path) -> None:
    """It opens the file in the moment in which nobody may: the reclaim gives way."""
    cold = Cold.made(tmp_path)
    agent = Holder(cold)
    inode = cold.world.main().stat().st_ino
    names = [step.split()[0] for step in steps_of(Cold.made(tmp_path / "count").step)]
    assert at_step(names.index("set-aside") + 1, agent.act, cold.step)
    agent.end()
    assert cold.world.main().stat().st_ino == inode
    assert cold.world.main().read_bytes() == b"".join(cold.written)


def test_one_that_makes_its_log_again_has_it_and_the_head_is_held(tmp_path: Path) -> None:
    """Claude Code's way: the new file stays where it is, what was set aside goes, and both are one chain."""
    cold = Cold.made(tmp_path)
    assert cold.step().act is Act.SET_ASIDE
    agent = Reopener(cold)
    agent.act()
    agent.end()
    outcome = cold.step()
    assert outcome.act is Act.PUT_BACK
    assert cold.world.main().read_bytes() == cold.written[-1]
    assert cold.world.child().exists()
    settle(cold)
    assert_in_order_and_held(cold)
