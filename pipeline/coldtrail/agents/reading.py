"""What the agents' readers share: times, words, ids and settings, read without raising whatever the JSON holds."""

from __future__ import annotations

import json
import re
import shlex
from datetime import UTC, datetime, timedelta
from pathlib import Path

from coldtrail.model import EventType, Meaning

DAY_MS = 86_400_000
DAY_NS = 86_400_000_000_000

_YEAR_10000_MS = 253_402_300_800_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MS = timedelta(milliseconds=1)
_LEAST_SECONDS = 1e8  # March 1973: a smaller number is a count or a span, not a time
_UNITS = ((1e11, 1000.0), (1e14, 1.0), (1e17, 1e-3), (1e20, 1e-6))  # seconds, ms, us, ns by size: each up to the year 5138
# A quote inside a JSON string is escaped, so this finds keys only, in torn and in pretty-printed JSON too.
_SESSION_ID = re.compile(rb'"sessionId"\s*:\s*"([^"\\]{1,200})"')


def time_ms(value: object) -> int | None:
    """A time in milliseconds since 1970: RFC 3339 text (UTC where no zone is said) or a number; None for anything else.

    >>> time_ms("1970-01-01T00:00:01.5Z"), time_ms(1_700_000_000), time_ms("soon")
    (1500, 1700000000000, None)
    """
    if isinstance(value, str):
        return _text_ms(value)
    if isinstance(value, (int, float)) and value >= _LEAST_SECONDS:
        for limit, factor in _UNITS:
            if value < limit:
                return int(value * factor)
    return None


def _text_ms(text: str) -> int | None:
    try:
        moment = datetime.fromisoformat(text)
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        ms = (moment - _EPOCH) // _MS
    except (ValueError, OverflowError):
        return None
    return ms if 0 <= ms < _YEAR_10000_MS else None  # the years 1 and 9999 are how some programs write "never"


def word(value: object) -> str | None:
    """A text that is not empty, else None."""
    return value if isinstance(value, str) and value else None


def number(value: object, times: float = 1) -> int | None:
    """A count or a length of time as a whole number, in other units where `times` says so; None for anything else."""
    if isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < 1e15:
        return int(value * times)
    return None


def fields_of(value: object) -> dict[str, object]:
    """A JSON object's fields; none where it is no object."""
    return value if isinstance(value, dict) else {}


def present(**fields: object) -> dict[str, object]:
    """The fields that are there: None is left out."""
    return {key: value for key, value in fields.items() if value is not None}


def unknown(value: object) -> Meaning:
    """The event of a record that says nothing we know; it keeps the record's own word for itself."""
    kind = value.get("type") if isinstance(value, dict) else None
    return Meaning(EventType.UNKNOWN, {"type": kind if isinstance(kind, str) else None})


def first_text(content: object) -> str:
    """The first text of a message's content, be it a string or a list of blocks."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        for block in content:
            text = block.get("text") if isinstance(block, dict) else block
            if isinstance(text, str):
                return text
    return ""


def session_id_in(head: bytes) -> str | None:
    """The first `sessionId` that the first bytes of a log say."""
    found = _SESSION_ID.search(head)
    return found[1].decode("utf-8", "replace") if found else None


def setting(file: Path, *keys: str) -> object:
    """What stands under nested keys in a JSON settings file; None where it does not, or the file cannot be read."""
    try:
        value = json.loads(file.read_bytes())
    except (OSError, ValueError, RecursionError):
        return None
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def command(*words: str, cwd: str | None = None) -> str:
    """A shell command, quoted, run in `cwd` where that is known.

    >>> command("claude", "--resume", "a1", cwd="/my work")
    "cd '/my work' && claude --resume a1"
    """
    line = shlex.join(words)
    return f"cd {shlex.quote(cwd)} && {line}" if cwd else line
