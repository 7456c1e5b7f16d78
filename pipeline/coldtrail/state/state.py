"""All that holds after a record: the state, its hash and its document."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Self

from coldtrail.model import Position, instant_text
from coldtrail.state.live import Live
from coldtrail.state.values import Early, Grown, Kept, Message, Ref, Tool, digest


@dataclass(slots=True, eq=False)
class State:
    """What holds after a record.

    `branches` counts how often the log went on elsewhere than where the live conversation ended. It follows the order in which records
    stand, for of two branches that grow in turns it counts each turn; to count places where a conversation forks instead, of every record
    that ever came it would have to be held whether one hangs on it. Records that come before their parent turn nothing when that comes.
    """

    live: Live = field(default_factory=Live)
    left: list[Ref] = field(default_factory=list)  # while parents may still come: with which records branches end that were left behind
    roots: list[tuple[str | None, Ref]] = field(default_factory=list)  # left behind: what waits for a parent, behind that one's id
    since: Ref | None = None  # while parents may still come: the first record that one was awaited for
    pending: dict[str, Tool] = field(default_factory=dict)
    early: dict[str, Early] = field(default_factory=dict)
    completed: Grown = field(default_factory=Grown)
    decisions: Grown = field(default_factory=Grown)
    snapshots: Grown = field(default_factory=Grown)
    environment: dict[str, object] = field(default_factory=dict)
    environment_ms: dict[str, int] = field(default_factory=dict)  # where parents tell the order: when each of its values was told
    session: str | None = None  # the first one said: a log may hold the beginnings of others, copied
    title: str | None = None
    title_rank: int = 0
    created_ms: int | None = None
    updated_ms: int | None = None
    usage: dict[str, int] = field(default_factory=dict)
    answers: dict[str, dict[str, int]] = field(default_factory=dict)  # the latest answers' usage, counted in `usage`
    summary_applied_ms: int | None = None
    sidechain: bool | None = None  # whether the stream is a side conversation as a whole
    newest_id: str = ""  # the greatest id met, of a log whose ids are unique
    apart: bool = False  # the log's last record with a place in the conversation is not live: it was rolled back, or a repeat
    loose: int = 0  # records whose parent is not in the log: once all have come, the same in whatever order they did
    branches: int = 0
    forgotten: int = 0  # what waited for a record that may still come, and was given up, so that what waits stays bounded
    event_count: int = 0
    last_event: Position | None = None

    @classmethod
    def whole(cls) -> Self:
        """An empty one that keeps what only grows at hand: as large as the log, for `document`."""
        return cls(completed=Kept(), decisions=Kept(), snapshots=Kept())

    def __eq__(self, other: object) -> bool:
        """Whether all of it is equal; the conversations are read first, for the rest may change with them."""
        if not isinstance(other, State):
            return NotImplemented
        alike = self.live.nodes == other.live.nodes
        return alike and all(getattr(self, each.name) == getattr(other, each.name) for each in fields(self) if each.name != "live")

    __hash__ = None  # type: ignore[assignment] # it changes

    def messages(self) -> list[Message]:
        """The live conversation; what a checkpoint stands for is read from the log now."""
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
        return {"messages": [message.to_json() for message in self.messages()], **self._besides()}

    def document(self) -> dict[str, object]:
        """The whole state as JSON, of one that was begun with `whole`: nothing in it depends on where the records stand."""
        grown = {"completed_tools": self.completed, "decisions": self.decisions, "snapshots": self.snapshots}
        return {**self.bounded(), **{name: list(each.values) for name, each in grown.items() if isinstance(each, Kept)}}

    def hash(self) -> str:
        """SHA-256 over the bounded part and the counts and sums of what grows: 64 hex digits.

        The messages stand in it by the chain of their hashes, so that it costs only those that came since it was last taken.
        """
        messages, chain = self.live.chain()
        grown = {"completed": self.completed.to_json(), "decisions": self.decisions.to_json(), "snapshots": self.snapshots.to_json()}
        return digest({"messages": [messages, chain.hex()], **self._besides(), "grown": grown}).hex()

    def _besides(self) -> dict[str, object]:
        """What holds besides the conversation."""
        return {
            "pending_tools": {invocation: tool.to_json() for invocation, tool in self.pending.items()},
            "environment": dict(self.environment),
            "metadata": self.metadata(),
            "summary_applied_at": instant_text(self.summary_applied_ms),
            "event_count": self.event_count,
        }
