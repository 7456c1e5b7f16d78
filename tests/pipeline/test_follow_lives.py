"""Following a session whose file is moved, made again, rewritten, cut or taken back: each life is told by itself, none twice."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from coldtrail import Event, Position, tail
from coldtrail.home import Home
from coldtrail.tail import TAKEN_BACK
from pipeline.following import QUIET_MS, Stepped, by_itself, generations, grown, ids, numbers
from pipeline.stage.forks import CHAT, GeminiWorld
from pipeline.stage.places import CodexWorld, put_back, the_session, twin_of
from world_of import Lines, World, small_sizes


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with small_sizes():
        yield World(tmp_path)


@pytest.fixture
def lines(world: World) -> Lines:
    return Lines(world.clock)


@pytest.fixture
def home(world: World) -> Iterator[Home]:
    with world.open() as home:
        yield home


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
    data = world.main().read_bytes()
    copy = world.folder / "copy"
    copy.write_bytes(data + lines.some(1))
    copy.replace(world.main())
    assert ids(follower.look()) == numbers(lines, 40, 41)
    copy.write_bytes(data.replace(lines.id_of(20).encode(), b"another") + lines.some(1))
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


# --- what was not captured yet ---


def test_what_is_taken_back_before_it_was_captured_is_noted_and_read_as_it_is_now(world: World, lines: Lines, home: Home) -> None:
    grown(world, lines.some(5))
    follower = Stepped(home)
    follower.look()
    kept, lost = lines.some(2), lines.some(2)
    world.append(world.main(), kept + lost + lines.line()[:30])
    assert ids(follower.look()) == numbers(lines, 5, 9)
    end = world.main().stat().st_size - 30
    with world.main().open("r+b") as file:
        file.truncate(end - len(lost))
    world.append(world.main(), lines.some(3))
    assert ids(follower.looks()) == numbers(lines, 10, 13)
    assert [(gap.generation, gap.start, gap.end, gap.what) for gap in follower.follower.gaps] == [(0, end - len(lost), end, TAKEN_BACK)]
    world.scan()
    assert follower.looks() == []
    assert [(str(event.position), event.id) for event in follower.told] == [
        (str(event.position), event.id) for event in the_session(home).events()
    ]


def test_more_is_taken_back_than_is_remembered(world: World, lines: Lines, home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tail, "_LINES_MAX", 4)
    grown(world, lines.some(5))
    held = world.main().read_bytes()
    follower = Stepped(home)
    follower.look()
    world.append(world.main(), lines.some(20))
    follower.look()
    world.write(world.main(), held + lines.some(30))
    assert ids(follower.looks()) == numbers(lines, 25, 55)
    assert len(follower.follower.gaps) == 1
    assert follower.follower.gaps[0].start == len(held)


def test_an_unfinished_line_may_be_taken_back_without_a_word(world: World, lines: Lines, home: Home) -> None:
    grown(world, lines.some(5))
    held = world.main().read_bytes()
    follower = Stepped(home)
    follower.look()
    world.append(world.main(), lines.line()[:100])
    follower.look()
    world.write(world.main(), held + lines.some(2))
    assert ids(follower.looks()) == numbers(lines, 6, 8)
    assert follower.follower.gaps == []


def test_who_writes_a_file_anew_may_be_met_in_the_midst_of_it(world: World, lines: Lines, home: Home) -> None:
    grown(world, lines.some(5))
    held = world.main().read_bytes()
    follower = Stepped(home)
    follower.look()
    more = lines.some(4)
    world.append(world.main(), more)
    follower.look()
    for part in (held, held + more[:150], held + more, held + more + lines.some(1)):
        assert ids(follower.told) == numbers(lines, 0, 9)
        world.write(world.main(), part)
        follower.look()
    assert ids(follower.told) == numbers(lines, 0, 10)
    assert follower.follower.gaps == []


def test_who_reads_slowly_is_told_what_was_captured_though_the_file_has_changed_since(world: World, lines: Lines, home: Home) -> None:
    grown(world, lines.some(5))
    follower = Stepped(home)
    follower.look()
    first, second = lines.some(2), lines.some(2)
    grown(world, first + second)
    with world.main().open("r+b") as file:
        file.truncate(world.main().stat().st_size - len(second))
    world.append(world.main(), lines.some(6))
    assert ids(follower.looks()) == numbers(lines, 5, 9), "not what stands behind the first two now: that is of the next life"
    world.scan()
    assert generations(follower.looks()) == {1}


def test_a_life_that_came_and_went_unseen_is_told_by_nobody(world: World, lines: Lines, home: Home) -> None:
    grown(world, lines.some(5))
    follower = Stepped(home)
    follower.look()
    world.write(world.main(), lines.line(root=True) + lines.some(3))
    assert follower.looks() == []
    world.write(world.main(), lines.line(root=True) + lines.some(5))
    world.scan()
    assert ids(follower.looks()) == numbers(lines, 9, 15)
    assert generations(follower.told) == {0, 1}


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
