"""A log's earlier records, looked up by id or place: for the fold, which asks only where a record refers to what is not live."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterator

from coldtrail.format.index import RecordIndex, id_hash
from coldtrail.format.lines import read_line
from coldtrail.indexer import read_record
from coldtrail.model import Reading, RecordKind
from coldtrail.recover import StreamReader
from coldtrail.state import Ref

_CACHE_BYTES = 8 << 20  # of records read again: who takes up an abandoned branch asks for the same ones again and again
_ROWS_A_BUCKET = 16


class LogPast:
    """See state.Past. Reads by a reader of its own, so that the one that goes on keeps its place."""

    def __init__(self, reader: StreamReader) -> None:
        self._reader = reader
        self._aside: StreamReader | None = None
        self._rows: IdRows | None = None
        self._read: OrderedDict[Ref, Reading | None] = OrderedDict()
        self._read_bytes = 0

    def find(self, record_id: str, before: Ref) -> tuple[Ref, Reading] | None:
        """The last record of that id before `before`."""
        if self._rows is None:
            self._rows = IdRows(self._reader)
        for ref in self._rows.having(id_hash(record_id), before):
            reading = self.at(ref)
            if reading is not None and reading.id == record_id:
                return ref, reading
        return None

    def at(self, ref: Ref) -> Reading | None:
        """The record at a place; None where it cannot be read."""
        if ref in self._read:
            self._read.move_to_end(ref)
            return self._read[ref]
        found = self._read[ref] = self._read_again(ref)
        self._read_bytes += ref.length
        while self._read_bytes > _CACHE_BYTES and len(self._read) > 1:
            self._read_bytes -= self._read.popitem(last=False)[0].length
        return found

    def _read_again(self, ref: Ref) -> Reading | None:
        if self._aside is None:
            self._aside = self._reader.aside()
        data = self._aside.content(ref.generation).get(ref.offset, ref.offset + ref.length)
        if len(data) < ref.length:
            return None
        records = [record for record in read_line(data, ref.offset) if record.kind is RecordKind.DATA]
        return read_record(self._reader.agent, records[0]) if records else None


class IdRows:
    """Which rows of a log's index have an id, by its hash: some 10 bytes a row, and nothing is sorted.

    A dict of the ids of two million records would take 290 MB.
    """

    def __init__(self, reader: StreamReader) -> None:
        self._runs: list[tuple[int, RecordIndex]] = list(reader.indexes())
        self._starts: list[int] = []  # the number of each run's first row
        total = 0
        for _, index in self._runs:
            self._starts.append(total)
            total += len(index)
        self._buckets = [array("I") for _ in range(1 << max(0, (total // _ROWS_A_BUCKET).bit_length()))]
        mask = len(self._buckets) - 1
        for start, (_, index) in zip(self._starts, self._runs, strict=True):
            for number, hashed in enumerate(index.id_hashes, start):
                if hashed:
                    self._buckets[hashed & mask].append(number)

    def having(self, hashed: int, before: Ref) -> Iterator[Ref]:
        """Where the records before `before` are whose ids have this hash, the last one first."""
        for number in reversed(self._buckets[hashed & (len(self._buckets) - 1)]):
            at = bisect_right(self._starts, number) - 1
            generation, index = self._runs[at]
            if index.id_hashes[number - self._starts[at]] == hashed:
                row = index.row(number - self._starts[at])
                if (generation, row.offset) < (before.generation, before.offset):
                    yield Ref(generation, row.offset, row.length)
