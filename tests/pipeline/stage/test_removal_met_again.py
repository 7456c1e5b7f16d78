"""What was removed is met again in the agent's folder: let be, brought back, or never taken."""

from __future__ import annotations

import os

import pytest

from coldtrail.format.wishes import Act
from coldtrail.stage import expire
from coldtrail.stage.verify import verify
from pipeline.stage.removing import kept, marked, removed, the_session
from world_of import Lines, World

pytestmark = pytest.mark.usefixtures("small")


# ---- files that are met again -------------------------------------------------------------------------------------------


def test_an_empty_file_of_an_expired_session_brings_nothing_back(world: World, lines: Lines) -> None:
    kept(world, lines)
    removed(world)
    assert world.scan().new_bytes == 0
    with world.open() as home:
        assert home.catalog.sessions() == []


@pytest.mark.parametrize(("act", "back"), [(Act.EXPIRED, True), (Act.PURGED, False)])
def test_a_new_file_of_a_removed_session_brings_an_expired_one_back_and_no_purged_one(
    world: World, lines: Lines, act: Act, back: bool
) -> None:
    kept(world, lines)
    removed(world, act)
    world.clock.tick(10_000)
    new = world.child().with_name("agent-b2.jsonl")
    world.append(new, lines.some(2))
    for _ in range(2):
        world.scan()
    with world.open() as home:
        assert bool(home.catalog.sessions()) == back
        if back:
            everything = sum(len(data) for data in world.live().values())
            assert the_session(home).bytes == everything, "the whole of its bundle"


def test_a_file_that_cannot_be_read_brings_no_expired_session_back(world: World, lines: Lines, monkeypatch: pytest.MonkeyPatch) -> None:
    kept(world, lines)
    world.append(world.child().with_name("agent-b2.jsonl"), lines.some(2))
    removed(world)
    monkeypatch.setattr(os, "access", lambda path, *_: "agent-b2" not in str(path))
    world.scan()
    with world.open() as home:
        assert home.catalog.graves()


def test_a_file_that_nobody_had_captured_when_its_session_expired_brings_it_back(world: World, lines: Lines) -> None:
    kept(world, lines)
    world.append(world.child().with_name("agent-b2.jsonl"), lines.some(2))
    world.clock.tick(10_000)
    removed(world)
    world.scan()
    world.scan()
    with world.open() as home:
        assert home.catalog.graves() == []
        assert the_session(home).bytes == sum(len(data) for data in world.live().values())


def test_new_files_of_a_kept_session_with_the_id_of_a_purged_one_are_captured(world: World, lines: Lines) -> None:
    kept(world, lines)
    twin = Lines(world.clock)
    world.append(world.main("-q"), twin.some(5))
    world.scan()
    with world.open() as home:
        (row,) = [row for row in home.catalog.sessions() if "-p" in row.paths]
        expire.remove(home, row, Act.PURGED, "asked for")
    new = world.child("-q").with_name("agent-b2.jsonl")
    world.append(new, twin.some(2))
    world.scan()
    with world.open() as home:
        assert the_session(home).bytes == world.main("-q").stat().st_size + new.stat().st_size


def test_a_grave_that_is_lifted_before_its_files_were_cleared_leaves_nothing_behind(world: World, lines: Lines) -> None:
    kept(world, lines)
    marked(world)
    with world.open() as home, pytest.MonkeyPatch.context() as patch:
        patch.setattr(expire, "clear", lambda *_: None)
        expire.remove(home, the_session(home), Act.EXPIRED, "rule 1")
        old = set(home.store.streams())
    world.append(world.main(), lines.line())
    world.scan()
    with world.open() as home:
        assert old
        assert not old & set(home.store.streams())
        assert verify(home).word == "ok"
