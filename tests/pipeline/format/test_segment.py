"""Sealed segments: what one says of itself is read back whole, or is an error that names the place; and the hashes of blocks."""

from __future__ import annotations

import hashlib
import json
import random
import shutil
import subprocess
import zlib
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coldtrail.format import frames, ids, segment
from coldtrail.format.frames import Compressor, Frame, FrameError
from coldtrail.format.index import RecordIndex, Row
from coldtrail.format.segment import BLOCK_BYTES, BlockHashes, Footer, SegmentMeta, close, prefix_hash, read_footer

patient = settings(deadline=None)  # a busy machine is no fault
START = 5_000_000  # of the segment, in the generation
LINES = b"".join(b'{"n":%d,"text":"%s"}\n' % (n, hashlib.md5(b"%d" % n).hexdigest().encode()) for n in range(3_000))
PIECES = [LINES[:50_000], LINES[50_000:120_000], LINES[120_000:]]


class Source:
    """Bytes that are read by place; counts how many."""

    def __init__(self, data: bytes) -> None:
        self.data, self.bytes_read = data, 0

    @property
    def size(self) -> int:
        return len(self.data)

    def read_at(self, offset: int, length: int) -> bytes:
        self.bytes_read += length
        return self.data[offset : offset + length]


def index_of(count: int) -> RecordIndex:
    chance, index = random.Random(5), RecordIndex(1_700_000_000_000, START)
    for n in range(count):
        index.add(Row(START + 60 * n, 60, 0, 1 << n % 9, 1_700_000_000_000 + n, chance.getrandbits(64)))
    return index


META = SegmentMeta(
    agent="claude-code",
    stream="00112233445566aa",
    generation=3,
    start=START,
    end=START + len(LINES),
    sha256=hashlib.sha256(LINES).hexdigest(),
    blocks=("ab" * 32, "cd" * 32),
    dense=True,
    tail_bytes=17,
    facts={"records": 3_000, "title": "Zürich \N{SNOWMAN}", "parents": ["p1"]},
)


def made(meta: SegmentMeta = META, rows: int = 100) -> tuple[bytes, list[Frame]]:
    """A sealed segment's bytes, and its data frames."""
    compressor, data, found = Compressor(3), b"", list[Frame]()
    for piece in PIECES:
        frame = compressor.frame(piece)
        found.append(Frame(len(data), len(frame), len(piece)))
        data += frame
    return data + close(found, meta, index_of(rows)), found


FILE, DATA = made()


def told(footer: Footer, source: Source) -> tuple[object, ...]:
    """All that a segment says of itself."""
    index = footer.index(source)
    table = footer.ids(source)
    known = table is None or all(ids.count(table, each) for each in index.id_hashes)
    return footer.data, footer.meta, list(index.rows()), index.base_ms, index.start, known


WHOLE = (tuple(DATA), META, list(index_of(100).rows()), 1_700_000_000_000, START, True)


# ---- what it says of itself -------------------------------------------------------------------------------------------


def test_what_a_segment_says_of_itself_is_read_back() -> None:
    assert told(read_footer(Source(FILE)), Source(FILE)) == WHOLE


def test_the_bytes_lie_as_the_format_page_says() -> None:
    """Data frames, the record index, its ids, the metadata, the seek table."""
    listed = list(frames.walk(Source(FILE)))
    assert listed[:3] == DATA
    tags = [FILE[frame.offset : frame.offset + 4] + FILE[frame.offset + 8 : frame.offset + 12] for frame in listed[3:]]
    assert tags[:3] == [b"\x50\x2a\x4d\x18CTix", b"\x50\x2a\x4d\x18CTid", b"\x50\x2a\x4d\x18CTmd"]
    assert tags[3][:4] == b"\x5e\x2a\x4d\x18"
    assert len(listed) == 7
    index, known, meta = (FILE[frame.offset + 12 : frame.end] for frame in listed[3:6])
    assert frames.decode(index) == index_of(100).encode()
    assert frames.decode(known) == ids.pack(index_of(100).id_hashes)
    assert json.loads(frames.decode(meta)) == {**META.to_json(), "blocks": list(META.blocks)}


@pytest.mark.parametrize("dense", [True, False])
@pytest.mark.parametrize("rows", [0, 1, 3_000])
def test_every_field_of_the_metadata_is_kept(dense: bool, rows: int) -> None:
    meta = replace(META, dense=dense, blocks=(), facts={}, tail_bytes=0, agent="jsonl", generation=999_999)
    data, _ = made(meta, rows)
    footer = read_footer(Source(data))
    assert footer.meta == meta
    assert len(footer.index(Source(data))) == rows


def test_an_index_larger_than_a_frame_may_be_is_kept_in_several(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frames, "PLAIN_MAX_BYTES", 1_000)
    data = close([], replace(META, end=START), index_of(300))
    (index_frame, *_) = frames.walk(Source(data))
    inner = data[index_frame.offset + 12 : index_frame.end]
    assert len(list(frames.walk(Source(inner)))) == 1 + len(index_of(300).encode()) // 1_000
    assert list(read_footer(Source(data)).index(Source(data)).rows()) == list(index_of(300).rows())


