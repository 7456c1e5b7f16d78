"""The form of a checkpoint: packed and back, in a growing file, in a sealed segment, and whatever is wrong with it noticed."""

from __future__ import annotations

import contextlib
import dataclasses
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coldtrail.format import checkpoint
from coldtrail.format.checkpoint import Checkpoint
from coldtrail.format.frames import Compressor, FrameError

NUMBERS = st.integers(0, 1 << 62)
PLACES = st.tuples(NUMBERS, NUMBERS, NUMBERS)
CHECKPOINTS = st.builds(
    Checkpoint,
    version=NUMBERS,
    stream=st.text(max_size=9),
    generation=NUMBERS,
    offset=NUMBERS,
    prefix_sha256=st.text("0123456789abcdef", max_size=64),
    tail_sha256=st.text("0123456789abcdef", max_size=64),
    state_hash=st.text("0123456789abcdef", max_size=64),
    live=st.tuples(st.text("0123456789abcdef", max_size=64), NUMBERS, NUMBERS),
    runs=st.lists(st.one_of(PLACES, st.tuples(NUMBERS, NUMBERS, NUMBERS, NUMBERS, NUMBERS)), max_size=5).map(tuple),
    loose=st.lists(NUMBERS, max_size=3).map(tuple),
    told=st.lists(st.tuples(NUMBERS, NUMBERS, NUMBERS, NUMBERS), max_size=3).map(tuple),
    tools=st.lists(st.tuples(st.text(max_size=9), NUMBERS, NUMBERS, NUMBERS), max_size=3).map(tuple),
    early=st.lists(st.tuples(st.text(max_size=9), NUMBERS, NUMBERS, NUMBERS), max_size=3).map(tuple),
    small=st.dictionaries(st.text(max_size=5), st.one_of(st.none(), st.integers(0, 9), st.text(max_size=5)), max_size=3),
)


@given(CHECKPOINTS)
def test_a_checkpoint_comes_back_as_it_was_written(value: Checkpoint) -> None:
    assert Checkpoint.decode(value.encode()) == value


@given(CHECKPOINTS)
def test_a_very_large_one_is_kept_in_several_frames(value: Checkpoint) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("coldtrail.format.frames.PLAIN_MAX_BYTES", 50)
        packed = value.encode()
    assert packed.count(b"\x28\xb5\x2f\xfd") > 3
    assert Checkpoint.decode(packed) == value


@given(CHECKPOINTS, st.data())
def test_a_packed_one_that_is_cut_or_changed_is_refused(value: Checkpoint, data: st.DataObject) -> None:
    packed = bytearray(value.encode())
    with pytest.raises(ValueError, match=r"."):
        Checkpoint.decode(bytes(packed[: data.draw(st.integers(0, len(packed) - 1))]))
    packed[data.draw(st.integers(0, len(packed) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    with contextlib.suppress(ValueError):
        assert Checkpoint.decode(bytes(packed)) == value  # a bit that the frame's header does not use


WRONG = {
    "version": "1", "stream": 5, "generation": -1, "offset": None, "prefix_sha256": 5,
    "tail_sha256": 5, "state_hash": None, "live": ["c", 1],
    "runs": [[0, 1]], "loose": [-1],
    "told": [[0, 0, 0]], "tools": [[1, 0, 0, 0]], "early": {}, "small": [],
}  # fmt: skip
GOOD = Checkpoint(1, "s", 0, 8, "p", "t", "h", ("c", 1, 1), ((0, 0, 8),), (), (), (), (), {})


@pytest.mark.parametrize("name", WRONG)
def test_fields_of_another_kind_are_refused(name: str) -> None:
    value = {each.name: getattr(GOOD, each.name) for each in dataclasses.fields(Checkpoint)} | {name: WRONG[name]}
    with pytest.raises(ValueError, match="checkpoint"):
        Checkpoint.decode(Compressor(3).frame(json.dumps(value).encode()))


@pytest.mark.parametrize("text", [b"[]", b"5", b"{}", b'{"version":7,"more":1}', b"{", b'"checkpoint"'])
def test_what_is_no_checkpoint_is_refused(text: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        Checkpoint.decode(Compressor(3).frame(text))


ENTRIES = st.lists(st.tuples(st.integers(0, 1 << 60), st.binary(max_size=20)), max_size=6)


@given(ENTRIES, st.integers(0, 200))
def test_of_a_torn_file_the_whole_entries_are_read(entries: list[tuple[int, bytes]], cut: int) -> None:
    data = checkpoint.pack(entries)
    assert checkpoint.unpack(data) == entries
    torn = checkpoint.unpack(data[: max(0, len(data) - cut)])
    assert torn == entries[: len(torn)]
    assert cut or len(torn) == len(entries)


@given(ENTRIES, st.data())
def test_of_a_damaged_file_all_entries_are_read_but_that_one(entries: list[tuple[int, bytes]], data: st.DataObject) -> None:
    packed = bytearray(checkpoint.pack(entries))
    at = data.draw(st.integers(0, max(0, len(entries) - 1)))
    if entries and entries[at][1]:
        end = len(checkpoint.pack(entries[: at + 1]))
        packed[data.draw(st.integers(end - len(entries[at][1]), end - 1))] ^= 1 << data.draw(st.integers(0, 7))
        assert checkpoint.unpack(bytes(packed)) == [*entries[:at], *entries[at + 1 :]]


class Bytes:
    """A file in memory that notes how much is read at once."""

    def __init__(self, data: bytes) -> None:
        self.data, self.most = data, 0

    @property
    def size(self) -> int:
        return len(self.data)

    def read_at(self, offset: int, length: int) -> bytes:
        self.most = max(self.most, length)
        return self.data[offset : offset + length]


@given(ENTRIES)
def test_in_a_sealed_segment_each_is_read_alone(entries: list[tuple[int, bytes]]) -> None:
    source = Bytes(b"before" + checkpoint.directory(entries) + b"behind")
    listed = checkpoint.read_directory(source, 6, len(source.data) - 6)
    assert [(each.offset, each.read(source)) for each in listed] == entries[::-1]


@pytest.mark.parametrize("at", range(4 + 2 * 16 + 4))
def test_a_damaged_table_is_noticed_and_never_believed(at: int) -> None:
    data = bytearray(checkpoint.directory([(5, b"abc"), (9, b"defg")]))
    data[at] ^= 0x80
    source = Bytes(bytes(data))
    with pytest.raises(FrameError):
        checkpoint.read_directory(source, 0, len(data))
    assert source.most <= len(data)


@pytest.mark.parametrize("length", range(44))
def test_a_table_that_is_cut_off_is_noticed(length: int) -> None:
    data = checkpoint.directory([(5, b"abc"), (9, b"defg")])
    with pytest.raises(FrameError):
        checkpoint.read_directory(Bytes(data[:length]), 0, min(length, len(data) - 1))


def test_one_that_is_damaged_in_a_sealed_segment_is_that_one_alone() -> None:
    source = Bytes(checkpoint.directory([(5, b"abc"), (9, b"defg")])[:-1] + b"!")
    second, first = checkpoint.read_directory(source, 0, source.size)
    assert first.read(source) == b"abc"
    with pytest.raises(FrameError, match="checksum"):
        second.read(source)
