"""The record index: its answers, and its bytes in both forms."""

from __future__ import annotations

import random
import struct
import tracemalloc
import zlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coldtrail.format.index import (
    HEADER_BYTES,
    ROW_BYTES,
    RecordIndex,
    Row,
    id_hash,
    mask_of,
    pack_header,
    pack_row,
    pack_rows,
    read_file,
    split_file,
)
from coldtrail.model import EVENT_BIT, EventType
from pipeline.format.test_frames import Source

GIB = 1 << 30
patient = settings(deadline=None)  # a busy machine is no fault
times = st.none() | st.integers(-(2**63) + 1, 2**63 - 1)
gaps_and_rows = st.lists(
    st.tuples(
        st.integers(0, 2) | st.integers(0, 2**40),
        st.builds(
            Row,
            offset=st.just(0),
            length=st.integers(1, 100) | st.integers(1, 60 * GIB),
            kind=st.integers(0, 255),
            mask=st.integers(0, 2**32 - 1),
            time_ms=st.none() | st.integers(0, 9) | times,
            id_hash=st.integers(0, 5) | st.integers(0, 2**64 - 1),
        ),
    ),
    max_size=12,
)


def rows_of(start: int, drawn: list[tuple[int, Row]]) -> list[Row]:
    """The drawn rows, each laid behind the one before it."""
    rows, place = [], start
    for gap, row in drawn:
        rows.append(Row(place + gap, row.length, row.kind, row.mask, row.time_ms, row.id_hash))
        place += gap + row.length
    return rows


def index_of(rows: list[Row], base_ms: int | None = None, start: int = 0) -> RecordIndex:
    index = RecordIndex(base_ms, start)
    for row in rows:
        index.add(row)
    return index


def timed(*times_ms: int | None) -> list[Row]:
    """Rows of 10 bytes with these times."""
    return [Row(10 * i, 10, 0, 0, time_ms, 0) for i, time_ms in enumerate(times_ms)]


def facts(index: RecordIndex) -> tuple[object, ...]:
    """All that can be told apart of two indexes."""
    return list(index.rows()), index.base_ms, index.start, index.end, index.running_ms


# ---- answers ----------------------------------------------------------------------------------------------------------


def test_an_empty_index_knows_its_place_and_its_base() -> None:
    index = RecordIndex(17, 1000)
    assert (len(index), index.start, index.end, index.running_ms) == (0, 1000, 1000, 17)
    assert (index.first_at_or_after(0), index.first_beyond(0), index.having_id(1), list(index.rows())) == (0, 0, [], [])


def test_rows_come_back_as_they_were_added() -> None:
    rows = [Row(0, 50 * GIB, 0, 5, None, 0), Row(50 * GIB, 1, 2, 0, -1, 2**64 - 1), Row(2**63 - 2, 1, 3, 2**32 - 1, 0, 1)]
    index = index_of(rows)
    assert [index.row(i) for i in range(3)] == rows
    assert list(index.rows(1)) == rows[1:]
    assert list(index.rows(3)) == []
    assert index.end == 2**63 - 1


def test_a_record_cannot_begin_before_the_one_before_it_ends() -> None:
    index = RecordIndex(None, 100)
    for offset in (99, 0):
        with pytest.raises(ValueError, match="cannot follow"):
            index.add(Row(offset, 10, 0, 0, None, 0))
    index.add(Row(100, 10, 0, 0, None, 0))
    with pytest.raises(ValueError, match="a record at 109 cannot follow one that ends at 110"):
        index.add(Row(109, 10, 0, 0, None, 0))


@pytest.mark.parametrize(
    "row",
    [
        Row(0, 0, 0, 0, None, 0),
        Row(0, -1, 0, 0, None, 0),
        Row(0, 1, 256, 0, None, 0),
        Row(0, 1, 0, 2**32, None, 0),
        Row(0, 1, 0, 0, 2**63, 0),
        Row(0, 1, 0, 0, None, 2**64),
        Row(2**64, 1, 0, 0, None, 0),
    ],
)
def test_a_row_that_does_not_fit_is_refused_whole(row: Row) -> None:
    index = RecordIndex()
    with pytest.raises(ValueError, match=r"record"):
        index.add(row)
    index.add(Row(0, 1, 0, 0, 5, 7))
    assert list(index.rows()) == [Row(0, 1, 0, 0, 5, 7)]


