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

A `checkpoint` names the state before it: `state_hash` is the first 16 hex digits of the SHA-256 of the whole state's canonical JSON
(keys sorted, UTF-8, nothing between the tokens), `event_count` how many events led to it; `coldtrail state --verify` replays the log
and tells of each that differs. The whole state is an object of

      messages            [{role, content, timestamp, id}], those that count: a summary takes the place of all before it
      pending_tools       {invocation_id: {tool_name, input, started_at}}
      completed_tools     [{invocation_id, tool_name, input, output, duration_ms}], in the order of their completion
      decisions           [the fields of each decision_made]
      snapshots           [the fields of each environment_changed that has a `snapshot`]
      environment         {field: the last text or number said of it}, of session_start and environment_changed
      metadata            {title, created, updated, usage}
      summary_applied_at  the time of the last context_summarized
      event_count         an event that was written twice counts once

Times in it are RFC 3339 text with milliseconds and Z, and null stands for what is not known. Nothing in it depends on where records lie.

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
