"""Damaged and missing segments: what is whole is read, from whichever copy; the rest is an error with its place, or a gap."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from coldtrail.archive.local import LocalArchive
from coldtrail.errors import CorruptionError
from coldtrail.filesource import FileSource
from coldtrail.model import Gap
from pipeline.held import TEXT, Held, frames_of, spoil


@pytest.fixture
def held(tmp_path: Path) -> Held:
    return Held(tmp_path)


def with_gaps(held: Held, start: int = 0, end: int | None = None) -> tuple[bytes, list[tuple[int, int]]]:
    """What is read, every byte proven to be in its place, and the gaps."""
    gaps: list[Gap] = []
    got = b""
    for offset, data in held.plain.read(start, end, gaps):
        assert data == TEXT[offset : offset + len(data)], f"other bytes at {offset}"
        got += data
    return got, [(gap.start, gap.end) for gap in gaps]


def test_bytes_that_nothing_holds_are_an_error_or_a_noted_gap(held: Held) -> None:
    held.sealed(0, 600)
    held.sealed(900, 1500)
    held.open(1800, 2100)
    with pytest.raises(CorruptionError, match="plain bytes 600 to 900 are held by no segment"):
        held.read()
    assert with_gaps(held) == (TEXT[:600] + TEXT[900:1500] + TEXT[1800:2100], [(600, 900), (1500, 1800)])
    assert with_gaps(held, 700, 1000) == (TEXT[900:1000], [(700, 900)])
    assert with_gaps(held, 0, 3000)[1][-1] == (2100, 3000)


@pytest.mark.parametrize("kind", ["open", "sealed"])
def test_a_damaged_frame_is_an_error_with_its_place_or_a_gap_of_its_own_length(held: Held, kind: str) -> None:
    path = held.open(0, 1500) if kind == "open" else held.sealed(0, 1500)
    bad = [frame for frame in frames_of(path) if not frame.skippable][2]
    spoil(path, bad.offset + 20)
    with pytest.raises(CorruptionError) as raised:
        held.read()
    assert (raised.value.path, raised.value.offset) == (path, bad.offset)
    assert with_gaps(held) == (TEXT[:600] + TEXT[900:1500], [(600, 900)])
    held.assert_reads(900, 1500)


def test_a_damaged_frame_is_read_from_another_segment_that_holds_it(held: Held) -> None:
    path = held.sealed(0, 1500)
    held.open(300, 1200)
    spoil(path, frames_of(path)[2].offset + 20)
    held.assert_reads()


def test_a_damaged_narrow_segment_is_no_matter_where_a_wider_one_is_whole(held: Held) -> None:
    held.sealed(0, 1500)
    spoil(held.sealed(0, 600), 20, 10)
    held.assert_reads()


def test_a_frame_that_is_damaged_in_every_copy_is_a_gap(held: Held) -> None:
    for path in (held.sealed(0, 1500), held.sealed(0, 1800), held.open(0, 1500)):
        spoil(path, [frame for frame in frames_of(path) if not frame.skippable][1].offset + 20)
    with pytest.raises(CorruptionError):
        held.read()
    assert with_gaps(held) == (TEXT[:300] + TEXT[600:1800], [(300, 600)])


def test_another_copy_that_vanishes_meanwhile_is_no_harm(held: Held, monkeypatch: pytest.MonkeyPatch) -> None:
    spoil(held.sealed(0, 1500), 20)
    narrow = held.sealed(0, 300)
    opens = LocalArchive.open

    def vanishing(archive: LocalArchive, key: str) -> FileSource:
        if key.endswith(narrow.name):
            narrow.unlink(missing_ok=True)
        return opens(archive, key)

    monkeypatch.setattr(LocalArchive, "open", vanishing)
    assert with_gaps(held) == (TEXT[300:1500], [(0, 300)])


def test_an_open_segments_unfinished_frame_is_not_read(held: Held) -> None:
    path = held.open(0, 900)
    whole = path.read_bytes()
    data_frames = [frame for frame in frames_of(path) if not frame.skippable]
    for length in range(data_frames[1].end, len(whole)):
        path.write_bytes(whole[:length])
        end = 900 if length >= data_frames[2].end else 600
        assert held.plain.end() == end
        held.assert_reads()


def test_what_is_whole_before_damage_to_an_open_segments_structure_is_read(held: Held) -> None:
    path = held.open(0, 1500)
    spoil(path, [frame for frame in frames_of(path) if not frame.skippable][3].offset)  # its magic number
    assert with_gaps(held, 0, 1500) == (TEXT[:900], [(900, 1500)])


def damaged(path: Path, changes: Iterator[tuple[str, bytes]], held: Held, size: int) -> None:
    """However a segment's file is changed: what is read is right and in its place; what is not read is an error, and a gap."""
    whole = path.read_bytes()
    for what, data in changes:
        path.write_bytes(data)
        try:
            got, gaps = with_gaps(held, 0, size)
            assert len(got) + sum(end - start for start, end in gaps) == size
            for start in range(0, size, 450):
                with_gaps(held, start, min(start + 10, size))
            if gaps:
                with pytest.raises(CorruptionError):
                    held.read(0, size)
        except BaseException as error:
            error.add_note(what)
            raise
    path.write_bytes(whole)