def test_records_before_a_time_are_those_before_the_first_later_one_though_times_run_backwards() -> None:
    index = index_of(timed(None, 100, 300, 200, None, 400, 100), base_ms=50)
    expected = {49: 0, 50: 1, 99: 1, 100: 2, 200: 2, 299: 2, 300: 5, 399: 5, 400: 7, 500: 7}
    assert {time_ms: index.first_beyond(time_ms) for time_ms in expected} == expected
    assert index.running_ms == 400


def test_records_without_any_time_belong_to_every_time() -> None:
    index = index_of(timed(None, None))
    assert index.first_beyond(-(2**62)) == 2
    assert index.running_ms is None


def test_a_base_beyond_the_time_leaves_no_record() -> None:
    assert index_of(timed(1, 2), base_ms=10).first_beyond(5) == 0


@patient
@given(gaps_and_rows, times, st.integers(-5, 15) | st.integers(-(2**63), 2**63 - 1))
def test_the_first_beyond_is_what_looking_at_each_would_find(drawn: list[tuple[int, Row]], base_ms: int | None, time_ms: int) -> None:
    rows = rows_of(0, drawn)
    times_ms = [base_ms, *(row.time_ms for row in rows)]
    running = [max((each for each in times_ms[: i + 2] if each is not None), default=None) for i in range(len(rows))]
    found = next((i for i, each in enumerate(running) if each is not None and each > time_ms), len(rows))
    index = index_of(rows, base_ms)
    assert index.first_beyond(time_ms) == found
    assert index.running_ms == (running[-1] if running else base_ms)


@patient
@given(gaps_and_rows, st.integers(0, 400) | st.integers(0, 2**45))
def test_the_first_at_or_after_is_what_looking_at_each_would_find(drawn: list[tuple[int, Row]], offset: int) -> None:
    rows = rows_of(0, drawn)
    assert index_of(rows).first_at_or_after(offset) == next((i for i, row in enumerate(rows) if row.offset >= offset), len(rows))


def test_all_records_with_an_id_are_found_in_order() -> None:
    rows = [Row(i, 1, 0, 0, None, hashed) for i, hashed in enumerate([7, 0, 9, 7, 7, 0])]
    index = index_of(rows)
    assert (index.having_id(7), index.having_id(9), index.having_id(8)) == ([0, 3, 4], [2], [])


def test_no_record_is_found_by_having_no_id() -> None:
    assert index_of([Row(0, 1, 0, 0, None, 0)]).having_id(0) == []


def test_a_hash_is_never_that_of_no_id_and_takes_any_text() -> None:
    hashes = {id_hash(text) for text in ("", "a", "b", "\ud83d", "\udcff", "ü", "x" * 100_000)}
    assert len(hashes) == 7
    assert all(0 < hashed < 2**64 for hashed in hashes)


def test_a_hash_is_the_same_on_every_machine() -> None:
    assert id_hash("ae3d54a6-0000-4000-8000-000000000000") == 0xB426222929004FEE


def test_a_mask_has_the_bit_of_each_type() -> None:
    assert mask_of([]) == 0
    assert (
        mask_of([EventType.TOOL_INVOKED, EventType.UNKNOWN, EventType.UNKNOWN])
        == EVENT_BIT[EventType.TOOL_INVOKED] | EVENT_BIT[EventType.UNKNOWN]
    )
    assert mask_of(EventType) < 2**32


# ---- cut off in front -------------------------------------------------------------------------------------------------


def test_dropping_keeps_the_record_that_goes_beyond_and_carries_the_times() -> None:
    index = index_of(timed(5, 300, 200, 100), base_ms=1)
    cut = {end: (len(dropped := index.drop_before(end)), dropped.base_ms, dropped.start) for end in (0, 9, 10, 20, 25, 30, 40, 99)}
    assert cut == {
        0: (4, 1, 0),
        9: (4, 1, 0),
        10: (3, 5, 10),
        20: (2, 300, 20),
        25: (2, 300, 20),
        30: (1, 300, 30),
        40: (0, 300, 40),
        99: (0, 300, 40),
    }


