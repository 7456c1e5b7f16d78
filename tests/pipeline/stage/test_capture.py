"""Capture: what an agent appends is taken once and in full, whatever its bytes; an unfinished line waits."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from coldtrail.home import Home
from coldtrail.model import RecordKind
from coldtrail.stage.restore import Restored
from coldtrail.stage.scan import Scanner
from pipeline.stage.places import FolderWorld, look, put_back, reads_of, the_session, the_stream
from world_of import Lines, World, assert_sound, generation_bytes

QUIET_MS = 6_000  # longer than an unfinished line waits
WAKE_BYTES = 64 << 10  # what a look at a log may read beside what is new in it


def held_bytes(home: Home) -> bytes:
    """All that is held of the only stream's newest generation."""
    meta = the_stream(home)
    return generation_bytes(home, meta, meta.newest.number)


def kinds(home: Home) -> list[tuple[RecordKind, bytes]]:
    """The records of the only session."""
    return [(placed.record.kind, placed.raw) for placed in the_session(home).records()]


def test_half_a_record_with_the_next_one_glued_on_hours_later_costs_neither_neighbour(world: World, lines: Lines) -> None:
    first, torn, last = lines.line(), lines.line()[:120], lines.line()
    world.write(world.main(), first + torn)
    world.clock.tick(QUIET_MS)
    world.scan()
    with world.open() as home:
        (row,) = home.catalog.all_streams()
        assert (row.held, row.pending) == (len(first + torn), len(first)), "the torn tail is held, and no record yet"
        assert the_session(home).row.damaged == 0
    world.clock.tick(3 * 3_600_000)
    world.append(world.main(), last)
    world.scan()
    with world.open() as home:
        session = the_session(home)
        assert kinds(home) == [(RecordKind.DATA, first), (RecordKind.DAMAGED, torn), (RecordKind.DATA, last)]
        assert [event.id for event in session.events(types={"message_added"})] == [lines.id_of(0), lines.id_of(2)]
        assert (session.row.records, session.row.damaged) == (3, 1)
        assert [str(placed.position) for placed in session.records()] == ["0:0.0", f"0:{len(first)}.0", f"0:{len(first + torn)}.0"]
        assert held_bytes(home) == first + torn + last


def test_runs_of_nuls_are_damage_with_a_place_and_the_records_between_them_are_read(mine: FolderWorld) -> None:
    first, second, holes = b'{"n":1}\n', b'{"n":2}\n', (bytes(9_000), bytes(143_000))
    data = first + holes[0] + second + holes[1]
    log = mine.root / "torn.jsonl"
    mine.write(log, data)
    mine.clock.tick(QUIET_MS)
    mine.scan()
    mine.append(log, b"\n")
    mine.scan()
    mine.compact(cold=True)
    with mine.open() as home:
        assert kinds(home) == [
            (RecordKind.DATA, first),
            (RecordKind.DAMAGED, holes[0]),
            (RecordKind.DATA, second),
            (RecordKind.DAMAGED, holes[1] + b"\n"),
        ]
        assert the_session(home).row.damaged == 2
        assert_sound(home)
        log.unlink()
        put_back(home)
    assert log.read_bytes() == data + b"\n"


def test_a_hole_in_a_sparse_file_is_kept_as_the_zeros_it_reads_as(mine: FolderWorld) -> None:
    log = mine.root / "sparse.jsonl"
    mine.write(log, b'{"n":1}\n')
    with log.open("r+b") as file:
        file.truncate(20 << 20)
        file.seek(0, os.SEEK_END)
        file.write(b'\n{"n":2}\n')
    mine.clock.tick(QUIET_MS)
    mine.scan()
    data = log.read_bytes()
    mine.compact(cold=True)
    with mine.open() as home:
        assert [kind for kind, _ in kinds(home)] == [RecordKind.DATA, RecordKind.OVERSIZE, RecordKind.DATA]
        assert the_session(home).row.stored_bytes < 20_000
        log.unlink()
        put_back(home)
    assert log.read_bytes() == data


@pytest.mark.parametrize("odd", ["\u2028", "\u0085", "\v", "\f", "\x1c", "\r", "\u2029", "\x1e"], ids=ascii)
def test_only_a_newline_ends_a_record(mine: FolderWorld, odd: str) -> None:
    record = f'{{"text":"before{odd}after"}}'.encode()
    log = mine.root / "odd.jsonl"
    mine.write(log, record + b"\r\n" + record + b"\n")
    mine.scan()
    with mine.open() as home:
        assert kinds(home) == [(RecordKind.DATA, record + b"\r\n"), (RecordKind.DATA, record + b"\n")]
        assert the_session(home).row.damaged == 0


@pytest.mark.parametrize("seen_between", [False, True], ids=["read again at once", "the half was captured"])
def test_half_a_character_at_the_end_is_unfinished_and_no_damage(world: World, lines: Lines, seen_between: bool) -> None:
    whole = lines.line().replace(b'"0 ', '"\N{SNOWMAN}'.encode())
    cut = whole.index("\N{SNOWMAN}".encode()) + 1
    world.write(world.main(), whole[:cut])
    world.clock.tick(QUIET_MS if seen_between else 1_000)
    world.scan()
    with world.open() as home:
        (row,) = home.catalog.all_streams()
        assert row.held == (cut if seen_between else 0)
        assert the_session(home).row.damaged == 0
    world.append(world.main(), whole[cut:])
    world.scan()
    with world.open() as home:
        assert kinds(home) == [(RecordKind.DATA, whole)]
        assert (the_session(home).row.records, the_session(home).row.damaged) == (1, 0)