def cuts_and_flips(path: Path) -> Iterator[tuple[str, bytes]]:
    whole = path.read_bytes()
    for length in range(0, len(whole), 37):
        yield f"cut to {length} of {len(whole)}", whole[:length]
    for bit in range(0, 8 * len(whole), 13):
        data = bytearray(whole)
        data[bit // 8] ^= 1 << bit % 8
        yield f"bit {bit % 8} of byte {bit // 8} of {len(whole)}", bytes(data)
    yield "a raw line behind", whole + b'{"raw":1}\n'


def test_no_damage_to_a_sealed_segment_is_read_as_its_bytes(held: Held) -> None:
    path = held.sealed(0, 1500)
    damaged(path, cuts_and_flips(path), held, 1500)


def test_no_damage_to_an_open_segment_is_read_as_its_bytes(held: Held) -> None:
    path = held.open(0, 1500)
    damaged(path, cuts_and_flips(path), held, 1500)


@pytest.mark.parametrize("content", [b"", b"not a segment at all\n" * 50, bytes(5000)], ids=["empty", "text", "NULs"])
def test_a_file_that_is_no_segment_is_a_gap_as_wide_as_its_name_says(held: Held, content: bytes) -> None:
    held.sealed(0, 600).write_bytes(content)
    held.sealed(600, 900)
    assert with_gaps(held) == (TEXT[600:900], [(0, 600)])


def test_a_damaged_index_or_account_of_a_sealed_segment_is_an_error_with_its_place(held: Held) -> None:
    path = held.sealed(0, 900)
    skippable = [frame for frame in frames_of(path) if frame.skippable]
    for frame, ask in zip(skippable[:2], ACCOUNTS, strict=True):
        whole = path.read_bytes()
        spoil(path, frame.offset + 30)
        (piece,) = held.plain.pieces()
        opened = held.plain.segment(piece)
        with pytest.raises(CorruptionError) as raised:
            ask(opened)
        assert (raised.value.path, raised.value.offset) == (path, frame.offset)
        opened.close()
        held.assert_reads(0, 900)
        path.write_bytes(whole)


ACCOUNTS: tuple[Callable[..., object], ...] = (lambda opened: opened.index(opened.footer()), lambda opened: opened.footer())


def test_no_file_stays_open_behind_a_reader(held: Held) -> None:
    spoil(held.sealed(0, 1500), 20)
    held.open(1500, 1800)
    before = len(os.listdir("/proc/self/fd")) if os.path.exists("/proc/self/fd") else 0
    with pytest.raises(CorruptionError):
        held.read()
    with_gaps(held)
    abandoned = held.plain.read(300)
    next(abandoned)
    abandoned.close()  # type: ignore[attr-defined]
    assert before == (len(os.listdir("/proc/self/fd")) if before else 0)
