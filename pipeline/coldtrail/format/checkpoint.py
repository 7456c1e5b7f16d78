"""A checkpoint: a state's structure after a record, with references into the log; no content is copied."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from coldtrail.format import frames, lines
from coldtrail.format.frames import FrameError, ReadAt

_LEVEL = 9
_ENTRY = struct.Struct("<QII")  # plain offset, length of the packed form, CRC32 of it
_COUNT = struct.Struct("<I")
ENTRY_MAX_BYTES = 16 << 20


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What is needed to make the state after `offset` again from the log."""

    version: int  # of the fold that made it
    generation: int
    offset: int  # behind the last record that it includes
    prefix_sha256: str  # of the generation's bytes up to `offset`: the SHA-256 of the hashes of its blocks
    state_hash: str
    runs: tuple[tuple[int, int, int], ...]  # live records, in order: generation, start, end; neighbours as one
    loose: tuple[int, ...]  # which of them hang on a record that has not been met
    tools: tuple[tuple[str, int, int, int], ...]  # pending: invocation, generation, offset, length of the record
    early: tuple[tuple[str, int, int, int], ...]  # completions without their invocation, likewise
    small: Mapping[str, object]  # everything else, which is small

    def encode(self) -> bytes:
        """Packed: one zstd frame around canonical JSON."""
        value = {name: getattr(self, name) for name in self.__slots__}
        return frames.Compressor(_LEVEL).frame(lines.dumps(value, sort=True))

    @classmethod
    def decode(cls, packed: bytes) -> Checkpoint:
        """Back from `encode`; ValueError for anything else."""
        value = lines.loads(frames.decode(packed))
        if not isinstance(value, dict) or set(value) != set(cls.__slots__):
            raise ValueError("not a checkpoint")
        lists = {name: tuple(tuple(each) for each in value[name]) for name in ("runs", "tools", "early")}
        return cls(**{**value, **lists, "loose": tuple(value["loose"])})


def pack(entries: Iterable[tuple[int, bytes]]) -> bytes:
    """Packed checkpoints as a growing file holds them, each behind its place and length."""
    return b"".join(_ENTRY.pack(offset, len(packed), zlib.crc32(packed)) + packed for offset, packed in entries)


def unpack(data: bytes) -> list[tuple[int, bytes]]:
    """The whole entries of a growing file, up to the first that is torn or damaged."""
    found, at = [], 0
    while at + _ENTRY.size <= len(data):
        offset, length, crc = _ENTRY.unpack_from(data, at)
        packed = data[at + _ENTRY.size : at + _ENTRY.size + length]
        if len(packed) < length or zlib.crc32(packed) != crc:
            break
        found.append((offset, packed))
        at += _ENTRY.size + length
    return found


def directory(entries: Sequence[tuple[int, bytes]]) -> bytes:
    """Packed checkpoints as a sealed segment holds them: a table of their places first, so that one is read alone."""
    table, at = [_COUNT.pack(len(entries))], _COUNT.size + _ENTRY.size * len(entries)
    for offset, packed in entries:
        table.append(_ENTRY.pack(offset, len(packed), zlib.crc32(packed)))
        at += len(packed)
    return b"".join(table) + b"".join(packed for _, packed in entries)


@dataclass(frozen=True, slots=True)
class Listed:
    """Where a packed checkpoint lies in a file."""

    offset: int  # of the log
    at: int  # of the file
    length: int
    crc: int

    def read(self, source: ReadAt) -> bytes:
        """Its packed form; FrameError where it is damaged."""
        packed = source.read_at(self.at, self.length)
        if len(packed) < self.length or zlib.crc32(packed) != self.crc:
            raise FrameError(self.at, "a checkpoint's checksum is wrong")
        return packed


def read_directory(source: ReadAt, start: int, end: int) -> list[Listed]:
    """What `directory` lists, at [start, end) of a file; FrameError where it does not fit."""
    head = source.read_at(start, _COUNT.size)
    count = _COUNT.unpack(head)[0] if len(head) == _COUNT.size else 0
    table = source.read_at(start + _COUNT.size, count * _ENTRY.size)
    if len(table) < count * _ENTRY.size or start + _COUNT.size + len(table) > end:
        raise FrameError(start, "the table of checkpoints does not fit")
    found, at = [], start + _COUNT.size + len(table)
    for place in range(count):
        offset, length, crc = _ENTRY.unpack_from(table, place * _ENTRY.size)
        found.append(Listed(offset, at, length, crc))
        at += length
    if at > end:
        raise FrameError(start, "the table of checkpoints does not fit")
    return found
