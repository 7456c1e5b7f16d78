"""What an event says, in one line for people."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from coldtrail import Event, EventType
from coldtrail.facts import text_of
from coldtrail.format import lines

GIST_CHARS = 200

Data = Mapping[str, object]


def gist(event: Event) -> str:
    """The most telling of an event's data, its first GIST_CHARS, on one line."""
    return one_line(_TELLERS.get(event.type, _fields)(event.data))


def content_gist(content: object) -> str:
    """A message's text, likewise."""
    return one_line(text_of(content) or _json(content))


def one_line(text: str) -> str:
    """The first GIST_CHARS of a text, on one line."""
    return " ".join(text[: GIST_CHARS * 4].split())[:GIST_CHARS]


def _message(data: Data) -> str:
    content = data.get("content")
    return f"{data.get('role', '?')}: {text_of(content) or _json(content)}"


def _invoked(data: Data) -> str:
    return f"{data.get('tool_name')} {_json(data.get('input'))}"


def _completed(data: Data) -> str:
    output = data.get("output")
    return ("error: " if data.get("is_error") else "") + (text_of(output) or _json(output))


def _decided(data: Data) -> str:
    return f"{data.get('kind', 'decided')}: {data.get('text') or ''}"


def _summarized(data: Data) -> str:
    return str(data.get("summary") or _fields(data))


def _fields(data: Data) -> str:
    """Whatever there is, `name=value`."""
    return " ".join(f"{name}={value if isinstance(value, str) else _json(value)}" for name, value in data.items())


def _json(value: object) -> str:
    return "" if value is None else lines.dumps(value).decode("utf-8", "replace")


_TELLERS: Mapping[EventType, Callable[[Data], str]] = {
    EventType.MESSAGE_ADDED: _message,
    EventType.TOOL_INVOKED: _invoked,
    EventType.TOOL_COMPLETED: _completed,
    EventType.CONTEXT_SUMMARIZED: _summarized,
    EventType.DECISION_MADE: _decided,
}
