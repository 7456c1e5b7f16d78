"""Expire: a session is marked, kept through its grace, then removed; what is remembered of it keeps its file from coming back."""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from pathlib import Path

from coldtrail import durable
from coldtrail.catalog import GraveRow, SessionRow, StreamRow
from coldtrail.errors import ColdtrailError, LockedError, RefusedError, StoreFullError
from coldtrail.format.manifest import Manifest, StreamMeta
from coldtrail.format.wishes import Act, Buried, End, Mark, Tombstone, name_digest
from coldtrail.home import Home
from coldtrail.journal import Act as Noted
from coldtrail.sessions import ends_of, find_manifest, write_manifest
from coldtrail.stage import mend, wish

_NOTED = {Act.EXPIRED: Noted.EXPIRED, Act.PURGED: Noted.PURGED}
_CLEARED, _SCRUBBED = 1, 2  # see GraveRow


def mark(home: Home, session: SessionRow, reason: str, decided: Collection[End] | None = None) -> bool:
    """Say that a session is to expire; its bytes stay where they are. False where these are not those `decided` about."""
    with home.changing(session.key):
        ends = ends_of(home.catalog.streams_of(session.key))
        if not ends or (decided is not None and sorted(decided) != sorted(ends)):
            return False
        manifest = wish.manifest_of(home, session)
        wish.note(home, session, Noted.MARKED, reason)
        wish.put(home, session, replace(manifest, mark=Mark(home.now_ms(), reason, ends)))
    return True


def lift(home: Home, session: SessionRow, reason: str = "asked for") -> None:
    """Take a mark back."""
    wish.change(home, session, lambda manifest: replace(manifest, mark=None), Noted.LIFTED, reason)


def remove(home: Home, session: SessionRow, act: Act, reason: str, *, first: Callable[[], None] = lambda: None) -> int | None:
    """Remove everything we hold of a session; gives the bytes that were freed. `first` is done once nothing speaks against it.

    None, and nothing is removed, where it is being compacted, or (`act` is EXPIRED) has changed since it was marked, or is to be kept.
    RefusedError where the archive is not there, or a file of the session is set aside; ColdtrailError where its manifest is damaged.
    """
    with contextlib.ExitStack() as stack:
        try:
            home.spending(lambda: stack.enter_context(durable.locked(home.layout.compact_lock(session.key), wait=False)))
        except LockedError:
            return None
        stack.enter_context(home.changing(session.key))
        streams = home.catalog.streams_of(session.key)
        known = home.catalog.session(session.key)
        if not streams or known is None:
            return None
        manifest = _manifest_of(home, session, act)
        if act is Act.EXPIRED and not _may_go(home, manifest, streams):
            return None
        _refuse_if_aside(home, streams)
        first()
        whose, stones = name_digest(session.agent, session.id), tuple(_buried(row) for row in streams)
        tombstone = Tombstone(act, home.now_ms(), reason, session.host, session.source, whose, stones)
        wish.note(home, session, _NOTED[act], reason, known.stored_bytes)
        fresh = replace(manifest, streams=(), sealed=(), tombstone=tombstone)  # the mark stays: a crash right behind this undoes nothing
        home.spending(lambda: write_manifest(home, session.source, fresh, session.host))
        home.spending(lambda: _drop(home, session.key, tombstone, streams))
    return known.stored_bytes


def _manifest_of(home: Home, session: SessionRow, act: Act) -> Manifest:
    """What is asked for a session; by a damaged manifest nothing expires, but who purges wants that gone too."""
    try:
        return wish.manifest_of(home, session)
    except ColdtrailError as error:
        if act is Act.EXPIRED or isinstance(error, RefusedError) or mend.is_newer(error):
            raise
        return Manifest(session.key)


def _may_go(home: Home, manifest: Manifest, streams: list[StreamRow]) -> bool:
    """Whether it is marked for what is held now, and nothing was asked for it since the plan was made."""
    held = manifest.pinned or (manifest.held_until_ms is not None and manifest.held_until_ms > home.now_ms())
    return not held and manifest.mark is not None and manifest.mark.holds_for(ends_of(streams))


def _refuse_if_aside(home: Home, streams: Iterable[StreamRow]) -> None:
    """A file that waits set aside is known by its meta.json alone."""
    for row in streams:
        meta = None
        with contextlib.suppress(ColdtrailError):
            meta = home.store.meta(row.stream)
        if meta is not None and meta.aside is not None and meta.aside.removed_ms is None:
            raise RefusedError(f"session {row.session}: {meta.path} is set aside for now", hint="try again once it is reclaimed, or back")


def _buried(row: StreamRow) -> Buried:
    name = name_digest(row.agent, row.session_id, os.path.basename(row.path))
    return Buried(row.stream, name, row.generation, row.held, row.head_length, row.head.hex(), row.window_length, row.window.hex())


def _drop(home: Home, session: str, tombstone: Tombstone, streams: Iterable[StreamRow]) -> None:
    """Behind the tombstone the catalog follows, then the files go; the caller holds the session's lock."""
    with home.catalog.transaction():
        _bury(home, session, tombstone)
        home.catalog.drop({session}, {row.stream for row in streams})
        for row in streams:
            home.catalog.clear_fault(row.path)
            home.catalog.clear_fault(os.fsencode(home.layout.stream(row.stream)), below=True)
    clear(home, session)


