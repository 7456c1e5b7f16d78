"""Damage to our copy: verify says where, what is intact is still read, and nothing short is ever taken for whole."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from coldtrail.errors import CorruptionError
from coldtrail.model import RecordKind
from coldtrail.stage.restore import Passed, Wish
from coldtrail.stage.scan import Scanner
from coldtrail.stage.verify import verify
from pipeline.stage.places import flip_bit, put_back, sealed_files, the_session, the_stream
from world_of import Lines, World, chain_bytes, generation_bytes, small_sizes

LINE_BYTES = 300
COUNT = 250


def cut(count: int) -> Callable[[Path], None]:
    """Takes the last bytes away."""

    def act(path: Path) -> None:
        path.write_bytes(path.read_bytes()[:-count])

    return act


def halved(path: Path) -> None:
    """Of the data half is missing, and all that is behind it."""
    path.write_bytes(path.read_bytes()[: path.read_bytes().index(b"\x50\x2a\x4d\x18") // 2])


def bit_flipped(path: Path) -> None:
    """One bit in the middle of the data is another."""
    flip_bit(path, path.read_bytes().index(b"\x50\x2a\x4d\x18") // 2)


def first_bit_flipped(path: Path) -> None:
    """The first frame's magic number is wrong."""
    flip_bit(path, 0)


def line_appended(path: Path) -> None:
    """Something took it for a plain log."""
    with path.open("ab") as file:
        file.write(b'{"type":"user"}\n')


def emptied(path: Path) -> None:
    """Nothing is left of it."""
    path.write_bytes(b"")


DAMAGES = {
    "cut by 1 byte": cut(1),
    "cut by 4 bytes": cut(4),
    "cut by 100 bytes": cut(100),
    "cut in half": halved,
    "one bit flipped": bit_flipped,
    "its first bit flipped": first_bit_flipped,
    "a line appended": line_appended,
    "emptied": emptied,
}
each_damage = pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)


@pytest.fixture
def sealed(world: World, lines: Lines) -> Iterator[World]:
    """A session in one sealed segment of some twenty frames, gone from its agent."""
    with small_sizes():
        world.write(world.main(), lines.some(COUNT, size=LINE_BYTES))
        shutil.copy(world.main(), world.folder / "original")
        world.scan()
        world.compact(cold=True)
        shutil.rmtree(world.main().parent)
        world.scan()
        yield world


def original(world: World) -> bytes:
    return (world.folder / "original").read_bytes()


def test_what_is_whole_is_found_whole(sealed: World) -> None:
    with sealed.open() as home:
        verdict = verify(home)
        assert (verdict.word, verdict.segments, verdict.plain_bytes) == ("ok", 1, len(original(sealed)))
        assert b"".join(the_session(home).raw()) == original(sealed)


@each_damage
def test_verify_says_which_file_and_where_in_it(sealed: World, damage: Callable[[Path], None]) -> None:
    (path,) = sealed_files(sealed)
    damage(path)
    with sealed.open() as home:
        verdict = verify(home)
        assert verdict.word == "bad"
        (finding,) = (each for each in verdict.findings if each.path == str(path))
        assert 0 <= finding.offset <= path.stat().st_size
        assert finding.what
        assert finding.hint


@each_damage
def test_readers_give_what_is_intact_and_name_the_rest(sealed: World, damage: Callable[[Path], None]) -> None:
    (path,) = sealed_files(sealed)
    damage(path)
    data = original(sealed)
    with sealed.open() as home:
        session = the_session(home)
        read = {placed.record.offset: placed.raw for placed in session.records() if placed.record.kind is RecordKind.DATA}
        for offset, raw in read.items():
            assert data[offset : offset + len(raw)] == raw
            assert raw.endswith(b"\n"), "a whole record"
        missing = [range(gap.start, gap.end) for gap in session.gaps]
        missing_bytes = set().union(*missing)
        assert sum(map(len, read.values())) + len(missing_bytes) >= len(data), "each byte is read, or named as missing"
        if damage is line_appended:
            assert (b"".join(read.values()), missing) == (data, [])
        elif damage is bit_flipped:
            assert len(read) > COUNT // 2


