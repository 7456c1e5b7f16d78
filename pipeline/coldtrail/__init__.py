"""coldtrail: AI agents' sessions, captured while they grow, kept, and put back byte for byte."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from coldtrail.errors import (
    AmbiguousError,
    ColdtrailError,
    ConfigError,
    ConflictError,
    CorruptionError,
    LockedError,
    NotFoundError,
    RefusedError,
    SourceError,
    StoreFullError,
    UnverifiableError,
    UsageError,
)

if TYPE_CHECKING:
    from coldtrail.client import Trail, open  # noqa: A004 - the face's word: coldtrail.open()
    from coldtrail.model import Event, EventType, Gap, Position
    from coldtrail.recovered import Recovered
    from coldtrail.session import Session
    from coldtrail.writer import Appended, Writer

# Each is loaded when it is first asked for: who lists sessions needs nothing of what recovers and restores them.
_ROOMS = {
    **dict.fromkeys(("Trail", "open"), "client"),
    **dict.fromkeys(("Event", "EventType", "Gap", "Position"), "model"),
    **dict.fromkeys(("Appended", "Writer"), "writer"),
    "Recovered": "recovered",
    "Session": "session",
}

__all__ = [
    "AmbiguousError",
    "Appended",
    "ColdtrailError",
    "ConfigError",
    "ConflictError",
    "CorruptionError",
    "Event",
    "EventType",
    "Gap",
    "LockedError",
    "NotFoundError",
    "Position",
    "Recovered",
    "RefusedError",
    "Session",
    "SourceError",
    "StoreFullError",
    "Trail",
    "UnverifiableError",
    "UsageError",
    "Writer",
    "open",
]


def __getattr__(name: str) -> Any:
    if name not in _ROOMS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_ROOMS[name]}"), name)
