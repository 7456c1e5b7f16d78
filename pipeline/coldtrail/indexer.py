"""Bytes to records to index rows and facts, as a generation's bytes pass by in order."""

from __future__ import annotations

from collections.abc import Iterator

from coldtrail.agents.base import Agent
from coldtrail.facts import Facts
from coldtrail.format.index import Row, id_hash, mask_of
from coldtrail.format.lines import LineSplitter, read_line
from coldtrail.model import Reading, Record, RecordKind

DOCUMENT_MAX_BYTES = 16 << 20  # a file rewritten whole is read as one record up to here


class Indexer:
    """Feed it a generation's bytes from `start` on; it gives the rows of the records they complete and folds their facts."""

    def __init__(self, agent: Agent, start: int = 0) -> None:
        self._agent = agent
        self._splitter = LineSplitter(start)
        self._facts = Facts()
        self.end = start  # behind the last byte fed

    @property
    def pending(self) -> int:
        """Where the record begins that is not complete yet; `end` where there is none."""
        return self._splitter.pending_start

    def feed(self, plain: bytes) -> list[Row]:
        """Take the next bytes; gives the rows of the records they complete."""
        self.end += len(plain)
        return [self._note(record) for record in self._splitter.feed(plain)]

    def take_facts(self) -> Facts:
        """The facts of the records completed since this was last called."""
        facts, self._facts = self._facts, Facts()
        return facts

    def tail_facts(self) -> Facts:
        """The facts of the unfinished record, if it is whole but for its newline; else empty ones."""
        facts = Facts()
        records = list(self._splitter.finish())
        if all(record.kind is RecordKind.DATA for record in records):
            for record in records:
                facts.add(record, read_record(self._agent, record))
        return facts

    def _note(self, record: Record) -> Row:
        reading = read_record(self._agent, record)
        self._facts.add(record, reading)
        return row_of(record, reading)


def read_record(agent: Agent, record: Record) -> Reading | None:
    """What a record means to its agent; None where it did not parse."""
    return agent.read(record.value) if record.kind is RecordKind.DATA else None


def row_of(record: Record, reading: Reading | None) -> Row:
    """A record's row in the index."""
    if reading is None:
        return Row(record.offset, record.length, int(record.kind), 0, None, 0)
    mask = mask_of(meaning.type for meaning in reading.events)
    return Row(record.offset, record.length, int(record.kind), mask, reading.time_ms, id_hash(reading.id) if reading.id else 0)


def read_document(agent: Agent, plain: bytes) -> Iterator[tuple[Record, Reading | None]]:
    """A file that is one JSON document, as its records."""
    for record in read_line(plain, 0):
        yield record, read_record(agent, record)


def document_facts(agent: Agent, plain: bytes) -> Facts:
    """The facts of a file that is one JSON document; none of one that is no JSON."""
    facts = Facts()
    for record, reading in read_document(agent, plain):
        if reading is not None:
            facts.add(record, reading)
    return facts
