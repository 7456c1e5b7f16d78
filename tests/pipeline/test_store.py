"""Open segments: an interrupted append is cut off, damage is set aside whole, and neither is taken for the other."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from coldtrail.filesource import FileSource
from coldtrail.format import frames
from coldtrail.format.frames import Compressor, Frame, FrameError, TornFrameError
from coldtrail.format.growing import read_growing
from coldtrail.format.manifest import Generation, PathSeen, Stamp, StreamMeta
from coldtrail.layout import Layout, SegmentName
from coldtrail.model import Role
from coldtrail.store import DAMAGED_SUFFIX, OpenSegment, Store, survey

ID = "00112233445566aa"
START = 5_000
APPENDS = [[b"one\n" * 40], [b"two\n" * 70, b"and more\n" * 30], [b"three\n"], [b"four\n" * 90]]
COMPRESSOR = Compressor(3)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(Layout.at(tmp_path))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return Layout.at(tmp_path).generation(ID, 0)


def stamp(end: int) -> Stamp:
    return Stamp(end, 0o640, 1_700_000_000_000_000_000 + end, 1_700_000_000_000 + end)


def appended(segment: OpenSegment, parts: list[bytes]) -> None:
    segment.append([(COMPRESSOR.frame(part), len(part)) for part in parts], stamp(segment.end + len(b"".join(parts))))


@pytest.fixture
def path(folder: Path) -> Path:
    """An open segment with four appends."""
    with OpenSegment.create(folder, START) as segment:
        for parts in APPENDS:
            appended(segment, parts)
    return segment.path


def plain(upto: int = len(APPENDS)) -> bytes:
    return b"".join(part for parts in APPENDS[:upto] for part in parts)


def frames_of(path: Path) -> list[Frame]:
    with FileSource(path) as source:
        return list(frames.walk(source))


def content(path: Path) -> bytes:
    data = path.read_bytes()
    return b"".join(frames.decode(data[frame.offset : frame.end]) for frame in frames_of(path) if not frame.skippable)


def flipped(data: bytes, byte: int, bits: int = 0x10) -> bytes:
    return data[:byte] + bytes([data[byte] ^ bits]) + data[byte + 1 :]


def set_aside(folder: Path) -> list[bytes]:
    return sorted(each.read_bytes() for each in folder.glob(f"*{DAMAGED_SUFFIX}"))


# ---- a whole one ------------------------------------------------------------------------------------------------------


def test_an_append_is_frames_and_a_stamp_behind_them(path: Path) -> None:
    listed = frames_of(path)
    assert [frame.skippable for frame in listed] == [False, True, False, False, True, False, True, False, True]
    assert content(path) == plain()
    data = path.read_bytes()
    stamps = [Stamp.decode(frames.skippable_payload(data[frame.offset : frame.end])) for frame in listed if frame.skippable]
    assert [each.end for each in stamps] == [START + len(plain(upto)) for upto in (1, 2, 3, 4)]


def test_a_segment_is_gone_on_with_where_it_ended(path: Path, folder: Path) -> None:
    with OpenSegment.resume(folder, SegmentName(START)) as segment:
        assert (segment.start, segment.end, segment.size) == (START, START + len(plain()), path.stat().st_size)
        assert (segment.frame_count, segment.stamp) == (5, stamp(segment.end))
        appended(segment, [b"five\n"])
    assert content(path) == plain() + b"five\n"


def test_an_empty_segment_says_where_it_begins_and_nothing_else(folder: Path) -> None:
    OpenSegment.create(folder, START).close()
    state, error = survey(folder / str(SegmentName(START)), START)
    assert (state.start, state.end, state.size, state.frame_count, state.stamp, error) == (START, START, 0, 0, None, None)


def test_the_last_stamp_is_that_of_the_segment_before_where_the_newest_has_none(path: Path, folder: Path, store: Store) -> None:
    """As a crash leaves it that comes right after a new segment was begun."""
    meta = StreamMeta(
        ID, ID, ID, "s", "jsonl", "/r", "x", "", Role.MAIN, True, (PathSeen("/r/x", 0),), (Generation(0, 0, Stamp(0, 0o600, 1, 1)),)
    )
    newest = stamp(START + len(plain()))
    assert store.last_stamp(meta, 0) == newest
    OpenSegment.create(folder, newest.end).close()
    assert store.last_stamp(meta, 0) == newest


# ---- interrupted ------------------------------------------------------------------------------------------------------


def test_an_append_cut_at_any_byte_is_cut_off_to_its_last_whole_frame(path: Path, folder: Path) -> None:
    whole, listed = path.read_bytes(), frames_of(path)
    for length in range(listed[-2].offset, len(whole)):
        path.write_bytes(whole[:length])
        good = max(frame.end for frame in listed if frame.end <= length)
        with OpenSegment.resume(folder, SegmentName(START)) as segment:
            assert (segment.size, path.read_bytes()) == (good, whole[:good])
            appended(segment, [b"again\n"])
        assert content(path).startswith(plain(3))
        assert content(path).endswith(b"again\n")
    assert set_aside(folder) == []


# ---- damaged ----------------------------------------------------------------------------------------------------------


def damages(path: Path) -> Iterator[tuple[str, bytes]]:
    """A frame in the middle whose structure no longer holds; what is behind it is whole."""
    data, listed = path.read_bytes(), frames_of(path)
    second = listed[2].offset
    yield "its magic number", flipped(data, second)
    yield "its first block's size, so that it seems to reach beyond the end", flipped(data, second + 8, 0x40)
    yield "the stamp's length, so that it seems to reach beyond the end", flipped(data, listed[1].offset + 7, 0x40)
    yield "NULs over it", data[:second] + bytes(listed[3].end - second) + data[listed[3].end :]


@pytest.mark.parametrize("number", range(4))
def test_damage_in_the_middle_is_no_interrupted_append_and_is_set_aside_whole(path: Path, folder: Path, number: int) -> None:
    what, data = list(damages(path))[number]
    path.write_bytes(data)
    _, error = survey(path, START)
    assert error is not None, what
    assert not isinstance(error, TornFrameError), what
    with OpenSegment.resume(folder, SegmentName(START)) as segment:
        assert segment.end == START + len(plain(1)), what
        appended(segment, APPENDS[1])
    assert content(path) == plain(2)
    assert set_aside(folder) == [data], "what came behind the damage is kept"


def test_a_segment_damaged_twice_is_kept_twice_and_one_found_twice_only_once(path: Path, folder: Path) -> None:
    first = flipped(path.read_bytes(), frames_of(path)[5].offset)
    path.write_bytes(first)
    OpenSegment.resume(folder, SegmentName(START)).close()
    second = flipped(path.read_bytes(), frames_of(path)[2].offset)
    path.write_bytes(second)
    OpenSegment.resume(folder, SegmentName(START)).close()
    assert set_aside(folder) == sorted([first, second])
    damaged = next(each for each in folder.glob(f"*{DAMAGED_SUFFIX}") if each.read_bytes() == second)
    path.unlink()
    path.hardlink_to(damaged)  # as a crash leaves it that comes between the two steps
    OpenSegment.resume(folder, SegmentName(START)).close()
    assert len(set_aside(folder)) == 2
    assert content(path) == plain(1)


def test_no_flipped_bit_moves_the_frames_behind_it(path: Path) -> None:
    """Those that can still be found have the place that they had, or are not there."""
    data, listed = path.read_bytes(), frames_of(path)
    places = {frame.offset: START + sum(each.plain_length for each in listed[:at]) for at, frame in enumerate(listed)}
    for bit in range(0, 8 * len(data), 3):
        path.write_bytes(flipped(data, bit // 8, 1 << bit % 8))
        with FileSource(path) as source:
            at = START
            for frame in read_growing(source, START).frames:
                if frame.offset in places and not frame.skippable and decodes(source, frame):
                    assert at == places[frame.offset], f"bit {bit}"
                at += frame.plain_length


def decodes(source: FileSource, frame: Frame) -> bool:
    try:
        return bool(frames.decode(source.read_at(frame.offset, frame.length)))
    except FrameError:
        return False
