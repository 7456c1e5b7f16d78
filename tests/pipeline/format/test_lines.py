"""Bytes to records: every byte has its place, good lines are read, broken ones as far as they can be."""

from __future__ import annotations

import json
import math
import time
import tracemalloc
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coldtrail.format.lines import MAX_LINE_BYTES, LineSplitter, dumps, loads, read_line
from coldtrail.model import Record, RecordKind

CORPUS = Path(__file__).resolve().parents[3].parent / "shared" / "corpus"

DATA, BLANK, DAMAGED, OVERSIZE = RecordKind
patient = settings(deadline=None)  # a busy machine is no fault
HIGH_SURROGATES = st.characters(min_codepoint=0xD800, max_codepoint=0xDBFF)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text() | HIGH_SURROGATES,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3) | HIGH_SURROGATES, inner, max_size=4),
    max_leaves=20,
)
words = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]*", fullmatch=True)
objects = st.dictionaries(words, values, min_size=1, max_size=4)
PIECES = (
    b'{"n":1}', b'{"a":{"b":[1,{"c":null}]}}', b'{"a":"tor', b'{"a":', b'["x",', b'{"a":"\\', b'"b":2}', b"{}", b"1", b'"x"', b"NaN",
    b"\n", b"\r\n", b"\r", b" ", b"\0\0\0", b"{", b"}", b"[", b"]", b":", b",", b'"', b"\\", b"-",
    b"\xff", b"\xe2\x80\xa8", b"\xc2\x85", b"\x0b\x0c\x1c", b"\xef\xbb\xbf",
)  # fmt: skip
logs = st.lists(st.sampled_from(PIECES) | st.binary(max_size=5), max_size=30).map(b"".join)


def split(data: bytes, offset: int = 0) -> list[Record]:
    splitter = LineSplitter(offset)
    return [*splitter.feed(data), *splitter.finish()]


def spans(data: bytes, records: list[Record]) -> list[tuple[RecordKind, bytes]]:
    """Kind and bytes of each record, having seen that they tile the data."""
    place, found = records[0].offset if records else 0, []
    for record in records:
        assert record.offset == place
        assert record.length > 0
        place += record.length
        found.append((record.kind, data[record.offset : place]))
    assert b"".join(part for _, part in found) == data
    return found


def written(value: object, *, wide: bool = False) -> bytes:
    """As an agent may write it."""
    return json.dumps(value, separators=(", ", ": ") if wide else (",", ":")).encode()


# ---- one line ---------------------------------------------------------------------------------------------------------

