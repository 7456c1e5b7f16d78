"""What may leave this machine in a report: places without names, texts without anybody's words."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from coldtrail.agents import agents
from coldtrail.model import EventType
from coldtrail.units import parse_size, parse_span

# Names that coldtrail or the agents give themselves, the same on every machine.
_WORDS = frozenset(
    {
        *("~", "", "store", "archive", "locks", "lock", "host-id", "journal.jsonl", "clock", "aside", "meta.json", "index", "checkpoints"),
        *("catalog.db", "catalog.db-wal", "catalog.db-shm", "config.toml", "coldtrail", "schedule.json", "state.json", "control"),
        *("drill.json", "verify.json", ".config", ".local", "share", "systemd", "user", "LaunchAgents", "Library"),
        *(
            ".claude",
            "projects",
            "subagents",
            "workflows",
            "tool-results",
            ".codex",
            "sessions",
            "archived_sessions",
            ".gemini",
            "tmp",
            "chats",
        ),
        *("etc", "usr", "lib", "run", "var", "mnt", "media", "home", "Users", "proc", "sys", "agents", "packages", "config", "umask"),
        *("fs.inotify.max_user_watches", "fs.inotify.max_user_instances", "launchd", "systemd --user", "systemd", "coldtraild.service"),
    }
)
_OURS = re.compile(
    r"[0-9]{6,}|[0-9a-f]{16}(\.json|\.compact)?|[0-9]{16}(-[0-9]{16}|\.open)\.jsonl\.zst(\.[0-9]+)?(\.damaged)?|\.tmp-[0-9a-f]+"
)
_DATE = re.compile(r"[0-9]{1,4}")
_SUFFIX = re.compile(r"(\.jsonl|\.json|\.txt|\.toml|\.md)?(\.zst)?$")
_PATH = re.compile(r"(?<![\w.~<])(?:~|/)[^:,;'\"()`<>]*")  # blanks too: rather too much is hidden
_VALUES = frozenset({"", "never", "all", "live", "gone", *(each.value for each in EventType)})


@dataclass(slots=True)
class Veil:
    """Hides names: one and the same by one and the same number, within one report."""

    user_home: Path
    salt: bytes
    places: Sequence[str] = ()  # whole paths that texts may quote, blanks and all
    private: frozenset[str] = frozenset()  # words that are nobody's business: names, titles, ids
    own: tuple[str, ...] = ()  # folders of ours, where names are ours
    _words: list[str] = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        self.places = sorted({each for each in self.places if each.startswith("/")}, key=len, reverse=True)
        self._words = sorted({word.casefold() for word in self.private if len(word) > 2}, key=len, reverse=True)

    def name(self, text: str) -> str:
        """A number for a name; the end tells what kind of file it is."""
        suffix = _SUFFIX.search(text)
        return f"<{hashlib.sha256(self.salt + text.encode('utf-8', 'surrogateescape')).hexdigest()[:8]}>{suffix[0] if suffix else ''}"

    def path(self, text: str) -> str:
        """A place, the user's home folder as `~`, and each name that is not ours or an agent's as a number."""
        home, own = str(self.user_home), any(text == each or text.startswith(each + "/") for each in self.own)
        if text == home or text.startswith(home + "/"):
            text = "~" + text[len(home) :]
        return "/".join(part if _is_usual(part) or (own and _OURS.fullmatch(part)) else self.name(part) for part in text.split("/"))

    def text(self, text: str) -> str:
        """A message of ours, with the places and names in it hidden."""
        for place in self.places:
            text = text.replace(place, self.path(place))
        text = _PATH.sub(lambda found: self.path(found[0]), text)
        for word in self._words:
            if word in text.casefold():
                text = re.sub(rf"(?<!\w){re.escape(word)}(?!\w)", "<name>", text, flags=re.IGNORECASE)
        return text

    def value(self, value: object) -> object:
        """A value of the config."""
        if isinstance(value, Mapping):
            return {str(key): self.value(each) for key, each in value.items()}
        if isinstance(value, list):
            return [self.value(each) for each in value]
        if not isinstance(value, str) or value in _VALUES or value in agents() or _is_amount(value):
            return value
        return self.path(value) if value.startswith(("/", "~")) else self.name(value)


def _is_usual(part: str) -> bool:
    return part in _WORDS or part in agents() or _DATE.fullmatch(part) is not None


def _is_amount(text: str) -> bool:
    for parse in (parse_span, parse_size):
        try:
            parse(text)
        except ValueError:
            continue
        return True
    return bool(re.fullmatch(r"[0-9]+%", text))


def words_of(texts: Iterable[str]) -> frozenset[str]:
    """Names out of paths and the like, whole and by their parts, but for those that everybody has."""
    found: set[str] = set()
    for text in texts:
        found |= {text, *text.split("/")}
        found |= {part.partition(".")[0] for part in text.split("/")}
    return frozenset(word for word in found if not _is_usual(word))
