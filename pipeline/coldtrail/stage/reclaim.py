"""Reclaim: the agent's own files of a cold session go, once the archive is proven to hold them; in any doubt they come back."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from coldtrail import durable, holders
from coldtrail.catalog import SessionRow, StreamRow
from coldtrail.errors import ColdtrailError, LockedError, NotFoundError
from coldtrail.format.manifest import Manifest, StreamMeta
from coldtrail.home import Home
from coldtrail.model import instant_text
from coldtrail.sessions import by_session, parents_of, read_manifest
from coldtrail.stage import aside, prove
from coldtrail.stage.aside import DoubtError, Where
from coldtrail.stage.proof import unproven
from coldtrail.stage.restore import TWIN_SUFFIX

WAIT_MS = 3_600_000
_BACK_OFF_MS = 60_000
_HINT = "what it holds is not lost: compare it with the file in its place, and remove the one that is not wanted"

Note = Callable[[str, str, str, int], None]  # the act, the session's key, why, how many bytes
"""Told before each act of its own, for the journal: what is told may come to nothing, and then that is told."""


class Act(StrEnum):
    """What became of a session's own files."""

    KEPT = "kept"  # nothing was touched
    SET_ASIDE = "set aside"  # they wait outside the agent's folder
    PUT_BACK = "put back"
    STUCK = "stuck"  # one stays aside, for there is another in its place; it is a fault in `status`
    RECLAIMED = "reclaimed"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What was done with a session, and why."""

    session: str
    act: Act
    reason: str
    bytes: int = 0
    next_ms: int | None = None  # when it is worth looking at again; None: with the next pass


@dataclass(frozen=True, slots=True)
class Terms:
    """From when on sessions are reclaimed, and how long their files wait."""

    after_ms: int  # a session is cold when neither a time in it nor growth is newer than this
    wait_ms: int = WAIT_MS


@dataclass(frozen=True, slots=True)
class Candidate:
    """A session whose files are at their places, and why they stay there; `why_not` None: they may go."""

    session: SessionRow
    bytes: int  # that would be freed
    why_not: str | None


def _untold(_act: str, _session: str, _reason: str, _bytes: int) -> None:
    """Nobody wants to know."""


# ---- which sessions -----------------------------------------------------------------------------------------------------


def candidates(home: Home, after_ms: int, now_ms: int) -> Iterator[Candidate]:
    """Every session that has files at their places, from the catalog alone; only for one that may go its agent is asked too.

    What only its bytes can tell (the full proof, who has them open) is for `reclaim` to find out.
    """
    streams = by_session(row for row in home.catalog.all_streams() if row.gone_ms is None)
    sessions = home.catalog.sessions()
    needed = _needed(sessions)
    out = {found.session for stream in aside.listed(home) if (found := home.catalog.stream(stream)) is not None}
    for session in sessions:
        if (rows := streams.get(session.key)) and session.host == home.host:
            why = "set aside" if session.key in out else _why_not(session, rows, needed, after_ms, now_ms) or _busy(home, rows)
            yield Candidate(session, sum(max(row.size, 0) for row in rows), why)


def _needed(sessions: list[SessionRow]) -> dict[tuple[str, str], str]:
    """By source and id those sessions that one which is there was forked from, and that one: its agent reads them from their files."""
    live = (row for row in sessions if row.state != "gone")
    pairs = ((row, parent) for row in live for parent in parents_of(row))
    return {(row.source, parent): row.id for row, parent in pairs if parent != row.id}


def _why_not(session: SessionRow, rows: list[StreamRow], needed: dict[tuple[str, str], str], after_ms: int, now_ms: int) -> str | None:
    newest_ms = max(session.last_ms or 0, session.grew_ms, *(row.grew_ms for row in rows))
    if now_ms - newest_ms < after_ms:
        return f"not cold before {instant_text(newest_ms + after_ms)}"
    if session.held_until_ms is not None and now_ms < session.held_until_ms:
        return f"held until {instant_text(session.held_until_ms)}: it was restored"
    if session.mark:
        return "it is to expire"
    if (child := needed.get((session.source, session.id))) is not None:
        return f"{child} was forked from it, and is there"
    return next((why for row in rows if (why := _unready(row)) is not None), None)


def _unready(row: StreamRow) -> str | None:
    if row.check_due:
        return f"{os.fsdecode(row.path)}: is to be compared whole first"
    if row.size != row.held:
        return f"{os.fsdecode(row.path)}: not fully captured"
    if row.rolled or not row.settled:
        return f"{os.fsdecode(row.path)}: not fully archived"
    return None


def _busy(home: Home, rows: list[StreamRow]) -> str | None:
    meta = home.store.meta(rows[0].stream)
    return None if meta is None else home.agents[meta.agent].busy(Path(meta.root), meta.session_id)


def pending(home: Home) -> list[str]:
    """The sessions of which something is set aside: each wants `reclaim` again, whatever the terms are by now."""
    found = set[str]()
    for stream in aside.listed(home):
        with contextlib.suppress(ColdtrailError):
            meta = home.store.meta(stream)
            if meta is not None and aside.adopted(home, meta) is not None:
                found.add(meta.session)
    return sorted(found)


# ---- one session --------------------------------------------------------------------------------------------------------


def reclaim(home: Home, key: str, terms: Terms, note: Note = _untold) -> Outcome:
    """Take the next step with a session: set it aside, or remove what has waited long enough, or put it back.

    A session is reclaimed whole or not at all. What a killed run has left is finished or undone. Errors of its files are reasons.
    """
    session = home.catalog.session(key)
    if session is None:
        raise NotFoundError(f"{key}: no such session")
    try:
        with durable.locked(home.layout.compact_lock(key), wait=False):
            metas = _without_idle_notes(home, key)
            if any(aside.is_out(meta) for meta in metas):
                return _look_again(home, session, metas, terms, note)
            outcome = _look(home, session, metas, terms, note)
            if outcome.act is Act.SET_ASIDE and terms.wait_ms <= 0:
                return _look_again(home, session, _metas(home, key), terms, note)
            return outcome
    except LockedError:
        return Outcome(key, Act.KEPT, "it is being compacted")


def put_back(home: Home, key: str, reason: str, note: Note = _untold) -> Outcome:
    """Undo a reclaim that is not over; where nothing is set aside, nothing is done."""
    with durable.locked(home.layout.compact_lock(key)):
        return _undo(home, key, reason, note)


def _metas(home: Home, key: str) -> list[StreamMeta]:
    """A session's streams, the main log first."""
    return [meta for row in home.catalog.streams_of(key) if (meta := home.store.meta(row.stream)) is not None]


