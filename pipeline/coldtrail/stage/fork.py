"""Fork: a session's log up to a moment becomes a session of its own; the original is not touched."""

from __future__ import annotations

import hashlib
import re
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from coldtrail.agents.base import Fork
from coldtrail.catalog import SessionRow, changed
from coldtrail.errors import ColdtrailError, NotFoundError, SourceError, UsageError
from coldtrail.format import lines
from coldtrail.format.index import Row
from coldtrail.format.lines import read_line
from coldtrail.format.manifest import StreamMeta
from coldtrail.home import Home
from coldtrail.lineage import streams_before
from coldtrail.model import Position, RecordKind
from coldtrail.recover import Selection, StreamReader
from coldtrail.stage import placing, prove
from coldtrail.stage.restore import Mtime, Passed, Piece, Restored, RestorePlan, Wish, carry_out, needed_by, plan_restore, stay_within

_OWNER_RW = 0o600  # the program must be able to go on with it


@dataclass(frozen=True, slots=True)
class Change:
    """A record whose owner is another in the copy."""

    generation: int
    start: int
    end: int
    data: bytes  # that stands for it


@dataclass(frozen=True, slots=True)
class ForkPlan:
    """What a fork will write."""

    session: SessionRow
    meta: StreamMeta
    generation: int | None  # of the main log, instead of the newest
    at: Position  # the last record of the copy
    end: int  # behind it
    id: str  # the new session's own
    target: Path
    root: Path  # which the target must not leave
    bytes: int
    changes: tuple[Change, ...]
    ends_line: bool  # whether the copy's last line has its newline, or gets it
    mode: int
    mtime_ns: int
    note: str
    needed: tuple[Piece, ...]  # files of the sessions that the original was forked from
    resume: str | None  # the command that goes on with the new session


@dataclass(frozen=True, slots=True, kw_only=True)
class Forked(Restored):
    """A new session's log, and where it comes from."""

    origin: str  # the agent's own id of the session it was copied from
    at: Position  # the last record copied
    id: str  # the new session's own
    changed_lines: int  # in which the owner is another; everything else is the original's, byte for byte
    resume: str | None


def plan_fork(home: Home, session: SessionRow, reader: StreamReader, at: Position, wish: Wish) -> ForkPlan:
    """Decide how the main log that `reader` reads becomes a session of its own, up to and including the record at `at`.

    UsageError where its agent cannot go on with a part of it, NotFoundError where no record is at `at`, CorruptionError where
    our copy is damaged.
    """
    meta, agent, now_ns = reader.meta, home.agents[session.agent], home.now_ms() * 1_000_000
    fork = agent.fork(_path_below_root(meta), str(uuid.uuid4())) if meta.is_log else None
    if fork is None:
        raise UsageError(f"{meta.path}: {agent.name} could not go on with a part of it", hint="`coldtrail state` takes --at too")
    root = Path(meta.root) if wish.to is None else wish.to
    stay_within(root / fork.path, root, meta)
    row, last_ms = _row_at(reader, at)
    end = row.offset + row.length
    changes = tuple(_changes(reader, at, fork, meta.session_id))
    ends_line = reader.content(at.generation).get(end - 1, end) == b"\n"
    stamp = home.store.last_stamp(meta, at.generation)
    notes = ["" if ends_line else "a newline was added: the next record would be glued to the last one"]
    notes += [agent.advise(root, now_ns, last_ms, now_ns).warning] if wish.to is None else []
    return ForkPlan(
        session=session,
        meta=meta,
        generation=wish.generation,
        at=at,
        end=end,
        id=fork.session_id,
        target=root / fork.path,
        root=root,
        bytes=_size(reader, at, end, changes) + (not ends_line),
        changes=changes,
        ends_line=ends_line,
        mode=stamp.mode | _OWNER_RW,
        mtime_ns=stamp.mtime_ns if wish.mtime is Mtime.KEEP else now_ns,
        note="; ".join(filter(None, notes)),
        needed=(*needed_by(home, session, wish), *_needed_of_own(home, session, reader, wish)),
        resume=agent.resume(fork.session_id, session.project) if wish.to is None else None,
    )


def _needed_of_own(home: Home, session: SessionRow, reader: StreamReader, wish: Wish) -> Iterator[Piece]:
    """The session's other main logs that this one goes on from: the copy does too."""
    before = streams_before(reader)
    if any(row.stream in before for row in home.catalog.streams_of(session.key)):
        yield from (piece for piece in plan_restore(home, session, replace(wish, generation=None)).pieces if piece.meta.stream in before)


def _path_below_root(meta: StreamMeta) -> PurePosixPath:
    path, root = Path(meta.path), Path(meta.root)
    return PurePosixPath(path.relative_to(root) if path.is_relative_to(root) else path.name)


def _row_at(reader: StreamReader, at: Position) -> tuple[Row, int | None]:
    """The record at `at`, and the newest time up to it."""
    found, last_ms = None, None
    for number, row in reader.rows(Selection(until=at)):
        found = number, row
        if row.time_ms is not None:
            last_ms = row.time_ms if last_ms is None else max(last_ms, row.time_ms)
    if found is None or found[0] != at.generation or at.offset >= found[1].offset + found[1].length:
        raise NotFoundError(f"{at}: no record of this log is there", hint="an older log is named by --generation")
    return found[1], last_ms


