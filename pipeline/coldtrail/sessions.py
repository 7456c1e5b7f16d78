"""A session's row in the catalog, made from the rows of its streams and the wishes in its manifest."""

from __future__ import annotations

import contextlib
import os
from collections import defaultdict
from collections.abc import Iterable, Sequence
from contextlib import closing
from typing import TypeVar

from coldtrail.catalog import SessionRow, StreamRow
from coldtrail.errors import ColdtrailError
from coldtrail.facts import Facts
from coldtrail.format import lines
from coldtrail.format.frames import FrameError
from coldtrail.format.manifest import Manifest, OtherVersionError, has_checksum
from coldtrail.format.wishes import End, Mark, Wishes
from coldtrail.home import Home
from coldtrail.model import Role, instant_text
from coldtrail.store import NEWER
from coldtrail.sums import Trace

MANIFEST_MAX_BYTES = 64 << 20
_Stream = TypeVar("_Stream", StreamRow, Trace)


def read_manifest(home: Home, source: str, session: str, host: str = "") -> Manifest:
    """A session's manifest; an empty one where there is none yet, ColdtrailError where it is damaged."""
    return find_manifest(home, source, session, host) or Manifest(session)


def find_manifest(home: Home, source: str, session: str, host: str = "") -> Manifest | None:
    """A session's manifest; None where there is none yet, ColdtrailError where it is damaged."""
    try:
        data = _manifest_bytes(home, source, session, host)
        return None if data is None else Manifest.decode(data)
    except (ValueError, FrameError) as error:
        hint = NEWER if isinstance(error, OtherVersionError) else "run `coldtrail rebuild`: it writes it anew"
        raise ColdtrailError(f"{manifest_label(home, source, session, host)}: {error}", hint=hint) from error


def read_unproven_manifest(home: Home, source: str, session: str, host: str = "") -> Manifest:
    """What can still be read of a damaged manifest."""
    with contextlib.suppress(ValueError, FrameError):
        data = _manifest_bytes(home, source, session, host)
        return Manifest(session) if data is None else Manifest.decode(data, unproven=True)
    return Manifest(session)


def manifest_has_checksum(home: Home, source: str, session: str, host: str = "") -> bool:
    """Whether a manifest that is not damaged would be known by it if it were; True too where there is none."""
    data = _manifest_bytes(home, source, session, host)
    return data is None or has_checksum(data)


def manifest_label(home: Home, source: str, session: str, host: str = "") -> str:
    """A manifest's name in messages."""
    return f"archive/{home.layout.manifest_key(host or home.host, source, session)}"


def _manifest_bytes(home: Home, source: str, session: str, host: str) -> bytes | None:
    try:
        opened = home.archive.open(home.layout.manifest_key(host or home.host, source, session))
    except FileNotFoundError:
        return None
    with closing(opened):
        return opened.read_at(0, MANIFEST_MAX_BYTES)


def write_manifest(home: Home, source: str, manifest: Manifest, host: str = "") -> None:
    """Give a session's manifest new content; the caller holds the session's lock."""
    home.archive.replace(home.layout.manifest_key(host or home.host, source, manifest.session), manifest.encode())


def refresh(home: Home, session: str) -> SessionRow | None:
    """Make a session's row anew and put it into the catalog; None where it has no stream."""
    streams = home.catalog.streams_of(session)
    if not streams:
        return None
    old = home.catalog.session(session)
    wishes = wishes_of(old) if old else read_manifest(home, streams[0].source, session).wishes
    row = describe(streams, old.host if old else home.host, wishes)
    home.catalog.put(row)
    return row


def by_session(streams: Iterable[_Stream]) -> dict[str, list[_Stream]]:
    """Streams by the key of their session."""
    found: dict[str, list[_Stream]] = defaultdict(list)
    for row in streams:
        found[row.session].append(row)
    return found


def mains_of(streams: Sequence[_Stream]) -> Sequence[_Stream]:
    """A session's main logs; all of its streams where no main log was ever seen."""
    return [row for row in streams if row.role == Role.MAIN] or streams


def is_live(streams: Sequence[StreamRow]) -> bool:
    """Whether the agent has the session's main log still."""
    return any(row.gone_ms is None for row in mains_of(streams))