def test_only_the_end_of_the_file_is_read_for_it() -> None:
    source = Source(FILE)
    read_footer(source)
    assert source.bytes_read < 3_000


@pytest.mark.skipif(shutil.which("zstd") is None, reason="zstd is not on this machine")
def test_stock_zstd_prints_exactly_the_plain_bytes() -> None:
    subprocess.run(["zstd", "-tq"], input=FILE, check=True, timeout=60)
    assert subprocess.run(["zstd", "-dcq"], input=FILE, capture_output=True, check=True, timeout=60).stdout == LINES


# ---- damage -----------------------------------------------------------------------------------------------------------

_, _, _, INDEX_FRAME, IDS_FRAME, META_FRAME, TABLE_FRAME = frames.walk(Source(FILE))


def refused(data: bytes) -> FrameError | None:
    """The error that reading everything which a segment says of itself ends in; None: it was read as if nothing were wrong."""
    try:
        footer = read_footer(Source(data))
        footer.index(Source(data))
        footer.ids(Source(data))
    except FrameError as error:
        return error
    return None


REGIONS = {
    "the index's head": (INDEX_FRAME.offset, 8, 0),
    "the index's tag": (INDEX_FRAME.offset + 8, 4, 0),
    "the index": (INDEX_FRAME.offset + 12, INDEX_FRAME.length - 12, INDEX_FRAME.offset),
    "the ids' tag": (IDS_FRAME.offset + 8, 4, 0),
    "the ids": (IDS_FRAME.offset + 12, IDS_FRAME.length - 12, IDS_FRAME.offset),
    "the metadata's tag": (META_FRAME.offset + 8, 4, 0),
    "the metadata": (META_FRAME.offset + 12, META_FRAME.length - 12, META_FRAME.offset),
    "the seek table": (TABLE_FRAME.offset, TABLE_FRAME.length, 0),
}


