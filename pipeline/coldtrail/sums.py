"""What the catalog comes to, summed up where it lies: 20,000 rows are not fetched for a few numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from coldtrail.catalog import Catalog, StreamRow

_SESSIONS = """
    SELECT COUNT(*), SUM(state = 'live'), SUM(state = 'gone'), SUM(state = 'expiring'), SUM(pinned <> 0),
           SUM(records), SUM(damaged), SUM(bytes), SUM(stored_bytes)
    FROM sessions"""
_STREAMS = """
    SELECT source, COUNT(*), SUM(open_bytes), SUM(gone_ms IS NULL),
           SUM(CASE WHEN is_log AND gone_ms IS NULL AND held < size THEN size - held ELSE 0 END),
           MIN(CASE WHEN is_log AND gone_ms IS NULL AND held < size THEN mtime_ns END)
    FROM streams GROUP BY source"""

_TRACES = "SELECT session, role, path, held, size, check_due, gone_ms, mtime_ns, grew_ms, facts, tail FROM streams"
_BELOW = "SELECT stream, path, gone_ms IS NULL FROM streams WHERE path >= ? AND path < ?"

_UNSETTLED = """rolled = 1 OR (settled = 0 AND grew_ms <= ? AND NOT EXISTS (
    SELECT 1 FROM sessions WHERE key = streams.session AND MAX(COALESCE(last_ms, 0), grew_ms) > ?))"""
_LONG = "is_log = 1 AND pending >= ?"


@dataclass(frozen=True, slots=True)
class SessionSums:
    """How many sessions there are, and what they hold."""

    total: int
    live: int
    gone: int
    expiring: int
    pinned: int
    records: int
    damaged: int
    bytes: int
    stored_bytes: int


@dataclass(frozen=True, slots=True)
class SourceSums:
    """A source's streams, as capture has seen them last."""

    source: str
    streams: int
    open_bytes: int  # of the segments that still grow, in the store
    there: int  # streams whose file was there
    lacking_bytes: int  # of logs, that were seen and not captured
    lacking_since_ns: int | None  # the oldest mtime of a log that some are lacking of; None: none are


class Trace(NamedTuple):
    """Of a stream's row what its session's fate hangs on."""

    session: str
    role: str
    path: bytes
    held: int
    size: int
    check_due: int
    gone_ms: int | None
    mtime_ns: int
    grew_ms: int
    facts: str
    tail: str


def traces(catalog: Catalog) -> list[Trace]:
    """Of every stream."""
    return list(map(Trace._make, catalog.ask(_TRACES)))


def paths_below(catalog: Catalog, folder: bytes) -> list[tuple[str, bytes, int]]:
    """Each stream whose path begins with `folder`, which ends in a slash, with that path, and whether its file was there."""
    return catalog.ask(_BELOW, folder, folder[:-1] + b"0")


def sessions(catalog: Catalog) -> SessionSums:
    """All sessions."""
    (row,) = catalog.ask(_SESSIONS)
    return SessionSums(*(value or 0 for value in row))


def sources(catalog: Catalog) -> list[SourceSums]:
    """Each source that has streams."""
    return [SourceSums(*row) for row in catalog.ask(_STREAMS)]


def unsettled(catalog: Catalog, before_ms: int) -> list[StreamRow]:
    """The streams that compaction has work in: part of them has stopped growing, or nothing of their session moved after `before_ms`."""
    return catalog.streams_if(_UNSETTLED, before_ms, before_ms)


def long_logs(catalog: Catalog, least_bytes: int) -> list[StreamRow]:
    """The logs with so much in whole records."""
    return catalog.streams_if(_LONG, least_bytes)


def has_path(catalog: Catalog, path: bytes) -> bool:
    """Whether a stream is there, or was last, at `path`: a tenth of what asking for the stream costs."""
    return bool(catalog.ask("SELECT 1 FROM streams WHERE path = ? LIMIT 1", path))


def version(catalog: Catalog) -> int:
    """A number that changes whenever another connection has written."""
    ((number,),) = catalog.ask("PRAGMA data_version")
    return int(number)
