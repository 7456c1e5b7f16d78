"""What a session's manifest says beside its streams: marks for expiry, and what is remembered of what was removed."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, Self

from coldtrail.format.fields import integer, json_object, objects, text

End = tuple[str, int, int]  # a stream, its newest generation, and how many of its bytes are held


@dataclass(frozen=True, slots=True)
class Mark:
    """A session is to expire, once its grace is over; it is about the bytes held then, so growth lifts it."""

    at_ms: int
    reason: str  # the rule that decided: ids, never text of the session
    ends: tuple[End, ...]  # by stream

    def holds_for(self, ends: Iterable[End]) -> bool:
        """Whether these are still the bytes that it is about."""
        return sorted(ends) == sorted(self.ends)

    def to_json(self) -> dict[str, object]:
        """As a JSON object."""
        ends = [{"stream": stream, "generation": generation, "end": end} for stream, generation, end in self.ends]
        return {"at_ms": self.at_ms, "reason": self.reason, "ends": ends}

    @classmethod
    def from_json(cls, value: object) -> Self:
        """Back from `to_json`; ValueError for anything else."""
        data = json_object(value, "a mark")
        ends = tuple((text(each, "stream"), integer(each, "generation"), integer(each, "end")) for each in objects(data, "ends"))
        return cls(integer(data, "at_ms"), text(data, "reason"), ends)


@dataclass(frozen=True, slots=True)
class Wishes:
    """What is asked for a session, by its user or by retention."""

    pinned: bool = False
    tags: tuple[str, ...] = ()
    held_until_ms: int | None = None  # until then nothing of it is removed: it was restored
    mark: Mark | None = None


class Act(StrEnum):
    """Why a session's bytes are gone."""

    EXPIRED = "expired"  # retention: the same bytes are not captured again, growth is
    PURGED = "purged"  # the user: whatever comes under its name is not captured again


@dataclass(frozen=True, slots=True)
class Buried:
    """What is remembered of a removed stream's file, so that it is known when it is met again; nothing of its text."""

    stream: str
    name: str  # see `name_digest`
    generation: int  # the newest
    held: int  # bytes of it
    head_length: int
    head: str  # hex digest of so many first bytes
    window_length: int
    window: str  # hex digest of so many last bytes

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """Back from a JSON object; ValueError for anything else."""
        return cls(
            text(value, "stream"),
            text(value, "name"),
            integer(value, "generation"),
            integer(value, "held"),
            integer(value, "head_length"),
            text(value, "head"),
            integer(value, "window_length"),
            text(value, "window"),
        )


@dataclass(frozen=True, slots=True)
class Tombstone:
    """What is left of a session that was removed."""

    act: Act
    at_ms: int
    reason: str
    host: str
    source: str
    whose: str  # the session's own `name_digest`, of no file
    streams: tuple[Buried, ...]

    def to_json(self) -> dict[str, object]:
        """As a JSON object."""
        return {**asdict(self), "act": self.act.value}

    @classmethod
    def from_json(cls, value: object) -> Self:
        """Back from `to_json`; ValueError for anything else."""
        data = json_object(value, "a tombstone")
        streams = tuple(Buried.from_json(each) for each in objects(data, "streams"))
        act, at_ms = Act(text(data, "act")), integer(data, "at_ms")
        return cls(act, at_ms, text(data, "reason"), text(data, "host"), text(data, "source"), text(data, "whose"), streams)


def name_digest(agent: str, session_id: str, file_name: bytes = b"") -> str:
    """By what a removed file is known again, wherever its agent has it, without saying its name; by what its session is, with no name.

    >>> name_digest("claude-code", "ae3d54a6", b"ae3d54a6.jsonl")
    '53fe04f70ac259201a7d0328a0020a56'
    """
    parts = (agent.encode(), session_id.encode("utf-8", "surrogatepass"), file_name)
    return hashlib.blake2b(b"\0".join(parts), digest_size=16, person=b"ct-tombstone").hexdigest()