READ = {
    "a good line is one record": (b'{"n":1}\n', [(DATA, b'{"n":1}\n')]),
    "so is a last one without its newline": (b'{"n":1}', [(DATA, b'{"n":1}')]),
    "CRLF is white space": (b'{"n":1}\r\n', [(DATA, b'{"n":1}\r\n')]),
    "any value alone on its line is a record": (b"123\n", [(DATA, b"123\n")]),
    "a string is one too": (b'"x"\n', [(DATA, b'"x"\n')]),
    "white space alone is blank": (b" \t\r\n", [(BLANK, b" \t\r\n")]),
    "no line, no record": (b"", []),
    "a byte order mark does no harm": (b'\xef\xbb\xbf{"n":1}\n', [(DATA, b'\xef\xbb\xbf{"n":1}\n')]),
    "UTF-16 is damage": ('{"n":1}'.encode("utf-16"), [(DAMAGED, '{"n":1}'.encode("utf-16"))]),
    # torn, and glued onto
    "torn in a string": (b'{"a":1,"b":"tor{"n":2}\n', [(DAMAGED, b'{"a":1,"b":"tor'), (DATA, b'{"n":2}\n')]),
    "torn in a key": (b'{"a":1,"b{"n":2}\n', [(DAMAGED, b'{"a":1,"b'), (DATA, b'{"n":2}\n')]),
    "torn in an escape": (b'{"a":"\\u00{"n":2}\n', [(DAMAGED, b'{"a":"\\u00'), (DATA, b'{"n":2}\n')]),
    "torn in a literal": (b'{"a":tr{"n":2}\n', [(DAMAGED, b'{"a":tr'), (DATA, b'{"n":2}\n')]),
    "torn in a number": (b'{"a":1{"n":2}\n', [(DAMAGED, b'{"a":1'), (DATA, b'{"n":2}\n')]),
    "torn where a value was due": (b'{"a":[{"b":1},{"n":2}\n', [(DAMAGED, b'{"a":[{"b":1},'), (DATA, b'{"n":2}\n')]),
    "torn, and two glued on": (b'{"a":"tor{"n":2}{"n":3}\n', [(DAMAGED, b'{"a":"tor'), (DATA, b'{"n":2}'), (DATA, b'{"n":3}\n')]),
    "torn twice": (b'{"a":"t{"b":"u{"n":2}\n', [(DAMAGED, b'{"a":"t{"b":"u'), (DATA, b'{"n":2}\n')]),
    "whole ones glued": (b'{"n":1}{"n":2} {}\r\n', [(DATA, b'{"n":1}'), (DATA, b'{"n":2} '), (DATA, b"{}\r\n")]),
    "a whole one before damage": (b'{"n":1}{"a":"tor\n', [(DATA, b'{"n":1}'), (DAMAGED, b'{"a":"tor\n')]),
    "noise between whole ones": (b'{"n":1}x{"n":2}\n', [(DATA, b'{"n":1}'), (DAMAGED, b"x"), (DATA, b'{"n":2}\n')]),
    # what only looks like a record
    "a glued number is damage": (b"1}\n", [(DAMAGED, b"1}\n")]),
    "so is a glued array": (b'[1]{"n":2}\n', [(DAMAGED, b"[1]"), (DATA, b'{"n":2}\n')]),
    "the inside of a torn record": (b'{"a":[{"b":1},{"c":2},"tor\n', [(DAMAGED, b'{"a":[{"b":1},{"c":2},"tor\n')]),
    "the inside of an unfinished one": (b'{"a":{"b":1}', [(DAMAGED, b'{"a":{"b":1}')]),
    "the inside of one without its head": (b'"a":{"b":1},"c":[{"d":2}]}\n', [(DAMAGED, b'"a":{"b":1},"c":[{"d":2}]}\n')]),
    "an empty object in torn text": (b'{"a":"b {}\n', [(DAMAGED, b'{"a":"b {}\n')]),
    # NUL runs
    "a hole before a record": (b"\0" * 9000 + b'{"n":2}\n', [(DAMAGED, b"\0" * 9000), (DATA, b'{"n":2}\n')]),
    "a hole behind one": (b'{"n":1}' + b"\0" * 9000 + b"\n", [(DATA, b'{"n":1}'), (DAMAGED, b"\0" * 9000 + b"\n")]),
    "a hole between two": (b'{"n":1}\0\0{"n":2}\n', [(DATA, b'{"n":1}'), (DAMAGED, b"\0\0"), (DATA, b'{"n":2}\n')]),
    "a hole in a string": (b'{"a":"b\0\0c"}\n', [(DAMAGED, b'{"a":"b\0\0c"}\n')]),
    "a hole behind one glued on": (b'{"a":"tor{"n":2}\0\n', [(DAMAGED, b'{"a":"tor'), (DATA, b'{"n":2}'), (DAMAGED, b"\0\n")]),
    "a hole that tore a record": (b'{"a":"b\0\0{"n":2}\n', [(DAMAGED, b'{"a":"b\0\0'), (DATA, b'{"n":2}\n')]),
    # one record, whatever other programs take for a line's end
    "U+2028, U+0085": ('{"a":"\u2028\u0085"}\n'.encode(), [(DATA, '{"a":"\u2028\u0085"}\n'.encode())]),
    "VT, FF, FS, CR in a string": (b'{"a":"\x0b\x0c\x1c\r"}\n', [(DATA, b'{"a":"\x0b\x0c\x1c\r"}\n')]),
    "CR between tokens": (b'{"a":\r1}\n', [(DATA, b'{"a":\r1}\n')]),
}


