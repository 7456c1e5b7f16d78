"""Zstandard frames: made whole, read whole or not at all.

The library's convenient readers stop silently at the first frame or at a cut; everything here checks where a frame
ends and how long its content is, so short data is never taken for whole.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

import zstandard

MAGIC = 0xFD2FB528
SKIPPABLE_MAGIC = 0x184D2A50  # the low four bits are free
SKIPPABLE_MASK = 0xFFFFFFF0
SEEK_TABLE_MAGIC = 0x184D2A5E
SEEK_FOOTER_MAGIC = 0x8F92EAB1
PLAIN_MAX_BYTES = 32 << 20  # no frame of ours holds more, so memory stays bounded when reading
WINDOW_LOG_MAX = 25
FOREIGN_WINDOW_LOG_MAX = 27  # what stock zstd reads without being asked
_WALK_BYTES = 1 << 16
_BLOCK_MAX_BYTES = 128 << 10
_FOREIGN_STEP_BYTES = 1 << 10
_CHECKSUM, _UNUSED = 0b0000_0100, 0b0001_1000  # bits of a frame header's descriptor


class ReadAt(Protocol):
    """Something that is read by place, a file or an object."""

    @property
    def size(self) -> int:
        """Its length in bytes."""

    def read_at(self, offset: int, length: int) -> bytes:
        """Its bytes from `offset` on, fewer than `length` only at its end."""


class FrameError(ValueError):
    """No valid frame at `offset` (bytes into the file)."""

    def __init__(self, offset: int, what: str) -> None:
        super().__init__(f"at byte {offset}: {what}")
        self.offset, self.what = offset, what


class TornFrameError(FrameError):
    """The file ends inside the frame that begins at `offset`."""


@dataclass(frozen=True, slots=True)
class Frame:
    """Where a frame lies in its file and what it holds."""

    offset: int
    length: int  # bytes in the file
    plain_length: int  # bytes of content; 0 for a skippable frame
    skippable: bool = False

    @property
    def end(self) -> int:
        """The offset behind its last byte."""
        return self.offset + self.length


@dataclass(slots=True)
class Work:
    """What reading has cost; tests assert these counts instead of seconds."""

    bytes_read: int = 0
    frames_decoded: int = 0
    files_opened: int = 0


class Compressor:
    """Makes frames at one level; one thread's alone (a shared one crashes the process)."""

    def __init__(self, level: int, *, window_log: int | None = None) -> None:
        options: dict[str, int] = {"write_content_size": 1, "write_checksum": 1}
        if window_log is not None:
            options["window_log"] = min(window_log, WINDOW_LOG_MAX)
        self._context = zstandard.ZstdCompressor(compression_params=zstandard.ZstdCompressionParameters.from_level(level, **options))

    def frame(self, plain: bytes | bytearray | memoryview) -> bytes:
        """One frame that holds `plain`, from 1 to PLAIN_MAX_BYTES of it."""
        if not 0 < len(plain) <= PLAIN_MAX_BYTES:
            raise ValueError(f"a frame holds from 1 to {PLAIN_MAX_BYTES} bytes, not {len(plain)}")
        return self._context.compress(plain)


def decode(frame: bytes, offset: int = 0) -> bytes:
    """The content of one whole frame of ours, its length and checksum proven; FrameError otherwise. `offset` is for the error.

    A claim of no content is never believed: the library would give nothing, and look no further.
    """
    try:
        plain_length = zstandard.frame_content_size(frame)
        if not 0 < plain_length <= PLAIN_MAX_BYTES:
            raise FrameError(offset, f"a frame that claims {plain_length} bytes of content")
        if frame[4] & (_CHECKSUM | _UNUSED) != _CHECKSUM:
            raise FrameError(offset, "a frame without a checksum")
        context = zstandard.ZstdDecompressor(max_window_size=1 << FOREIGN_WINDOW_LOG_MAX)
        plain = context.decompress(frame, allow_extra_data=False)
    except zstandard.ZstdError as error:
        raise FrameError(offset, f"the frame does not decode ({error})") from error
    if len(plain) != plain_length:
        raise FrameError(offset, f"the frame holds {len(plain)} bytes and claims {plain_length}")
    return plain


def skippable(payload: bytes) -> bytes:
    """A frame that zstd itself passes over."""
    return skippable_head(len(payload)) + payload


def skippable_head(length: int) -> bytes:
    """What stands before a skippable frame's payload of that length."""
    return struct.pack("<II", SKIPPABLE_MAGIC, length)


def skippable_payload(frame: bytes) -> bytes:
    """What a skippable frame carries."""
    return frame[8:]


class _Window:
    """Small reads of a file served from few large ones."""

    def __init__(self, source: ReadAt) -> None:
        self._source, self._start, self._data = source, 0, b""

    def take(self, frame: int, offset: int, length: int) -> bytes:
        if not (self._start <= offset and offset + length <= self._start + len(self._data)):
            self._start, self._data = offset, self._source.read_at(offset, max(length, _WALK_BYTES))
        got = self._data[offset - self._start : offset - self._start + length]
        if len(got) < length:
            raise TornFrameError(frame, "the file ends inside a frame")
        return got