def leaves_the_data_whole(damage: Callable[[Path], None]) -> bool:
    """Whether only what stands behind the data frames was touched: the index, the account, the seek table."""
    return damage in (DAMAGES["cut by 1 byte"], DAMAGES["cut by 4 bytes"], DAMAGES["cut by 100 bytes"], line_appended)


@each_damage
def test_neither_raw_nor_restore_takes_a_part_for_the_whole(sealed: World, damage: Callable[[Path], None]) -> None:
    damage(sealed_files(sealed)[0])
    with sealed.open() as home:
        if leaves_the_data_whole(damage):
            assert b"".join(the_session(home).raw()) == original(sealed)
            put_back(home)
            assert sealed.main().read_bytes() == original(sealed)
            return
        with pytest.raises(CorruptionError):
            list(the_session(home).raw())
        for wish in (Wish(), Wish(to=sealed.folder / "to")):
            (done,) = put_back(home, wish=wish)
            assert isinstance(done, Passed)
            assert done.failed
        assert not list((sealed.root / "projects").rglob("*.*"))
        assert not list((sealed.folder / "to").rglob("*.*"))


def test_a_damaged_frame_is_decoded_once_however_many_records_it_holds(sealed: World) -> None:
    (path,) = sealed_files(sealed)
    bit_flipped(path)
    with sealed.open() as home:
        before = home.work.frames_decoded
        session = the_session(home)
        assert len(list(session.records())) > COUNT // 2
        assert home.work.frames_decoded - before < 60, "though there are hundreds of records in some twenty frames"
        assert len(session.gaps) < 5


def test_a_segment_that_lost_its_seek_table_is_still_opened_once_and_not_for_each_record(sealed: World) -> None:
    cut(1)(sealed_files(sealed)[0])
    with sealed.open() as home:
        before = home.work.files_opened
        assert len(list(the_session(home).records())) == COUNT
        assert home.work.files_opened - before < 60


def test_a_missing_segment_is_a_hole_with_its_bounds(world: World, lines: Lines) -> None:
    for _ in range(2):
        world.append(world.main(), lines.some(60))
        world.scan()
        world.compact(cold=True)
        world.clock.tick(1_000)
        world.append(world.main(), lines.some(1))
        world.scan()
    (first, *_) = sealed_files(world)
    end = int(first.name[17:33])
    first.unlink()
    with world.open() as home:
        verdict = verify(home)
        assert verdict.word == "bad"
        assert any(f"plain bytes 0 to {end}" in finding.what for finding in verdict.findings)


@each_damage
def test_a_log_whose_older_copy_is_damaged_is_captured_anew_when_it_is_touched(sealed: World, damage: Callable[[Path], None]) -> None:
    sealed.write(sealed.main(), original(sealed))
    sealed.scan()
    damage(sealed_files(sealed)[0])
    sealed.clock.tick(10_000)
    sealed.append(sealed.main(), b'{"n":1}\n')
    assert sealed.scan().failed == 0
    sealed.stamp(sealed.main())
    sealed.clock.tick(10_000)
    sealed.scan()
    with sealed.open() as home:
        assert home.catalog.faults() == []
        if damage is not line_appended:
            assert chain_bytes(home, the_stream(home)) == sealed.main().read_bytes()
        sealed.main().unlink()
        Scanner(home).scan(sealed.sources)
        put_back(home)
    assert sealed.main().read_bytes() == original(sealed) + b'{"n":1}\n'


def test_the_hint_of_verify_helps(sealed: World) -> None:
    """It says that one pass captures the log anew while the agent's file is there; nothing has touched that."""
    sealed.write(sealed.main(), original(sealed))
    sealed.scan()
    bit_flipped(sealed_files(sealed)[0])
    with sealed.open() as home:
        (finding,) = verify(home).findings
        assert "run --once" in finding.hint
        Scanner(home).scan(sealed.sources, whole=True)
        meta = the_stream(home)
        assert generation_bytes(home, meta, meta.newest.number) == original(sealed)