@pytest.mark.parametrize(("start", "length", "place"), REGIONS.values(), ids=REGIONS)
@pytest.mark.parametrize("damage", ["a bit", "NULs", "noise"])
def test_damage_to_any_region_is_an_error_with_its_place_or_harmless(start: int, length: int, place: int, damage: str) -> None:
    """Harmless: everything is told as it was."""
    chance = random.Random(6)
    for at in range(start, start + length, 1 + length // 400):
        data = bytearray(FILE)
        if damage == "a bit":
            data[at] ^= 1 << chance.randrange(8)
        else:
            size = min(chance.randrange(1, 9), start + length - at)
            data[at : at + size] = bytes(size) if damage == "NULs" else chance.randbytes(size)
        error = refused(bytes(data))
        if error is None:
            assert told(read_footer(Source(bytes(data))), Source(bytes(data))) == WHOLE, f"byte {at}"
        elif place:
            assert error.offset == place, f"byte {at}: {error}"


def test_every_flipped_bit_of_the_footer_is_found_or_harmless() -> None:
    for bit in range(8 * INDEX_FRAME.offset, 8 * len(FILE), 5):
        data = bytearray(FILE)
        data[bit // 8] ^= 1 << bit % 8
        if refused(bytes(data)) is None:
            assert told(read_footer(Source(bytes(data))), Source(bytes(data))) == WHOLE, f"bit {bit}"


def test_a_segment_cut_anywhere_says_so() -> None:
    for length in [*range(0, len(FILE), 211), *range(INDEX_FRAME.offset, len(FILE), 7), len(FILE) - 1]:
        assert refused(FILE[:length]) is not None, f"cut to {length} of {len(FILE)}"


@pytest.mark.parametrize("more", [b"\0", b'{"raw":1}\n', FILE[:400]], ids=["a byte", "a raw line", "a frame"])
def test_a_segment_with_more_behind_it_says_so(more: bytes) -> None:
    error = refused(FILE + more)
    assert error is not None
    assert "no seek table at the end" in error.what or "does not fit" in error.what


def closed(meta: object, index: bytes) -> bytes:
    """A segment whose two accounts are these, each well made."""
    tail, listed = b"", list(DATA)
    for tag, payload in ((b"CTix", index), (b"CTmd", json.dumps(meta).encode())):
        frame = frames.skippable(tag + Compressor(3).frame(payload))
        listed.append(Frame(listed[-1].end, len(frame), 0, skippable=True))
        tail += frame
    return FILE[: DATA[-1].end] + tail + frames.seek_table(listed)


INDEX = index_of(3).encode()
FIELDS = META.to_json()
WRONG_META: dict[str, tuple[object, str]] = {
    "another version": ({**FIELDS, "version": 2}, "a segment of version 2; this coldtrail reads version 1"),
    "no version": ({key: value for key, value in FIELDS.items() if key != "version"}, "a segment of version None"),
    "no object": ([1, 2], "a segment of version None"),
    "another length": ({**FIELDS, "end": META.end + 1}, "differ about the segment's length"),
    **{f"no {name}": ({k: v for k, v in FIELDS.items() if k != name}, f"lacks '{name}'") for name in FIELDS if name != "version"},
}


@pytest.mark.parametrize(("meta", "said"), WRONG_META.values(), ids=WRONG_META)
def test_metadata_that_is_whole_but_wrong_is_named(meta: object, said: str) -> None:
    with pytest.raises(FrameError, match=said) as raised:
        read_footer(Source(closed(meta, INDEX)))
    assert raised.value.offset > DATA[-1].end


def test_fields_that_a_later_version_adds_are_passed_over() -> None:
    assert read_footer(Source(closed({**FIELDS, "later": [1]}, INDEX))).meta == META


@pytest.mark.parametrize(
    ("index", "said"),
    [
        (b"nonsense" * 9, "begins with"),
        (INDEX[:-1], "bytes, not"),
        (INDEX[:-4] + bytes(4), "checksum"),
        (b"CTindex\x02" + INDEX[8:], "version 2"),
    ],
)
def test_an_index_that_is_whole_but_wrong_is_named(index: bytes, said: str) -> None:
    data = closed(FIELDS, index)
    with pytest.raises(FrameError, match=f"the segment's index is wrong .*{said}") as raised:
        read_footer(Source(data)).index(Source(data))
    assert raised.value.offset == DATA[-1].end


def test_a_segment_without_metadata_or_index_says_so() -> None:
    bare = FILE[: DATA[-1].end] + frames.seek_table(DATA)
    with pytest.raises(FrameError, match="metadata or index is missing"):
        read_footer(Source(bare))


def test_a_checksum_of_the_index_guards_it_within_its_frame_too() -> None:
    assert zlib.crc32(INDEX[:-4]) == int.from_bytes(INDEX[-4:], "little")


# ---- the hashes of blocks ---------------------------------------------------------------------------------------------

PLAIN = random.Random(7).randbytes(2 * BLOCK_BYTES + 12_345)
BLOCKS = tuple(hashlib.sha256(PLAIN[at : at + BLOCK_BYTES]).hexdigest() for at in range(0, len(PLAIN), BLOCK_BYTES))


@patient
@given(st.lists(st.integers(0, len(PLAIN)), max_size=8))
def test_block_hashes_do_not_depend_on_how_the_bytes_come(cuts: list[int]) -> None:
    blocks, at = BlockHashes(), 0
    for cut in [*sorted(cuts), len(PLAIN)]:
        blocks.feed(PLAIN[at:cut])
        at = cut
        assert blocks.end == at
    assert blocks.digests() == BLOCKS


@pytest.mark.parametrize("length", [0, 1, BLOCK_BYTES - 1, BLOCK_BYTES, BLOCK_BYTES + 1, len(PLAIN)])
def test_the_unfinished_blocks_hash_stands_last_and_asking_for_it_changes_nothing(length: int) -> None:
    blocks = BlockHashes()
    blocks.feed(memoryview(PLAIN)[:length])
    whole = length // BLOCK_BYTES
    expected = BLOCKS[:whole] + ((hashlib.sha256(PLAIN[whole * BLOCK_BYTES : length]).hexdigest(),) if length % BLOCK_BYTES else ())
    assert blocks.digests() == blocks.digests() == expected
    blocks.feed(PLAIN[length:])
    assert blocks.digests() == BLOCKS


@pytest.mark.parametrize("start", [0, BLOCK_BYTES, 2 * BLOCK_BYTES])
def test_block_hashes_are_resumed_at_the_start_of_a_block(start: int) -> None:
    blocks = BlockHashes(start)
    blocks.feed(PLAIN[start:])
    assert BLOCKS[: start // BLOCK_BYTES] + blocks.digests() == BLOCKS
    assert (blocks.start, blocks.end) == (start, len(PLAIN))


@pytest.mark.parametrize("start", [1, BLOCK_BYTES - 1, BLOCK_BYTES + 1])
def test_block_hashes_begin_nowhere_else(start: int) -> None:
    with pytest.raises(ValueError, match="not the start of a block"):
        BlockHashes(start)


def test_the_hash_of_a_prefix_is_that_of_its_blocks_hashes() -> None:
    assert prefix_hash(BLOCKS) == hashlib.sha256(b"".join(bytes.fromhex(block) for block in BLOCKS)).hexdigest()
    assert prefix_hash(()) == hashlib.sha256(b"").hexdigest()
    assert len({prefix_hash(BLOCKS[:count]) for count in range(4)}) == 4


def test_neighbouring_segments_agree_about_the_block_that_both_are_in() -> None:
    """The first hash of a segment that begins inside a block is over the whole block: so a prefix goes on over a seam."""
    cut = BLOCK_BYTES + 500
    first, second = BlockHashes(), BlockHashes(cut // segment.BLOCK_BYTES * segment.BLOCK_BYTES)
    first.feed(PLAIN[:cut])
    second.feed(PLAIN[second.start :])
    blocks = list(first.digests())
    blocks[cut // BLOCK_BYTES :] = second.digests()
    assert tuple(blocks) == BLOCKS
