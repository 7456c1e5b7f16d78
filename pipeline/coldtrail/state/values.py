"""What a state is made of. What only grows is a count and a sum of digests: proven without being held."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field

from coldtrail.format import lines
from coldtrail.model import Meaning, Position, instant_text

_SUM_MODULUS = 1 << 256


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

    def to_json(self) -> dict[str, object]:
        """As the state's document has it."""
        return {"role": self.role, "content": self.content, "timestamp": instant_text(self.time_ms), "id": self.id}


@dataclass(frozen=True, slots=True)
class Node:
    """A record in the live conversation: its messages, and what places it."""

    ref: Ref
    messages: tuple[Message, ...]
    id: str | None = None
    parent: str | None = None
    answer: str | None = None  # the model's answer that it is part of
    tools: tuple[Meaning, ...] = ()  # its tool events, to be undone where it is said again
    loose: bool = False  # its parent has not been met


@dataclass(slots=True)
class Grown:
    """How many there are, and a sum of their digests, which their order does not change."""

    count: int = 0
    total: int = 0

    def add(self, one: bytes) -> None:
        """One more."""
        self.count, self.total = self.count + 1, (self.total + int.from_bytes(one, "big")) % _SUM_MODULUS

    def remove(self, one: bytes) -> None:
        """One that was counted is told anew."""
        self.count, self.total = self.count - 1, (self.total - int.from_bytes(one, "big")) % _SUM_MODULUS

    def to_json(self) -> list[object]:
        """Count and sum."""
        return [self.count, f"{self.total:064x}"]


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


@dataclass(slots=True)
class State:
    """What holds after a record."""

    live: list[Node] = field(default_factory=list)
    pending: dict[str, Tool] = field(default_factory=dict)
    early: dict[str, Early] = field(default_factory=dict)
    completed: Grown = field(default_factory=Grown)
    decisions: Grown = field(default_factory=Grown)
    snapshots: Grown = field(default_factory=Grown)
    environment: dict[str, object] = field(default_factory=dict)
    title: str | None = None
    title_rank: int = 0
    created_ms: int | None = None
    updated_ms: int | None = None
    usage: dict[str, int] = field(default_factory=dict)
    answers: dict[str, dict[str, int]] = field(default_factory=dict)  # the latest answers' usage, counted in `usage`
    summary_applied_ms: int | None = None
    sidechain: bool | None = None  # whether the stream is a side conversation as a whole
    newest_id: str = ""  # the greatest id met, of a log whose ids are unique
    loose: int = 0  # records whose parent is not in the log
    branches: int = 0
    event_count: int = 0
    last_event: Position | None = None

    def messages(self) -> list[Message]:
        """The live conversation."""
        return [message for node in self.live for message in node.messages]

    def metadata(self) -> dict[str, object]:
        """Title, times and usage."""
        return {
            "title": self.title,
            "created": instant_text(self.created_ms),
            "updated": instant_text(self.updated_ms),
            "usage": dict(self.usage),
        }

    def bounded(self) -> dict[str, object]:
        """All that does not grow with the log, as JSON."""
        return {
            "messages": [message.to_json() for message in self.messages()],
            "pending_tools": {invocation: tool.to_json() for invocation, tool in self.pending.items()},
            "environment": dict(self.environment),
            "metadata": self.metadata(),
            "summary_applied_at": instant_text(self.summary_applied_ms),
            "event_count": self.event_count,
        }

    def hash(self) -> str:
        """SHA-256 over the bounded part and the counts and sums of what grows: 64 hex digits."""
        grown = {"completed": self.completed.to_json(), "decisions": self.decisions.to_json(), "snapshots": self.snapshots.to_json()}
        return digest({**self.bounded(), "grown": grown}).hex()
