"""A checkpoint: a state's structure after a record, with references into the log; no content is copied."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

from coldtrail.format import frames, lines
from coldtrail.format.frames import FrameError, ReadAt

_LEVEL = 9
_ENTRY = struct.Struct("<QII")  # plain offset, length of the packed form, CRC32 of it
_COUNT = struct.Struct("<I")
_CRC = struct.Struct("<I")

Run = tuple[int, ...]  # generation, start, end of records; of one record that holds several messages also the first and the last of these
_PLACES = {"runs": (0, (3, 5)), "told": (0, (4,)), "tools": (1, (4,)), "early": (1, (4,))}  # of each: how many texts lead, which lengths


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What is needed to make the state after `offset` again from the log."""

    version: int  # of the fold that made it
    stream: str
    generation: int
    offset: int  # behind the last record that it includes
    prefix_sha256: str  # of the generation's bytes up to `offset`: the SHA-256 of the hashes of its blocks
    state_hash: str
    runs: tuple[Run, ...]  # live records, in order; neighbours as one
    loose: tuple[int, ...]  # which of the live ones hang on a record that has not been met
    told: tuple[tuple[int, int, int, int], ...]  # which tell their tools elsewhere: generation, offset, length of that record
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
        if not isinstance(value, dict) or not isinstance(value.get("version"), int):
            raise ValueError("not a checkpoint")
        if set(value) != set(cls.__slots__):
            raise ValueError(f"its fields are others; it is of version {value['version']}")
        lists = {name: _places(value[name], *shape) for name, shape in _PLACES.items()}
        texts = all(isinstance(value[name], str) for name in ("stream", "prefix_sha256", "state_hash"))
        if not texts or not all(map(_is_count, (value["generation"], value["offset"]))) or not isinstance(value["small"], dict):
            raise ValueError("not a checkpoint")
        return cls(**{**value, **lists, "loose": _places([value["loose"]], 0, None)[0]})


def _places(value: object, texts: int, lengths: tuple[int, ...] | None) -> tuple[tuple[object, ...], ...]:
    """Rows of numbers, the first `texts` of each a text; ValueError for anything else."""
    if isinstance(value, list):
        rows = [tuple(each) for each in value if isinstance(each, list) and (lengths is None or len(each) in lengths)]
        if len(rows) == len(value) and all(
            all(isinstance(each, str) for each in row[:texts]) and all(map(_is_count, row[texts:])) for row in rows
        ):
            return tuple(rows)
    raise ValueError("not a checkpoint")


def _is_count(value: object) -> bool:
    return isinstance(value, int) and value >= 0


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
    table = _COUNT.pack(len(entries)) + b"".join(_ENTRY.pack(offset, len(packed), zlib.crc32(packed)) for offset, packed in entries)
    return table + _CRC.pack(zlib.crc32(table)) + b"".join(packed for _, packed in entries)


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


def read_directory(source: ReadAt, start: int, end: int) -> Iterator[Listed]:
    """What `directory` lists, at [start, end) of a file, the last first; FrameError where it does not fit, or is damaged."""
    head = source.read_at(start, _COUNT.size)
    count = _COUNT.unpack(head)[0] if len(head) == _COUNT.size else 0
    length = _COUNT.size + count * _ENTRY.size
    if start + length + _CRC.size > end:
        raise FrameError(start, "the table of checkpoints does not fit")
    table = source.read_at(start, length + _CRC.size)
    if len(table) < length + _CRC.size or _CRC.unpack_from(table, length)[0] != zlib.crc32(table[:length]):
        raise FrameError(start, "the table of checkpoints does not match its checksum")
    entries = list(_ENTRY.iter_unpack(table[_COUNT.size : length]))
    places = list(accumulate((size for _, size, _ in entries), initial=start + length + _CRC.size))
    if places[-1] > end:
        raise FrameError(start, "the table of checkpoints does not fit")
    return (Listed(offset, places[at], size, crc) for at, (offset, size, crc) in reversed(list(enumerate(entries))))