@patient
@given(gaps_and_rows, times, st.integers(0, 400) | st.integers(0, 2**45), st.integers(0, 10))
def test_dropping_changes_no_answer_about_what_is_left(drawn: list[tuple[int, Row]], base_ms: int | None, end: int, time_ms: int) -> None:
    rows = rows_of(0, drawn)
    whole = index_of(rows, base_ms)
    part = whole.drop_before(end)
    assert list(part.rows()) == [row for row in rows if row.offset + row.length > end]
    assert part.running_ms == whole.running_ms
    assert part.first_beyond(time_ms) == max(whole.first_beyond(time_ms) - (len(whole) - len(part)), 0)
    assert facts(whole) == facts(index_of(rows, base_ms))


def test_a_part_grows_on_its_own() -> None:
    whole = index_of(timed(1, 2))
    for part in (whole.drop_before(0), whole.drop_before(10)):
        part.add(Row(20, 5, 0, 0, 3, 0))
        assert part.running_ms == 3
    assert (len(whole), whole.running_ms) == (2, 2)


# ---- bytes ------------------------------------------------------------------------------------------------------------


@patient
@given(gaps_and_rows, times, st.integers(0, 2**62))
def test_an_index_is_read_back_as_it_was_written(drawn: list[tuple[int, Row]], base_ms: int | None, start: int) -> None:
    index = index_of(rows_of(start, drawn), base_ms, start)
    assert facts(RecordIndex.decode(index.encode())) == facts(index)


def test_an_index_read_back_goes_on_growing() -> None:
    index = RecordIndex.decode(index_of(timed(5)).encode())
    index.add(Row(10, 1, 0, 0, 3, 9))
    assert (index.running_ms, index.having_id(9)) == (5, [1])


def test_the_bytes_are_as_the_format_says() -> None:
    index = index_of([Row(2**40, 300, 1, 6, -2, 2**63)], base_ms=None, start=7)
    body = b"CTindex\x01" + struct.pack("<QqQ", 7, -(2**63), 1) + struct.pack("<QQBIqQ", 2**40, 300, 1, 6, -2, 2**63)
    assert index.encode() == body + struct.pack("<I", zlib.crc32(body))


@patient
@given(st.data())
def test_no_damage_is_read_as_an_index(data: st.DataObject) -> None:
    whole = bytearray(index_of(timed(5, 6, 7)).encode())
    place = data.draw(st.integers(0, len(whole) - 1))
    whole[place] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(ValueError, match=r"record index"):
        RecordIndex.decode(bytes(whole))
    with pytest.raises(ValueError, match=r"record index"):
        RecordIndex.decode(bytes(whole[:place]))


def test_what_is_wrong_is_named() -> None:
    data = index_of(timed(5)).encode()
    for wrong, said in {
        b"": "0 bytes is cut off in its header",
        b"x" * 99: "begins with b'xxxxxxx'",
        data[:7] + b"\x02" + data[8:]: "version 2; this coldtrail reads version 1",
        data[:-1]: "of 1 rows has 73 bytes, not 72",
        data + b"\0": "of 1 rows has 73 bytes, not 74",
        data[:-1] + bytes([data[-1] ^ 1]): "does not match its checksum",
    }.items():
        with pytest.raises(ValueError, match=said):
            RecordIndex.decode(wrong)


# ---- the file of a growing index --------------------------------------------------------------------------------------


@patient
@given(gaps_and_rows, times, st.integers(0, 2**62), st.data())
def test_a_file_torn_anywhere_holds_the_rows_before_the_tear(
    drawn: list[tuple[int, Row]], base_ms: int | None, start: int, data: st.DataObject
) -> None:
    rows = rows_of(start, drawn)
    written = pack_header(start, base_ms) + pack_rows(rows)
    torn = written[: data.draw(st.integers(HEADER_BYTES, len(written)))]
    index, whole_bytes = read_file(torn)
    kept = (len(torn) - HEADER_BYTES) // ROW_BYTES
    assert facts(index) == facts(index_of(rows[:kept], base_ms, start))
    assert whole_bytes == HEADER_BYTES + kept * ROW_BYTES
    rest, _ = read_file(torn[:whole_bytes] + pack_rows(rows[kept:]))
    assert list(rest.rows()) == rows


@pytest.mark.parametrize(
    "damage", [b"\0" * ROW_BYTES, b"\xff" * ROW_BYTES, pack_row(Row(5, 10, 0, 0, None, 0))], ids=["NULs", "noise", "overlap"]
)
def test_a_file_is_read_up_to_what_power_loss_left_behind(damage: bytes) -> None:
    rows = timed(1, 2)
    written = pack_header(0, None) + pack_rows(rows)
    index, whole_bytes = read_file(written + damage + pack_row(Row(20, 10, 0, 0, 3, 0)))
    assert (list(index.rows()), whole_bytes) == (rows, len(written))


