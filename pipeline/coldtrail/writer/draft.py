"""An event before it is written: proven to be one that can be written and read again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Self

from coldtrail.errors import UsageError
from coldtrail.format import lines
from coldtrail.model import EventType, instant_text

_TYPES = frozenset(EventType) - {EventType.UNKNOWN}
_ENVELOPE = ("type", "timestamp", "event_id")
_TOOLS = (EventType.TOOL_INVOKED, EventType.TOOL_COMPLETED)
_ENVELOPE_BYTES = 128  # at most, without the id
_BRACKETS_MANY = 500  # with fewer nothing is nested too deep to be read


@dataclass(frozen=True, slots=True)
class Draft:
    """One event, its fields as JSON already; the time and, where the caller gave none, the id are still to come."""

    type: EventType
    event_id: str | None
    fields: bytes  # a JSON object

    @classmethod
    def of(cls, kind: object, event_id: object, fields: Mapping[str, object]) -> Self:
        """Check an event's type, id and fields; UsageError."""
        if not isinstance(kind, str) or kind not in _TYPES:
            raise UsageError(f"{kind!r} is no event type", hint=f"the types are {', '.join(sorted(_TYPES))}")
        if event_id is not None and not (isinstance(event_id, str) and event_id):
            raise UsageError(f"event_id={event_id!r}: an id is a text that is not empty")
        for name in _ENVELOPE:
            if name in fields:
                raise UsageError(f"{kind}: the field {name!r} is given by the log itself", hint="give it another name")
        if kind in _TOOLS and fields.get("invocation_id") is None:
            raise UsageError(f"{kind}: without `invocation_id` it cannot be told which call it belongs to")
        return cls(EventType(kind), event_id, _json(kind, event_id, fields))

    def line(self, now_ms: int, event_id: str) -> bytes:
        """As it stands in the log, its newline included."""
        own = lines.dumps(event_id) if self.event_id is not None else b'"%b"' % event_id.encode()
        rest = b"," + self.fields[1:] if len(self.fields) > 2 else b"}"
        return b'{"type":"%b","timestamp":"%b","event_id":%b%b\n' % (self.type.encode(), _timestamp(now_ms).encode(), own, rest)


def _json(kind: str, event_id: str | None, fields: Mapping[str, object]) -> bytes:
    try:
        data = lines.dumps(fields)
        if data.count(b"[") + data.count(b"{") > _BRACKETS_MANY:
            lines.loads(b'{"":' + data + b"}")
    except (TypeError, ValueError) as error:
        raise UsageError(f"{kind}: {_culprit(fields)}cannot be written as JSON: {error}") from error
    if b"null" in data and (name := _not_finite(fields)) is not None:
        raise UsageError(f"{kind}: the field {name!r} holds NaN or an infinity, which JSON does not have", hint="write None, or a text")
    size = len(data) + len(lines.dumps(event_id)) + _ENVELOPE_BYTES
    if size > lines.MAX_LINE_BYTES:
        raise UsageError(f"{kind}: an event of {size} bytes; at most {lines.MAX_LINE_BYTES} can be read again", hint="put it into a file")
    return data


def _culprit(fields: Mapping[str, object]) -> str:
    """Which field it is that cannot be written."""
    for name, value in fields.items():
        try:
            lines.dumps(value)
        except (TypeError, ValueError):
            return f"the field {name!r} "
    return ""


def _not_finite(fields: Mapping[str, object]) -> str | None:
    """The first field in which a number is that would be written as null."""
    return next((name for name, value in fields.items() if any(each - each != 0 for each in _floats(value))), None)


def _floats(value: object) -> Iterator[float]:
    waiting = [value]
    while waiting:
        match waiting.pop():
            case float() as number:
                yield number
            case dict() as inner:
                waiting.extend(inner.values())
            case list() | tuple() as inner:
                waiting.extend(inner)


def _timestamp(now_ms: int) -> str:
    return f"{_second(now_ms // 1000)}{now_ms % 1000:03d}Z"


@lru_cache(maxsize=2)
def _second(seconds: int) -> str:
    """Up to the point before the milliseconds: of a second's thousands of events the first one pays."""
    return (instant_text(seconds * 1000) or "")[:-4]
