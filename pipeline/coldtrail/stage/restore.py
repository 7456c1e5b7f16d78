"""Restore: a session's files go back to where the agent looks for them, byte for byte, and nothing is ever overwritten unproven."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path, PurePosixPath

from coldtrail.catalog import SessionRow, changed
from coldtrail.errors import ColdtrailError, NotFoundError, RefusedError
from coldtrail.facts import Facts
from coldtrail.format.frames import FrameError, decode_foreign
from coldtrail.format.manifest import RestoredMark, StreamMeta
from coldtrail.home import Home
from coldtrail.journal import Act
from coldtrail.model import Role
from coldtrail.sessions import facts_of, refresh
from coldtrail.stage import placing, prove
from coldtrail.stage.source import chunks, opened
from coldtrail.stage.wish import hold

_ORDER = {Role.COMPANION: 0, Role.CHILD: 1, Role.MAIN: 2}  # an agent that finds the main log finds the rest there
TWIN_SUFFIX = ".zst"
_STEP_BYTES = 1 << 20


class Mtime(StrEnum):
    """Which mtime a restored file gets."""

    AUTO = "auto"  # as its agent needs it
    KEEP = "keep"  # the original
    NOW = "now"


class Action(StrEnum):
    """What is to be done with one file."""

    CREATE = "create"
    OVERWRITE = "overwrite"  # what is there is held by us, and less or other than what is restored
    SKIP = "skip"  # it is there already


@dataclass(frozen=True, slots=True)
class Piece:
    """One file to put back."""

    meta: StreamMeta
    generations: tuple[int, ...]  # joined in this order
    target: Path
    root: Path  # which the target must not leave
    bytes: int
    mode: int
    mtime_ns: int
    action: Action
    note: str = ""  # why it is skipped, or what to know


@dataclass(frozen=True, slots=True)
class RestorePlan:
    """What a restore will do, in order."""

    session: SessionRow
    pieces: tuple[Piece, ...]
    resume: str | None  # the command that goes on with the session


HOLD_MS = 14 * 86_400_000


@dataclass(frozen=True, slots=True)
class Wish:
    """How the user wants it."""

    to: Path | None = None  # another folder instead of the original places
    overwrite: bool = False
    mtime: Mtime = Mtime.AUTO
    generation: int | None = None  # of the main log, instead of the newest


def plan_restore(home: Home, session: SessionRow, wish: Wish) -> RestorePlan:
    """Decide for each file of a session (and of those it was forked from) whether and how it is put back.

    RefusedError where something is in the way that would be lost; NotFoundError where nothing is held.
    """
    pieces = (*needed_by(home, session, wish), *_pieces(home, session, wish, wish.generation))
    if not pieces:
        raise NotFoundError(f"{session.key}: nothing is held of this session")
    agent = home.agents[session.agent]
    return RestorePlan(session, pieces, agent.resume(session.id, session.project))


def needed_by(home: Home, session: SessionRow, wish: Wish) -> tuple[Piece, ...]:
    """The files of the sessions that this one was forked from."""
    return tuple(piece for each in _parents(home, session, {session.key}) for piece in _pieces(home, each, wish, None))


def _pieces(home: Home, session: SessionRow, wish: Wish, only: int | None) -> list[Piece]:
    metas = [meta for row in home.catalog.streams_of(session.key) if (meta := home.store.meta(row.stream)) is not None]
    metas.sort(key=lambda meta: _ORDER[meta.role])
    mains = [meta for meta in metas if meta.role is Role.MAIN]  # a thread that was reverted has several
    meant = [meta for meta in mains if any(each.number == only for each in meta.generations)] or mains
    pieces = [_piece(home, meta, wish, only if meta in meant else None) for meta in metas]
    return [piece for piece in pieces if piece.generations]


def _parents(home: Home, session: SessionRow, seen: set[str]) -> Iterator[SessionRow]:
    """The sessions that this one was forked from and needs, the oldest first."""
    for parent in facts_of(f'{{"parents":{session.parents}}}').parents:
        for row in home.catalog.sessions_with_id(parent):
            if row.source == session.source and row.key not in seen:
                seen.add(row.key)
                yield from _parents(home, row, seen)
                yield row


def _piece(home: Home, meta: StreamMeta, wish: Wish, only: int | None) -> Piece:
    generations = chain_of(home, meta, only)
    size = sum(home.plain(meta, number).end() for number in generations)
    stamp = home.store.last_stamp(meta, generations[-1])
    target, root = _target(meta, wish)
    mtime_ns, note = _mtime(home, meta, wish, stamp.mtime_ns)
    action, why = _action(home, meta, generations, target, root, size, wish)
    return Piece(meta, generations, target, root, size, stamp.mode, mtime_ns, action, why or note)


def chain_of(home: Home, meta: StreamMeta, only: int | None) -> tuple[int, ...]:
    """The generations that are joined: the newest chain, or the one that ends with `only`; NotFoundError."""
    try:
        return home.newest_chain(meta) if only is None else tuple(each.number for each in meta.chain(only))
    except KeyError:
        raise NotFoundError(f"{meta.path}: has no generation {only}; it has 0 to {meta.newest.number}") from None


def _target(meta: StreamMeta, wish: Wish) -> tuple[Path, Path]:
    path, root = Path(meta.path), Path(meta.root)
    if wish.to is None:
        return path, root
    return wish.to / (path.relative_to(root) if path.is_relative_to(root) else Path(path.name)), wish.to


def _mtime(home: Home, meta: StreamMeta, wish: Wish, original_ns: int) -> tuple[int, str]:
    now_ns = home.now_ms() * 1_000_000
    if wish.mtime is Mtime.NOW:
        return now_ns, ""
    if wish.mtime is Mtime.KEEP or wish.to is not None:
        return original_ns, ""
    row = home.catalog.stream(meta.stream)
    facts = facts_of(row.facts) if row else Facts()
    advice = home.agents[meta.agent].advise(Path(meta.root), original_ns, facts.last_ms, now_ns)
    return advice.mtime_ns, advice.warning


def _action(
    home: Home, meta: StreamMeta, generations: tuple[int, ...], target: Path, root: Path, size: int, wish: Wish
) -> tuple[Action, str]:
    """What to do about what is at the target now; RefusedError where bytes would be lost."""
    stay_within(target, root, meta)
    if target.is_symlink():
        raise RefusedError(f"{target}: is a link, and a link is never replaced by a file", hint="remove the link, or use --to DIR")
    there = _there(home, meta, target)
    if there is None:
        return Action.CREATE, ""
    found = compare(joined(home, meta, generations), _content(there, twin=there != target))
    if not found.ours_left:
        return Action.SKIP, "it is there already" + (", and has grown since" if found.theirs_left else "")
    if not wish.overwrite or there != target:
        how = "differs from" if found.theirs_left else "is shorter than"
        raise RefusedError(
            f"{there}: is there, and {how} what is held from byte {found.common} on (of {size})",
            hint="use --overwrite to replace it, or --to DIR to have the session elsewhere",
        )
    if found.theirs_left and not _is_held(home, meta, target):
        raise RefusedError(f"{target}: has bytes that the archive lacks", hint="run `coldtrail run --once` first: it captures them")
    return Action.OVERWRITE, f"replaces a file that {'differed' if found.theirs_left else 'ended'} at byte {found.common}"


def _there(home: Home, meta: StreamMeta, target: Path) -> Path | None:
    """The file that is in the target's place: itself, or the compressed twin that its agent reads in its stead."""
    if os.path.lexists(target):
        return target
    twin = target.with_name(target.name + TWIN_SUFFIX)
    named = PurePosixPath(target.name)
    if home.agents[meta.agent].plain_path(PurePosixPath(twin.name)) == named and os.path.isfile(
        twin
    ):  # False too where the name is too long
        return twin
    return None


