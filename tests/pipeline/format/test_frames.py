"""Frames: no cut, no flipped bit and no false claim is ever read as content; stock zstd reads what we make."""

from __future__ import annotations

import json
import random
import shutil
import struct
import subprocess

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from coldtrail.format import frames
from coldtrail.format.frames import (
    PLAIN_MAX_BYTES,
    SEEK_FOOTER_MAGIC,
    SEEK_TABLE_MAGIC,
    Compressor,
    Frame,
    FrameError,
    TornFrameError,
    decode,
    decode_foreign,
    read_seek_table,
    seek_table,
    skippable,
    skippable_payload,
    walk,
)

patient = settings(deadline=None)  # a busy machine is no fault
MIB = 1 << 20


class Source:
    """Bytes that are read by place."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    @property
    def size(self) -> int:
        return len(self.data)

    def read_at(self, offset: int, length: int) -> bytes:
        return self.data[offset : offset + length]


def lines_of(count: int, seed: int = 1) -> bytes:
    """Lines as agents write them: much is the same in each, not all."""
    chance = random.Random(seed)
    records = ({"uuid": f"{chance.getrandbits(64):016x}", "type": "user", "at": i, "text": "so it goes " * (i % 5)} for i in range(count))
    return b"".join(json.dumps(record).encode() + b"\n" for record in records)


def noise(count: int) -> bytes:
    return random.Random(2).randbytes(count)


def file_of(*parts: bytes) -> tuple[bytes, list[Frame]]:
    """Frames end to end, and where they lie."""
    found: list[Frame] = []
    for part in parts:
        is_skippable = part[:4] != frames.MAGIC.to_bytes(4, "little")
        plain_length = 0 if is_skippable else len(decode(part))
        found.append(Frame(found[-1].end if found else 0, len(part), plain_length, skippable=is_skippable))
    return b"".join(parts), found


def walked(data: bytes) -> tuple[list[Frame], FrameError | None]:
    """The frames that a walk gives, and the error that ends it, if one does."""
    found: list[Frame] = []
    try:
        found.extend(walk(Source(data)))  # what comes before an error stays
    except FrameError as error:
        return found, error
    return found, None


LINES = lines_of(40)
CONTENTS = {
    "a byte": b"x",
    "lines": LINES,
    "noise": noise(300),
    "NULs": bytes(9_000),
    "a power of two": lines_of(1_000)[: 1 << 16],  # one flipped bit makes its claim zero
    "several blocks": lines_of(4_000),
}
each_content = pytest.mark.parametrize("plain", CONTENTS.values(), ids=CONTENTS)


# ---- one frame --------------------------------------------------------------------------------------------------------


@each_content
@pytest.mark.parametrize("level", [1, 3, 9, 19])
def test_a_frame_gives_back_its_content_and_says_its_length_and_has_a_checksum(plain: bytes, level: int) -> None:
    frame = Compressor(level).frame(plain)
    assert decode(frame) == plain
    told = zstandard.get_frame_parameters(frame)
    assert (told.content_size, told.has_checksum, told.dict_id) == (len(plain), True, 0)
    assert list(walk(Source(frame))) == [Frame(0, len(frame), len(plain))]


def test_a_frames_window_is_never_larger_than_every_reader_takes() -> None:
    frame = Compressor(19, window_log=31).frame(noise(1 << 20) * 3)
    assert zstandard.get_frame_parameters(frame).window_size <= 1 << frames.WINDOW_LOG_MAX


@pytest.mark.parametrize("length", [0, PLAIN_MAX_BYTES + 1])
def test_a_frame_of_nothing_or_of_too_much_is_not_made(length: int) -> None:
    with pytest.raises(ValueError, match=f"from 1 to {PLAIN_MAX_BYTES} bytes, not {length}"):
        Compressor(3).frame(memoryview(bytes(PLAIN_MAX_BYTES + 1))[:length])


@each_content
def test_three_hundred_flipped_bits_are_all_found(plain: bytes) -> None:
    """A flip that changes no byte of the content is no damage."""
    chance, frame = random.Random(3), Compressor(3).frame(plain)
    for _ in range(300):
        bit = chance.randrange(8 * len(frame))
        assert read_or_refused(flipped(frame, bit)) in (plain, None), f"bit {bit}"


@each_content
def test_every_flipped_bit_of_a_header_is_found(plain: bytes) -> None:
    frame = Compressor(3).frame(plain)
    for bit in range(8 * min(18, len(frame))):
        assert read_or_refused(flipped(frame, bit)) in (plain, None), f"bit {bit}"


@each_content
def test_a_frame_cut_at_any_byte_or_followed_by_more_is_none(plain: bytes) -> None:
    frame = Compressor(3).frame(plain)
    for length in range(0, len(frame), 1 + len(frame) // 500):
        assert read_or_refused(frame[:length]) is None, f"cut to {length} of {len(frame)}"
    for more in (b"\0", b"\n", frame, skippable(b"")):
        assert read_or_refused(frame + more) is None


def read_or_refused(frame: bytes) -> bytes | None:
    try:
        return decode(frame)
    except FrameError:
        return None


def flipped(data: bytes, bit: int) -> bytes:
    changed = bytearray(data)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


@pytest.mark.parametrize(
    ("frame", "said"),
    [
        (zstandard.ZstdCompressor(write_checksum=False).compress(LINES), "without a checksum"),
        (zstandard.ZstdCompressor(write_checksum=True, write_content_size=False).compress(LINES), "claims -1 bytes"),
        (skippable(b"payload"), "claims 0 bytes"),
        (zstandard.ZstdCompressor(write_checksum=True).compress(b""), "claims 0 bytes"),
        (b"", "does not decode"),
        (b"{}\n{}\n{}\n", "does not decode"),
        (struct.pack("<IBQ", frames.MAGIC, 0b1110_0100, 1 << 62) + bytes(40), f"claims {1 << 62} bytes"),
        (struct.pack("<IBI", frames.MAGIC, 0b1010_0100, PLAIN_MAX_BYTES + 1) + bytes(40), f"claims {PLAIN_MAX_BYTES + 1} bytes"),
    ],
)
def test_what_is_no_frame_of_ours_is_refused_with_its_place(frame: bytes, said: str) -> None:
    with pytest.raises(FrameError, match=f"^at byte 77: .*{said}") as refused:
        decode(frame, 77)
    assert refused.value.offset == 77


def test_the_trap_this_room_is_for_is_still_there() -> None:
    """The library's own readers stop at the first frame, or at a cut, without a word."""
    one, two = Compressor(3).frame(b"one"), Compressor(3).frame(b"two")
    assert zstandard.ZstdDecompressor().decompress(one + two) == b"one"
    assert zstandard.ZstdDecompressor().decompressobj().decompress(Compressor(3).frame(LINES)[:-20]) != LINES
    assert b"".join(decode_foreign([one + two])) == b"onetwo"


