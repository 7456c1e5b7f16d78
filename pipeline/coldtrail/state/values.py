"""What a state is made of. What only grows is a count and a sum of digests: proven without being held."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field

from coldtrail.format import lines
from coldtrail.model import instant_text

_SUM_MODULUS = 1 << 256

Keeps = frozenset[str] | tuple[str, str] | None  # the ids of records: each, or the first and the last of a run


def digest(value: object) -> bytes:
    """SHA-256 of a value's canonical JSON: sorted keys, UTF-8, no spaces."""
    return hashlib.sha256(lines.dumps(value, sort=True)).digest()


@dataclass(frozen=True, slots=True, order=True)
class Ref:
    """Where a record stands: enough to read it again."""

    generation: int
    offset: int
    length: int


@dataclass(frozen=True, slots=True)
class Message:
    """One message of the live conversation."""

    role: str
    content: object
    time_ms: int | None
    id: str | None
    meta: bool = False  # nobody typed it
    sha256: bytes = field(init=False, repr=False, compare=False)  # of its JSON: taken once, however often the state is hashed

    def __post_init__(self) -> None:
        object.__setattr__(self, "sha256", digest(self.to_json()))

    def to_json(self) -> dict[str, object]:
        """As the state's document has it."""
        return {"role": self.role, "content": self.content, "timestamp": instant_text(self.time_ms), "id": self.id}


@dataclass(frozen=True, slots=True)
class Node:
    """A record in the live conversation, or one of several messages that a record holds: what it says, and what places it."""

    ref: Ref
    messages: tuple[Message, ...]
    id: str | None = None
    parent: str | None = None
    answer: str | None = None  # the model's answer that it is part of
    part: int | None = None  # which of its record's messages it is; None: all that the record says
    told: Ref | None = None  # the record that told its tools and reasoning, undone where it is said again
    begins: bool = False  # a compaction's record: what was said before it no longer counts
    keeps: Keeps = None  # of a compaction's: which of these go on counting
    loose: bool = False  # its parent has not been met
    follows: bool = False  # between the live one before it and itself the log has no record with a place in the conversation


@dataclass(slots=True)
class Grown:
    """How many there are, and a sum of their digests, which their order does not change."""

    count: int = 0
    total: int = 0

    def add(self, one: object) -> None:
        """One more."""
        self._count(digest(one), 1)

    def remove(self, one: object) -> None:
        """One that was counted is told anew."""
        self._count(digest(one), -1)

    def change(self, one: object, to: object) -> None:
        """Of one that was counted more is known."""
        self._count(digest(one), -1)
        self._count(digest(to), 1)

    def _count(self, sha256: bytes, times: int) -> None:
        self.count, self.total = self.count + times, (self.total + times * int.from_bytes(sha256, "big")) % _SUM_MODULUS

    def to_json(self) -> list[object]:
        """Count and sum."""
        return [self.count, f"{self.total:064x}"]


@dataclass(slots=True)
class Kept(Grown):
    """The same with each of them at hand, for who wants the whole state."""

    values: list[object] = field(default_factory=list)

    def add(self, one: object) -> None:
        """One more, the last."""
        Grown.add(self, one)
        self.values.append(one)

    def remove(self, one: object) -> None:
        """The last one that is equal goes."""
        Grown.remove(self, one)
        if (at := self._last(one)) is not None:
            del self.values[at]

    def change(self, one: object, to: object) -> None:
        """The last one that is equal is another, in its place."""
        Grown.change(self, one, to)
        if (at := self._last(one)) is not None:
            self.values[at] = to

    def _last(self, one: object) -> int | None:
        return next((at for at in range(len(self.values) - 1, -1, -1) if self.values[at] == one), None)


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool that was invoked and has not been heard of since."""

    ref: Ref
    tool_name: object
    input: object
    started_ms: int | None

    def to_json(self) -> dict[str, object]:
        """As the state's document has it."""
        return {"tool_name": self.tool_name, "input": self.input, "started_at": instant_text(self.started_ms)}


@dataclass(frozen=True, slots=True)
class Early:
    """A completion whose invocation has not been met."""

    ref: Ref
    data: Mapping[str, object]


def completed_tool(tool: Tool | None, data: Mapping[str, object]) -> dict[str, object]:
    """A completed tool as the state's document has it."""
    return {
        "invocation_id": data.get("invocation_id"),
        "tool_name": data.get("tool_name") if tool is None else tool.tool_name,
        "input": None if tool is None else tool.input,
        "output": data.get("output"),
        "duration_ms": data.get("duration_ms"),
    }
