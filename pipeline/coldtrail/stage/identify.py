"""Whose is a file that capture meets: a stream known by its path, one that moved, or a new one, and in which session."""

from __future__ import annotations

import os
from dataclasses import replace

from coldtrail.agents.base import HEAD_BYTES, Place
from coldtrail.agents.walk import Candidate
from coldtrail.catalog import StreamRow, changed
from coldtrail.errors import ColdtrailError
from coldtrail.format.manifest import Generation, PathSeen, Stamp, StreamMeta
from coldtrail.home import Home, new_id
from coldtrail.model import Role
from coldtrail.sessions import refresh
from coldtrail.stage import prove
from coldtrail.stage.source import head, opened

LOG_SUFFIX = ".jsonl"


def find(home: Home, found: Candidate) -> StreamRow | None:
    """The row of the stream that this file belongs to, made if need be; None for a file that is no session's."""
    path = os.fsencode(found.path)
    row = home.catalog.stream_at(path)
    if row is not None:
        return row
    place = found.source.agent.place(found.rel, lambda: head(found.file, HEAD_BYTES))
    if place is None:
        return None
    moved = _moved(home, found, place)
    if moved is not None:
        return _follow(home, moved, found, place)
    return _begin(home, found, place)


def _moved(home: Home, found: Candidate, place: Place) -> StreamRow | None:
    """The stream that was elsewhere until now: its old path is free, and the file begins with its bytes."""
    same_inode = home.catalog.streams_with(identity=prove.identity(found.stat))
    same_id = home.catalog.streams_with(session_id=place.session_id, source=found.source.name)
    name = os.path.basename(os.fsencode(found.path))
    for row in same_inode + [row for row in same_id if os.path.basename(row.path) == name and row.role == place.role]:
        if not os.path.lexists(row.path) and row.held and not found.is_twin and _begins_so(home, row, found):
            return row
    return None


def _begins_so(home: Home, row: StreamRow, found: Candidate) -> bool:
    if found.stat.st_size < row.held:
        return False
    with opened(found.file) as fd:
        if not prove.ends_match(row, fd):
            return False
        return row.identity == prove.identity(found.stat) or prove.same_bytes(
            home.plain_of(row.source, row.stream, row.generation), row.held, fd
        )


def known_meta(home: Home, row: StreamRow) -> StreamMeta:
    """The meta.json of a stream in the catalog; ColdtrailError where it is gone."""
    meta = home.store.meta(row.stream)
    if meta is None:
        raise ColdtrailError(f"{home.layout.meta(row.stream)}: missing", hint="run `coldtrail rebuild`: the archive may still have it")
    return meta


def _follow(home: Home, row: StreamRow, found: Candidate, place: Place) -> StreamRow:
    """Take down the stream's new path; where its old one was is kept."""
    with home.changing(row.session):
        meta = known_meta(home, row)
        path = _path_seen(home, found)
        home.store.write_meta(replace(meta, paths=(*meta.paths, path), scope=place.scope, gone_ms=None))
        row = changed(row, path=os.fsencode(found.path), scope=place.scope, gone_ms=None)
        with home.catalog.transaction():
            home.catalog.put(row)
            refresh(home, row.session)
    return row


def _path_seen(home: Home, found: Candidate) -> PathSeen:
    real = os.path.realpath(found.path)
    return PathSeen(str(found.path), home.now_ms(), None if real == str(found.path) else real)


def _begin(home: Home, found: Candidate, place: Place) -> StreamRow:
    """A stream never met: its meta.json is written before its first byte."""
    session = _session_of(home, found, place)
    stat, now_ms = found.stat, home.now_ms()
    stamp = Stamp(0, stat.st_mode & 0o7777, stat.st_mtime_ns, now_ms)
    meta = StreamMeta(
        stream=new_id(),
        session=session,
        host=home.host,
        source=found.source.name,
        agent=found.source.agent.name,
        root=str(found.source.root),
        session_id=place.session_id,
        scope=place.scope,
        role=place.role,
        is_log=found.path.suffix == LOG_SUFFIX,
        paths=(_path_seen(home, found),),
        generations=(Generation(0, now_ms, stamp),),
    )
    with home.changing(session):
        home.store.write_meta(meta)
        row = row_of(meta)
        home.catalog.put(row)
    return row


def row_of(meta: StreamMeta) -> StreamRow:
    """The row of a stream of which nothing is captured yet in its newest generation."""
    return StreamRow(
        stream=meta.stream,
        session=meta.session,
        source=meta.source,
        agent=meta.agent,
        role=meta.role.value,
        is_log=int(meta.is_log),
        path=os.fsencode(meta.path),
        session_id=meta.session_id,
        scope=meta.scope,
        generation=meta.newest.number,
        gone_ms=meta.gone_ms,
    )


def _session_of(home: Home, found: Candidate, place: Place) -> str:
    """The session that a new stream joins: same source, same agent's id, and a scope that does not contradict it."""
    rows = home.catalog.streams_with(session_id=place.session_id, source=found.source.name)
    for row in sorted(rows, key=lambda row: (row.role != Role.MAIN, row.gone_ms is not None, row.stream)):
        scopes = {each.scope for each in rows if each.session == row.session and each.scope}
        if not place.scope or not scopes or place.scope in scopes:
            return row.session
    return new_id()
