"""The live conversation: which records count, in which order, by the file's order or by their parents."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Protocol

from coldtrail.model import EventType, Ids, Meaning, Reading
from coldtrail.state.values import Message, Node, Ref, State

_ANCESTORS_MAX = 100_000
_TOOLS = (EventType.TOOL_INVOKED, EventType.TOOL_COMPLETED)


class Past(Protocol):
    """The records before the one that is folded, read again where the fold must look back."""

    def find(self, record_id: str, before: Ref) -> tuple[Ref, Reading] | None:
        """The last record of that id before `before`; None where there is none."""


def node_of(ref: Ref, reading: Reading) -> tuple[Node, bool]:
    """A record as a node, and whether what was said before it no longer counts."""
    messages: list[Message] = []
    answer, resets = None, False
    for meaning in reading.events:
        if meaning.type is EventType.CONTEXT_SUMMARIZED:
            messages, resets = _summary(reading, meaning.data), True
        elif meaning.type is EventType.MESSAGE_ADDED:
            messages.append(_message(reading, meaning.data))
        if isinstance(said := meaning.data.get("message_id"), str):
            answer = said
    tools = tuple(meaning for meaning in reading.events if meaning.type in _TOOLS)
    return Node(ref, tuple(messages), reading.id, reading.parent, answer, tools), resets


def _message(reading: Reading, data: Mapping[str, object]) -> Message:
    own = reading.id or data.get("message_id") or data.get("id")
    return Message(
        str(data.get("role")), data.get("content"), reading.time_ms, own if isinstance(own, str) else None, bool(data.get("meta"))
    )


def _summary(reading: Reading, data: Mapping[str, object]) -> list[Message]:
    """What stands for the conversation after a summary: messages that it names, or its text."""
    for key in ("summarized_messages", "replacement"):
        if isinstance(named := data.get(key), list):
            return [_message(reading, each) for each in named if isinstance(each, Mapping) and "role" in each]
    text = data.get("summary")
    return [Message("user", text, reading.time_ms, reading.id, meta=True)] if text else []


class Conversation:
    """Places records in a state's `live`."""

    def __init__(self, ids: Ids, past: Past, state: State) -> None:
        self._ids, self._past, self._state = ids, past, state
        self._known: set[str | None] = set()  # the live records' ids: most that are asked for are not among them
        self._learn()

    def take(self, ref: Ref, reading: Reading) -> None:
        """Place the next record, if it has a place."""
        node, resets = node_of(ref, reading)
        chained = self._ids is Ids.CHAINED and node.id is not None
        if chained and self._is_aside(reading.events):
            return
        if resets:
            self._replace([])
        if chained:
            self._hang(node)
        elif node.messages or resets or (self._ids is Ids.RESTATED and node.id is not None):
            self._append(node)

    def find(self, record_id: str | None) -> int | None:
        """Where the last live record of that id is: most looks back are short."""
        live = self._state.live
        if record_id is not None and record_id in self._known:
            for at in range(len(live) - 1, -1, -1):
                if live[at].id == record_id:
                    return at
        return None

    def _learn(self) -> None:
        self._known = {node.id for node in self._state.live}

    def _replace(self, live: list[Node]) -> None:
        """Another conversation is live."""
        self._state.live = live
        self._learn()

    def _add(self, node: Node) -> None:
        self._state.live.append(node)
        self._known.add(node.id)

    def roll_back(self, data: Mapping[str, object]) -> None:
        """Drop the last turns, or all from a record on; nothing where that record is not live."""
        live, target, count = self._state.live, data.get("target"), data.get("count")
        if isinstance(target, str) and (at := self.find(target)) is not None:
            self._replace(live[:at])
        elif isinstance(count, int) and count > 0:
            turns = [at for at, node in enumerate(live) if any(each.role == "user" and not each.meta for each in node.messages)]
            if turns:
                self._replace(live[: turns[max(0, len(turns) - count)]])

    def _is_aside(self, events: tuple[Meaning, ...]) -> bool:
        """Whether the record is of a side conversation inside another one."""
        aside = any(meaning.data.get("sidechain") for meaning in events)
        if self._state.sidechain is None and any(meaning.type is EventType.MESSAGE_ADDED for meaning in events):
            self._state.sidechain = aside
        return aside and not self._state.sidechain

    def _append(self, node: Node) -> None:
        at = self.find(node.id) if self._ids is Ids.RESTATED else None
        if at is None:
            self._add(node)
        else:  # said again: the last one counts, in the first one's place
            self._state.live[at] = node

    def _hang(self, node: Node) -> None:
        """Place a record by its parent: on the leaf, on an earlier one (a branch), or, where that is unknown, in the file's order."""
        live = self._state.live
        if (at := self.find(node.id)) is not None:  # written twice
            live[at] = replace(node, loose=live[at].loose)
        elif self._precedes(node):
            return
        elif node.parent is None or not live:
            self._replace([replace(node, loose=node.parent is not None and self._is_lost(node))])
        elif live[-1].id == node.parent:
            self._add(node)
        elif (at := self.find(node.parent)) is not None:
            self._branch_at(at)
            self._add(node)
        else:
            self._hang_elsewhere(node)

    def _is_lost(self, node: Node) -> bool:
        """Whether the first live record hangs on one that the log does not have."""
        lost = self._past.find(node.parent or "", node.ref) is None
        self._state.loose += lost
        return lost

    def _precedes(self, node: Node) -> bool:
        """Whether a record that came before this one hangs on it; then it is put in front of that."""
        live = self._state.live
        for at in range(len(live) if self._state.loose else 0):
            if live[at].loose and live[at].parent == node.id:
                live[at] = replace(live[at], loose=False)
                follows = node.parent is None or (at > 0 and live[at - 1].id == node.parent)
                self._replace([*live[:at], replace(node, loose=not follows), *live[at:]])
                self._state.loose -= follows
                return True
        return False

    def _branch_at(self, at: int) -> None:
        """Leave behind what follows the record at `at`, unless it belongs to the same answer, or says nothing."""
        live = self._state.live
        answer = live[at].answer
        if not all(not node.messages or (answer is not None and node.answer == answer) for node in live[at + 1 :]):
            self._state.branches += 1
            self._replace(live[: at + 1])

    def _hang_elsewhere(self, node: Node) -> None:
        """The parent is not live: it was left behind by a branch, or is not in the log."""
        live = self._state.live
        trail = self._ancestors(node)
        if not trail:
            self._state.loose += 1
            self._add(replace(node, loose=True))
            return
        at = self.find(trail[0].parent)
        self._state.branches += 1
        self._replace([*(live[: at + 1] if at is not None else []), *trail, node])

    def _ancestors(self, node: Node) -> list[Node]:
        """The records above `node` that are not live, the topmost first; none where its parent is nowhere."""
        trail: list[Node] = []
        wanted, ref = node.parent, node.ref
        while wanted is not None and self.find(wanted) is None and len(trail) < _ANCESTORS_MAX:
            found = self._past.find(wanted, ref)
            if found is None:
                break
            above, resets = node_of(*found)
            trail.append(above)
            wanted, ref = None if resets else above.parent, above.ref
        return trail[::-1]