@pytest.mark.parametrize(("line", "expected"), READ.values(), ids=READ)
def test_a_line_is_read_as(line: bytes, expected: list[tuple[RecordKind, bytes]]) -> None:
    assert spans(line, read_line(line, 0)) == expected


def test_records_say_where_in_the_generation_they_lie() -> None:
    assert read_line(b'{"a":"tor{"n":2}\n', 50_000_000_000) == [
        Record(50_000_000_000, 9, DAMAGED),
        Record(50_000_000_009, 8, DATA, {"n": 2}),
    ]


@patient
@given(logs)
def test_records_tile_any_line_and_no_two_damaged_ones_touch(line: bytes) -> None:
    kinds = [kind for kind, _ in spans(line, read_line(line, 0))]
    assert (DAMAGED, DAMAGED) not in pairwise(kinds)


@patient
@given(logs)
def test_the_bytes_of_a_record_read_alone_are_that_record(line: bytes) -> None:
    for record in read_line(line, 0):
        if record.kind is DATA:
            alone = read_line(line[record.offset : record.offset + record.length], record.offset)
            assert repr(alone) == repr([record])  # NaN is not equal to itself


@patient
@given(objects, objects, st.booleans(), st.data())
def test_a_record_torn_at_any_byte_leaves_the_one_glued_on_readable(torn: object, whole: object, wide: bool, data: st.DataObject) -> None:
    head, tail = written(torn, wide=wide), written(whole, wide=wide) + b"\n"
    head = head[: data.draw(st.integers(1, len(head) - 1))]
    assert spans(head + tail, read_line(head + tail, 0)) == [(DAMAGED, head), (DATA, tail)]


@patient
@given(objects, st.data())
def test_a_torn_record_alone_holds_nothing_readable(torn: object, data: st.DataObject) -> None:
    whole = written(torn)
    head = whole[: data.draw(st.integers(1, len(whole) - 1))]
    assert read_line(head, 7) == [Record(7, len(head), DAMAGED)]


@patient
@given(st.lists(objects, min_size=2, max_size=5))
def test_glued_records_are_each_read(values: list[object]) -> None:
    assert [record.value for record in read_line(b"".join(map(written, values)), 0)] == values


def test_a_line_of_the_greatest_length_is_read_and_one_byte_more_is_not() -> None:
    longest = b'"' + b"x" * (MAX_LINE_BYTES - 3) + b'"\n'
    assert [record.kind for record in read_line(longest, 0)] == [DATA]
    assert read_line(b" " + longest, 3) == [Record(3, MAX_LINE_BYTES + 1, OVERSIZE)]
    for begun, kind in ((longest[:5], DATA), (b" " + longest[:5], OVERSIZE)):
        assert [record.kind for record in LineSplitter(0, begun).feed(longest[5:])] == [kind]


GARBAGE = (
    b"[",
    b"]",
    b"{",
    b'{"',
    b'"',
    b"\\",
    b"\0",
    b"{ ",
    b'{"a":',
    b'{"a":[',
    b'{"a":{"b":1}',
    b'{"a":"{"',
    b'{"a":"\0',
    b'{"a":1}x',
    b"[1,",
    b"1,",
    b'\\"{"',
)