def _without_idle_notes(home: Home, key: str) -> list[StreamMeta]:
    """The same, once what is noted of files whose place is theirs, or another's, and of which nothing waits any more, is dropped."""
    with home.changing(key):
        for meta in _metas(home, key):
            if aside.is_out(meta) and (aside.where(meta) is Where.BACK or _is_over(meta)):
                aside.put_back(home, meta)
                home.catalog.clear_fault(os.fsencode(aside.record(meta).path))
        return _metas(home, key)


def _is_over(meta: StreamMeta) -> bool:
    return aside.where(meta) is Where.GONE and os.path.lexists(meta.path)


def _look(home: Home, session: SessionRow, metas: list[StreamMeta], terms: Terms, note: Note) -> Outcome:
    """The first look: everything is proven, then everything is set aside."""
    key = session.key
    rows = [row for row in home.catalog.streams_of(key) if row.gone_ms is None]
    if not rows:
        return Outcome(key, Act.KEPT, "its files are gone")
    if session.host != home.host:
        return Outcome(key, Act.KEPT, "it is another machine's")
    needed = _needed(home.catalog.sessions())
    why = _why_not(session, rows, needed, terms.after_ms, home.now_ms()) or _busy(home, rows)
    if why is not None:
        return Outcome(key, Act.KEPT, why)
    by_stream, manifest = {meta.stream: meta for meta in metas}, read_manifest(home, session.source, key, session.host)
    proven = dict[str, os.stat_result]()
    for row in rows:
        try:
            proven[row.stream] = _proven(home, row, by_stream[row.stream], manifest)
        except (ColdtrailError, OSError, KeyError) as error:
            return Outcome(key, Act.KEPT, _about(os.fsdecode(row.path), error))
    return _set_all_aside(home, rows, proven, note)


