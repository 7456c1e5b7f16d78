"""Ids by their hashes: which of them a sealed segment has, so that its index is not read for others, and which rows have one."""

from __future__ import annotations

import struct
import sys
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable

_COUNT = struct.Struct("<I")
_MASK = (1 << 32) - 1
_BYTES = 4  # of each
_ROWS_A_BUCKET = 16


def pack(id_hashes: Iterable[int]) -> bytes:
    """The table of these hashes, for a container that compresses it: all highest bytes first, for sorted they are nearly the same."""
    table = array("I", sorted(hashed & _MASK for hashed in id_hashes if hashed))
    data = _little_endian(table).tobytes()
    return _COUNT.pack(len(table)) + b"".join(data[at::_BYTES] for at in reversed(range(_BYTES)))


def unpack(data: bytes | bytearray) -> array[int]:
    """Back from `pack`; ValueError where it is none."""
    count = int.from_bytes(data[: _COUNT.size], "little")
    if len(data) != _COUNT.size + _BYTES * count:
        raise ValueError(f"a table of ids of {len(data)} bytes that does not say so")
    joined = bytearray(_BYTES * count)
    for at in range(_BYTES):
        begin = _COUNT.size + (_BYTES - 1 - at) * count
        joined[at::_BYTES] = data[begin : begin + count]
    table = array("I")
    table.frombytes(joined)
    return _little_endian(table)


def count(table: array[int], hashed: int) -> int:
    """How many records the segment may have whose id has this hash: one too many for one hash in thousands, and never too few."""
    wanted = hashed & _MASK
    begin = bisect_left(table, wanted)
    return bisect_right(table, wanted, begin) - begin


class IdTable:
    """Which of many rows have an id, by the lowest bits of its hash: some 10 bytes a row besides the hashes, and nothing is sorted."""

    __slots__ = ("_buckets", "_hashes")

    def __init__(self, hashes: array[int]) -> None:
        """`hashes`: each row's, 0 where it has no id."""
        self._hashes = hashes
        self._buckets = [array("I") for _ in range(1 << max(0, (len(hashes) // _ROWS_A_BUCKET).bit_length()))]
        mask = len(self._buckets) - 1
        for at, hashed in enumerate(hashes):
            if hashed:
                self._buckets[hashed & mask].append(at)

    def having(self, hashed: int) -> list[int]:
        """The rows whose id has this hash, in order; as quick in a million as in a thousand."""
        return [at for at in self._buckets[hashed & (len(self._buckets) - 1)] if self._hashes[at] == hashed]

    @property
    def bytes(self) -> int:
        """What it holds besides the hashes."""
        return sys.getsizeof(self._buckets) + sum(map(sys.getsizeof, self._buckets))


def _little_endian(table: array[int]) -> array[int]:
    if sys.byteorder == "little":
        return table
    turned = table[:]
    turned.byteswap()
    return turned
