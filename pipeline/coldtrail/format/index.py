"""The record index: where each record of a segment lies, what it is, when it was written, whose id it bears."""

from __future__ import annotations

import contextlib
import hashlib
import struct
import sys
import zlib
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import accumulate

from coldtrail.format.frames import ReadAt
from coldtrail.format.ids import IdTable
from coldtrail.model import EVENT_BIT, EventType

VERSION = 1
_SEALED_MAGIC = b"CTindex"  # one byte of version follows
_GROWING_MAGIC = b"CTrows\0"
_CODES = "QQBIqQ"  # of the columns, in the order of Row's fields, for array and struct alike
_SEALED_HEADER = struct.Struct("<7sBQqQ")  # magic, version, start, base_ms, number of rows
_GROWING_HEADER = struct.Struct("<7sBQq")  # magic, version, start, base_ms; a CRC32 follows
_ROW = struct.Struct("<" + _CODES)  # a CRC32 follows
_STORED = struct.Struct("<" + _CODES + "I")
_CRC = struct.Struct("<I")
HEADER_BYTES = _GROWING_HEADER.size + _CRC.size
ROW_BYTES = _ROW.size + _CRC.size
Base = int | None | Callable[[], int | None]
_SET_MAX_ROWS = 8192
_ASKED_FEW = 4  # times that the hashes are looked through one by one
_NO_TIME = -(1 << 63)  # earlier than any other, so that a running maximum needs no exception for it


@dataclass(frozen=True, slots=True)
class Row:
    """What the index knows of one record."""

    offset: int  # bytes from the start of the generation
    length: int  # bytes, newline included; at least 1
    kind: int  # a RecordKind
    mask: int  # the EVENT_BITs of its events
    time_ms: int | None  # milliseconds since 1970 UTC
    id_hash: int  # `id_hash` of the agent's own id; 0: it has none


def id_hash(text: str) -> int:
    """64 bits that stand for an agent's own id; never 0. Two ids may share them: compare the ids themselves.

    >>> id_hash("") != id_hash("a") != 0
    True
    """
    digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "little") or 1


def mask_of(types: Iterable[EventType]) -> int:
    """The bits of these event types together; a row whose mask shares none with it need not be read.

    >>> mask_of([EventType.SESSION_START, EventType.TOOL_INVOKED])
    5
    """
    mask = 0
    for each in types:
        mask |= EVENT_BIT[each]
    return mask


