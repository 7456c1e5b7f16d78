"""coldtrail: AI agents' sessions, captured while they grow, kept, and put back byte for byte."""

from coldtrail.client import Trail, open  # noqa: A004 - the face's word: coldtrail.open()
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
from coldtrail.model import Event, EventType, Gap, Position
from coldtrail.recovered import Recovered
from coldtrail.session import Session
from coldtrail.writer import Appended, Writer

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
