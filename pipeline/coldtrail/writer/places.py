"""Where each id of a log stands, in some 15 bytes an id: told by hash, so whoever asks reads the record and compares."""

from __future__ import annotations

from array import array
from collections.abc import Iterator

from coldtrail.format.index import id_hash

_FIRST_SLOTS = 1 << 12
_FULL = 0.75
_OFFSET_BITS = 40  # the rest of a slot's 64 are bits of the hash
_OFFSET_MASK = (1 << _OFFSET_BITS) - 1


class Places:
    """Offsets by id. It grows by tables of twice the size, so that no append ever waits for a table to be made anew.

    >>> places = Places(); places.add("a", 0); places.add("b", 700)
    >>> list(places.of("b")), list(places.of("c"))
    ([700], [])
    """

    def __init__(self) -> None:
        self._tables = [_empty(_FIRST_SLOTS)]
        self._left = int(_FIRST_SLOTS * _FULL)

    def add(self, event_id: str, offset: int) -> None:
        """Note the place of one more record; ValueError beyond a terabyte."""
        if offset >= _OFFSET_MASK:
            raise ValueError("ids are looked up in the first terabyte of a log alone")
        if not self._left:
            self._tables.append(_empty(2 * len(self._tables[-1])))
            self._left = int(len(self._tables[-1]) * _FULL)
        self._left -= 1
        table, hashed = self._tables[-1], id_hash(event_id)
        slot, mask = hashed & (len(table) - 1), len(table) - 1
        while table[slot]:
            slot = (slot + 1) & mask
        table[slot] = hashed & ~_OFFSET_MASK | offset + 1  # 0 is an empty slot

    def of(self, event_id: str) -> Iterator[int]:
        """Where records may stand that have this id: all that have, and, once in millions, one that has not."""
        hashed = id_hash(event_id)
        upper = hashed >> _OFFSET_BITS
        for table in self._tables:
            mask = len(table) - 1
            slot = hashed & mask
            while cell := table[slot]:
                if cell >> _OFFSET_BITS == upper:
                    yield (cell & _OFFSET_MASK) - 1
                slot = (slot + 1) & mask


def _empty(slots: int) -> array[int]:
    return array("Q", bytes(8 * slots))
