"""Following what is not captured yet: it may be taken back, cut, written anew while it is read; nothing of two lives is mixed."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from coldtrail import tail
from coldtrail.home import Home
from coldtrail.recover import StreamReader
from coldtrail.tail import TAKEN_BACK, LogTail
from pipeline.following import Stepped, generations, grown, ids, numbers
from pipeline.stage.places import flip_bit, the_session, the_stream
from world_of import Lines, World

pytestmark = pytest.mark.usefixtures("small")


def cut(world: World, length: int) -> None:
    """The agent shortens its log by so many bytes."""
    with world.main().open("r+b") as file:
        file.truncate(world.main().stat().st_size - length)


def read_now(home: Home) -> list[tuple[str, str | None]]:
    """What whoever begins now is told."""
    return [(str(event.position), event.id) for event in the_session(home).events()]


def told_to(follower: Stepped) -> list[tuple[str, str | None]]:
    """What a follower was told, what was taken back left out."""
    return [(str(event.position), event.id) for event in follower.told]


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


def test_what_is_only_cut_off_is_noted_at_once(world: World, lines: Lines, home: Home) -> None:
    grown(world, lines.some(5))
    follower = Stepped(home)
    follower.look()
    kept, lost = lines.some(2), lines.some(2)
    world.append(world.main(), kept + lost)
    follower.look()
    cut(world, len(lost) + 20)
    assert follower.looks() == []
    assert ids(follower.told) == numbers(lines, 0, 6)
    assert len(follower.follower.gaps) == 1
    world.append(world.main(), b"\n" + lines.line())
    assert ids(follower.looks()) == numbers(lines, 9, 10)


def test_what_still_stands_after_it_may_be_taken_back_too(world: World, lines: Lines, home: Home) -> None:
    grown(world, lines.some(5))
    follower = Stepped(home)
    follower.look()
    parts = [lines.some(2) for _ in range(3)]
    world.append(world.main(), b"".join(parts))
    follower.look()
    cut(world, len(parts[2]))
    follower.looks()
    cut(world, len(parts[1]))
    world.append(world.main(), lines.some(4))
    assert ids(follower.looks()) == numbers(lines, 11, 15)
    assert told_to(follower) == read_now(home)


def test_what_was_captured_in_its_place_is_told_though_the_file_has_changed_again(world: World, lines: Lines, home: Home) -> None:
    grown(world, lines.some(5))
    follower = Stepped(home)
    follower.look()
    lost = lines.some(4)
    world.append(world.main(), lost)
    follower.look()
    cut(world, len(lost))
    grown(world, lines.some(1))
    world.write(world.main(), lines.line(root=True))
    world.scan()
    assert ids(follower.looks()) == numbers(lines, 9, 11)
    assert generations(follower.told) == {0, 1}
    assert len(follower.follower.gaps) == 1


def test_an_unfinished_line_that_was_captured_as_another_is_told_as_it_was_captured(world: World, lines: Lines, home: Home) -> None:
    grown(world, lines.some(5))
    held = world.main().read_bytes()
    follower = Stepped(home)
    follower.look()
    world.append(world.main(), lines.line()[:60])
    follower.look()
    world.write(world.main(), held)
    grown(world, lines.some(1))
    world.main().unlink()
    assert ids(follower.looks()) == numbers(lines, 6, 7)
    assert follower.follower.gaps == []


def test_a_last_line_without_its_newline_that_was_never_captured_is_not_told(world: World, lines: Lines, home: Home) -> None:
    grown(world, lines.some(5))
    follower = Stepped(home)
    follower.look()
    world.append(world.main(), lines.line() + lines.line()[:-1])
    follower.look()
    world.write(world.main(), lines.line(root=True))
    world.scan()
    assert ids(follower.looks()) == numbers(lines, 7, 8)


# --- at the same moment ---


def nothing() -> None:
    """Happens."""


def between(
    monkeypatch: pytest.MonkeyPatch,
    owner: object,
    name: str,
    *,
    before: Callable[[], None] = nothing,
    after: Callable[[], None] = nothing,
) -> None:
    """Something happens once, right before or behind the next call of a function."""
    real = getattr(owner, name)

    def call(*args: object, **more: object) -> object:
        monkeypatch.setattr(owner, name, real)
        before()
        result = real(*args, **more)
        after()
        return result

    monkeypatch.setattr(owner, name, call)


def test_what_is_rewritten_while_it_is_read_is_read_again(world: World, lines: Lines, home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    grown(world, lines.some(5))
    held = world.main().read_bytes()
    follower = Stepped(home)
    follower.look()
    world.append(world.main(), lines.some(3))
    real, reads = os.pread, [0]

    def pread(fd: int, length: int, offset: int) -> bytes:
        data = real(fd, length, offset)
        if offset == len(held) and not reads[0]:
            reads[0] = 1
            world.write(world.main(), held + lines.some(4))
        return data

    monkeypatch.setattr(os, "pread", pread)
    assert ids(follower.looks()) == numbers(lines, 8, 12)
    assert reads == [1]
    assert follower.follower.gaps == []


def test_a_life_that_gets_its_number_while_the_file_is_read_is_not_told_as_the_old_one(
    world: World, lines: Lines, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    grown(world, lines.some(40))
    follower = Stepped(home)
    follower.look()
    stat, data = world.main().stat(), world.main().read_bytes()
    world.main().write_bytes(data[:4000] + data[4000:4500].replace(b"/there", b"/other") + data[4500:])
    os.utime(world.main(), ns=(stat.st_mtime_ns, stat.st_mtime_ns))

    def meanwhile() -> None:
        world.scan()  # which compares it whole
        world.append(world.main(), lines.some(1))

    between(monkeypatch, LogTail, "look", before=meanwhile)
    told = follower.looks()
    assert generations(told) == {1}
    assert ids(told) == numbers(lines, 0, 41)


def test_a_history_that_grows_and_is_compacted_while_it_begins_is_told_once(
    world: World, lines: Lines, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    grown(world, lines.some(30))
    world.compact(cold=True)
    follower = Stepped(home)

    def meanwhile() -> None:
        grown(world, lines.some(50))
        world.compact(cold=True)

    between(monkeypatch, StreamReader, "indexed_end", after=meanwhile)
    assert ids(follower.looks()) == numbers(lines, 0, 80)


# --- damage to our copy ---


@pytest.mark.parametrize("damaged", [2, 4])
def test_damage_in_what_is_told_from_the_store_leaves_the_rest_in_its_place(world: World, lines: Lines, home: Home, damaged: int) -> None:
    grown(world, lines.some(5))
    follower = Stepped(home)
    follower.look()
    (segment,) = world.layout.generation(the_stream(home).stream, 0).glob("*.open.jsonl.zst")
    ends = []
    for _ in range(4):
        world.append(world.main(), lines.some(3))
        world.scan()
        ends.append(segment.stat().st_size)
    world.main().unlink()
    flip_bit(segment, ends[damaged - 2] + 60)
    events = [event for _ in range(4) for event in iter(lambda: next(follower._events), None)]
    assert ids(events) == [each for each in numbers(lines, 5, 17) if each not in numbers(lines, 3 * damaged + 2, 3 * damaged + 5)]
    assert [(str(event.position), event.id) for event in events] == read_now(home)[-len(events) :]
    assert len(set(follower.follower.gaps)) == 1
