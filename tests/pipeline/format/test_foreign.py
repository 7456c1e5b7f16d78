"""What others compressed: every frame is read, in pieces that fit into memory, and a cut is never taken for the end."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
from collections.abc import Iterator

import pytest
import zstandard

from coldtrail.format.frames import FrameError, TornFrameError, decode_foreign, skippable

MIB = 1 << 20
LINES = b"".join(json.dumps({"n": n, "text": "so it goes " * (n % 5)}).encode() + b"\n" for n in range(40))


def noise(count: int) -> bytes:
    return random.Random(2).randbytes(count)


def flipped(data: bytes, bit: int) -> bytes:
    changed = bytearray(data)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def streamed(plain: bytes) -> bytes:
    """As a program writes that does not know how much will come: no content size, several flushes."""
    writer = zstandard.ZstdCompressor(level=3, write_checksum=True).compressobj()
    parts = [writer.compress(plain[at : at + 700]) + writer.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK) for at in range(0, len(plain), 700)]
    return b"".join(parts) + writer.flush()


FOREIGN = {
    "one frame": (zstandard.ZstdCompressor().compress(LINES), LINES),
    "no checksum, no size": (zstandard.ZstdCompressor(write_checksum=False, write_content_size=False).compress(LINES), LINES),
    "streamed": (streamed(LINES), LINES),
    "several frames": (streamed(b"one\n") + zstandard.ZstdCompressor().compress(b"two\n") + streamed(LINES), b"one\ntwo\n" + LINES),
    "skippable frames": (skippable(b"head") + streamed(LINES) + skippable(b"") + skippable(noise(3_000)), LINES),
    "only a skippable one": (skippable(b"head"), b""),
    "an empty frame": (zstandard.ZstdCompressor().compress(b"") + streamed(b"x"), b"x"),
    "nothing at all": (b"", b""),
}
each_foreign = pytest.mark.parametrize(("data", "plain"), FOREIGN.values(), ids=FOREIGN)


@each_foreign
@pytest.mark.parametrize("size", [1, 13, 1 << 20])
def test_a_foreign_file_is_read_whole_however_it_comes(data: bytes, plain: bytes, size: int) -> None:
    assert b"".join(decode_foreign(data[at : at + size] for at in range(0, len(data), size))) == plain


@each_foreign
def test_a_foreign_file_cut_anywhere_but_between_frames_is_torn(data: bytes, plain: bytes) -> None:
    ends = set(frame_ends(data))
    for length in range(1, len(data), 1 + len(data) // 800):
        if length in ends:
            assert plain.startswith(b"".join(decode_foreign([data[:length]])))
        else:
            with pytest.raises(TornFrameError):
                list(decode_foreign([data[:length]]))


def frame_ends(data: bytes) -> Iterator[int]:
    """The end of each frame, as the library tells it by decoding."""
    at = 0
    while at < len(data):
        reader = zstandard.ZstdDecompressor().decompressobj()
        reader.decompress(data[at:])
        at = len(data) - len(reader.unused_data)
        yield at


def test_a_raw_line_behind_a_foreign_file_is_an_error_with_what_came_before() -> None:
    got: list[bytes] = []
    with pytest.raises(FrameError, match="does not decode"):
        got.extend(decode_foreign([streamed(LINES), b'{"raw":1}\n']))
    assert b"".join(got) == LINES


def test_flipped_bits_of_a_foreign_file_with_checksums_are_all_found() -> None:
    chance, data = random.Random(4), streamed(LINES)
    for _ in range(300):
        bit = chance.randrange(8 * len(data))
        try:
            found = b"".join(decode_foreign([flipped(data, bit)]))
        except FrameError:
            continue
        assert found == LINES or bit // 8 == 4, f"bit {bit}"  # the descriptor may lose its checksum bit


def test_a_foreign_file_that_decodes_to_a_thousand_times_its_size_comes_in_pieces() -> None:
    bomb = zstandard.ZstdCompressor(level=3).compress(bytes(96 * MIB))
    assert len(bomb) < 8 << 10
    lengths = [len(piece) for piece in decode_foreign([bomb])]
    assert sum(lengths) == 96 * MIB
    assert max(lengths) <= 34 * MIB


needs_zstd = pytest.mark.skipif(shutil.which("zstd") is None, reason="zstd is not on this machine")


@needs_zstd
@pytest.mark.parametrize("options", [["-3"], ["-19", "--long=27"], ["-1", "--no-check", "--no-content-size"]], ids=" ".join)
def test_what_stock_zstd_makes_is_read(options: list[str]) -> None:
    made = subprocess.run(["zstd", "-qc", *options], input=LINES * 30, capture_output=True, check=True, timeout=60).stdout
    assert b"".join(decode_foreign([made])) == LINES * 30
