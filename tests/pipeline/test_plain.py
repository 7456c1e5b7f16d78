"""A generation's bytes, whatever segments hold them: each byte once, also while they are compacted."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from coldtrail.archive.local import LocalArchive
from coldtrail.errors import CorruptionError
from coldtrail.filesource import FileSource
from coldtrail.layout import SegmentName
from coldtrail.plain import Plain
from pipeline.held import KEY, TEXT, Held, covered, spoil


@pytest.fixture
def held(tmp_path: Path) -> Held:
    return Held(tmp_path)


# ---- which segments are read ------------------------------------------------------------------------------------------


def test_nothing_held_is_nothing_read(held: Held) -> None:
    assert (held.plain.end(), held.read(), held.plain.pieces(), covered(held)) == (0, [], [], [])


def test_sealed_and_open_segments_are_read_as_one(held: Held) -> None:
    held.sealed(0, 900)
    held.sealed(900, 1500)
    held.open(1500, 2000)
    held.open(2000, 2300)
    held.assert_reads()
    assert held.plain.end() == 2300
    assert covered(held) == [(0, 900), (900, 1500), (1500, None), (2000, None)]


def test_the_widest_sealed_segment_is_read_where_several_begin(held: Held) -> None:
    held.sealed(0, 600)
    held.sealed(0, 1800)
    held.sealed(600, 1200)
    held.sealed(1200, 1800)
    held.open(0, 600)
    held.open(1800, 2000)
    held.assert_reads()
    assert covered(held) == [(0, 1800), (1800, None)]
    assert held.work.files_opened <= 10


def test_a_sealed_segment_goes_before_the_open_one_it_was_made_of(held: Held) -> None:
    held.open(0, 900)
    held.sealed(0, 900)
    assert covered(held) == [(0, 900)]
    spoil(held.store / str(SegmentName(0)), 0, 500)  # so it is not even looked at
    held.assert_reads(0, 900)


def test_an_open_segment_that_goes_on_behind_a_sealed_one_is_read_there(held: Held) -> None:
    held.sealed(0, 900)
    held.open(600, 1500)
    held.assert_reads()
    assert covered(held) == [(0, 900), (600, None)]


def test_an_empty_open_segment_is_where_the_next_byte_will_be(held: Held) -> None:
    held.sealed(0, 900)
    held.open(900, 900)
    held.assert_reads()
    assert held.plain.end() == 900


def test_names_that_are_no_segments_are_passed_over(held: Held) -> None:
    path = held.open(0, 600)
    for name in ("index", ".tmp-abc", path.name + ".damaged", "notes.txt"):
        (held.store / name).write_bytes(b"x")
    (held.sealed(0, 600).parent / ".tmp-0123").write_bytes(b"x")
    assert held.names() == [str(SegmentName(0, 600)), str(SegmentName(0))]
    held.assert_reads()


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(data=st.data())
def test_any_set_of_segments_that_hold_every_byte_is_read_once_and_in_order(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    held = Held(tmp_path_factory.mktemp("held"))
    size = data.draw(st.integers(1, len(TEXT)))
    cuts = sorted({0, size, *data.draw(st.lists(st.integers(1, size), max_size=4))})
    runs = list(itertools.pairwise(cuts))
    opens_from = data.draw(st.integers(0, len(runs)))
    for start, end in runs[opens_from:]:
        held.open(start, end)
    for start, end in runs[:opens_from]:
        held.sealed(start, end)
    for _ in range(data.draw(st.integers(0, 2)) if opens_from else 0):  # merged, and the parts still there
        first = data.draw(st.integers(0, opens_from - 1))
        held.sealed(runs[first][0], runs[data.draw(st.integers(first, opens_from - 1))][1])
    held.assert_reads()
    start = data.draw(st.integers(0, size))
    end = data.draw(st.integers(start, size))
    held.assert_reads(start, end)


def test_only_the_frames_that_are_asked_for_are_decoded(held: Held) -> None:
    held.sealed(0, 3000)
    held.assert_reads(1000, 1001)
    assert held.work.frames_decoded == 1
    held.assert_reads(1199, 1201)
    assert held.work.frames_decoded == 3


# ---- while it is compacted --------------------------------------------------------------------------------------------


def test_a_reader_goes_on_though_its_segments_are_merged_and_removed_under_it(held: Held) -> None:
    parts = [held.sealed(0, 900), held.sealed(900, 1800), held.open(1800, 2400)]
    got = b""
    for offset, data in held.plain.read():
        assert offset == len(got)
        got += data
        if offset == 0:
            held.sealed(0, 1800)
            for part in parts[:2]:
                part.unlink()
        elif offset == 1200:
            held.sealed(0, 2400)
            parts[2].unlink()
            (held.archive.staging(f"{KEY}/x") / str(SegmentName(0, 1800))).unlink()
    assert got == TEXT[:2400]


def test_a_reader_goes_on_though_each_listing_is_old_when_it_is_used(held: Held, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compaction outruns it three times in a row."""
    parts, todo = [held.open(0, 900), held.open(900, 1800)], [(0, 900), (900, 1800), (0, 1800)]
    pieces = Plain.pieces

    def late(plain: Plain) -> list[object]:
        found = pieces(plain)
        if todo:
            made = todo.pop(0)
            held.sealed(*made)
            for part in parts:
                part.unlink(missing_ok=True)
            parts[:] = [path for path in map(Path, held.archive.staging(f"{KEY}/x").glob("*")) if path.name != str(SegmentName(*made))][:1]
            if len(todo) == 2:
                held.sealed(900, 1800)
        return list(found)

    monkeypatch.setattr(Plain, "pieces", late)
    held.assert_reads(0, 1800)


def test_an_open_file_stays_readable_when_its_name_is_gone(held: Held) -> None:
    path = held.sealed(0, 1800)
    reading = held.plain.read()
    got = next(reading)[1]
    path.unlink()
    assert got + b"".join(data for _, data in reading) == TEXT[:1800]


def test_segments_that_vanish_for_ever_are_an_error_and_no_endless_loop(held: Held, monkeypatch: pytest.MonkeyPatch) -> None:
    held.sealed(0, 900)

    def gone(_: LocalArchive, key: str) -> FileSource:
        raise FileNotFoundError(key)

    monkeypatch.setattr(LocalArchive, "open", gone)
    with pytest.raises(CorruptionError, match="keep vanishing"):
        held.read(0, 900)


def test_a_segment_that_one_listing_misses_is_looked_for_again(held: Held, monkeypatch: pytest.MonkeyPatch) -> None:
    """A name that comes while a folder is listed need not be in the list."""
    held.sealed(0, 900)
    names, missed = LocalArchive.names, [True, True]
    monkeypatch.setattr(LocalArchive, "names", lambda archive, key: [] if missed and missed.pop() else names(archive, key))
    held.assert_reads(0, 900)
