"""What a caller asks of a stream, as what it is read by: types, moments, a selection of records."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from datetime import datetime

from coldtrail.errors import UsageError
from coldtrail.format.index import mask_of
from coldtrail.model import EventType, Position
from coldtrail.moments import Instant, Moment, read_moment
from coldtrail.recover import Selection, StreamReader

When = str | int | datetime  # as the command line takes it; milliseconds since 1970 UTC; a time (naive: UTC)
_WHOLE_RECORD = 1 << 62  # behind any event of a record


def types_of(words: Collection[str] | None) -> frozenset[EventType]:
    """The event types of these words; UsageError."""
    try:
        return frozenset(EventType(each) for each in words or ())
    except ValueError as error:
        raise UsageError(str(error), hint=f"the types are {', '.join(EventType)}") from error


def moment_of(when: When | Position | None, now_ms: int) -> Moment | None:
    """The moment that a caller means; UsageError where it means nothing."""
    if when is None or isinstance(when, Position):
        return when
    if isinstance(when, int):
        return Instant(when)
    return read_moment(when if isinstance(when, str) else when.isoformat(), now_ms)


def select(
    reader: StreamReader,
    now_ms: int,
    types: frozenset[EventType],
    since: When | None,
    until: When | None,
    after: Position | str | None,
) -> Selection:
    """The records that hold some of `types` (none named: all records) within the bounds; NotFoundError, AmbiguousError, UsageError."""
    lower, upper, behind = moment_of(since, now_ms), moment_of(until, now_ms), moment_of(after, now_ms)
    ends = _last_event(reader, upper) if upper is not None and not isinstance(upper, Instant) else None
    begins = reader.locate(lower) if lower is not None and not isinstance(lower, Instant) else None
    return Selection(
        mask=mask_of(types) if types else None,
        since_ms=lower.ms if isinstance(lower, Instant) else None,
        until_ms=upper.ms if isinstance(upper, Instant) else None,
        begin=begins,
        after=None if behind is None else _last_event(reader, behind),
        until=ends,
    )


def _last_event(reader: StreamReader, moment: Moment) -> Position:
    """The last event that a moment includes: a position is one event's, any other moment is a whole record."""
    found = reader.locate(moment)
    return found if isinstance(moment, Position) else replace(found, k=_WHOLE_RECORD)
