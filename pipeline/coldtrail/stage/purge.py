"""Purge: a session is removed everywhere that is ours, and then looked for, so that it is known to be gone."""

from __future__ import annotations

import contextlib
import os
import re
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from coldtrail import durable
from coldtrail.catalog import SessionRow
from coldtrail.errors import ColdtrailError, LockedError, NotFoundError, RefusedError
from coldtrail.format.manifest import StreamMeta
from coldtrail.format.wishes import Act
from coldtrail.home import Home
from coldtrail.layout import TEMP_PREFIX, SegmentName
from coldtrail.sessions import parents_of
from coldtrail.stage import expire, placing
from coldtrail.stage.firsts import Firsts
from coldtrail.stage.graves import lift

NEEDLE_MIN_BYTES = 16  # a shorter text may stand anywhere by chance
_PIECES = 24  # of a stream
_PIECE_BYTES = 40
_STEP_BYTES = 4 << 20
_OVERLAP_BYTES = 4 << 10  # longer than any path


@dataclass(frozen=True, slots=True)
class Purged:
    """What a purge removed, and what the search for it found."""

    freed: int  # bytes of ours
    live: tuple[Path, ...]  # the agent's own files that were removed
    scanned_files: int
    scanned_bytes: int
    found_in: tuple[Path, ...]  # files of ours that still hold some of its text: none, or the purge has failed
    scrubbed: bool = True  # False: the catalog was read, or the disk full: its file may hold some for now; `expire.finish` ends that


def purge(home: Home, session: SessionRow, reason: str, *, live: bool, force: bool = False) -> Purged:
    """Remove everything we hold of a session and search all our files for it; `live`: the agent's own files too.

    A tombstone keeps it from being captured again. RefusedError, and nothing is removed, where it is being compacted, where its
    agent may be writing to it (`live`), where others need it or it is another machine's (unless `force`); NotFoundError where it is
    gone already.
    """
    if not force:
        _refuse_if_needed(home, session)
    metas = list(_metas(home, session, live=live))
    if live:
        _refuse_if_busy(home, metas)
    signs = _signs(home, session, metas)
    needles = list(dict.fromkeys([*signs, *_pieces_of(home, session, metas)]))
    removed: list[Path] = []  # before ours: so far it can be done again
    freed = expire.remove(home, session, Act.PURGED, reason, first=lambda: removed.extend(_remove_live(metas) if live else ()))
    if freed is None:
        if home.catalog.session(session.key) is None:
            raise NotFoundError(f"session {session.key}: it is gone already", hint=f"`coldtrail journal --session {session.key}` tells why")
        raise RefusedError(f"session {session.key}: it is being compacted", hint="try again in a moment")
    for lock in (home.layout.session_lock(session.key), home.layout.compact_lock(session.key)):
        durable.remove(lock)
    for path in {path.path for meta in metas for path in meta.paths}:
        home.catalog.clear_fault(os.fsencode(path))
    scrubbed = expire.scrub(home)
    _clear_unfinished(home, metas, signs)
    files, size, found = _search(home, needles)
    if not scrubbed:
        ours = {home.layout.catalog.with_name(home.layout.catalog.name + suffix) for suffix in ("", "-wal", "-shm")}
        found = [path for path in found if path not in ours]
    return Purged(freed, tuple(removed), files, size, tuple(found), scrubbed)


def needed_by(home: Home, session: SessionRow) -> list[SessionRow]:
    """The sessions that go on from this one, and would not be whole without it."""
    others = (row for row in home.catalog.sessions() if (row.agent, row.source) == (session.agent, session.source))
    return [row for row in others if row.key != session.key and session.id in parents_of(row)]


def _refuse_if_needed(home: Home, session: SessionRow) -> None:
    needing = needed_by(home, session)
    if needing:
        names = ", ".join(row.key for row in needing)
        raise RefusedError(f"session {session.key}: its beginning is needed by {names}", hint="purge these first, or say --force")
    if session.host != home.host:
        hint = f"purge it there; where that machine is no more, say --force (its own catalog is not told); this one is {home.host}"
        raise RefusedError(f"session {session.key}: it is of another machine ({session.host})", hint=hint)


def _metas(home: Home, session: SessionRow, *, live: bool) -> Iterator[StreamMeta]:
    """What is known of its streams; a damaged meta.json keeps nobody from purging, but for who wants the agent's files gone."""
    for row in home.catalog.streams_of(session.key):
        try:
            meta = home.store.meta(row.stream)
        except ColdtrailError:
            if live:
                raise
            continue
        if meta is not None:
            yield meta


def forget(home: Home, key: str) -> None:
    """Let a removed session be captured again; NotFoundError where none of that key was removed."""
    found = {row.session: row for row in home.catalog.graves() if key and row.session.startswith(key)}
    if len(found) != 1:
        raise NotFoundError(f"{key}: {'several' if found else 'no'} such removed session", hint="`coldtrail journal` has their keys")
    (grave,) = found.values()
    lift(home, grave, "asked for: it may be captured again")


