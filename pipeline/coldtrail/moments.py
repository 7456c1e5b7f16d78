"""How a moment in a session is written: an instant, a span back, a position, a record's number, an id."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from coldtrail.errors import UsageError
from coldtrail.model import Position
from coldtrail.units import parse_span

_SPAN = re.compile(r"\d+(ms|s|m|h|d|w|y)")
_INSTANT = re.compile(r"\d{4}-\d{2}-\d{2}([T ].*)?")
_NUMBER = re.compile(r"#(\d+)")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Instant:
    """A time: milliseconds since 1970 UTC."""

    ms: int


@dataclass(frozen=True, slots=True)
class RecordNumber:
    """The Nth record of the main log, from 1."""

    number: int


@dataclass(frozen=True, slots=True)
class RecordId:
    """An id that the agent gave to a record."""

    id: str


Moment = Instant | RecordNumber | RecordId | Position


def read_moment(text: str, now_ms: int) -> Moment:
    """What a WHEN means; UsageError where it means nothing.

    >>> read_moment("1970-01-02", 0), read_moment("2h", 7_200_000), read_moment("#3", 0)
    (Instant(ms=86400000), Instant(ms=0), RecordNumber(number=3))
    """
    text = text.strip()
    if match := _NUMBER.fullmatch(text):
        if int(match[1]) == 0:
            raise UsageError("#0: records are counted from #1")
        return RecordNumber(int(match[1]))
    if _SPAN.fullmatch(text):
        return Instant(now_ms - _span_ms(text))
    if _INSTANT.fullmatch(text):
        return Instant(_instant_ms(text))
    try:
        return Position.parse(text)
    except ValueError:
        pass
    if not text:
        raise UsageError("an empty moment", hint="give a time (2026-01-31T12:00Z), a span back (2h), a position, an id, or #N")
    return RecordId(text)


def _instant_ms(text: str) -> int:
    try:
        found = datetime.fromisoformat(text)
    except ValueError as error:
        raise UsageError(f"{text}: not a time ({error})", hint="write it as 2026-01-31T12:00:00Z") from error
    since = (found if found.tzinfo else found.replace(tzinfo=UTC)) - _EPOCH
    return (since + timedelta(microseconds=500)) // timedelta(milliseconds=1)  # a float has no milliseconds left far from 1970


def _span_ms(text: str) -> int:
    try:
        return parse_span(text)
    except ValueError as error:
        raise UsageError(str(error)) from error
