"""coldtrail: AI agents' sessions, captured while they grow, kept, and put back byte for byte."""

from coldtrail.client import Trail, open  # noqa: A004 - the face's word: coldtrail.open()
from coldtrail.errors import (
    AmbiguousError,
    ColdtrailError,
    ConfigError,
    CorruptionError,
    LockedError,
    NotFoundError,
    RefusedError,
    SourceError,
    StoreFullError,
    UnverifiableError,
    UsageError,
)
from coldtrail.model import Event, EventType, Gap, Position
from coldtrail.session import Recovered, Session

__all__ = [
    "AmbiguousError",
    "ColdtrailError",
    "ConfigError",
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
    "open",
]
