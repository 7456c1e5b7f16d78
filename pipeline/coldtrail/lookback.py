"""A log's earlier records, looked up by id or place: for the fold, which asks only where a record refers to what is not live."""

from __future__ import annotations

from collections import OrderedDict

from coldtrail.format.index import id_hash
from coldtrail.format.lines import read_line
from coldtrail.indexer import read_record
from coldtrail.model import Position, Reading, RecordKind
from coldtrail.recover import StreamReader
from coldtrail.state import Ref

_CACHE_BYTES = 8 << 20  # of records read again: who takes up an abandoned branch asks for the same ones again and again


class LogPast:
    """See state.Past. Reads by a reader of its own, so that the one that goes on keeps its place."""

    def __init__(self, reader: StreamReader) -> None:
        self._reader = reader
        self._aside: StreamReader | None = None
        self._read: OrderedDict[Ref, Reading | None] = OrderedDict()
        self._read_bytes = 0

    def find(self, record_id: str, before: Ref) -> tuple[Ref, Reading] | None:
        """The last record of that id before `before`."""
        own = Position(before.generation, before.offset + before.length) if before.length else None
        for generation, row in self._reader.having_id(id_hash(record_id), own):
            ref = Ref(generation, row.offset, row.length)
            if ref < before and (reading := self.at(ref)) is not None and reading.id == record_id:
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
