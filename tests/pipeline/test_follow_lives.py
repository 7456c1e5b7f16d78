"""Following a session whose file is moved, made again, rewritten, cut or taken back: each life is told by itself, none twice."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from coldtrail import Event, Position
from coldtrail.home import Home
from pipeline.following import QUIET_MS, Stepped, by_itself, generations, grown, ids, numbers
from pipeline.stage.forks import CHAT, GeminiWorld
from pipeline.stage.places import CodexWorld, put_back, the_session, twin_of
from world_of import Lines, World, small_sizes

pytestmark = pytest.mark.usefixtures("small")


# --- what becomes of the file ---


@pytest.mark.parametrize("grows", [False, True])
def test_a_file_that_moves_goes_on_in_the_same_generation(world: World, lines: Lines, home: Home, grows: bool) -> None:
    grown(world, lines.some(5))
    follower = Stepped(home)
    follower.look()
    target = world.main("-elsewhere")
    target.parent.mkdir()
    world.main().rename(target)
    assert follower.looks() == []
    if grows:
        world.append(target, lines.some(2))
    world.scan()
    world.append(target, lines.some(2))
    assert ids(follower.looks()) == numbers(lines, 5, 9 if grows else 7)
    assert generations(follower.told) == {0}


def test_a_log_without_its_head_that_was_cut_back_is_told_behind_its_head_and_once(world: World, lines: Lines, home: Home) -> None:
    grown(world, lines.some(5))
    world.scan()
    new = lines.some(4)
    for data in (new, new[: new.index(b"\n") + 1]):
        world.main().unlink()
        world.write(world.main(), data)
        world.scan()
    follower = Stepped(home)
    assert ids(follower.looks()) == numbers(lines, 0, 6)
    assert generations(follower.told) == {0, 2}


@pytest.mark.parametrize("unfinished", ["", "torn", "whole"])
def test_a_log_made_again_without_its_head_goes_on_in_the_next_generation(world: World, lines: Lines, home: Home, unfinished: str) -> None:
    grown(world, lines.some(5))
    follower = Stepped(home)
    follower.look()
    two, last = lines.some(2), lines.line()
    grown(world, two + {"": b"", "torn": last[:50], "whole": last[:-1]}[unfinished])
    world.main().unlink()
    world.write(world.main(), lines.line(parent=lines.id_of(6)) + lines.some(2))
    assert ids(follower.looks()) == numbers(lines, 5, 7), "a new life has no number before it is captured"
    world.scan()
    world.append(world.main(), lines.some(1))
    assert ids(follower.looks()) == numbers(lines, 7 if unfinished == "whole" else 8, 12)
    assert generations(follower.told) == {0, 1}
    (meta,) = the_session(home).streams()
    assert meta.newest.relation == "continues"
    assert [(str(event.position), event.id) for event in follower.told] == [
        (str(event.position), event.id) for event in the_session(home).events()
    ]


def test_what_was_captured_of_a_file_that_is_gone_is_told(world: World, lines: Lines, home: Home) -> None:
    grown(world, lines.some(5))
    follower = Stepped(home)
    follower.look()
    grown(world, lines.some(3))
    world.main().unlink()
    assert ids(follower.look()) == numbers(lines, 5, 8)
    world.scan()
    assert follower.looks() == []


def rewrite(world: World, lines: Lines) -> bytes:
    """In place, longer than it was."""
    return lines.line(root=True) + lines.some(12)


def truncate(world: World, lines: Lines) -> bytes:
    """To two records, then past the old size."""
    kept = world.main().read_bytes().split(b"\n")[:2]
    return b"".join(line + b"\n" for line in kept) + lines.some(12)


def shorten(world: World, lines: Lines) -> bytes:
    """To two records."""
    return b"".join(line + b"\n" for line in world.main().read_bytes().split(b"\n")[:2])


@pytest.mark.parametrize("change", [rewrite, truncate, shorten])
def test_a_rewritten_log_begins_again_in_the_next_generation(
    world: World, lines: Lines, home: Home, change: Callable[[World, Lines], bytes]
) -> None:
    grown(world, lines.some(8))
    follower = Stepped(home)
    assert len(ids(follower.look())) == 8
    data = change(world, lines)
    world.write(world.main(), data)
    assert follower.looks() == [], "a new life has no number before it is captured"
    world.scan()
    told = follower.looks()
    assert generations(told) == {1}
    assert ids(told) == ids(list(the_session(home).events()))
    assert told[0].position == Position(1, 0)


def test_a_rewrite_that_only_a_whole_comparison_finds_begins_again_too(world: World, lines: Lines, home: Home) -> None:
    grown(world, lines.some(40))
    follower = Stepped(home)
    follower.look()
    stat = world.main().stat()
    data = world.main().read_bytes()
    world.main().write_bytes(data[:4000] + data[4000:4500].replace(b"/there", b"/other") + data[4500:])
    os.utime(world.main(), ns=(stat.st_mtime_ns, stat.st_mtime_ns))
    assert follower.looks() == []
    world.scan()
    assert len(ids(follower.looks())) == 40
    assert generations(follower.told) == {0, 1}


def test_a_copy_put_in_its_place_goes_on_and_a_file_with_the_same_ends_does_not(world: World, lines: Lines, home: Home) -> None:
    grown(world, lines.some(40))
    follower = Stepped(home)
    follower.look()
    copy = world.folder / "copy"
    copy.write_bytes(world.main().read_bytes() + lines.some(1))
    copy.replace(world.main())
    assert ids(follower.look()) == numbers(lines, 40, 41)
    world.scan()
    copy.write_bytes(world.main().read_bytes().replace(lines.id_of(20).encode(), b"another-id-00-0") + lines.some(1))
    assert copy.stat().st_size > world.main().stat().st_size
    copy.replace(world.main())
    assert follower.looks() == []
    world.scan()
    assert generations(follower.looks()) == {1}


def test_a_restored_file_goes_on_where_it_ended(world: World, lines: Lines, home: Home) -> None:
    grown(world, lines.some(8))
    follower = Stepped(home)
    follower.look()
    world.main().unlink()
    world.scan()
    follower.look()
    put_back(home)
    world.append(world.main(), lines.some(2))
    assert ids(follower.looks()) == numbers(lines, 8, 10)
    assert generations(follower.told) == {0}


def test_a_log_that_its_agent_has_compressed_is_followed_by_what_is_captured_of_it(tmp_path: Path) -> None:
    with small_sizes():
        world = CodexWorld(tmp_path)
        world.append(world.rollout(), world.some(5))
        world.scan()
        with world.open() as home:
            follower = Stepped(home)
            before = len(follower.look())
            world.append(world.rollout(), world.some(3))
            twin_of(world.rollout())
            world.rollout().unlink()
            assert follower.looks() == []
            world.scan()
            assert len(follower.looks()) == 3
            assert len(follower.told) == before + 3


def test_a_session_that_is_one_document_is_told_anew_each_time_it_is_rewritten(tmp_path: Path) -> None:
    world = GeminiWorld(tmp_path)
    chat = world.chat(".json")

    def said(*texts: str) -> bytes:
        messages = [{"id": f"m{number}", "type": "user", "content": text} for number, text in enumerate(texts)]
        return json.dumps({"sessionId": CHAT, "projectHash": "p", "startTime": "2026-01-01T00:00:00Z", "messages": messages}).encode()

    world.write(chat, said("one"))
    world.scan()
    with world.open() as home:
        follower = Stepped(home)
        assert texts_of(follower.look()) == ["one"]
        world.write(chat, said("one", "two"))
        assert follower.looks() == [], "whether its writer is done only a capture tells"
        world.scan()
        assert texts_of(follower.looks()) == ["one", "two"]
        assert follower.looks() == []
        world.clock.tick(QUIET_MS)
        world.write(chat, said("one", "two", "three")[:-5])
        world.scan()
        assert follower.looks() == [], "half a document is none"
        assert generations(follower.told) == {0, 1}


def texts_of(events: list[Event]) -> list[object]:
    return [event.data["content"] for event in events if event.type == "message_added"]


# --- where no daemon runs ---


def test_without_a_daemon_it_captures_what_was_made_again(world: World, lines: Lines, home: Home) -> None:
    grown(world, lines.some(5))
    follower = Stepped(home, capture=by_itself(world))
    follower.look()
    world.append(world.main(), lines.some(2))
    assert ids(follower.look()) == numbers(lines, 5, 7)
    world.main().unlink()
    assert follower.looks() == []
    world.write(world.main(), lines.line(parent=lines.id_of(6)) + lines.some(1))
    world.clock.tick(QUIET_MS)
    assert ids(follower.looks()) == numbers(lines, 7, 9)
    assert generations(follower.told) == {0, 1}


def test_without_a_daemon_it_finds_a_file_that_was_moved(world: World, lines: Lines, home: Home) -> None:
    grown(world, lines.some(5))
    follower = Stepped(home, capture=by_itself(world))
    follower.look()
    target = world.main("-elsewhere")
    target.parent.mkdir()
    world.main().rename(target)
    world.append(target, lines.some(2))
    assert ids(follower.looks()) == numbers(lines, 5, 7)
    assert generations(follower.told) == {0}


def test_nothing_is_captured_as_long_as_the_file_only_grows(world: World, lines: Lines, home: Home) -> None:
    asked: list[str] = []

    def capture(session: str) -> bool:
        asked.append(session)
        return False

    grown(world, lines.some(5))
    follower = Stepped(home, capture=capture)
    for _ in range(3):
        world.append(world.main(), lines.some(2))
        follower.looks()
    assert asked == []
    world.main().unlink()
    follower.looks(3)
    assert len(asked) == 3, "as long as somebody else holds the lock it is tried again"
    world.scan()
    follower.looks(3)
    assert len(asked) == 3, "a file that is known to be gone is nothing to capture"


def test_what_a_capture_of_its_own_did_not_settle_is_not_captured_again_and_again(world: World, lines: Lines, home: Home) -> None:
    asked: list[str] = []

    def capture(session: str) -> bool:
        asked.append(session)
        return True

    grown(world, lines.some(5))
    follower = Stepped(home, capture=capture)
    world.main().unlink()
    follower.looks()
    assert len(asked) == 1
    world.write(world.main(), lines.line(root=True))
    follower.looks()
    assert len(asked) == 2
