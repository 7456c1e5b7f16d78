"""The words of coldtrail as values: roles, relations, records, events, positions, facts."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import IntEnum, StrEnum


class EventType(StrEnum):
    """What a record can mean in the vocabulary that all agents share."""

    SESSION_START = "session_start"
    MESSAGE_ADDED = "message_added"
    TOOL_INVOKED = "tool_invoked"
    TOOL_COMPLETED = "tool_completed"
    CONTEXT_SUMMARIZED = "context_summarized"
    CHECKPOINT = "checkpoint"
    ENVIRONMENT_CHANGED = "environment_changed"
    DECISION_MADE = "decision_made"
    METADATA_CHANGED = "metadata_changed"
    SESSION_END = "session_end"
    UNKNOWN = "unknown"


# The bit of each type in an index row's mask. The order is part of the file format: append only.
EVENT_BIT = {kind: 1 << bit for bit, kind in enumerate(EventType)}


class Role(StrEnum):
    """What a stream is to its session."""

    MAIN = "main"  # the conversation itself
    CHILD = "child"  # a sub-agent's log
    COMPANION = "companion"  # tool output, metadata: rewritten whole, each content a generation


class Relation(StrEnum):
    """How a generation relates to the one before it."""

    CONTINUES = "continues"  # the writer made the file again without its head
    REPLACES = "replaces"  # rewritten, truncated, exchanged
    RESTORED = "restored"  # coldtrail put the file back, joined from several generations


class Ids(StrEnum):
    """What the ids of an agent's records are good for."""

    LOOSE = "loose"  # for nothing: order is the file's
    CHAINED = "chained"  # each record names its parent: the conversation is the chain that ends in the last one
    RESTATED = "restated"  # a record that comes again under its id takes the place of the one before
    UNIQUE = "unique"  # a record that comes again under its id is the same one, written twice


class RecordKind(IntEnum):
    """What a span of bytes is; the number stands in the index."""

    DATA = 0  # parsed as one JSON value
    BLANK = 1  # white space only
    DAMAGED = 2  # torn, NULs, invalid: kept, located, counted
    OVERSIZE = 3  # a line too long to parse; its bytes are kept like any other


@dataclass(frozen=True, slots=True)
class Record:
    """One physical line, a glued part of one, or a damaged span; its newline belongs to it."""

    offset: int  # bytes from the start of the generation
    length: int  # bytes, newline included
    kind: RecordKind
    value: object = None  # the parsed JSON of a DATA record


@dataclass(frozen=True, slots=True)
class Meaning:
    """One event as an agent reads it from a record, before it is given a position."""

    type: EventType
    data: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Reading:
    """What one record means: its time, the agent's own id for it and for its parent, its folder, its events in order."""

    events: tuple[Meaning, ...]
    time_ms: int | None = None  # milliseconds since 1970 UTC
    id: str | None = None
    parent: str | None = None
    cwd: str | None = None  # the folder that the record says it was written in


_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - UTC, and written without an offset
_POSITION = re.compile(r"(-?\d+):(\d+)\.(\d+)")


@dataclass(frozen=True, slots=True, order=True)
class Position:
    """Where an event stands in its stream, written `<generation>:<offset>.<k>`; never changes.

    >>> Position.parse("0:1200.1") < Position(0, 1300, 0)
    True
    """

    generation: int  # below 0: of a log that this one goes on from
    offset: int  # of the record, in bytes
    k: int = 0  # the k-th event of that record

    def __str__(self) -> str:
        return f"{self.generation}:{self.offset}.{self.k}"

    @classmethod
    def parse(cls, text: str) -> Position:
        """Read the written form; ValueError where it is none."""
        match = _POSITION.fullmatch(text)
        if match is None:
            raise ValueError(f"not a position: {text!r} (a position looks like 0:1200.0)")
        return cls(*(int(part) for part in match.groups()))


@dataclass(frozen=True, slots=True)
class Event:
    """One event of a stream, in its place."""

    type: EventType
    position: Position
    time_ms: int | None  # milliseconds since 1970 UTC
    id: str | None  # the agent's own id, which may not be unique
    data: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Gap:
    """A range of a generation's bytes that could not be read, and why."""

    generation: int
    start: int
    end: int
    what: str


class Elsewhere(Gap):
    """A gap where nothing of ours is damaged: what is missing stands elsewhere, or nowhere any more, as `what` says."""


def instant_text(ms: int | None) -> str | None:
    """Milliseconds since 1970 as RFC 3339 with milliseconds and Z.

    >>> instant_text(0)
    '1970-01-01T00:00:00.000Z'
    """
    if ms is None:
        return None
    return (_EPOCH + timedelta(milliseconds=ms)).isoformat(timespec="milliseconds") + "Z"
