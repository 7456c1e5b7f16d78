"""Wish: what is asked for a session stands in its manifest, and so outlives the catalog; after a crash the catalog follows it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from coldtrail.catalog import SessionRow
from coldtrail.errors import NotFoundError, RefusedError
from coldtrail.format.manifest import Manifest
from coldtrail.home import Home
from coldtrail.journal import Act
from coldtrail.sessions import find_manifest, take_wishes, write_manifest


def set_pin(home: Home, session: SessionRow, *, pinned: bool) -> SessionRow:
    """Pin a session, or lift its pin; gives its row."""
    return change(home, session, lambda manifest: replace(manifest, pinned=pinned), Act.PINNED if pinned else Act.UNPINNED)


def set_tags(home: Home, session: SessionRow, *, add: Iterable[str] = (), remove: Iterable[str] = ()) -> SessionRow:
    """Give a session tags, and take others away; gives its row."""
    wanted, gone = set(add), set(remove)
    return change(home, session, lambda manifest: replace(manifest, tags=tuple(sorted((wanted | {*manifest.tags}) - gone))), Act.TAGGED)


def hold(home: Home, session: SessionRow, until_ms: int) -> SessionRow:
    """Keep a session from being removed until then, and take back its mark; gives its row."""
    return change(home, session, lambda manifest: replace(manifest, mark=None, held_until_ms=until_ms))


def change(
    home: Home, session: SessionRow, wished: Callable[[Manifest], Manifest], act: Act | None = None, reason: str = "asked for"
) -> SessionRow:
    """Write what is wished into the manifest, then into the catalog; gives the session's row. Before, `act` is noted in the journal.

    A crash in between leaves a line of what is not done: the next try writes another one, for a wish is never kept without any.
    NotFoundError where it was removed meanwhile, RefusedError where the archive is not there.
    """
    with home.changing(session.key):
        manifest = manifest_of(home, session)
        fresh = wished(manifest)
        if act is not None and fresh.wishes != manifest.wishes:
            note(home, session, act, reason)
        return put(home, session, fresh)


def note(home: Home, session: SessionRow, act: Act, reason: str, size: int = 0) -> None:
    """Take down what is about to be done to a session, also on a full disk: sooner twice than never."""
    home.spending(lambda: home.journal.note(act, session.key, session.id, reason, size=size))


def manifest_of(home: Home, session: SessionRow) -> Manifest:
    """What stands in a session's manifest; the caller holds its lock.

    NotFoundError, RefusedError as `change`, for what is written to an empty mount point is lost; ColdtrailError where it is damaged.
    """
    if home.catalog.session(session.key) is None:
        hint = f"`coldtrail journal --session {session.key}` tells why"
        raise NotFoundError(f"session {session.key}: it was removed meanwhile", hint=hint)
    found = find_manifest(home, session.source, session.key, session.host)
    if found is None and _archive_is_away(home, session):
        raise RefusedError(f"{home.layout.archive}: the archive is not there, or empty", hint="mount its disk, or see to `archive.url`")
    return found or Manifest(session.key)


def _archive_is_away(home: Home, session: SessionRow) -> bool:
    """Whether it has nothing at all of a source of which it should have something."""
    if home.archive.names(home.layout.source_key(session.host, session.source)):
        return False
    for row in home.catalog.streams_of(session.key):
        pieces = home.plain_of(row.source, row.stream, row.generation, session.host).pieces()
        if row.held and (not pieces or pieces[0].name.start > 0):
            return True
    return False


def put(home: Home, session: SessionRow, manifest: Manifest) -> SessionRow:
    """The same for who holds the session's lock already. What has wishes is not removed: a removal that was cut short is undone."""
    home.spending(lambda: write_manifest(home, session.source, replace(manifest, tombstone=None), session.host))
    home.spending(lambda: take_wishes(home, session.key, manifest))
    return home.catalog.session(session.key) or session
