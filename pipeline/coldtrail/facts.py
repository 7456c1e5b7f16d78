"""What `ls` tells of a stream, folded from its records; the fold can be split anywhere and merged."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Self

from coldtrail.model import EventType, Meaning, Reading, Record, RecordKind

TITLE_MAX_CHARS = 200
PARENTS_MAX = 64


@dataclass(slots=True)
class Facts:
    """Counts, times and names of a run of records; `add` them in byte order, or `merge` the facts of neighbours."""

    records: int = 0
    damaged: int = 0
    first_ms: int | None = None  # earliest time inside
    last_ms: int | None = None  # newest time inside
    session_id: str | None = None  # the first one said
    project: str | None = None  # the first folder said
    title: str | None = None
    title_rank: int = 0
    prompt: str | None = None  # the first words of the user
    parents: list[str] = field(default_factory=list)  # agents' ids of sessions that this one needs

    def add(self, record: Record, reading: Reading | None) -> None:
        """Count a record; `reading` is what its agent made of it, None where it did not parse."""
        self.records += record.kind is not RecordKind.BLANK
        self.damaged += record.kind is RecordKind.DAMAGED
        if reading is None:
            return
        if reading.time_ms is not None:
            self.first_ms = reading.time_ms if self.first_ms is None else min(self.first_ms, reading.time_ms)
            self.last_ms = reading.time_ms if self.last_ms is None else max(self.last_ms, reading.time_ms)
        if self.project is None and reading.cwd:
            self.project = _writable(reading.cwd)
        for meaning in reading.events:
            if (taker := _TAKERS.get(meaning.type)) is not None:
                taker(self, meaning)

    def merge(self, later: Self) -> None:
        """Take in the facts of the bytes right behind these."""
        self.records += later.records
        self.damaged += later.damaged
        self.first_ms = min((ms for ms in (self.first_ms, later.first_ms) if ms is not None), default=None)
        self.last_ms = max((ms for ms in (self.last_ms, later.last_ms) if ms is not None), default=None)
        self.session_id = self.session_id or later.session_id
        self.project = self.project or later.project
        self.prompt = self.prompt or later.prompt
        if later.title and later.title_rank >= self.title_rank:
            self.title, self.title_rank = later.title, later.title_rank
        self._need(later.parents)

    def to_json(self) -> dict[str, object]:
        """As a JSON object; what is as in empty facts is left out."""
        empty = Facts()
        return {f.name: value for f in fields(self) if (value := getattr(self, f.name)) != getattr(empty, f.name)}

    @classmethod
    def from_json(cls, value: Mapping[str, object]) -> Self:
        """Back from `to_json`; keys it does not know are passed over."""
        known = {f.name for f in fields(cls)}
        return cls(**{key: each for key, each in value.items() if key in known})  # type: ignore[arg-type]

    def _need(self, parents: list[str]) -> None:
        for parent in parents:
            if parent not in self.parents and len(self.parents) < PARENTS_MAX:
                self.parents.append(parent)

    def _take_start(self, meaning: Meaning) -> None:
        said = meaning.data.get("session_id")
        if self.session_id is None and isinstance(said, str) and said:
            self.session_id = said

    def _take_message(self, meaning: Meaning) -> None:
        if self.prompt is None and meaning.data.get("role") == "user" and not meaning.data.get("meta"):
            self.prompt = _one_line(text_of(meaning.data.get("content"))) or None

    def _take_metadata(self, meaning: Meaning) -> None:
        title, rank = meaning.data.get("title"), meaning.data.get("title_rank")
        if isinstance(title, str) and isinstance(rank, int) and rank >= self.title_rank and (line := _one_line(title)):
            self.title, self.title_rank = line, rank
        parents = meaning.data.get("parents")
        if isinstance(parents, list):
            self._need([parent for parent in parents if isinstance(parent, str)])


_TAKERS = {
    EventType.SESSION_START: Facts._take_start,
    EventType.MESSAGE_ADDED: Facts._take_message,
    EventType.METADATA_CHANGED: Facts._take_metadata,
}


def text_of(content: object) -> str:
    """The readable text of a message's content: a string, or blocks that have a `text`."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return " ".join(block["text"] for block in content if isinstance(block, dict) and isinstance(block.get("text"), str))
    return ""


def _one_line(text: str) -> str:
    """The first TITLE_MAX_CHARS of a text on one line."""
    return _writable(" ".join(text[: TITLE_MAX_CHARS * 4].split())[:TITLE_MAX_CHARS])


def _writable(text: str) -> str:
    """The same, what cannot be written as UTF-8 replaced: JSON may hold lone surrogates, and the catalog takes none."""
    return text.encode("utf-8", "replace").decode()