@pytest.mark.parametrize("piece", GARBAGE)
def test_reading_garbage_takes_time_in_proportion_to_its_length(piece: bytes) -> None:
    line = piece * ((1 << 20) // len(piece))
    begin = time.process_time()
    assert spans(line, read_line(line, 0))[-1][0] is DAMAGED
    assert time.process_time() - begin < 10  # a quarter of a second; were it quadratic, minutes


def test_what_is_too_dense_to_take_apart_stays_damaged() -> None:
    line = b"[" + b"1," * 2_200_000 + b'"x{"n":2}\n'
    assert [record.kind for record in read_line(line, 0)] == [DAMAGED]


@pytest.mark.parametrize("opened", [b"[", b'{"a":'])
def test_a_hundred_thousand_levels_are_damage_and_what_follows_is_read(opened: bytes) -> None:
    line = opened * 100_000
    assert [record.kind for record in read_line(line, 0)] == [DAMAGED]
    line += b"1" + {b"[": b"]", b'{"a":': b"}"}[opened] * 100_000
    assert spans(line + b'{"n":2}', read_line(line + b'{"n":2}', 0)) == [(DAMAGED, line), (DATA, b'{"n":2}')]


# ---- values -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (rb'"\ud83d"', "\ud83d"),
        (b'"\xff"', "\udcff"),
        (b"[Infinity,-Infinity,1e999]", [math.inf, -math.inf, math.inf]),
        (b'{"a":1,"a":2}', {"a": 2}),
        *[(str(number).encode(), number) for number in (2**63, 2**64 - 1, 2**64, -(2**63), -(2**63) - 1, 10**400)],
        (b"9" * 5000, math.inf),
        (b'{"a":"' + b"-" * 30 + b'","b":12345678901234567890123}', {"a": "-" * 30, "b": 12345678901234567890123}),
    ],
)
def test_what_agents_write_beyond_the_standard_has_its_value(text: bytes, value: object) -> None:
    assert loads(text) == value


def test_nan_is_read() -> None:
    value = loads(b"NaN")
    assert isinstance(value, float)
    assert math.isnan(value)


