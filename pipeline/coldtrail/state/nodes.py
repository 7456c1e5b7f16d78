"""What a record adds to the conversation: its messages, as one node or, where it holds several of them, as one node each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from coldtrail.model import EventType, Ids, Meaning, Reading
from coldtrail.state.values import Keeps, Message, Node, Ref

_SAYING = (EventType.MESSAGE_ADDED, EventType.CONTEXT_SUMMARIZED)
_REPLACEMENTS = ("summarized_messages", "replacement")  # under which a summary names the messages that take the place of all before


def nodes_of(ref: Ref, reading: Reading, ids: Ids) -> list[Node]:
    """A record's nodes, in order; none where it has no place in the conversation.

    Of a log without chains a record that names several messages gives a node for each, so that one of them can be said again, or
    be where a rollback ends.
    """
    if ids in (Ids.LOOSE, Ids.UNIQUE) and not any(meaning.type in _SAYING for meaning in reading.events):
        return []
    messages = _messages(reading)
    begins = begins_anew(reading.events)
    keeps = _keeps(reading.events) if begins and ids is Ids.CHAINED else None
    whole = Node(ref, tuple(messages), reading.id, reading.parent, _answer(reading.events), told=ref, begins=begins, keeps=keeps)
    if ids is Ids.CHAINED and reading.id is not None:
        return [whole]
    if len(messages) > 1 or (messages and whole.begins):
        return [replace(whole, messages=(each,), id=each.id, part=part, told=None) for part, each in enumerate(messages)]
    return [whole] if messages or (ids is Ids.RESTATED and reading.id is not None) else []


def begins_anew(events: Sequence[Meaning]) -> bool:
    """Whether what was said before a record no longer counts."""
    return any(meaning.type is EventType.CONTEXT_SUMMARIZED for meaning in events)


def _keeps(events: Sequence[Meaning]) -> Keeps:
    """Which earlier records a compaction says that it keeps."""
    match next(meaning.data.get("kept") for meaning in events if meaning.type is EventType.CONTEXT_SUMMARIZED):
        case list() as named:
            return frozenset(each for each in named if isinstance(each, str)) or None
        case {"from": str(head), "to": str(tail)}:
            return head, tail
    return None


def _answer(events: Sequence[Meaning]) -> str | None:
    """The model's answer that a record is part of: the last one named."""
    named = [said for meaning in events if isinstance(said := meaning.data.get("message_id"), str)]
    return named[-1] if named else None


def _messages(reading: Reading) -> list[Message]:
    """What a record says; a summary stands for all that was said in it before."""
    messages: list[Message] = []
    for meaning in reading.events:
        if meaning.type is EventType.CONTEXT_SUMMARIZED:
            messages = _summary(reading, meaning.data)
        elif meaning.type is EventType.MESSAGE_ADDED:
            messages.append(_message(meaning.data, reading.time_ms, reading.id or _own_id(meaning.data)))
    return messages


def _summary(reading: Reading, data: Mapping[str, object]) -> list[Message]:
    """What stands for the conversation after a summary: messages that it names, or its text."""
    for key in _REPLACEMENTS:
        if isinstance(named := data.get(key), list):
            return [_message(each, reading.time_ms, _own_id(each)) for each in named if isinstance(each, Mapping) and "role" in each]
    text = data.get("summary")
    return [Message("user", text, reading.time_ms, reading.id, meta=True)] if text else []


def _message(data: Mapping[str, object], time_ms: int | None, own: str | None) -> Message:
    return Message(str(data.get("role")), data.get("content"), time_ms, own, bool(data.get("meta")))


def _own_id(data: Mapping[str, object]) -> str | None:
    """The id that a message has besides its record's."""
    own = data.get("message_id") or data.get("id")
    return own if isinstance(own, str) else None
