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
ToldElsewhere = tuple[int, int, int, int]  # which node; generation, offset, length of the record that told its tools
Named = tuple[str, int, int, int]  # invocation; generation, offset, length of the record
_PLACES = {"runs": (0, (3, 5)), "told": (0, (4,)), "tools": (1, (4,)), "early": (1, (4,))}  # of each: how many texts lead, which lengths


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What is needed to make the state after `offset` again from the log."""

    version: int  # of the fold that made it
    stream: str
    generation: int
    offset: int  # behind the last record that it includes
    prefix_sha256: str  # of the generation's bytes up to `offset`: the SHA-256 of the hashes of its blocks
    tail_sha256: str  # of the last 4096 of these, or of all if there are fewer: by these it is known to be of this log
    state_hash: str
    live: tuple[str, int, int]  # of the live conversation: the chain of its messages' hashes, how many nodes it has, how many messages
    runs: tuple[Run, ...]  # its records, in order; neighbours as one
    loose: tuple[int, ...]  # which of the live ones hang on a record that has not been met
    told: tuple[ToldElsewhere, ...]
    tools: tuple[Named, ...]  # pending
    early: tuple[Named, ...]  # completed without having been invoked
    small: Mapping[str, object]  # everything else, which is small

    def encode(self) -> bytes:
        """Packed: canonical JSON in a zstd frame, or in several where it is very large."""
        value = {name: getattr(self, name) for name in self.__slots__}
        data, size, compressor = lines.dumps(value, sort=True), frames.PLAIN_MAX_BYTES, frames.Compressor(_LEVEL)
        return b"".join(compressor.frame(data[at : at + size]) for at in range(0, len(data), size))

    @classmethod
    def decode(cls, packed: bytes) -> Checkpoint:
        """Back from `encode`; ValueError for anything else."""
        value = lines.loads(b"".join(frames.decode_foreign([packed])))
        if not isinstance(value, dict) or not isinstance(value.get("version"), int):
            raise ValueError("not a checkpoint")
        if set(value) != set(cls.__slots__):
            raise ValueError(f"its fields are others; it is of version {value['version']}")
        lists: dict[str, tuple[object, ...]] = {name: _places(value[name], *shape) for name, shape in _PLACES.items()}
        texts = all(isinstance(value[name], str) for name in ("stream", "prefix_sha256", "tail_sha256", "state_hash"))
        if not texts or not all(map(_is_count, (value["generation"], value["offset"]))) or not isinstance(value["small"], dict):
            raise ValueError("not a checkpoint")
        lists |= {"loose": _places([value["loose"]], 0, None)[0], "live": _places([value["live"]], 1, (3,))[0]}
        return cls(**{**value, **lists})


def _places(value: object, texts: int, lengths: tuple[int, ...] | None) -> tuple[tuple[object, ...], ...]:
    """Rows of numbers, the first `texts` of each a text; ValueError for anything else."""
    if isinstance(value, list):
        rows = [tuple(each) for each in value if isinstance(each, list) and (lengths is None or len(each) in lengths)]
        if len(rows) == len(value) and all(
            all(isinstance(each, str) for each in row[:texts]) and _are_numbers(row[texts:], lengths) for row in rows
        ):
            return tuple(rows)
    raise ValueError("not a checkpoint")


def _are_numbers(row: tuple[object, ...], lengths: tuple[int, ...] | None) -> bool:
    """Whether they are counts, but for a place's generation, which is below 0 in a log that this one goes on from."""
    generation = {3: 0, 4: 1, 5: 0}.get(len(row), -1) if lengths is not None else -1
    return all(isinstance(each, int) if at == generation else _is_count(each) for at, each in enumerate(row))


def _is_count(value: object) -> bool:
    return isinstance(value, int) and value >= 0


def pack(entries: Iterable[tuple[int, bytes]]) -> bytes:
    """Packed checkpoints as a growing file holds them, each behind its place and length."""
    return b"".join(_ENTRY.pack(offset, len(packed), zlib.crc32(packed)) + packed for offset, packed in entries)


def unpack(data: bytes) -> list[tuple[int, bytes]]:
    """The whole entries of a growing file; one that is torn or damaged is left out."""
    entries = ((each, data[each.at : each.at + each.length]) for each in listed(data))
    return [(each.offset, packed) for each, packed in entries if each.is_it(packed)]


def listed(data: bytes) -> list[Listed]:
    """Where in that file the entries lie, in order; whether one is whole is told when it is read."""
    found, at = list[Listed](), 0
    while at + _ENTRY.size <= len(data):
        offset, length, crc = _ENTRY.unpack_from(data, at)
        found.append(Listed(offset, at + _ENTRY.size, length, crc))
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
        if not self.is_it(packed):
            raise FrameError(self.at, "a checkpoint's checksum is wrong")
        return packed

    def is_it(self, packed: bytes) -> bool:
        """Whether these bytes are what was written there."""
        return len(packed) == self.length and zlib.crc32(packed) == self.crc


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
