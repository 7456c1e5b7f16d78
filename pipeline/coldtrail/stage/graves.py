"""Graves: a file whose bytes were removed from our keeping is known when it is met again, and let be."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable

from coldtrail.agents.base import Place
from coldtrail.agents.walk import Candidate
from coldtrail.catalog import GraveRow
from coldtrail.format.manifest import Manifest
from coldtrail.format.wishes import Act, name_digest
from coldtrail.home import Home
from coldtrail.journal import Act as Noted
from coldtrail.sessions import write_manifest
from coldtrail.stage import expire, prove, wish
from coldtrail.stage.source import decoded, opened


def rests(home: Home, found: Candidate, place: Place, joins: Callable[[], str | None]) -> bool:
    """Whether a file is one of a removed session and is to be let be: purged, or expired and not changed since.

    One that has changed, or is new, is captured, and so is the rest of its session. `joins` tells which session that is kept a
    new file belongs to, None: none.
    """
    agent, name = found.source.agent.name, os.path.basename(os.fsencode(found.path))
    known = _ours(home, home.catalog.graves(name=name_digest(agent, place.session_id, name)))
    if any(row.act == Act.PURGED or _is_same(home, row, found) for row in known):
        return True
    if not known and (others := _ours(home, home.catalog.graves(whose=name_digest(agent, place.session_id)))) and joins() is None:
        if any(row.act == Act.PURGED for row in others):
            return True
        known = others if os.access(found.file, os.R_OK) else []  # what nobody can read would bring it back for nothing, again and again
    for session in {row.session: row for row in known}.values():
        lift(home, session, "its files have changed: it is captured anew")
    return False


def _ours(home: Home, rows: Iterable[GraveRow]) -> list[GraveRow]:
    """What another machine has removed is none of ours, be its name the same."""
    return [row for row in rows if row.host == home.host]


def lift(home: Home, grave: GraveRow, reason: str) -> None:
    """Forget that a session was removed; what is left of it goes first, else that would seem to be kept."""
    home.journal.note(Noted.LIFTED, grave.session, "", reason)  # sooner twice than never
    with home.changing(grave.session):
        expire.clear(home, grave.session)
        row = home.catalog.session(grave.session)
        if row is None:
            # A file that is removed may be there again after a crash.
            write_manifest(home, grave.source, Manifest(grave.session), grave.host)
            home.archive.remove(home.layout.manifest_key(grave.host, grave.source, grave.session))
        else:  # a file of it was met just then
            wish.put(home, row, wish.manifest_of(home, row))
        home.catalog.forget_graves(grave.session)


def _is_same(home: Home, row: GraveRow, found: Candidate) -> bool:
    """Whether the file has just the bytes that were removed, as far as its ends tell."""
    stat = found.stat
    looks = (stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, prove.identity(stat))
    if (row.size, row.mtime_ns, row.ctime_ns, row.identity) == looks:
        return True
    if not found.is_twin and stat.st_size != row.held:
        return False
    if not stat.st_size:
        return True
    with opened(found.file) as fd:
        if found.is_twin:
            same = _decodes_to(row, decoded(found.file, fd))
        else:
            head = os.pread(fd, row.head_length, 0)
            same = _matches(row, head, os.pread(fd, row.window_length, row.held - row.window_length))
    if same:
        size, mtime_ns, ctime_ns, identity = looks
        home.catalog.put(row._replace(size=size, mtime_ns=mtime_ns, ctime_ns=ctime_ns, identity=identity))
    return same


def _matches(row: GraveRow, head: bytes, window: bytes) -> bool:
    return (prove.digest(head), prove.digest(window)) == (row.head, row.window)


def _decodes_to(row: GraveRow, parts: Iterable[bytes]) -> bool:
    """The same for a file that its agent has compressed."""
    head, window, length = b"", b"", 0
    for part in parts:
        head += part[: row.head_length - len(head)]
        window = (window + part)[-row.window_length :] if row.window_length else b""
        length += len(part)
    return length == row.held and _matches(row, head, window)