def _changes(reader: StreamReader, at: Position, fork: Fork, owner: str) -> Iterator[Change]:
    """The records up to `at` that name the session they are copied from as their owner."""
    if fork.owner is None:
        return
    needle = owner.encode()
    for number, row in reader.rows(Selection(until=at)):
        raw = reader.content(number).get(row.offset, row.offset + row.length) if row.kind == RecordKind.DATA else b""
        for record in read_line(raw, row.offset) if needle in raw else ():
            keys = fork.owner(record.value)
            if keys and _under(record.value, keys) == owner:
                yield Change(number, row.offset, row.offset + row.length, _renamed(raw, record.value, keys, fork.session_id))


def _under(value: object, keys: Sequence[str]) -> object:
    for key in keys:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def _renamed(raw: bytes, value: object, keys: Sequence[str], new: str) -> bytes:
    """A record with another text under `keys`, every other byte as it is: each place that looks right is tried, and read again."""
    wanted, key, old = _with(value, keys, new), keys[-1].encode(), str(_under(value, keys)).encode()
    for found in re.finditer(rb'"%b"\s*:\s*"(%b)"' % (re.escape(key), re.escape(old)), raw):
        renamed = raw[: found.start(1)] + new.encode() + raw[found.end(1) :]
        if lines.loads(renamed) == wanted:
            return renamed
    raise ColdtrailError(f"{old.decode()}: a record says so in a way that cannot be changed", hint="fork at an earlier record")


def _with(value: object, keys: Sequence[str], new: str) -> object:
    if not keys or not isinstance(value, Mapping):
        return new
    return {**value, keys[0]: _with(value.get(keys[0]), keys[1:], new)}


def _size(reader: StreamReader, at: Position, end: int, changes: Sequence[Change]) -> int:
    copied = sum(stop for _, stop in _spans(reader, at, end))
    return copied + sum(len(change.data) - (change.end - change.start) for change in changes)


def make(home: Home, plan: ForkPlan) -> Iterator[Restored | Passed]:
    """Put the needed files back, then write the new log; it is held back where one of them fails."""
    failed = False
    for done in carry_out(home, RestorePlan(plan.session, plan.needed, None)):
        failed |= isinstance(done, Passed) and done.failed
        yield done
    if failed:
        yield Passed(plan.target, "held back: a file of the session it was forked from failed; mend that first", failed=True)
        return
    try:
        yield _write(home, plan)
    except FileExistsError:
        yield Passed(plan.target, "a file has just appeared there; nothing was overwritten", failed=True)
    except (ColdtrailError, OSError) as error:
        yield Passed(plan.target, str(error), failed=True)


def _write(home: Home, plan: ForkPlan) -> Forked:
    digest = hashlib.sha256()
    with (
        StreamReader(home, plan.meta, generation=plan.generation) as reader,
        placing.unnamed(plan.target, plan.root, home.layout.home) as file,
    ):
        for data in _copied(reader, plan):
            digest.update(data)
            file.write(data)
        file.finish(plan.mode, plan.mtime_ns)
        _let_go(home, prove.identity(file.stat()))
        file.place(overwrite=False)
    return Forked(
        plan.target,
        plan.bytes,
        digest.hexdigest(),
        plan.mtime_ns,
        plan.note,
        origin=plan.session.id,
        at=plan.at,
        id=plan.id,
        changed_lines=len(plan.changes),
        resume=plan.resume,
    )


def _copied(reader: StreamReader, plan: ForkPlan) -> Iterator[bytes]:
    """The original's bytes up to the plan's end, with its changes."""
    for number, stop in _spans(reader, plan.at, plan.end):
        start = 0
        for change in (each for each in plan.changes if each.generation == number):
            yield from _exactly(reader, number, start, change.start)
            yield change.data
            start = change.end
        yield from _exactly(reader, number, start, stop)
    if not plan.ends_line:
        yield b"\n"


def _spans(reader: StreamReader, at: Position, end: int) -> Iterator[tuple[int, int]]:
    """The generations to copy, and how far."""
    for number in reader.chain:
        if number <= at.generation:
            yield number, end if number == at.generation else reader.content(number).end


def _exactly(reader: StreamReader, generation: int, start: int, end: int) -> Iterator[bytes]:
    """The bytes in [start, end), all of them; CorruptionError, SourceError."""
    left = end - start
    for data in reader.content(generation).stream(start, end) if left else ():
        left -= len(data)
        yield data
    if left:
        raise SourceError(reader.meta.path, "was cut while it was read", hint="try again")


def _let_go(home: Home, identity: str) -> None:
    """A new file may be given a lost one's inode, by which capture would take it for that one, moved."""
    for row in home.catalog.streams_with(identity=identity):
        with home.changing(row.session), home.catalog.transaction():
            home.catalog.put(changed(row, identity=""))