def _bury(home: Home, session: str, tombstone: Tombstone) -> None:
    """Let the catalog remember a removed session's streams."""
    for each in tombstone.streams:
        row = GraveRow(
            stream=each.stream,
            session=session,
            host=tombstone.host,
            source=tombstone.source,
            name=each.name,
            whose=tombstone.whose,
            act=tombstone.act.value,
            at_ms=tombstone.at_ms,
            held=each.held,
            head_length=each.head_length,
            head=bytes.fromhex(each.head),
            window_length=each.window_length,
            window=bytes.fromhex(each.window),
        )
        home.catalog.put(row)


def is_removed(home: Home, tombstone: Tombstone, metas: Iterable[StreamMeta]) -> bool:
    """Whether what is left of a session, its streams' `metas`, is only what the removal had no time for; else it has gone on."""
    known = {each.stream: each for each in tombstone.streams}
    return all(meta.stream in known and _has_not_grown(home, meta, known[meta.stream]) for meta in metas)


def _has_not_grown(home: Home, meta: StreamMeta, buried: Buried) -> bool:
    """Of one whose removal was begun less may be left than was held."""
    return meta.newest.number <= buried.generation and home.plain(meta, meta.newest.number).end() <= buried.held


def resume(home: Home, session: SessionRow, manifest: Manifest) -> None:
    """A crash came between a tombstone and the catalog: the removal is ended, or forgotten where the session has gone on.

    The caller holds the session's lock.
    """
    streams = home.catalog.streams_of(session.key)
    metas = [meta for row in streams if (meta := home.store.meta(row.stream)) is not None]
    tombstone = manifest.tombstone
    if tombstone is not None and is_removed(home, tombstone, metas):
        _write_again(home, session.key, tombstone)
        home.spending(lambda: _drop(home, session.key, tombstone, streams))
    else:
        wish.put(home, session, replace(manifest, tombstone=None))


def _write_again(home: Home, session: str, tombstone: Tombstone) -> None:
    """A tombstone that can be read need not be durable: who wrote it may not have come so far. No byte goes before it is."""
    manifest = find_manifest(home, tombstone.source, session, tombstone.host)
    if manifest is not None:
        home.spending(lambda: write_manifest(home, tombstone.source, manifest, tombstone.host))


def relearn(home: Home, session: str, tombstone: Tombstone) -> None:
    """Let a catalog that was made anew know of a removed session; what is left of its files goes.

    What another machine has removed keeps none of our own files from being captured.
    """
    with home.changing(session):
        if tombstone.host != home.host:
            for each in tombstone.streams:
                _clear_store(home.layout.stream(each.stream))
            return
        if not home.catalog.graves(session=session):
            _write_again(home, session, tombstone)
            with home.catalog.transaction():
                _bury(home, session, tombstone)
        clear(home, session)


def finish(home: Home) -> int:
    """Clear away what interrupted removals have left; gives of how many sessions."""
    sessions = {row.session for row in home.catalog.graves() if not row.cleared}
    for session in sessions:
        with home.changing(session):
            home.spending(functools.partial(clear, home, session))
    scrub(home)
    return len(sessions)


def scrub(home: Home) -> bool:
    """Let nothing of what was purged stand in the catalog's file; False where that has to wait: then `finish` does it another time."""
    owed = [row for row in home.catalog.graves() if row.act == Act.PURGED and row.cleared == _CLEARED]
    if not owed:
        return True
    try:
        done = home.spending(home.catalog.scrub)
        if done:
            home.spending(lambda: _take_down(home, owed, _SCRUBBED))
    except StoreFullError:
        return False
    return done


def _take_down(home: Home, graves: Iterable[GraveRow], cleared: int) -> None:
    with home.catalog.transaction():
        for row in graves:
            home.catalog.put(row._replace(cleared=cleared))


def clear(home: Home, session: str) -> None:
    """Remove the files of a removed session's streams, whichever are left; the caller holds its lock."""
    owed = [row for row in home.catalog.graves(session=session) if not row.cleared]
    for row in owed:
        _clear_archive(home, home.layout.stream_key(row.host, row.source, row.stream))
        _clear_store(home.layout.stream(row.stream))
    if owed:
        _take_down(home, owed, _CLEARED)


def _clear_archive(home: Home, key: str) -> None:
    for generation in home.archive.names(key):
        for name in home.archive.names(f"{key}/{generation}"):
            home.archive.remove(f"{key}/{generation}/{name}")
    home.archive.remove_folder(key)


def _clear_store(folder: Path) -> None:
    """meta.json goes last: with it gone nobody can tell whose the rest was. Synced too where all is gone: who did that may not have."""
    with contextlib.suppress(FileNotFoundError):
        for entry in sorted(os.scandir(folder), key=lambda entry: entry.name == "meta.json"):
            durable.step("remove", Path(entry.path))
            shutil.rmtree(entry.path) if entry.is_dir(follow_symlinks=False) else os.unlink(entry.path)
        os.rmdir(folder)
    if folder.parent.is_dir():
        durable.sync_folder(folder.parent)
