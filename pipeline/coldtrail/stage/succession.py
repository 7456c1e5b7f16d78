"""Does the file that is there now go on where the lost one ended? Told by bytes and records alone, for inodes are given again."""

from __future__ import annotations

import os
from functools import cached_property

from coldtrail import indexes
from coldtrail.errors import CorruptionError
from coldtrail.format.index import id_hash
from coldtrail.format.lines import MAX_LINE_BYTES, LineSplitter
from coldtrail.format.manifest import StreamMeta
from coldtrail.home import Home
from coldtrail.indexer import read_record
from coldtrail.model import Ids, Reading

FIRST_BYTES = 256 << 10  # of a file, in which its first records are looked for
FIRST_RECORDS = 64


class Succession:
    """A stream's life that ended, and the file that is there now."""

    def __init__(self, home: Home, meta: StreamMeta, fd: int) -> None:
        self._home, self._meta, self._fd = home, meta, fd
        self._agent = home.agents[meta.agent]
        self.lost = meta.generation(home.newest_chain(meta)[-1])  # a life of which no byte was ever held counts for nothing

    def begins_alike(self) -> bool:
        """Whether the file begins with a record of the lost life; where records have no ids, with its first line."""
        if self._ids:
            return self._had(self._ids[0], self._runs)
        plain = self._home.plain(self._meta, self.lost.number)
        try:
            ours = b"".join(data for _, data in plain.read(0, min(plain.end(), FIRST_BYTES)))
        except CorruptionError:
            return False
        ours, theirs = (line[: line.find(b"\n") + 1] or line for line in (ours, os.pread(self._fd, FIRST_BYTES, 0)))
        return bool(ours and theirs) and (ours.startswith(theirs) or theirs.startswith(ours))

    def goes_on(self) -> bool:
        """Ask the agent whether the new file's first records go on where the lost one ended."""
        if self._agent.ids is not Ids.RESTATED and any(map(self._held, self._ids[:1])):
            return False  # it begins with a record that was held: its head is there
        return self._agent.continues(self._first, self._held) or self._hangs_on_one_that_was_missed()

    def _hangs_on_one_that_was_missed(self) -> bool:
        """Whether the first record's parent is nowhere, and all are unknown and later: what came between was never captured."""
        hung_on = next((reading.parent for reading in self._first if reading.id is not None), None)
        if self._agent.ids is not Ids.CHAINED or hung_on is None or any(map(self._held, (hung_on, *self._ids))) or hung_on in self._ids:
            return False
        first_ms = min((reading.time_ms for reading in self._first if reading.time_ms is not None), default=None)
        last_ms = max((run.facts.last_ms for run in self._all_runs if run.facts.last_ms is not None), default=None)
        return first_ms is not None and last_ms is not None and first_ms >= last_ms

    def _held(self, record_id: str) -> bool:
        return self._had(record_id, self._all_runs)

    @staticmethod
    def _had(record_id: str, runs: list[indexes.Indexed]) -> bool:
        return any(run.index.having_id(id_hash(record_id)) for run in runs)

    @cached_property
    def _all_runs(self) -> list[indexes.Indexed]:
        """The index of the lost life and of those that it went on with."""
        return [run for each in reversed(self._meta.chain(self.lost.number)) for run in self._runs_of(each.number)]

    @cached_property
    def _runs(self) -> list[indexes.Indexed]:
        return self._runs_of(self.lost.number)

    def _runs_of(self, number: int) -> list[indexes.Indexed]:
        return indexes.of_generation(self._home.plain(self._meta, number), self._agent, gaps=[])

    @cached_property
    def _ids(self) -> list[str]:
        return [reading.id for reading in self._first if reading.id is not None]

    @cached_property
    def _first(self) -> list[Reading]:
        """The file's first records, at most FIRST_RECORDS: those in the first FIRST_BYTES, else the one that is longer."""
        splitter, readings = LineSplitter(0), list[Reading]()
        for at in range(0, MAX_LINE_BYTES, FIRST_BYTES):
            records = splitter.feed(os.pread(self._fd, FIRST_BYTES, at))
            readings += [found for record in records if (found := read_record(self._agent, record)) is not None]
            if readings or splitter.pending_start + splitter.pending_length < at + FIRST_BYTES:
                break
        return readings[:FIRST_RECORDS]