class RecordIndex:
    """The rows of one segment in the order of their offsets, as columns: some 45 bytes a record.

    `base_ms` is the maximum of the times before this segment, None where there were none, or where to ask for it once somebody
    wants to know; `start` is the offset from which on it has records.
    """

    __slots__ = ("_asked", "_base", "_columns", "_hashes", "_known", "_lengths", "_offsets", "_running", "_table", "_times", "start")

    def __init__(self, base_ms: Base = None, start: int = 0) -> None:
        self._base = base_ms
        self.start = start
        self._asked = 0  # how often for an id
        self._known: set[int] | None = None  # the hashes, where they are few
        self._table: IdTable | None = None  # where they are many: the rows by their hashes, once that pays
        self._take([array(code) for code in _CODES])

    def __len__(self) -> int:
        return len(self._offsets)

    @property
    def end(self) -> int:
        """The offset behind the last record; `start` where there is none."""
        return self._end_of(len(self) - 1) if len(self) else self.start

    @property
    def base_ms(self) -> int | None:
        """The maximum of the times before this segment."""
        if callable(self._base):
            self._base = self._base()
        return self._base

    @property
    def running_ms(self) -> int | None:
        """The maximum of all times so far, those before this segment included: the base of the next one."""
        if self._running is None:
            return _optional(max(max(self._times, default=_NO_TIME), _stored(self.base_ms)))
        return _optional(self._running[-1]) if len(self) else self.base_ms

    @property
    def kinds(self) -> array[int]:
        """Each row's kind, in order."""
        return self._columns[2]

    @property
    def id_hashes(self) -> array[int]:
        """Each row's `id_hash`, in order."""
        return self._hashes

    def add(self, row: Row) -> None:
        """Append a row; ValueError where it begins before the one before it ends, or does not fit the format."""
        if row.offset < self.end:
            raise ValueError(f"a record at {row.offset} cannot follow one that ends at {self.end}")
        self._append(_values(row))

    def row(self, i: int) -> Row:
        """The i-th row."""
        offset, length, kind, mask, time_ms, hashed = (column[i] for column in self._columns)
        return Row(offset, length, kind, mask, _optional(time_ms), hashed)

    def rows(self, start: int = 0) -> Iterator[Row]:
        """The rows from the `start`-th on."""
        return (self.row(i) for i in range(start, len(self)))

    def first_at_or_after(self, offset: int) -> int:
        """The first record that begins at or behind `offset`; `len` where there is none."""
        return bisect_left(self._offsets, offset)

    def first_beyond(self, time_ms: int) -> int:
        """The first record whose running maximum is beyond `time_ms`; `len` where there is none.

        The records before it are those of that time, for times in a log may run backwards.
        """
        return bisect_right(self._running_times(), time_ms)

    def having_id(self, hashed: int) -> list[int]:
        """The records whose id has this hash, in order."""
        if not hashed:
            return []
        if len(self) <= _SET_MAX_ROWS:
            if self._known is None:
                self._known = set(self._hashes)
            if hashed not in self._known:
                return []
        if self._table is None:
            self._asked += 1
            self._table = IdTable(self._hashes) if self._asked > _ASKED_FEW else None
        if self._table is not None:
            return self._table.having(hashed)
        found: list[int] = []
        with contextlib.suppress(ValueError):  # there is no more
            while True:
                found.append(self._hashes.index(hashed, found[-1] + 1 if found else 0))
        return found

    def drop_before(self, end_offset: int) -> RecordIndex:
        """A new index without the records that end at or before `end_offset`; their times live on in its base."""
        cut = bisect_right(self._offsets, end_offset)
        if cut and self._end_of(cut - 1) > end_offset:
            cut -= 1
        if not cut:
            return _index_of(self._base, self.start, [column[:] for column in self._columns])
        return _index_of(_optional(self._running_times()[cut - 1]), self._end_of(cut - 1), [column[cut:] for column in self._columns])

    def keep_before(self, end_offset: int) -> RecordIndex:
        """A new index of the records that end at or before `end_offset`."""
        cut = bisect_left(self._offsets, end_offset)
        if cut and self._end_of(cut - 1) > end_offset:
            cut -= 1
        return _index_of(self._base, self.start, [column[:cut] for column in self._columns])

    def based(self, base_ms: Base) -> RecordIndex:
        """The same rows behind others whose times' maximum is `base_ms`."""
        return _index_of(base_ms, self.start, [column[:] for column in self._columns])

    def encode(self) -> bytes:
        """As bytes, for a container that compresses them: header, then column after column, then a CRC32; little-endian."""
        head = _SEALED_HEADER.pack(_SEALED_MAGIC, VERSION, self.start, _stored(self.base_ms), len(self))
        data = head + b"".join(_little_endian(column).tobytes() for column in self._columns)
        return data + _CRC.pack(zlib.crc32(data))

    @classmethod
    def decode(cls, data: bytes | bytearray) -> RecordIndex:
        """Back from `encode`; ValueError says what is wrong."""
        start, base, count = _unpack(_SEALED_HEADER, data, _SEALED_MAGIC, "record index")
        whole = _SEALED_HEADER.size + count * _ROW.size + _CRC.size
        if len(data) != whole:
            raise ValueError(f"a record index of {count} rows has {whole} bytes, not {len(data)}")
        if not _crc_holds(data):
            raise ValueError("the record index does not match its checksum")
        columns, at, view = [], _SEALED_HEADER.size, memoryview(data)
        for code in _CODES:
            column: array[int] = array(code)
            column.frombytes(view[at : at + count * column.itemsize])
            columns.append(_little_endian(column))
            at += count * column.itemsize
        return _index_of(_optional(base), start, columns)

    def _append(self, values: tuple[int, ...]) -> None:
        self._table = self._known = None
        for column, value in zip(self._columns, values, strict=True):
            column.append(value)
        if self._running is not None:
            self._running.append(max(self._times[-1], self._running[-1] if self._running else _stored(self.base_ms)))

    def _take(self, columns: list[array[int]]) -> None:
        self._columns = columns
        self._offsets, self._lengths, _, _, self._times, self._hashes = columns
        self._asked, self._table, self._known = 0, None, None
        self._running: array[int] | None = None  # most who read a log do not ask for times

    def _running_times(self) -> array[int]:
        """Of each record the maximum of all times so far."""
        if self._running is None:
            self._running = array("q", accumulate(self._times, max, initial=_stored(self.base_ms)))
            self._running.pop(0)  # the base itself
        return self._running

    def _end_of(self, i: int) -> int:
        return self._offsets[i] + self._lengths[i]


# ---- the file of a growing segment ------------------------------------------------------------------------------------


def pack_header(start: int, base_ms: int | None) -> bytes:
    """How the file of a growing index begins."""
    head = _GROWING_HEADER.pack(_GROWING_MAGIC, VERSION, start, _stored(base_ms))
    return head + _CRC.pack(zlib.crc32(head))


def pack_row(row: Row) -> bytes:
    """What is appended to that file for one row, `ROW_BYTES` long."""
    packed = _ROW.pack(*_values(row))
    return packed + _CRC.pack(zlib.crc32(packed))