def test_a_fresh_unfinished_line_is_looked_at_again_and_taken_though_nothing_touches_it(world: World, lines: Lines) -> None:
    whole, torn = lines.line(), lines.line()[:-1]
    world.write(world.main(), whole + torn)
    tally = look(world, world.main())
    assert (tally.new_bytes, tally.later) == (len(whole), [world.main()])
    world.clock.tick(QUIET_MS)
    tally = look(world, *tally.later)
    assert (tally.new_bytes, tally.later) == (len(torn), [])
    with world.open() as home:
        assert [event.id for event in the_session(home).events(types={"message_added"})] == [lines.id_of(0), lines.id_of(1)]


def test_an_unfinished_line_from_a_clock_that_runs_ahead_does_not_wait_for_ever(world: World, lines: Lines) -> None:
    world.write(world.main(), lines.line()[:-1])
    os.utime(world.main(), (4_070_908_800, 4_070_908_800))  # 2099
    later = look(world, world.main()).later
    world.clock.tick(QUIET_MS)
    look(world, *later)
    with world.open() as home:
        assert held_bytes(home) == world.main().read_bytes()


def test_a_file_that_grows_while_it_is_read_is_held_once_and_in_full(world: World, lines: Lines, monkeypatch: pytest.MonkeyPatch) -> None:
    world.write(world.main(), lines.some(3))
    more = [lines.line() for _ in range(3)]
    read = os.pread

    def growing(fd: int, length: int, offset: int) -> bytes:
        if more and os.readlink(f"/proc/self/fd/{fd}") == str(world.main()):
            world.append(world.main(), more.pop(0))
        return read(fd, length, offset)

    monkeypatch.setattr(os, "pread", growing)
    while more:
        world.scan()
    world.scan()
    with world.open() as home:
        assert held_bytes(home) == world.main().read_bytes()
        assert len(the_stream(home).generations) == 1
        assert_sound(home)


def test_a_file_that_vanishes_between_listing_and_opening_is_only_its_own_trouble(
    world: World, lines: Lines, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost, kept = world.main("-lost", "lost"), world.main("-kept", "kept")
    world.write(lost, lines.some(2))
    world.scan()
    world.append(lost, lines.some(2))
    world.write(kept, Lines(world.clock, "kept").some(2))
    opened = os.open

    def vanishing(path: Path | str | bytes, *args: int, **kwargs: int) -> int:
        if path == lost:
            lost.unlink(missing_ok=True)
        return opened(path, *args, **kwargs)

    monkeypatch.setattr(os, "open", vanishing)
    tally = world.scan()
    assert (tally.captured, tally.failed) == (1, 1)
    monkeypatch.undo()
    world.scan()
    with world.open() as home:
        assert {row.id: row.state for row in home.catalog.sessions()} == {"lost": "gone", "kept": "live"}
        assert home.catalog.faults() == [], "that it could not be opened is explained: it is gone"
        assert the_stream(home, lost).gone_ms is not None


def test_an_empty_file_is_a_session_of_no_bytes_and_comes_back_empty(world: World) -> None:
    world.write(world.main(), b"")
    world.main().chmod(0o640)
    world.scan()
    world.compact(cold=True)
    with world.open() as home:
        row = the_session(home).row
        assert (row.bytes, row.records, row.state, row.orphan) == (0, 0, "live", 0)
    world.main().unlink()
    world.scan()
    with world.open() as home:
        (done,) = put_back(home)
        assert isinstance(done, Restored)
        assert done.bytes == 0
        assert_sound(home)
    assert world.main().read_bytes() == b""
    assert world.main().stat().st_mode & 0o7777 == 0o640


def test_an_empty_file_that_gets_its_first_lines_goes_on_in_its_generation(world: World, lines: Lines) -> None:
    world.write(world.main(), b"")
    world.scan()
    world.append(world.main(), lines.some(2))
    world.scan()
    with world.open() as home:
        assert [each.number for each in the_stream(home).generations] == [0]
        assert held_bytes(home) == world.main().read_bytes()


def long_log(path: Path, size: int) -> None:
    """A log of `size` bytes that takes no space: lines of zeros, each too long to be parsed."""
    step = 20 << 20
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        for end in range(step, size + 1, step):
            file.seek(end - 1)
            file.write(b"\n")


def test_a_small_append_to_a_log_of_200_mb_is_read_alone(mine: FolderWorld) -> None:
    log = mine.root / "long.jsonl"
    long_log(log, 200 << 20)
    mine.scan()
    line = b'{"n":"%s"}\n' % (b"x" * 190)
    with mine.open() as home:
        scanner = Scanner(home)
        for _ in range(10):
            mine.clock.tick(100)
            mine.append(log, line)
            with reads_of(log) as read:
                assert scanner.look(mine.sources, [log]).new_bytes == len(line)
            assert sum(read) <= len(line) + WAKE_BYTES
    with mine.open() as home, reads_of(log) as read:  # and by a process that has just started
        mine.append(log, line)
        assert Scanner(home).scan(mine.sources).new_bytes == len(line)
        assert sum(read) <= len(line) + WAKE_BYTES


def test_a_log_that_nothing_was_appended_to_is_not_read_at_all(world: World, lines: Lines) -> None:
    world.write(world.main(), lines.some(5))
    world.scan()
    with reads_of(world.main()) as read:
        world.scan()
        look(world, world.main())
    assert read == []