def stay_within(target: Path, root: Path, meta: StreamMeta) -> None:
    """RefusedError where links lead the target out of its root, but for where they led when it was captured."""
    real, inside = os.path.realpath(target.parent), os.path.realpath(root)
    captured = {os.path.dirname(seen.real) for seen in meta.paths if seen.real is not None}
    if os.path.commonpath([real, inside]) != inside and real not in captured:
        raise RefusedError(f"{target}: links lead it out of {root}, to {real}", hint="use --to DIR")


@dataclass(frozen=True, slots=True)
class Comparison:
    """How two runs of bytes agree."""

    common: int  # equal bytes at the start
    ours_left: bool  # ours go on behind them
    theirs_left: bool  # theirs do


def compare(ours: Iterator[bytes], theirs: Iterator[bytes]) -> Comparison:
    """Compare two files, a piece at a time."""
    common, mine, other = 0, b"", b""
    while True:
        mine = mine or next(ours, b"")
        other = other or next(theirs, b"")
        size = min(len(mine), len(other))
        if mine[:size] != other[:size]:
            return Comparison(common + _first_difference(mine[:size], other[:size]), True, True)
        if size == 0:
            return Comparison(common, bool(mine), bool(other))
        common, mine, other = common + size, mine[size:], other[size:]


def _first_difference(mine: bytes, other: bytes) -> int:
    """Where two runs of one length, which differ, do so first: found by halving."""
    low, high = 0, len(mine)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if mine[low:middle] == other[low:middle] else (low, middle)
    return low


