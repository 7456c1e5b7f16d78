"""Whose is a file that capture meets: a stream known by its path, one that moved, or a new one, and in which session."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import replace

from coldtrail import sums
from coldtrail.agents.base import HEAD_BYTES, Place
from coldtrail.agents.walk import Candidate
from coldtrail.catalog import StreamRow, changed
from coldtrail.errors import ColdtrailError
from coldtrail.format.manifest import Generation, PathSeen, Stamp, StreamMeta
from coldtrail.home import Home, new_id
from coldtrail.model import Role
from coldtrail.sessions import refresh
from coldtrail.stage import graves, prove
from coldtrail.stage.source import decoded, head, opened
from coldtrail.stage.succession import Succession

LOG_SUFFIX = ".jsonl"


def find(home: Home, found: Candidate) -> StreamRow | None:
    """The row of the stream that this file belongs to, made if need be; None for a file that is no session's."""
    row = home.catalog.stream_at(os.fsencode(found.path))
    if row is not None:
        return row
    place = _place(found)
    if place is None:
        return None
    row = _linked(home, found)
    if row is not None:
        return row
    if _rests(home, found, place):
        return None
    moved = _moved(home, found, place)
    if moved is not None:
        return _follow(home, moved, found, place)
    return _begin(home, found, place)


def never_met(home: Home, found: Candidate) -> tuple[Place, list[StreamRow]] | None:
    """Whose a file is that nobody has met under any name, and the known streams of that id; None for every other file."""
    if sums.has_path(home.catalog, os.fsencode(found.path)):
        return None
    place = _place(found)
    if place is None or _linked(home, found) is not None or _rests(home, found, place) or _moved(home, found, place) is not None:
        return None
    return place, _kin(home, found, place)


def _place(found: Candidate) -> Place | None:
    place = found.source.agent.place(found.rel, lambda: head(found.file, HEAD_BYTES))
    return place and replace(place, session_id=_writable(place.session_id), scope=_writable(place.scope))


def _rests(home: Home, found: Candidate, place: Place) -> bool:
    return graves.rests(home, found, place, lambda: joined(_kin(home, found, place), place))


def known(home: Home, found: Candidate) -> StreamRow | None:
    """The row of the stream that is known to have this file, by whichever name; nothing is made."""
    return home.catalog.stream_at(os.fsencode(found.path)) or _linked(home, found)


def session_of(home: Home, found: Candidate, place: Place) -> str | None:
    """The session that a file which nobody has met will belong to; None: one of its own."""
    moved = _moved(home, found, place)
    return moved.session if moved is not None else joined(_kin(home, found, place), place)


def _linked(home: Home, found: Candidate) -> StreamRow | None:
    """Links to folders give all below them a second name."""
    real = os.path.realpath(os.fsencode(found.file))
    return next((row for row in _same_inode(home, found) if os.path.realpath(row.path) == real), None)


def _same_inode(home: Home, found: Candidate) -> list[StreamRow]:
    return home.catalog.streams_with(identity=prove.identity(found.stat))


def _writable(name: str) -> str:
    """A name as UTF-8 can hold it, still unlike any other; file names may be any bytes."""
    return name.encode("utf-8", "backslashreplace").decode()


def _moved(home: Home, found: Candidate, place: Place) -> StreamRow | None:
    """The stream that was elsewhere in its source until now: its old path is free, and the file begins with its bytes, or goes on."""
    same_id = home.catalog.streams_with(session_id=place.session_id, source=found.source.name)
    name = os.path.basename(os.fsencode(found.path))
    same_name = [row for row in same_id if os.path.basename(row.path) == name and row.role == place.role]
    same_file = [row for row in _same_inode(home, found) if row.source == found.source.name]
    away = [row for row in same_file + same_name if not os.path.lexists(row.path) and row.held]
    by_bytes = (row for row in away if _begins_so(home, row, found))
    return next(by_bytes, None) or next((row for row in away if row in same_name and _goes_on(home, row, found)), None)


def _goes_on(home: Home, row: StreamRow, found: Candidate) -> bool:
    """Whether the agent made a log again without its head, and elsewhere, between two looks."""
    if not row.is_log or found.is_twin:
        return False
    with opened(found.file) as fd:
        return Succession(home, known_meta(home, row), fd).goes_on()


def _begins_so(home: Home, row: StreamRow, found: Candidate) -> bool:
    plain = home.plain_of(row.source, row.stream, row.generation)
    with opened(found.file) as fd:
        if found.is_twin:
            return prove.begins_with(decoded(found.file, fd), plain, row.held) is not None
        same_file = row.identity == prove.identity(found.stat)
        return prove.ends_match(row, fd) and (same_file or prove.same_bytes(plain, row.held, fd))


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
        root = str(found.source.root)  # the source itself may lie elsewhere now
        home.store.write_meta(replace(meta, paths=(*meta.paths, path), root=root, scope=place.scope, gone_ms=None))
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
    meta = new_meta(home, found, place, joined(_kin(home, found, place), place) or new_id())
    with home.changing(meta.session), _both_or_none(home, meta.stream):
        home.store.write_meta(meta)
        row = row_of(meta)
        with home.catalog.transaction():
            home.catalog.put(row)
            refresh(home, meta.session)
    return row


def new_meta(home: Home, found: Candidate, place: Place, session: str) -> StreamMeta:
    """What is known of a stream at first sight."""
    now_ms = home.now_ms()
    stamp = Stamp(0, found.stat.st_mode & 0o7777, found.stat.st_mtime_ns, now_ms)
    return StreamMeta(
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


@contextlib.contextmanager
def _both_or_none(home: Home, stream: str) -> Iterator[None]:
    """Of a stream that the catalog could not take (the disk is full) nothing is left, else the next try would begin a second one."""
    try:
        yield
    except BaseException:
        with contextlib.suppress(OSError):
            home.layout.meta(stream).unlink(missing_ok=True)
            home.layout.stream(stream).rmdir()
        raise


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


def _kin(home: Home, found: Candidate, place: Place) -> list[StreamRow]:
    """The streams of the same agent's id in the same source."""
    return home.catalog.streams_with(session_id=place.session_id, source=found.source.name)


def joined(rows: list[StreamRow], place: Place) -> str | None:
    """The session that a new stream joins, among those of its id: of a scope that does not contradict it; None: one of its own."""
    for row in sorted(rows, key=lambda row: (row.role != Role.MAIN, row.gone_ms is not None, row.stream)):
        members = [each for each in rows if each.session == row.session]
        scopes = {each.scope for each in members if each.scope}
        if not place.scope or not scopes or place.scope in scopes or (place.role is not Role.MAIN and _has_left(members)):
            return row.session
    return None


def _has_left(members: list[StreamRow]) -> bool:
    """Whether the session's main log is no longer where it was: it has moved, and what lies beside it was met first."""
    mains = [row for row in members if row.role == Role.MAIN]
    return bool(mains) and not any(os.path.lexists(row.path) for row in mains)