@patient
@given(st.integers(0, 3 * 8 * ROW_BYTES - 1))
def test_one_flipped_bit_ends_the_file_before_its_row(bit: int) -> None:
    rows, head = timed(1, 2, 3), pack_header(0, None)
    body = bytearray(pack_rows(rows))
    body[bit // 8] ^= 1 << bit % 8
    index, whole_bytes = read_file(head + body)
    kept = bit // 8 // ROW_BYTES
    assert (list(index.rows()), whole_bytes) == (rows[:kept], HEADER_BYTES + kept * ROW_BYTES)


@pytest.mark.parametrize("cut", range(HEADER_BYTES))
def test_a_file_without_its_whole_header_is_none(cut: int) -> None:
    with pytest.raises(ValueError, match="cut off in its header"):
        read_file(pack_header(0, 5)[:cut])


@patient
@given(st.integers(0, 8 * HEADER_BYTES - 1))
def test_a_file_with_a_damaged_header_is_none(bit: int) -> None:
    head = bytearray(pack_header(7, 5))
    head[bit // 8] ^= 1 << bit % 8
    with pytest.raises(ValueError, match=r"record index"):
        read_file(bytes(head) + pack_row(Row(7, 1, 0, 0, None, 0)))


def test_the_two_forms_are_not_taken_for_each_other() -> None:
    with pytest.raises(ValueError, match="begins with"):
        RecordIndex.decode(pack_header(0, None) + bytes(50))
    with pytest.raises(ValueError, match="begins with"):
        read_file(RecordIndex().encode())


def test_a_row_of_the_file_is_as_the_format_says() -> None:
    head = b"CTrows\0\x01" + struct.pack("<Qq", 2**40, 5)
    row = struct.pack("<QQBIqQ", 2**40, 300, 1, 6, -(2**63), 9)
    assert pack_header(2**40, 5) == head + struct.pack("<I", zlib.crc32(head))
    assert pack_row(Row(2**40, 300, 1, 6, None, 9)) == row + struct.pack("<I", zlib.crc32(row))


def test_a_row_that_does_not_fit_is_not_written() -> None:
    with pytest.raises(ValueError, match="without bytes"):
        pack_row(Row(0, 0, 0, 0, None, 0))


# ---- size -------------------------------------------------------------------------------------------------------------


def test_a_record_takes_less_than_60_bytes_of_memory() -> None:
    count, chance = 100_000, random.Random(1)
    tracemalloc.start()
    try:
        index = RecordIndex()
        for i in range(count):
            index.add(Row(i * 1000, 1000, 0, 3, 1_700_000_000_000 + i, chance.getrandbits(64)))
        assert tracemalloc.get_traced_memory()[0] < 60 * count
        assert len(index.encode()) < 40 * count
    finally:
        tracemalloc.stop()


@patient
@given(gaps_and_rows, st.integers(0, 2**62), st.integers(1, 4), st.integers(0, 60))
def test_the_parts_of_a_file_are_its_rows(drawn: list[tuple[int, Row]], start: int, rows: int, torn: int) -> None:
    data = pack_header(start, 7) + pack_rows(rows_of(start, drawn))
    data = data[: max(HEADER_BYTES, len(data) - torn)]
    whole, _ = read_file(data)
    stated, parts = split_file(Source(data), rows)
    assert stated == start
    assert [row for part in parts for row in part.read(Source(data)).rows()] == list(whole.rows())
    assert [part.offset for part in parts] == [row.offset for row in whole.rows()][::rows]
    with pytest.raises(ValueError, match="cut off"):
        split_file(Source(data[: HEADER_BYTES - 1]), rows)


def test_the_parts_end_before_one_that_begins_with_a_damaged_row() -> None:
    data = bytearray(pack_header(0, None) + pack_rows(timed(1, 2, 3, 4, 5, 6)))
    data[HEADER_BYTES + 4 * ROW_BYTES] ^= 1
    assert len(split_file(Source(bytes(data)), 2)[1]) == 2
    assert len(split_file(Source(bytes(data)), 3)[1]) == 2
