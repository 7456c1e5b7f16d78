"""What an agent wrote anew and nobody has captured: no answer passes it over in silence, and following takes it in."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from coldtrail import Gap
from coldtrail.home import Home
from pipeline.following import Stepped, by_itself, ids, nobody
from pipeline.stage.forks import CHAT, GeminiWorld
from pipeline.stage.places import put_back, the_session
from world_of import Lines, World

pytestmark = pytest.mark.usefixtures("small")

Act = Callable[[World, Lines], None]


@pytest.fixture
def lines(world: World) -> Lines:
    """A session of ten lines, captured."""
    lines = Lines(world.clock)
    world.write(world.main(), lines.some(10))
    world.scan()
    world.clock.tick(10_000)
    return lines


def made_again(world: World, lines: Lines) -> None:
    world.main().unlink()
    world.write(world.main(), lines.some(3))


def longer(world: World, lines: Lines) -> None:
    world.main().unlink()
    world.write(world.main(), lines.some(40))


def rewritten(world: World, lines: Lines) -> None:
    world.write(world.main(), Lines(world.clock, "99999999-2222-4333-8444-555555555555").some(20))


def cut(world: World, lines: Lines) -> None:
    os.truncate(world.main(), 500)


def lacking(home: Home, **how: object) -> list[Gap]:
    """The gaps of a recovery, and of the events, which are the same ones."""
    session = the_session(home)
    assert list(session.events()) != []
    found = session.gaps
    assert session.recover(**how).gaps == found  # type: ignore[arg-type]
    return found


@pytest.mark.parametrize("act", [made_again, longer, rewritten, cut])
def test_a_file_that_is_another_one_than_what_is_held_is_a_gap_until_it_is_captured(world: World, lines: Lines, act: Act) -> None:
    with world.open() as home:
        assert lacking(home) == []
    act(world, lines)
    size = world.main().stat().st_size
    with world.open() as home:
        (gap,) = lacking(home)
        assert (gap.generation, gap.start, gap.end) == (1, 0, size)
        assert f"{size} bytes" in gap.what
        assert str(world.main()) in gap.what
        assert len(the_session(home).recover().state.messages()) == 10, "what is held is told all the same"
    world.scan()
    with world.open() as home:
        assert lacking(home) == []


def test_a_file_that_has_only_grown_or_was_only_touched_is_none(world: World, lines: Lines) -> None:
    world.append(world.main(), lines.some(1))
    with world.open() as home:
        assert lacking(home) == []
        assert len(the_session(home).recover().state.messages()) == 11
    world.scan()
    world.stamp(world.main())
    world.main().chmod(0o640)
    with world.open() as home:
        assert lacking(home) == []


def test_the_same_bytes_in_another_file_are_none_and_others_with_the_same_ends_are_one(world: World, lines: Lines) -> None:
    world.append(world.main(), lines.some(40))
    world.scan()
    data = world.main().read_bytes()
    copy = world.main().with_suffix(".copy")
    copy.write_bytes(data)
    copy.rename(world.main())
    with world.open() as home:
        assert lacking(home) == []
    middle = len(data) // 2
    copy.write_bytes(data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :])
    copy.rename(world.main())
    with world.open() as home:
        assert len(lacking(home)) == 1


def test_a_file_that_is_gone_or_empty_has_nothing_to_be_captured(world: World, lines: Lines) -> None:
    os.truncate(world.main(), 0)
    with world.open() as home:
        assert lacking(home) == []
    world.main().unlink()
    with world.open() as home:
        assert lacking(home) == []


def test_a_file_that_was_put_back_from_two_lives_is_none(world: World, lines: Lines) -> None:
    made_again(world, lines)
    world.scan()
    world.main().unlink()
    world.scan()
    with world.open() as home:
        put_back(home)
    with world.open() as home:
        assert lacking(home) == []
    world.append(world.main(), lines.some(1))
    with world.open() as home:
        assert len(lacking(home)) == 1


def test_at_a_record_that_is_held_what_came_later_does_not_matter(world: World, lines: Lines) -> None:
    made_again(world, lines)
    with world.open() as home:
        session = the_session(home)
        assert session.recover(at="#4").gaps == []
        assert session.recover(at="0:0.0").gaps == []
        assert len(session.recover(at=world.clock.now_ms).gaps) == 1, "by a time it may"


def test_following_without_a_daemon_captures_it_and_tells_it_once(world: World, lines: Lines) -> None:
    made_again(world, lines)
    with world.open() as home:
        followed = Stepped(home, capture=by_itself(world))
        assert ids(followed.looks()) == [lines.id_of(number) for number in range(13)]
        assert followed.follower.gaps == []
        assert lacking(home) == []


def test_following_beside_a_daemon_waits_for_it_and_tells_it_once(world: World, lines: Lines) -> None:
    made_again(world, lines)
    with world.open() as home:
        followed = Stepped(home, capture=nobody)
        assert ids(followed.looks()) == [lines.id_of(number) for number in range(10)]
        world.scan()
        assert ids(followed.looks()) == [lines.id_of(number) for number in range(10, 13)]


def test_a_document_that_was_rewritten_is_one(tmp_path: Path) -> None:
    world = GeminiWorld(tmp_path)
    document = {"sessionId": CHAT, "messages": [{"id": "m1", "type": "user", "content": "hello"}]}
    world.write(world.chat(".json"), json.dumps(document).encode())
    world.scan()
    document["messages"] = [{"id": "m1", "type": "user", "content": "hello"}, {"id": "m2", "type": "user", "content": "again"}]
    world.write(world.chat(".json"), json.dumps(document).encode())
    with world.open() as home:
        session = the_session(home)
        assert len(session.recover().gaps) == 1