def describe(streams: list[StreamRow], host: str, wishes: Wishes) -> SessionRow:
    """What `ls` shows of a session of these streams, the main log first."""
    mark = wishes.mark if wishes.mark is not None and wishes.mark.holds_for(ends_of(streams)) else None  # growth lifts it
    mains = [row for row in streams if row.role == Role.MAIN]
    logs = mains or [row for row in streams if row.is_log] or streams
    facts = merged(logs[0])
    times = [merged(row) for row in streams if row.is_log]
    paths = [os.fsdecode(row.path).encode("utf-8", "replace").decode() for row in (mains or streams[:1])]
    return SessionRow(
        key=streams[0].session,
        id=streams[0].session_id,
        agent=streams[0].agent,
        source=streams[0].source,
        host=host,
        project=facts.project or next((each.project for each in times if each.project), None),
        title=facts.title or facts.prompt,
        first_ms=min((each.first_ms for each in [facts, *times] if each.first_ms is not None), default=None),
        last_ms=max((each.last_ms for each in [facts, *times] if each.last_ms is not None), default=None),
        records=facts.records,
        damaged=facts.damaged
        + sum(each.damaged for row, each in zip((r for r in streams if r.is_log), times, strict=True) if row is not logs[0]),
        bytes=sum(row.plain_bytes for row in streams),
        stored_bytes=sum(row.stored_bytes for row in streams),
        state="expiring" if mark else "live" if is_live(streams) else "gone",
        pinned=int(wishes.pinned),
        tags=lines.dumps(list(wishes.tags)).decode(),
        paths=lines.dumps(paths).decode(),
        parents=lines.dumps(facts.parents).decode(),
        orphan=int(not mains),
        grew_ms=max(row.grew_ms for row in streams),
        held_until_ms=wishes.held_until_ms,
        mark=lines.dumps(mark.to_json(), sort=True).decode() if mark else "",
    )


def ends_of(streams: Iterable[StreamRow]) -> tuple[End, ...]:
    """How far each stream is held."""
    return tuple(sorted((row.stream, row.generation, row.held) for row in streams))


def wishes_of(row: SessionRow) -> Wishes:
    """What is asked for a session, as its row has it."""
    return Wishes(bool(row.pinned), tags_of(row), row.held_until_ms, Mark.from_json(lines.loads(row.mark.encode())) if row.mark else None)


def merged(row: StreamRow | Trace) -> Facts:
    """A stream's facts with its unfinished record's."""
    facts = facts_of(row.facts)
    facts.merge(facts_of(row.tail))
    return facts


def facts_of(text: str) -> Facts:
    """Facts from their form in a row."""
    value = lines.loads(text.encode())
    return Facts.from_json(value) if isinstance(value, dict) else Facts()


def as_json(row: SessionRow) -> dict[str, object]:
    """A session as JSON shows it."""
    return {
        "key": row.key,
        "id": row.id,
        "agent": row.agent,
        "project": row.project,
        "title": row.title,
        "first_activity": instant_text(row.first_ms),
        "last_activity": instant_text(row.last_ms),
        "records": row.records,
        "damaged": row.damaged,
        "bytes": row.bytes,
        "stored_bytes": row.stored_bytes,
        "state": row.state,
        "pinned": bool(row.pinned),
        "tags": lines.loads(row.tags.encode()),
        "paths": lines.loads(row.paths.encode()),
        "host": row.host,
        "source": row.source,
        "orphan": bool(row.orphan),
    }


def tags_of(row: SessionRow) -> tuple[str, ...]:
    """A session's tags."""
    value = lines.loads(row.tags.encode())
    return tuple(str(tag) for tag in value) if isinstance(value, list) else ()


def parents_of(row: SessionRow) -> tuple[str, ...]:
    """The agent's ids of the sessions that one needs to be whole."""
    value = lines.loads(row.parents.encode())
    return tuple(str(parent) for parent in value) if isinstance(value, list) else ()


def take_wishes(home: Home, session: str, manifest: Manifest) -> None:
    """Let a session's row have the wishes that stand in its manifest."""
    row = home.catalog.session(session)
    if row is not None and wishes_of(row) != manifest.wishes:
        home.catalog.put(describe(home.catalog.streams_of(session), row.host, manifest.wishes))