# ---- many frames ------------------------------------------------------------------------------------------------------

FILE, FRAMES = file_of(
    Compressor(3).frame(LINES),
    skippable(b""),
    Compressor(9, window_log=22).frame(noise(70_000)),
    skippable(b"x" * 300),
    Compressor(3).frame(bytes(5 * MIB)),
    Compressor(3).frame(b"last"),
    skippable(noise(7)),
)


def test_a_walk_gives_every_frame_without_decoding_any() -> None:
    assert walked(FILE) == (FRAMES, None)
    assert walked(b"") == ([], None)
    assert [skippable_payload(FILE[frame.offset : frame.end]) for frame in FRAMES if frame.skippable] == [b"", b"x" * 300, noise(7)]
    assert list(walk(Source(FILE), FRAMES[3].offset)) == FRAMES[3:]


def test_a_walk_over_a_file_cut_anywhere_gives_the_frames_before_the_cut_and_says_where_it_is_torn() -> None:
    ends = {frame.end for frame in FRAMES}
    near = {length for end in ends for length in range(end - 40, end + 40)}
    for length in sorted(near | set(range(0, len(FILE), 977))):
        if not 0 < length < len(FILE):
            continue
        found, error = walked(FILE[:length])
        assert found == [frame for frame in FRAMES if frame.end <= length]
        if length in ends:
            assert error is None
        else:
            assert isinstance(error, TornFrameError), f"cut to {length}: {error}"
            assert error.offset == (found[-1].end if found else 0)


def test_a_walk_over_a_small_file_is_right_for_every_cut() -> None:
    data, whole = file_of(Compressor(3).frame(b"{}\n"), skippable(b"stamp"), Compressor(3).frame(LINES), skippable(b""))
    for length in range(len(data) + 1):
        found, error = walked(data[:length])
        assert found == [frame for frame in whole if frame.end <= length]
        assert isinstance(error, TornFrameError) == (length not in {0, *(frame.end for frame in whole)})


@pytest.mark.parametrize(
    ("data", "offset", "said"),
    [
        (FILE + b"a raw line\n", len(FILE), "no zstd frame begins here"),
        (b'{"raw":1}\n' + FILE, 0, "no zstd frame begins here"),
        (zstandard.ZstdCompressor(write_content_size=False).compress(LINES), 0, "without its content's size"),
        (Compressor(3).frame(b"x")[:6] + b"\xff\xff\xff" + bytes(9), 0, "a block that is none"),
    ],
    ids=["a raw line behind", "a raw line before", "no content size", "a reserved block"],
)
def test_a_walk_stops_at_what_is_no_frame(data: bytes, offset: int, said: str) -> None:
    found, error = walked(data)
    assert error is not None
    assert not isinstance(error, TornFrameError)
    assert error.offset == offset
    assert said in error.what
    assert found == [frame for frame in FRAMES if frame.end <= offset]


def test_a_claim_of_a_giant_content_costs_nothing() -> None:
    """Its length is told as it stands; the frame itself is refused before a byte is made room for."""
    giant = struct.pack("<IBQ", frames.MAGIC, 0b1110_0100, 1 << 60) + (1).to_bytes(3, "little") + bytes(4)
    assert walked(giant) == ([Frame(0, len(giant), 1 << 60)], None)
    with pytest.raises(FrameError, match=f"claims {1 << 60} bytes of content"):
        decode(giant)
    claims = struct.pack("<II", frames.SKIPPABLE_MAGIC, 0xFFFFFFFF)
    assert isinstance(walked(claims + bytes(100))[1], TornFrameError)


