"""The whole state of a log while it is written, so that the log itself can name it now and then."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from coldtrail.agents.event_log import AGENT
from coldtrail.indexer import read_record
from coldtrail.model import EventType, Reading, Record
from coldtrail.recovery import founding_hash
from coldtrail.state import Fold, Ref, State
from coldtrail.writer.draft import Draft

_COST_SHARE = 16  # at least this part of the log lies between two: all that is hashed for them is some 16 times the log


class Records(Protocol):
    """A log's records, read again."""

    def having(self, event_id: str) -> Iterable[Record]:
        """Those of that id, in order."""

    def at(self, offset: int) -> Record | None:
        """The one that begins there."""


class WholeState:
    """Takes every record of a log, and tells when a `checkpoint` event is due and what it says.

    A log that does not begin with `session_start` has lost its head: what holds in it is not known, and not named.
    """

    def __init__(self, every_events: int, log: Records) -> None:
        self._every_events, self._log = every_events, log
        self._fold = Fold(AGENT.ids, self, State.whole())
        self._has_head: bool | None = None
        self._events = self._named = self._end = 0  # since the last one; behind it; behind the last record

    def take(self, record: Record) -> None:
        """The next record."""
        self._end = record.offset + record.length
        reading = read_record(AGENT, record)
        if reading is None:
            return
        kind = reading.events[0].type
        if self._has_head is None:
            self._has_head = kind is EventType.SESSION_START
        self._fold.apply(_ref(record), reading)
        self._events += 1
        if kind is EventType.CHECKPOINT:
            self._events, self._named = 0, self._end

    @property
    def is_due(self) -> bool:
        """Whether the next event should have a `checkpoint` before it."""
        is_worth_it = (self._end - self._named) * _COST_SHARE >= self._named
        return bool(self._has_head) and self._events >= self._every_events and is_worth_it

    def draft(self) -> Draft:
        """The `checkpoint` event that names what holds now."""
        state = self._fold.state
        return Draft.of(EventType.CHECKPOINT, None, {"state_hash": founding_hash(state), "event_count": state.event_count})

    def find(self, record_id: str, before: Ref) -> tuple[Ref, Reading] | None:
        """See state.Past."""
        found = None
        for record in self._log.having(record_id):
            if record.offset < before.offset and (reading := read_record(AGENT, record)) is not None:
                found = _ref(record), reading
        return found

    def at(self, ref: Ref) -> Reading | None:
        """See state.Past."""
        record = self._log.at(ref.offset)
        return None if record is None else read_record(AGENT, record)


def _ref(record: Record) -> Ref:
    return Ref(0, record.offset, record.length)
