"""Generations: a rewrite is seen and begins the next life of a log; the old one is kept, and no answer mixes two."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from coldtrail.model import Relation
from coldtrail.recover import Selection, StreamReader
from coldtrail.stage.restore import Wish
from coldtrail.stage.scan import Scanner
from pipeline.stage.places import older, put_back, the_session, the_stream
from world_of import Lines, World, assert_sound, chain_bytes, generation_bytes

Rewrite = Callable[[World, bytes], bytes]


def same_size_and_mtime(world: World, data: bytes) -> bytes:
    """Other bytes from the first to the last, and the mtime put back."""
    return _in_place(world, bytes(byte ^ 1 if byte in b"0123456789" else byte for byte in data))


def same_size_and_mtime_in_the_middle(world: World, data: bytes) -> bytes:
    """Neither the first nor the last bytes differ, and the mtime is put back: only ctime tells."""
    middle = len(data) // 2
    return _in_place(
        world, data[:middle] + bytes(byte ^ 1 if byte in b"0123456789" else byte for byte in data[middle:][:50]) + data[middle + 50 :]
    )


def exchanged_for_a_longer_one(world: World, data: bytes) -> bytes:
    """Another file gets the name."""
    other = world.folder / "other"
    other.write_bytes(unrelated(world, 2 * len(data)))
    os.rename(other, world.main())
    return world.main().read_bytes()


def longer_in_place(world: World, data: bytes) -> bytes:
    """The same file, filled with something longer."""
    return _in_place(world, unrelated(world, 2 * len(data)))


def truncated_and_grown_past_its_old_size(world: World, data: bytes) -> bytes:
    """Three records stay, and more new ones come than there were."""
    kept = b"".join(line + b"\n" for line in data.split(b"\n")[:3])
    return _in_place(world, kept + unrelated(world, 2 * len(data)))


def truncated_to_three_records(world: World, data: bytes) -> bytes:
    """Three records stay."""
    return _in_place(world, b"".join(line + b"\n" for line in data.split(b"\n")[:3]))


def unrelated(world: World, size: int) -> bytes:
    """Lines of a session that has nothing to do with the one there."""
    lines = Lines(world.clock, "99999999-2222")
    return lines.line(root=True) + lines.some(size // 400 + 1, size=400)


def _in_place(world: World, data: bytes) -> bytes:
    before = world.main().stat()
    with world.main().open("r+b") as file:
        file.write(data)
        file.truncate()
    os.utime(world.main(), ns=(before.st_atime_ns, before.st_mtime_ns))
    return data


REWRITES = [
    same_size_and_mtime,
    same_size_and_mtime_in_the_middle,
    exchanged_for_a_longer_one,
    longer_in_place,
    truncated_and_grown_past_its_old_size,
    truncated_to_three_records,
]
each_rewrite = pytest.mark.parametrize("rewrite", REWRITES, ids=lambda rewrite: rewrite.__name__)


def captured(world: World, lines: Lines) -> bytes:
    """A log longer than the windows that growth is proven by."""
    data = lines.some(150, size=400)
    world.write(world.main(), data)
    world.scan()
    world.clock.tick(60_000)
    return data


@each_rewrite
@pytest.mark.parametrize("sealed", [False, True], ids=["open", "sealed"])
def test_a_rewrite_begins_a_generation_and_the_old_one_can_be_restored(
    world: World, lines: Lines, rewrite: Rewrite, sealed: bool, tmp_path: Path
) -> None:
    old = captured(world, lines)
    if sealed:
        world.compact(cold=True)
    new = rewrite(world, old)
    world.scan()
    with world.open() as home:
        meta = the_stream(home)
        assert [each.relation for each in meta.generations] == [None, Relation.REPLACES]
        assert [generation_bytes(home, meta, number) for number in (0, 1)] == [old, new]
    world.compact(cold=True)
    assert older(world, 0, tmp_path / "old") == old
    assert older(world, 1, tmp_path / "new") == new
    with world.open() as home:
        assert_sound(home)


@each_rewrite
def test_reading_never_mixes_two_lives(world: World, lines: Lines, rewrite: Rewrite) -> None:
    old = captured(world, lines)
    new = rewrite(world, old)
    with world.open() as home:
        before = b"".join(the_session(home).raw())
        assert before in (old, new), "what was captured, or what is there, but not some of each"
    world.scan()
    with world.open() as home:
        session, meta = the_session(home), the_stream(home)
        assert b"".join(session.raw()) == new
        assert b"".join(placed.raw for placed in session.records()) == new
        with StreamReader(home, meta, generation=0) as reader:
            assert b"".join(placed.raw for placed in reader.placed(Selection())) == old


@each_rewrite
def test_the_index_is_that_of_the_new_life(world: World, lines: Lines, rewrite: Rewrite) -> None:
    new = rewrite(world, captured(world, lines))
    world.scan()
    with world.open() as home:
        assert the_session(home).row.records == new.count(b"\n")
        positions = [placed.position for placed in the_session(home).records()]
        assert {position.generation for position in positions} == {1}
        assert positions[-1].offset == new.rindex(b"\n", 0, -1) + 1


def test_a_touch_is_no_rewrite(world: World, lines: Lines) -> None:
    captured(world, lines)
    world.stamp(world.main())
    tally = world.scan()
    assert tally.checked == 1, "a change of ctime without growth is looked into"
    with world.open() as home:
        meta = the_stream(home)
        assert len(meta.generations) == 1
        assert home.store.last_stamp(meta, 0).mtime_ns == world.main().stat().st_mtime_ns
    assert world.scan().checked == 0


def test_a_copy_in_its_place_is_no_rewrite(world: World, lines: Lines) -> None:
    data = captured(world, lines)
    copy = world.folder / "copy"
    copy.write_bytes(data + lines.line())
    os.rename(copy, world.main())
    world.scan()
    with world.open() as home:
        assert len(the_stream(home).generations) == 1
        assert chain_bytes(home, the_stream(home)) == world.main().read_bytes()


def test_a_rewrite_found_only_by_the_full_check_marks_the_old_life_as_perhaps_mixed(world: World, lines: Lines) -> None:
    same_size_and_mtime_in_the_middle(world, captured(world, lines))
    world.scan()
    with world.open() as home:
        assert [each.mixed for each in the_stream(home).generations] == [True, False]


def test_rewritten_again_and_again_each_life_is_kept(world: World, tmp_path: Path) -> None:
    lives = []
    for number in range(6):
        lives.append(Lines(world.clock, f"life{number}-0000").some(10 - number))
        world.write(world.main(), lives[-1])
        world.scan()
        world.clock.tick(60_000)
    world.compact(cold=True)
    assert [older(world, number, tmp_path / str(number)) for number in range(6)] == lives


def test_a_log_made_again_without_its_head_is_one_chain_and_comes_back_as_the_union(world: World, lines: Lines) -> None:
    head = lines.some(5)
    world.write(world.main(), head)
    world.scan()
    world.main().rename(world.folder / "away")
    world.scan()
    rest = lines.some(5)
    world.write(world.main(), rest)
    world.scan()
    with world.open() as home:
        meta, session = the_stream(home), the_session(home)
        assert [each.relation for each in meta.generations] == [None, Relation.CONTINUES]
        ids = [event.id for event in session.events(types={"message_added"})]
        assert ids == [lines.id_of(number) for number in range(10)], "no record twice, none missing"
        assert (session.row.records, session.row.bytes) == (10, len(head + rest))
        put_back(home, wish=Wish(overwrite=True))
        assert world.main().read_bytes() == head + rest
        world.append(world.main(), lines.line())
        Scanner(home).scan(world.sources)
        assert [each.relation for each in the_stream(home).generations] == [None, Relation.CONTINUES, Relation.RESTORED]
        assert b"".join(session.raw()) == world.main().read_bytes()


def test_a_rewrite_that_found_the_disk_full_does_not_hide_what_is_held(world: World, lines: Lines, monkeypatch: pytest.MonkeyPatch) -> None:
    """The new life's first byte was never held, and then the agent's file was gone."""
    old = captured(world, lines)
    longer_in_place(world, old)
    with world.open() as home:
        monkeypatch.setattr("coldtrail.durable.append", _fails)
        with pytest.raises(OSError, match="full"):
            Scanner(home, faults=()).scan(world.sources)
        monkeypatch.undo()
    world.main().unlink()
    world.scan()
    with world.open() as home:
        put_back(home)
    assert world.main().read_bytes() == old


def _fails(*_: object) -> None:
    raise OSError("full")
