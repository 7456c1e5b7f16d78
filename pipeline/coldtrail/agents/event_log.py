"""coldtrail's own log format, for agents people write themselves.

A session is one file `<session id>.jsonl` anywhere below a folder that the config names (`agent = "event-log"`). It is only ever
appended to, one JSON object a line, UTF-8. Every record may have

    type        one of the words below; any other is kept as `unknown`
    timestamp   RFC 3339 text (no zone: UTC), or seconds or milliseconds since 1970
    event_id    the record's own id, unique in the file: a second name for its position

and the fields of its type; more fields may be added and are kept in the event's data:

    session_start         session_id, model, cwd
    message_added         role ("user", "assistant" or "system"), content, usage
    tool_invoked          tool_name, input, invocation_id
    tool_completed        invocation_id, output, duration_ms
    context_summarized    summary, summarized_messages
    checkpoint            state_hash, event_count, state_snapshot
    environment_changed   cwd, git_branch, model
    decision_made         kind, text
    metadata_changed      title
    session_end

A file begins with `session_start`. One that was made again and does not, but has ids, goes on where the lost one ended.

    {"type":"session_start","timestamp":"2026-01-02T03:04:05.678Z","event_id":"e1","session_id":"s1","model":"m"}
    {"type":"message_added","timestamp":"2026-01-02T03:04:06.001Z","event_id":"e2","role":"user","content":"Hello"}
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from coldtrail.agents.base import Agent
from coldtrail.agents.jsonl import JsonlFolder
from coldtrail.agents.reading import time_ms, unknown, word
from coldtrail.model import EventType, Ids, Meaning, Reading

_TYPES = {kind.value: kind for kind in EventType if kind is not EventType.UNKNOWN}
_ENVELOPE = frozenset({"type", "timestamp", "event_id"})
_USERS_TITLE_RANK = 3


class EventLog(JsonlFolder):
    """A folder of logs whose records say their events outright."""

    name = "event-log"
    ids = Ids.UNIQUE

    def read(self, value: object) -> Reading:
        """The event that the record names, its other fields as data."""
        if not isinstance(value, dict):
            return Reading((unknown(value),))
        kind = _TYPES.get(word(value.get("type")) or "")
        when, own_id, cwd = time_ms(value.get("timestamp")), word(value.get("event_id")), word(value.get("cwd"))
        if kind is None:
            return Reading((unknown(value),), when, own_id, cwd=cwd)
        data = {key: each for key, each in value.items() if key not in _ENVELOPE}
        if kind is EventType.METADATA_CHANGED and "title" in data:
            data.setdefault("title_rank", _USERS_TITLE_RANK)
        return Reading((Meaning(kind, data),), when, own_id, cwd=cwd)

    def continues(self, first: Sequence[Reading], held: Callable[[str], bool]) -> bool:
        """Whether it begins without `session_start`, with ids, none of which the lost file had."""
        ids = [reading.id for reading in first if reading.id is not None]
        if not ids or first[0].events[0].type is EventType.SESSION_START:
            return False
        return not any(held(each) for each in ids)


AGENT: Agent = EventLog()