def joined(home: Home, meta: StreamMeta, generations: tuple[int, ...]) -> Iterator[bytes]:
    """The bytes of a chain of generations; CorruptionError at a damaged place."""
    for number in generations:
        for _, data in home.plain(meta, number).read():
            yield data


def _content(path: Path, *, twin: bool) -> Iterator[bytes]:
    with opened(path) as fd:
        try:
            yield from decode_foreign(chunks(fd, _STEP_BYTES)) if twin else chunks(fd, _STEP_BYTES)
        except FrameError as error:
            raise RefusedError(f"{path}: is there and cannot be read ({error})", hint="move it away, or use --to DIR") from error


def _is_held(home: Home, meta: StreamMeta, target: Path) -> bool:
    """Whether every byte of the file there is held, in one generation or in a chain of them."""
    fresh = home.store.meta(meta.stream) or meta
    chains = {tuple(each.number for each in fresh.chain(generation.number)) for generation in fresh.generations}
    chains |= {(generation.number,) for generation in fresh.generations}
    return any(not compare(joined(home, fresh, chain), _content(target, twin=False)).theirs_left for chain in chains)


@dataclass(frozen=True, slots=True)
class Restored:
    """A file that was put back."""

    path: Path
    bytes: int
    sha256: str
    mtime_ns: int
    note: str = ""


@dataclass(frozen=True, slots=True)
class Passed:
    """A file that was not, and why."""

    path: Path
    why: str
    failed: bool  # False: there was no need
    hint: str = ""  # what to do about it


def carry_out(home: Home, plan: RestorePlan, hold_ms: int = HOLD_MS) -> Iterator[Restored | Passed]:
    """Put the files back in the plan's order; what fails for one file keeps the main log back, not the other files.

    Sessions that come back to their place are held from retention and reclaim for `hold_ms`, and lose a mark that they have.
    """
    yield from _held(home, plan, hold_ms)
    placing.tidy({piece.root for piece in plan.pieces}, home.layout.home)
    failed = False
    for piece in plan.pieces:
        if piece.action is Action.SKIP:
            yield Passed(piece.target, piece.note, failed=False)
        elif failed and piece.meta.role is Role.MAIN and piece.meta.session == plan.session.key:
            yield Passed(piece.target, "held back: another file of the session failed; mend that first", failed=True)
        else:
            try:
                yield _put_back(home, piece)
            except FileExistsError:
                failed = True
                yield Passed(piece.target, "a file has just appeared there; nothing was overwritten", failed=True)
            except (ColdtrailError, OSError) as error:
                failed = True
                hint = error.hint if isinstance(error, ColdtrailError) else ""
                yield Passed(piece.target, str(error), failed=True, hint=hint)