def _proven(home: Home, row: StreamRow, meta: StreamMeta, manifest: Manifest) -> os.stat_result:
    """How a file looks of which it is proven that the archive holds it, and that nobody has it open; DoubtError."""
    path = Path(os.fsdecode(row.path))
    found = os.lstat(path)
    if meta.path != str(path) or meta.newest.number != row.generation:
        raise DoubtError("the catalog is behind")
    if meta.newest.mixed:
        raise DoubtError("what is held of it may be of two lives")
    if path.is_symlink() or found.st_nlink != 1:
        raise DoubtError("it has another name, too")
    if os.path.lexists(path.with_name(path.name + TWIN_SUFFIX)):
        raise DoubtError("its compressed twin is there, too")
    if not prove.unchanged(row, found):
        raise DoubtError("it has changed since it was captured")
    return _equal(home, meta, manifest, row.generation, path, found)


def _equal(home: Home, meta: StreamMeta, manifest: Manifest, generation: int, path: Path, found: os.stat_result) -> os.stat_result:
    """Hold a file against the archive, byte by byte; nobody is kept waiting meanwhile. DoubtError."""
    with holders.alone(path) as held:
        if not held.nobody:
            raise DoubtError(str(held.found))
        held.let_go()
        why = unproven(home, meta, manifest, generation, held.fd)
        if why is not None:
            raise DoubtError(why)
        if not aside.looks_same(os.fstat(held.fd), found):
            raise DoubtError("it has changed meanwhile")
    return found


def _set_all_aside(home: Home, rows: list[StreamRow], proven: dict[str, os.stat_result], note: Note) -> Outcome:
    """The main log first, so that its agent does not find a session of which half is there."""
    key, why, moved = rows[0].session, None, list[StreamMeta]()
    size, reason = sum(found.st_size for found in proven.values()), "cold, and the archive holds all of it"
    with home.changing(key):
        if rows != [row for row in home.catalog.streams_of(key) if row.gone_ms is None]:
            return Outcome(key, Act.KEPT, "it has changed meanwhile")
        if (busy := _busy(home, rows)) is not None:  # the proof may have taken long
            return Outcome(key, Act.KEPT, busy)
        home.spending(lambda: note("set-aside", key, reason, size))
        for row in rows:
            meta = home.store.meta(row.stream)
            try:
                if meta is None or meta.newest.number != row.generation:
                    raise DoubtError("it has changed meanwhile")
                moved.append(aside.set_aside(home, meta, proven[row.stream]))
            except (ColdtrailError, OSError) as error:
                why = _about(os.fsdecode(row.path), error)
                break
        else:
            for meta in moved:
                aside.note_gone(home, meta)
    if why is not None:
        return _undo(home, key, why, note, act=Act.KEPT)
    return Outcome(key, Act.SET_ASIDE, reason, size)


def _look_again(home: Home, session: SessionRow, metas: list[StreamMeta], terms: Terms, note: Note) -> Outcome:
    """The second look: what has waited long enough, and is still as it was, goes; any doubt undoes it all."""
    key, out = session.key, [meta for meta in metas if aside.is_out(meta)]
    try:
        _nothing_has_come(home, session, metas, out)
        since_ms = max(aside.record(meta).since_ms for meta in out)
        if (left_ms := since_ms + terms.wait_ms - home.now_ms()) > 0:
            if left_ms > terms.wait_ms:
                raise DoubtError("the clock has gone back since")
            return Outcome(key, Act.SET_ASIDE, "waiting", next_ms=since_ms + terms.wait_ms)
        manifest = read_manifest(home, session.source, key, session.host)
        proven = {meta.stream: _still_equal(home, meta, manifest) for meta in out if aside.where(meta) is Where.OUT}
    except (ColdtrailError, OSError) as error:
        return _undo(home, key, str(error), note)
    return _let_all_go(home, session, proven, note)