def pack_rows(rows: Iterable[Row]) -> bytes:
    """What is appended for several rows."""
    return b"".join(map(pack_row, rows))


def read_file(data: bytes) -> tuple[RecordIndex, int]:
    """The index in that file, and how many of its bytes are whole; cut it back to these before more is appended.

    It is read up to the first row that is torn, damaged or out of order. ValueError where not even the header is whole.
    """
    start, base = _unpack(_GROWING_HEADER, data, _GROWING_MAGIC, "growing record index")
    if not _crc_holds(data[:HEADER_BYTES]):
        raise ValueError("the header of the growing record index does not match its checksum")
    index = _index_of(_optional(base), start, _whole_rows(data, start))
    return index, HEADER_BYTES + len(index) * ROW_BYTES


@dataclass(frozen=True, slots=True)
class Part:
    """Some of the rows in that file, to be read by themselves."""

    offset: int  # of their first record
    at: int  # in the file, in bytes
    length: int  # there, in bytes

    def read(self, source: ReadAt) -> RecordIndex:
        """The index of these rows, up to the first that is torn, damaged or out of order."""
        return read_file(pack_header(self.offset, None) + source.read_at(self.at, self.length))[0]


def split_file(source: ReadAt, rows: int) -> tuple[int, list[Part]]:
    """The `start` of that file, and its parts, of so many rows each at most.

    They end before the first that does not begin with a whole row. ValueError where not even the header is whole.
    """
    start, size = read_file(source.read_at(0, HEADER_BYTES))[0].start, source.size
    parts: list[Part] = []
    for at in range(HEADER_BYTES, size - ROW_BYTES + 1, rows * ROW_BYTES):
        first = source.read_at(at, ROW_BYTES)
        if len(first) < ROW_BYTES or not _crc_holds(first):
            break
        whole = (size - HEADER_BYTES) // ROW_BYTES * ROW_BYTES + HEADER_BYTES
        parts.append(Part(_ROW.unpack_from(first)[0], at, min(rows * ROW_BYTES, whole - at)))
    return start, parts


def _whole_rows(data: bytes, end: int) -> list[array[int]]:
    """The columns of the rows behind the header, up to the first that is torn, damaged or out of order."""
    rows = memoryview(data)[HEADER_BYTES:]
    rows = rows[: len(rows) // ROW_BYTES * ROW_BYTES]
    columns: list[array[int]] = [array(code) for code in _CODES]
    offsets, lengths, kinds, masks, times, hashes = (column.append for column in columns)
    at = 0
    for offset, length, kind, mask, time_ms, hashed, stated in _STORED.iter_unpack(rows):
        if offset < end or zlib.crc32(rows[at : at + _ROW.size]) != stated:
            break
        offsets(offset)
        lengths(length)
        kinds(kind)
        masks(mask)
        times(time_ms)
        hashes(hashed)
        at, end = at + ROW_BYTES, offset + length
    return columns


# ---- what both forms share --------------------------------------------------------------------------------------------


def _index_of(base_ms: Base, start: int, columns: list[array[int]]) -> RecordIndex:
    index = RecordIndex(base_ms, start)
    index._take(columns)
    return index


def _values(row: Row) -> tuple[int, ...]:
    """A row as it is stored, proven to fit, so that an append never stops half-way."""
    values = (row.offset, row.length, row.kind, row.mask, _stored(row.time_ms), row.id_hash)
    try:
        _ROW.pack(*values)
    except struct.error as error:
        raise ValueError(f"a record that the index cannot hold ({error}): {row}") from error
    if row.length < 1:
        raise ValueError(f"a record without bytes: {row}")
    return values


def _stored(time_ms: int | None) -> int:
    return _NO_TIME if time_ms is None else time_ms


def _optional(stored: int) -> int | None:
    return None if stored == _NO_TIME else stored


def _little_endian(column: array[int]) -> array[int]:
    if sys.byteorder == "little":
        return column
    turned = column[:]
    turned.byteswap()
    return turned


def _unpack(header: struct.Struct, data: bytes | bytearray, magic: bytes, what: str) -> tuple[int, ...]:
    """The header's fields behind magic and version."""
    if len(data) < header.size + _CRC.size:
        raise ValueError(f"a {what} of {len(data)} bytes is cut off in its header")
    if not data.startswith(magic):
        raise ValueError(f"no {what}: it begins with {data[: len(magic)]!r}")
    _, version, *fields = header.unpack_from(data)
    if version != VERSION:
        raise ValueError(f"a {what} of version {version}; this coldtrail reads version {VERSION}")
    return tuple(fields)


def _crc_holds(data: bytes | bytearray) -> bool:
    (stated,) = _CRC.unpack_from(data, len(data) - _CRC.size)
    return zlib.crc32(memoryview(data)[: -_CRC.size]) == int(stated)