def _refuse_if_busy(home: Home, metas: Iterable[StreamMeta]) -> None:
    for meta in metas:
        why = home.agents[meta.agent].busy(Path(meta.root), meta.session_id)
        if why is not None:
            raise RefusedError(f"session {meta.session}: {why}", hint="end it first, or leave out --live")


def _remove_live(metas: Iterable[StreamMeta]) -> Iterator[Path]:
    """The main log goes first: without it the agent does not go on with the rest."""
    for meta in sorted(metas, key=lambda meta: meta.role.value != "main"):
        for path in (Path(meta.path), Path(f"{meta.path}.zst")):
            if path.is_file() and not path.is_symlink() and _is_within(path, meta):
                durable.remove(path)
                durable.sync_folder(path.parent)
                yield path


def _is_within(path: Path, meta: StreamMeta) -> bool:
    """A link that was put in the way must not lead us to remove a file elsewhere."""
    real, known = os.path.realpath(path), meta.paths[-1].real or meta.path
    return real == os.path.realpath(known) and (meta.paths[-1].real is not None or Path(real).is_relative_to(os.path.realpath(meta.root)))


def _clear_unfinished(home: Home, metas: Iterable[StreamMeta], signs: list[bytes]) -> None:
    """What killed work has left of the session: restores, a first sight, files that were to take the place of its own ones."""
    placing.tidy({Path(meta.root) for meta in metas}, home.layout.home)
    temps = [path for folder in (home.layout.store, home.layout.archive) for path in durable.files_below(folder, TEMP_PREFIX)]
    with contextlib.suppress(LockedError), durable.locked(home.layout.daemon_lock, wait=False):  # a daemon does so with each pass
        Firsts(home).clear()
        temps += home.layout.home.glob(f"{TEMP_PREFIX}*")  # only a daemon makes such files there that tell of sessions
    pattern = _pattern(signs)
    for path in temps:
        with contextlib.suppress(FileNotFoundError):
            if path.is_file() and _holds(path, pattern)[1]:
                durable.remove(path)
                durable.sync_folder(path.parent)


# ---- the search ---------------------------------------------------------------------------------------------------------


def _signs(home: Home, session: SessionRow, metas: Iterable[StreamMeta]) -> list[bytes]:
    """Texts that tell of this session alone: its title, its paths."""
    texts = [(session.title or "").encode("utf-8", "replace")]
    texts += [os.fsencode(path.path) for meta in metas for path in meta.paths]
    return _unlike_others(home, session, texts)


def _pieces_of(home: Home, session: SessionRow, metas: Iterable[StreamMeta]) -> list[bytes]:
    """Pieces out of its streams; a run of one byte is none, for every database has NULs."""
    return _unlike_others(home, session, (piece for meta in metas for piece in _pieces(home, meta) if len(set(piece)) > 1))


def _unlike_others(home: Home, session: SessionRow, texts: Iterable[bytes]) -> list[bytes]:
    others = [(row.title or "").encode("utf-8", "replace") for row in home.catalog.sessions() if row.key != session.key]
    return [text for text in texts if len(text) >= NEEDLE_MIN_BYTES and not any(text in each for each in others)]


def _pieces(home: Home, meta: StreamMeta) -> Iterator[bytes]:
    """Some of a stream's bytes, from all over its first ones."""
    for _, data in home.plain(meta, meta.newest.number).read(gaps=[]):
        step = max(_PIECE_BYTES, len(data) // _PIECES)
        yield from (data[at : at + _PIECE_BYTES] for at in range(0, len(data) - _PIECE_BYTES, step))
        return


def _search(home: Home, needles: list[bytes]) -> tuple[int, int, list[Path]]:
    """How many files of ours were read, their bytes, and those that hold one of the needles.

    Segments are left out: those of the session are gone, and what is compressed in others' is theirs.
    """
    files, size, found = 0, 0, []
    pattern = _pattern(needles)
    for folder in dict.fromkeys((home.layout.home, home.layout.archive)):
        for path in sorted(durable.files_below(folder)):
            with contextlib.suppress(FileNotFoundError):  # others are at work meanwhile
                if stat.S_ISREG(path.lstat().st_mode) and SegmentName.parse(path.name) is None:
                    read, holds = _holds(path, pattern)
                    files, size = files + 1, size + read
                    found += [path] if holds else []
    return files, size, found


def _pattern(needles: list[bytes]) -> re.Pattern[bytes]:
    return re.compile(b"|".join(map(re.escape, needles)) or b"(?!)")


def _holds(path: Path, pattern: re.Pattern[bytes]) -> tuple[int, bool]:
    size, kept, holds = 0, b"", False
    with path.open("rb") as file:
        while data := file.read(_STEP_BYTES):
            size, kept = size + len(data), kept[-_OVERLAP_BYTES:] + data
            holds = holds or pattern.search(kept) is not None
    return size, holds