def _held(home: Home, plan: RestorePlan, hold_ms: int) -> Iterator[Passed]:
    """Hold the sessions that come back to their place; where that cannot be noted they come back all the same, and it is told."""
    back = {piece.meta.session for piece in plan.pieces if piece.root == Path(piece.meta.root)}
    for row in filter(None, map(home.catalog.session, sorted(back))):
        try:
            hold(home, row, home.now_ms() + hold_ms)
            home.journal.note(Act.RESTORED, row.key, row.id, "asked for")
        except (ColdtrailError, OSError) as error:
            place = home.layout.archive / home.layout.manifest_key(row.host, row.source, row.key)
            hint = error.hint if isinstance(error, ColdtrailError) else ""
            yield Passed(place, f"the session comes back, but is not held from retention and reclaim: {error}", failed=True, hint=hint)


def _put_back(home: Home, piece: Piece) -> Restored:
    digest = hashlib.sha256()
    in_place = piece.root == Path(piece.meta.root)
    with home.changing(piece.meta.session), _file(home, piece) as file:
        for data in joined(home, piece.meta, piece.generations):
            digest.update(data)
            file.write(data)
        file.finish(piece.mode, piece.mtime_ns)
        if _overwrites(piece) and not _is_held(home, piece.meta, piece.target):
            raise RefusedError(f"{piece.target}: has grown since, by bytes that the archive lacks", hint="try again once they are captured")
        if in_place:
            _mark_restored(home, piece, file.stat())
        file.place(overwrite=_overwrites(piece))
        if in_place:
            _note_back(home, piece, file.stat())
    return Restored(piece.target, piece.bytes, digest.hexdigest(), piece.mtime_ns, piece.note)


def _overwrites(piece: Piece) -> bool:
    return piece.action is Action.OVERWRITE


def _file(home: Home, piece: Piece) -> contextlib.AbstractContextManager[placing.Unnamed]:
    """What is to be the file; NotFoundError where the session was removed since the plan: an empty one would come of it."""
    if home.store.meta(piece.meta.stream) is None:
        hint = f"`coldtrail journal --session {piece.meta.session}` tells why"
        raise NotFoundError(f"session {piece.meta.session}: it was removed meanwhile", hint=hint)
    return placing.unnamed(piece.target, piece.root, home.layout.home, overwrite=_overwrites(piece))


def _mark_restored(home: Home, piece: Piece, found: os.stat_result) -> None:
    """Let the next capture know the file as ours, before it can be met."""
    meta = home.store.meta(piece.meta.stream) or piece.meta
    mark = RestoredMark(found.st_ino, found.st_dev, home.now_ms())
    home.store.write_meta(replace(meta, restored=mark))


def _note_back(home: Home, piece: Piece, found: os.stat_result) -> None:
    """The catalog: the session is live again. Where the file equals the newest generation, capture has nothing to do."""
    meta = home.store.meta(piece.meta.stream) or piece.meta
    row = home.catalog.stream(piece.meta.stream)
    equal = row is not None and piece.generations == (row.generation,) and piece.bytes == row.held
    home.store.write_meta(replace(meta, gone_ms=None, restored=None if equal else meta.restored))
    if row is None:
        return
    row = prove.seen(row, found) if equal else changed(row, gone_ms=None)
    with home.catalog.transaction():
        home.catalog.put(row)
        refresh(home, row.session)
