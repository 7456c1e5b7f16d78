"""What the tests of forks share: a world of Gemini CLI, forking, and finding what was forked."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from coldtrail import Session
from coldtrail.agents import agent
from coldtrail.agents.walk import Source
from coldtrail.home import Home
from coldtrail.model import Position
from coldtrail.stage.fork import Forked
from coldtrail.stage.restore import Passed, Restored
from pipeline.stage.places import the_session
from world_of import World

CHAT = "db450215-d972-4cc9-82ed-2b6d68a46f71"


@dataclass(slots=True)
class GeminiWorld(World):
    """Gemini CLI's root in place of Claude Code's."""

    @property
    def root(self) -> Path:
        return self.folder / "gemini"

    @property
    def sources(self) -> list[Source]:
        return [Source("gemini-cli", agent("gemini-cli"), self.root)]

    def chat(self, suffix: str = ".jsonl") -> Path:
        """A session's log."""
        return self.root / "tmp" / "project" / "chats" / f"session-2026-01-01T00-00-{CHAT[:8]}{suffix}"


def forked_of(done: list[Restored | Passed]) -> Forked:
    """The new session's log, which comes last."""
    last = done[-1]
    assert isinstance(last, Forked), last
    return last


def fork(world: World, **moment: str | int | Position) -> Forked:
    """A fork of the only session there is."""
    with world.open() as home:
        return forked_of(the_session(home).restore(**moment))  # type: ignore[arg-type]


def session_of(home: Home, session_id: str) -> Session:
    """The session with this id of its agent's."""
    (row,) = home.catalog.sessions_with_id(session_id)
    return Session(home, row)