@pytest.mark.parametrize("data", [b"", b" ", b"{", b"{} {}", b"[" * 100_000, b'"\0"', b"\0", b"\xff", b"tru", b"'a'", b"[1,]"])
def test_what_cannot_be_parsed_is_a_value_error(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        loads(data)


@patient
@given(values, st.booleans(), st.booleans())
def test_a_value_is_read_back_as_it_was_written(value: object, sort: bool, indent: bool) -> None:
    assert loads(dumps(value, sort=sort, indent=indent)) == value


@patient
@given(st.dictionaries(st.text() | HIGH_SURROGATES, values))
def test_equal_values_are_written_as_equal_bytes_when_sorted(value: dict[str, object]) -> None:
    assert dumps(value, sort=True) == dumps(dict(reversed(value.items())), sort=True)


def test_whatever_is_read_can_be_written_however_deep() -> None:
    deepest = b'{"a":' * 1024 + b'"b"' + b"}" * 1024
    assert dumps(loads(deepest)) == deepest


def test_beside_an_odd_value_the_others_are_written_as_ever() -> None:
    assert (
        dumps({"b": math.nan, "a": ["é", 2**70, "\udcff", {}]}, sort=True)
        == '{"a":["é",1180591620717411303424,"\\udcff",{}],"b":null}'.encode()
    )


@pytest.mark.parametrize("value", [object(), {1: 2}, {1: "\ud83d"}, [b"x"]])
def test_what_is_not_json_is_a_type_error(value: object) -> None:
    with pytest.raises(TypeError):
        dumps(value)


def test_nesting_beyond_reason_is_a_value_error() -> None:
    value: list[object] = []
    for _ in range(100_000):
        value = [value]
    with pytest.raises(ValueError, match="too deep"):
        dumps(value)
    while value:  # an interpreter may not be able to free it at once
        (value,) = value  # type: ignore[assignment]


# ---- many lines -------------------------------------------------------------------------------------------------------


@patient
@given(logs, st.integers(0, 2**63))
def test_lines_end_at_newlines_and_nowhere_else(data: bytes, offset: int) -> None:
    one_by_one, place = [], offset
    for line in data.split(b"\n"):
        line += b"\n" if place + len(line) < offset + len(data) else b""
        one_by_one += read_line(line, place)
        place += len(line)
    assert repr(split(data, offset)) == repr(one_by_one)


@patient
@given(logs, st.lists(st.integers(1, 20)), st.integers(0, 20))
def test_however_a_log_is_cut_into_chunks_its_records_are_the_same(data: bytes, sizes: list[int], known: int) -> None:
    pending = data[:known].partition(b"\n")[0]
    splitter, place, records = LineSplitter(0, pending), len(pending), list[Record]()
    for size in [*sizes, len(data)]:
        records += splitter.feed(data[place : place + size])
        place = min(place + size, len(data))
        assert splitter.pending_start == data.rfind(b"\n", 0, place) + 1
        assert splitter.pending_start + splitter.pending_length == place
    assert repr(records + list(splitter.finish())) == repr(split(data))


def test_an_unfinished_line_may_be_looked_at_and_then_go_on() -> None:
    splitter = LineSplitter(0)
    euro = "€".encode()
    assert list(splitter.feed(b'{"a":"' + euro[:2])) == []
    assert list(splitter.finish()) == [Record(0, 8, DAMAGED)]
    assert list(splitter.feed(euro[2:] + b'"}\n')) == [Record(0, 12, DATA, {"a": "€"})]
    assert (splitter.pending_start, splitter.pending_length) == (12, 0)
    assert list(splitter.finish()) == []


def test_an_unfinished_line_holds_no_newline() -> None:
    with pytest.raises(ValueError, match="newline"):
        LineSplitter(0, b'{"n":1}\n{')


def test_a_line_of_300_mb_is_counted_and_not_kept() -> None:
    splitter, chunk = LineSplitter(5), b"x" * (1 << 20)
    tracemalloc.start()
    try:
        for _ in range(300):
            assert list(splitter.feed(chunk)) == []
        assert tracemalloc.get_traced_memory()[0] < MAX_LINE_BYTES / 2
        assert list(splitter.finish()) == [Record(5, 300 << 20, OVERSIZE)]
        assert list(splitter.feed(b'\n{"n":1}\n')) == [Record(5, (300 << 20) + 1, OVERSIZE), Record((300 << 20) + 6, 8, DATA, {"n": 1})]
        assert tracemalloc.get_traced_memory()[1] < 3 * MAX_LINE_BYTES
    finally:
        tracemalloc.stop()


def test_a_first_record_of_250_kb_is_read() -> None:
    (record, _) = split(written({"text": "x" * 250_000}) + b'\n{"n":2}\n')
    assert record.value == {"text": "x" * 250_000}


def test_holes_of_a_crash_leave_the_records_around_them() -> None:
    log = b'{"n":1}\n' + b"\0" * 9_000 + b'{"n":2}\n' + b"\0" * 143_000
    assert spans(log, split(log)) == [(DATA, b'{"n":1}\n'), (DAMAGED, b"\0" * 9_000), (DATA, b'{"n":2}\n'), (DAMAGED, b"\0" * 143_000)]


# ---- real logs --------------------------------------------------------------------------------------------------------


def real_logs() -> Iterator[tuple[Path, bytes]]:
    if not CORPUS.is_dir():
        pytest.skip(f"the real logs are missing: {CORPUS}")
    return ((path, path.read_bytes()) for path in sorted(CORPUS.rglob("*")) if path.is_file())


def test_every_real_log_is_its_records_end_to_end() -> None:
    for path, data in real_logs():
        assert spans(data, split(data)) or not data, path


def test_real_records_torn_and_glued_are_found_again() -> None:
    for _, data in real_logs():
        lines = [
            line + b"\n" for line in data.split(b"\n")[:40] if line.startswith(b'{"') and [r.kind for r in read_line(line, 0)] == [DATA]
        ]
        for torn, whole in pairwise(lines):
            head = torn[: len(torn) * len(whole) % (len(torn) - 3) + 1]
            assert spans(head + whole, read_line(head + whole, 0)) == [(DAMAGED, head), (DATA, whole)]
