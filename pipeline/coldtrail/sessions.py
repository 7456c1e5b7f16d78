"""A session's row in the catalog, made from the rows of its streams and the wishes in its manifest."""

from __future__ import annotations

import os

from coldtrail.catalog import SessionRow, StreamRow
from coldtrail.errors import ColdtrailError
from coldtrail.facts import Facts
from coldtrail.format import lines
from coldtrail.format.frames import FrameError
from coldtrail.format.manifest import Manifest
from coldtrail.home import Home
from coldtrail.model import Role

MANIFEST_MAX_BYTES = 64 << 20


def read_manifest(home: Home, source: str, session: str, host: str = "") -> Manifest:
    """A session's manifest; an empty one where there is none yet, ColdtrailError where it is damaged."""
    key = home.layout.manifest_key(host or home.host, source, session)
    try:
        opened = home.archive.open(key)
    except FileNotFoundError:
        return Manifest(session)
    try:
        return Manifest.decode(opened.read_at(0, MANIFEST_MAX_BYTES))
    except (ValueError, FrameError) as error:
        raise ColdtrailError(f"{opened.label}: {error}", hint="run `coldtrail verify`") from error
    finally:
        opened.close()


def write_manifest(home: Home, source: str, manifest: Manifest, host: str = "") -> None:
    """Give a session's manifest new content; the caller holds the session's lock."""
    home.archive.replace(home.layout.manifest_key(host or home.host, source, manifest.session), manifest.encode())


def refresh(home: Home, session: str) -> SessionRow | None:
    """Make a session's row anew and put it into the catalog; None where it has no stream."""
    streams = home.catalog.streams_of(session)
    if not streams:
        return None
    old = home.catalog.session(session)
    pinned, tags = (old.pinned, old.tags) if old else _wishes(home, streams[0].source, session)
    row = describe(streams, home.host, pinned, tags)
    home.catalog.put(row)
    return row


def describe(streams: list[StreamRow], host: str, pinned: int, tags: str) -> SessionRow:
    """What `ls` shows of a session of these streams, the main log first."""
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
        state="live" if any(row.gone_ms is None for row in (mains or streams)) else "gone",
        pinned=pinned,
        tags=tags,
        paths=lines.dumps(paths).decode(),
        parents=lines.dumps(facts.parents).decode(),
        orphan=int(not mains),
        grew_ms=max(row.grew_ms for row in streams),
    )


def merged(row: StreamRow) -> Facts:
    """A stream's facts with its unfinished record's."""
    facts = facts_of(row.facts)
    facts.merge(facts_of(row.tail))
    return facts


def facts_of(text: str) -> Facts:
    """Facts from their form in a row."""
    value = lines.loads(text.encode())
    return Facts.from_json(value) if isinstance(value, dict) else Facts()


def tags_of(row: SessionRow) -> tuple[str, ...]:
    """A session's tags."""
    value = lines.loads(row.tags.encode())
    return tuple(str(tag) for tag in value) if isinstance(value, list) else ()


def _wishes(home: Home, source: str, session: str) -> tuple[int, str]:
    manifest = read_manifest(home, source, session)
    return int(manifest.pinned), lines.dumps(list(manifest.tags)).decode()