@patient
@given(st.binary(max_size=200))
def test_a_walk_over_anything_comes_to_an_end(data: bytes) -> None:
    found, error = walked(struct.pack("<I", frames.MAGIC) + data)
    assert found or error


def test_a_walk_reads_a_file_once_in_large_pieces() -> None:
    class Counted(Source):
        reads = 0

        def read_at(self, offset: int, length: int) -> bytes:
            self.reads += 1
            return super().read_at(offset, length)

    source = Counted(b"".join([Compressor(3).frame(LINES), skippable(b"stamp" * 20)] * 200))
    assert len(list(walk(source))) == 400
    assert source.reads <= 2 + source.size // (32 << 10)


# ---- the seek table ---------------------------------------------------------------------------------------------------

TABLE = seek_table(FRAMES)


def test_a_seek_table_gives_back_the_frames_before_it() -> None:
    assert read_seek_table(Source(FILE + TABLE)) == FRAMES
    assert read_seek_table(Source(seek_table([]))) == []
    assert TABLE[:8] == struct.pack("<II", SEEK_TABLE_MAGIC, 8 * len(FRAMES) + 9)
    assert TABLE[-9:] == struct.pack("<IBI", len(FRAMES), 0, SEEK_FOOTER_MAGIC)


def test_a_seek_table_that_has_a_checksum_for_each_frame_is_read_too() -> None:
    """As other writers of the format make it."""
    entries = b"".join(struct.pack("<III", frame.length, frame.plain_length, 0xABCD) for frame in FRAMES)
    body = entries + struct.pack("<IBI", len(FRAMES), 0x80, SEEK_FOOTER_MAGIC)
    assert read_seek_table(Source(FILE + struct.pack("<II", SEEK_TABLE_MAGIC, len(body)) + body)) == FRAMES


DAMAGES = {
    "nothing there": (b"", "too short to hold a seek table"),
    "only a footer": (TABLE[-9:], "too short to hold a seek table"),
    "no table": (FILE, "no seek table at the end"),
    "a raw line behind": (FILE + TABLE + b'{"n":1}\n', "no seek table at the end"),
    "cut by a byte": (FILE + TABLE[:-1], "no seek table at the end"),
    "cut in half": ((FILE + TABLE)[: len(FILE) // 2], "no seek table at the end"),
    "more frames than fit": (FILE + TABLE[:-9] + struct.pack("<IBI", 1 << 30, 0, SEEK_FOOTER_MAGIC), "claims more frames than fit"),
    "one frame more": (FILE + TABLE[:-9] + struct.pack("<IBI", len(FRAMES) + 1, 0, SEEK_FOOTER_MAGIC), "head is wrong"),
    "one frame less": (FILE + TABLE[:-9] + struct.pack("<IBI", len(FRAMES) - 1, 0, SEEK_FOOTER_MAGIC), "head is wrong"),
    "another width": (FILE + TABLE[:-5] + b"\x80" + TABLE[-4:], "head is wrong"),
    "the head gone": (FILE + bytes(8) + TABLE[8:], "head is wrong"),
    "bytes lost before it": (FILE[:-1] + TABLE, "does not fit the file"),
    "bytes too many before it": (FILE + b"\0" + TABLE, "does not fit the file"),
    "an entry changed": (FILE + TABLE[:8] + b"\xff" + TABLE[9:], "does not fit the file"),
}


@pytest.mark.parametrize(("data", "said"), DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_seek_table_is_none(data: bytes, said: str) -> None:
    with pytest.raises(FrameError, match=said):
        read_seek_table(Source(data))


@patient
@given(st.integers(0, 8 * len(TABLE) - 1))
def test_a_flipped_bit_never_moves_a_frame_of_a_seek_table(bit: int) -> None:
    """It may change a content's length: that no longer adds up to what the segment's name and metadata say."""
    try:
        found = read_seek_table(Source(FILE + flipped(TABLE, bit)))
    except FrameError:
        return
    assert [(frame.offset, frame.length) for frame in found] == [(frame.offset, frame.length) for frame in FRAMES]
    assert found == FRAMES or sum(frame.plain_length for frame in found) != sum(frame.plain_length for frame in FRAMES)


# ---- stock zstd -------------------------------------------------------------------------------------------------------

needs_zstd = pytest.mark.skipif(shutil.which("zstd") is None, reason="zstd is not on this machine")


@needs_zstd
def test_stock_zstd_tests_and_prints_what_we_make() -> None:
    subprocess.run(["zstd", "-tq"], input=FILE + TABLE, check=True, timeout=60)
    printed = subprocess.run(["zstd", "-dcq"], input=FILE + TABLE, capture_output=True, check=True, timeout=60).stdout
    assert printed == LINES + noise(70_000) + bytes(5 * MIB) + b"last"