def _nothing_has_come(home: Home, session: SessionRow, metas: list[StreamMeta], out: list[StreamMeta]) -> None:
    """DoubtError where the agent has come back to the session, or not all of it was set aside when a run was stopped."""
    for meta in out:
        place = aside.where(meta)
        if place not in (Where.OUT, Where.GONE):
            raise DoubtError(f"{meta.path}: {place}")
        if place is Where.OUT:
            _still_quiet(home, meta)
    if (left := next((meta.path for meta in metas if meta not in out and os.path.lexists(meta.path)), None)) is not None:
        raise DoubtError(f"{left}: is there")
    if session.held_until_ms is not None and home.now_ms() < session.held_until_ms:
        raise DoubtError("it was restored")
    if (why := home.agents[session.agent].busy(Path(out[0].root), session.id)) is not None:
        raise DoubtError(why)


def _still_quiet(home: Home, meta: StreamMeta) -> os.stat_result:
    """How a file looks that waits outside, and that nobody has open or has written to; DoubtError."""
    noted, row = aside.record(meta), home.catalog.stream(meta.stream)
    found = os.lstat(noted.path)
    if (who := holders.holders(Path(noted.path))) != holders.NOBODY:
        raise DoubtError(f"{meta.path}: {who}")
    if (found.st_dev, found.st_ino, found.st_nlink) != (noted.device, noted.inode, 1):
        raise DoubtError(f"{meta.path}: is not the file that was set aside")
    if row is not None and row.size >= 0 and (row.size, row.mtime_ns) != (found.st_size, found.st_mtime_ns):
        raise DoubtError(f"{meta.path}: was written to while it was aside")
    return found


def _still_equal(home: Home, meta: StreamMeta, manifest: Manifest) -> os.stat_result:
    """How such a file looks that is still equal to the archive, too; DoubtError."""
    noted = aside.record(meta)
    try:
        return _equal(home, meta, manifest, noted.generation, Path(noted.path), _still_quiet(home, meta))
    except (ColdtrailError, OSError) as error:
        raise DoubtError(_about(meta.path, error)) from error


def _let_all_go(home: Home, session: SessionRow, proven: dict[str, os.stat_result], note: Note) -> Outcome:
    key, why = session.key, None
    size, reason = sum(found.st_size for found in proven.values()), "the archive holds all of it"
    with home.changing(key):
        metas = _metas(home, key)
        out = [meta for meta in reversed(metas) if aside.is_out(meta)]
        try:
            _nothing_has_come(home, home.catalog.session(key) or session, metas, out)  # the proof may have taken long
            home.spending(lambda: note("reclaimed", key, reason, size))
            for meta in out:
                aside.let_go(home, meta, proven.get(meta.stream))
                home.catalog.clear_fault(os.fsencode(aside.record(meta).path))
        except (ColdtrailError, OSError) as error:
            why = str(error)
        for meta in out:
            _remove_empty_folders(meta)
    if why is not None:
        return _undo(home, key, why, note)
    return Outcome(key, Act.RECLAIMED, reason, size)


def _undo(home: Home, key: str, reason: str, note: Note, *, act: Act = Act.PUT_BACK) -> Outcome:
    """Put everything back, the main log last; where another file has its place, its bytes are held, and it goes."""
    stuck = None
    with home.changing(key):
        out = {os.fsencode(aside.record(meta).path): meta for meta in reversed(_metas(home, key)) if aside.is_out(meta)}
        if (out or act is Act.KEPT) and not any(map(home.catalog.fault, out)):  # one that is stuck has been told of
            home.spending(lambda: note("put-back", key, reason, 0))
        for place, meta in out.items():
            try:
                if not aside.put_back(home, meta):
                    aside.absorb(home, meta)
                home.catalog.clear_fault(place)
            except (ColdtrailError, OSError) as error:
                stuck = f"set aside from {meta.path}, and cannot be put back: {error}"
                home.catalog.note_fault(place, stuck, _HINT, home.now_ms(), _BACK_OFF_MS)
    if stuck is not None:
        return Outcome(key, Act.STUCK, stuck)
    return Outcome(key, act, reason)


def _remove_empty_folders(meta: StreamMeta) -> None:
    """The session's own folders, which bear its id, and those below them, if nothing is left in them."""
    folder = Path(meta.path).parent
    root = Path(meta.root)
    while folder.is_relative_to(root) and meta.session_id in folder.relative_to(root).parts:
        try:
            os.rmdir(folder)
        except OSError:
            return
        folder = folder.parent


def _about(path: str, error: Exception) -> str:
    return str(error) if path in str(error) else f"{path}: {error}"