def walk(source: ReadAt, start: int = 0) -> Iterator[Frame]:
    """Every frame from `start` to the end, told from headers alone: nothing is decoded.

    FrameError where no frame begins, TornFrameError where the file ends inside one.
    """
    window = _Window(source)
    offset = start
    while offset < source.size:
        magic = int.from_bytes(window.take(offset, offset, 4), "little")
        if magic & SKIPPABLE_MASK == SKIPPABLE_MAGIC:
            length = 8 + int.from_bytes(window.take(offset, offset + 4, 4), "little")
            if offset + length > source.size:
                raise TornFrameError(offset, "the file ends inside a frame")
            frame = Frame(offset, length, 0, skippable=True)
        elif magic == MAGIC:
            frame = _measure(window, offset)
        else:
            raise FrameError(offset, "no zstd frame begins here")
        yield frame
        offset = frame.end


def _measure(window: _Window, offset: int) -> Frame:
    """The extent of the data frame at `offset`, from its header and its blocks' headers."""
    descriptor = window.take(offset, offset + 4, 1)[0]
    single_segment = descriptor >> 5 & 1
    at = offset + 5 + (1 - single_segment) + (0, 1, 2, 4)[descriptor & 3]
    size_bytes = (single_segment, 2, 4, 8)[descriptor >> 6]
    if size_bytes == 0:
        raise FrameError(offset, "a frame without its content's size")
    plain_length = int.from_bytes(window.take(offset, at, size_bytes), "little") + (256 if size_bytes == 2 else 0)
    at += size_bytes
    is_last = 0
    while not is_last:
        header = int.from_bytes(window.take(offset, at, 3), "little")
        is_last, kind, size = header & 1, header >> 1 & 3, header >> 3
        if kind == 3 or size > _BLOCK_MAX_BYTES:
            raise FrameError(offset, "a block that is none")
        at += 3 + (1 if kind == 1 else size)
    at += 4 if descriptor & _CHECKSUM else 0
    window.take(offset, at - 1, 1)
    return Frame(offset, at - offset, plain_length)


def seek_table(frames: Iterable[Frame]) -> bytes:
    """The zstd seekable format's table over frames that follow each other from byte 0."""
    entries = [struct.pack("<II", frame.length, frame.plain_length) for frame in frames]
    body = b"".join(entries) + struct.pack("<IBI", len(entries), 0, SEEK_FOOTER_MAGIC)
    return struct.pack("<II", SEEK_TABLE_MAGIC, len(body)) + body


def read_seek_table(source: ReadAt) -> list[Frame]:
    """The frames that a file's closing seek table lists, itself left out; FrameError where it is missing or wrong."""
    foot_at = source.size - 9
    if foot_at < 8 or len(foot := source.read_at(foot_at, 9)) < 9:
        raise FrameError(0, "too short to hold a seek table")
    count, descriptor, magic = struct.unpack("<IBI", foot)
    if magic != SEEK_FOOTER_MAGIC:
        raise FrameError(foot_at, "no seek table at the end")
    width = 12 if descriptor & 0x80 else 8
    start = foot_at - count * width - 8
    if start < 0:
        raise FrameError(foot_at, "the seek table claims more frames than fit")
    table = source.read_at(start, 8 + count * width)
    if struct.unpack_from("<II", table) != (SEEK_TABLE_MAGIC, count * width + 9):
        raise FrameError(start, "the seek table's head is wrong")
    frames, offset = [], 0
    for at in range(8, len(table), width):
        length, plain_length = struct.unpack_from("<II", table, at)
        frames.append(Frame(offset, length, plain_length, skippable=plain_length == 0))
        offset += length
    if offset != start:
        raise FrameError(start, "the seek table does not fit the file")
    return frames


def decode_foreign(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """The content of a `.zst` that somebody else wrote, frame after frame, in pieces of at most 32 MiB.

    TornFrameError where it is cut off, FrameError where it does not decode.
    """
    context = zstandard.ZstdDecompressor(max_window_size=1 << FOREIGN_WINDOW_LOG_MAX)
    current, consumed = None, 0
    for data in _steps(chunks):
        start, consumed = consumed, consumed + len(data)
        while data:
            current = current or context.decompressobj()
            try:
                plain = current.decompress(data)
            except zstandard.ZstdError as error:
                raise FrameError(start, f"the file does not decode ({error})") from error
            if plain:
                yield plain
            data, finished = (current.unused_data, True) if current.eof else (b"", False)
            if finished:
                current = None
    if current is not None:
        raise TornFrameError(consumed, "the file ends inside a frame")


def _steps(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """The same bytes in steps so short that none of them decodes to much: four bytes can stand for 128 KiB."""
    for chunk in chunks:
        for at in range(0, len(chunk), _FOREIGN_STEP_BYTES):
            yield chunk[at : at + _FOREIGN_STEP_BYTES]
