"""Capture: what an agent has written becomes fsynced frames in the store."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

from coldtrail import checkpoints
from coldtrail.agents.walk import Candidate
from coldtrail.catalog import StreamRow, changed
from coldtrail.errors import SourceError
from coldtrail.format.manifest import Stamp
from coldtrail.home import Home
from coldtrail.sessions import refresh
from coldtrail.stage import identify, prove
from coldtrail.stage.append import Appender, SetAsideError
from coldtrail.stage.rebuild import remade_row, stored_bytes
from coldtrail.stage.relate import is_in_doubt, next_generation, related_anew
from coldtrail.stage.source import opened
from coldtrail.stage.whole import take_document, take_twin
from coldtrail.store import OpenSegment

BATCH_BYTES = 8 << 20  # read, proven, written and synced at a time
BATCH_LINES_MAX = 100_000  # each is a record, and a batch's records are in memory at once
AT_ONCE_BYTES = 64 << 20  # after a rebuild every file is met anew: longer ones are compared when what is new in all of them is safe
TAIL_QUIET_MS = 5_000  # an unfinished line is captured when its file has been quiet for so long
TAIL_MAX_BYTES = 1 << 20  # or when it is longer than this


class Outcome(StrEnum):
    """What became of a file."""

    NOT_OURS = "not a session's"
    UNCHANGED = "unchanged"
    CAPTURED = "captured"
    CHECK_DUE = "changed without growing"


@dataclass(frozen=True, slots=True)
class Taken:
    """What capture did with a file."""

    outcome: Outcome
    new_bytes: int = 0
    tail_pending: bool = False  # an unfinished line waits for its end, or for quiet
    row: StreamRow | None = None


class Capture:
    """Takes files into the store, one at a time. One thread's alone; the caller holds the daemon's lock."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._appender = Appender(home)

    def take(self, found: Candidate, *, whole: bool = False) -> Taken:
        """Capture what is new in a file; `whole`: an unfinished last line too, however fresh.

        SourceError where the agent's file cannot be read now, StoreFullError where ours cannot be written.
        """
        row = identify.find(self._home, found)
        if row is None:
            return Taken(Outcome.NOT_OURS)
        same = prove.unchanged(row, found.stat) and row.gone_ms is None
        if same and (row.held >= found.stat.st_size or found.is_twin):
            return Taken(Outcome.UNCHANGED, row=row)
        with self._home.changing(row.session):
            if self._is_removed(row):
                return Taken(Outcome.NOT_OURS)
            try:
                return self._take_locked(row, found, whole or same)
            except SetAsideError:  # now the store has less than the row says, which is settled first
                return self._take_locked(row, found, whole or same)

    def first(self, row: StreamRow, found: Candidate, *, whole: bool) -> Taken:
        """Capture a small file into a stream that nobody knows of yet; its row is the caller's to keep."""
        with opened(found.file) as fd:
            row = self._take_log(row, fd, whole) if row.is_log else take_document(self._home, self._appender, row, fd)
        self._appender.forget(row)
        self._tell_unread(found)
        row = changed(row, stored_bytes=stored_bytes(self._home, identify.known_meta(self._home, row)))
        return Taken(Outcome.CAPTURED if row.held else Outcome.UNCHANGED, row.held, bool(row.is_log) and row.held < row.size, row)

    def check(self, row: StreamRow) -> bool:
        """Compare a file whole with what we hold of it; where they differ a new generation begins. False: they differed."""
        path = Path(os.fsdecode(row.path))
        with self._home.changing(row.session), opened(path) as fd:
            if self._is_removed(row):
                return True
            row = self._settled(row)
            found = os.fstat(fd)
            same = found.st_size >= row.held and prove.same_bytes(self._home.plain_of(row.source, row.stream, row.generation), row.held, fd)
            if same and (row.is_log or row.held == found.st_size):
                self._stamp(row, found)
            elif row.is_log:
                row = self._next(row, fd, found, mixed=prove.ends_match(row, fd))
            else:
                row = take_document(self._home, self._appender, row, fd)
            if row.is_log:
                row = prove.seen(self._grow(row, fd, found, whole=not same), found)
            self._keep(changed(row, check_due=0))
        return same

    def _take_locked(self, row: StreamRow, found: Candidate, whole: bool) -> Taken:
        row = self._settled(row)
        before = row
        with opened(found.file) as fd:
            if row.gone_ms is not None:
                self._home.store.write_meta(replace(identify.known_meta(self._home, row), gone_ms=None))
            if found.is_twin:
                row = take_twin(self._home, self._appender, row, fd)
            elif row.is_log:
                row = self._take_log(row, fd, whole)
            else:
                row = take_document(self._home, self._appender, row, fd)
        if row.generation == before.generation:
            self._forget_restored(row)
        self._keep(row)
        self._tell_unread(found)
        new_bytes = row.held - (before.held if row.generation == before.generation else 0)
        grew = new_bytes > 0 or row.generation != before.generation
        outcome = Outcome.CAPTURED if grew else Outcome.CHECK_DUE if row.check_due else Outcome.UNCHANGED
        return Taken(outcome, new_bytes, bool(row.is_log) and not found.is_twin and row.held < row.size, row)

    def _tell_unread(self, found: Candidate) -> None:
        """What was captured is safe; that its records could not be read is a fault to be shown, and tried again."""
        error = self._appender.take_unread()
        if error is not None:
            raise SourceError(found.file, f"captured, but its records cannot be read ({type(error).__name__})") from error

    def _forget_restored(self, row: StreamRow) -> None:
        """A file that we put back has been met: whatever becomes of it now is the agent's doing."""
        meta = identify.known_meta(self._home, row)
        if meta.restored is not None:
            self._home.store.write_meta(replace(meta, restored=None))

    def _keep(self, row: StreamRow) -> None:
        row = changed(row, stored_bytes=stored_bytes(self._home, identify.known_meta(self._home, row)))
        with self._home.catalog.transaction():
            self._home.catalog.put(row)
            refresh(self._home, row.session)

    def _is_removed(self, row: StreamRow) -> bool:
        """Whether retention or a purge has removed the stream while its session's lock was waited for."""
        return self._home.catalog.stream(row.stream) is None and self._home.store.meta(row.stream) is None

    def _settled(self, row: StreamRow) -> StreamRow:
        """The row as the store has it: after a crash the store may hold more than the catalog knows, never less."""
        row = self._home.catalog.stream(row.stream) or row
        meta = identify.known_meta(self._home, row)
        names = self._home.store.open_names(row.stream, meta.newest.number)
        folder = self._home.layout.generation(row.stream, meta.newest.number)
        open_bytes = (folder / str(names[-1])).stat().st_size if names else 0
        if (row.generation, row.open_bytes) == (meta.newest.number, open_bytes):
            return row
        if names:
            OpenSegment.resume(folder, names[-1]).close()
        self._appender.forget(row)
        return remade_row(self._home, meta, row)

    def _take_log(self, row: StreamRow, fd: int, whole: bool) -> StreamRow:
        found = os.fstat(fd)
        met_anew = row.held > 0 and row.identity != prove.identity(found)  # another file, perhaps a copy; or not met since a rebuild
        compared = met_anew and (row.identity != "" or row.held <= AT_ONCE_BYTES)
        matches = prove.ends_match(row, fd) and (not compared or self._is_all_there(row, fd))
        if not matches:
            row = self._next(row, fd, found, mixed=False)
        elif compared:
            row = changed(row, check_due=0)
        elif met_anew or (row.held and row.held == found.st_size and not prove.unchanged(row, found)):
            row = changed(row, check_due=1)
        quiet_ms = self._home.now_ms() - found.st_mtime_ns // 1_000_000
        in_doubt = matches and row.held < found.st_size and is_in_doubt(self._home, row)
        row = self._grow(row, fd, found, whole or quiet_ms >= TAIL_QUIET_MS)
        if in_doubt and related_anew(self._home, row, fd):
            row = self._with_all_facts(row)
        return prove.seen(row, found)

    def _is_all_there(self, row: StreamRow, fd: int) -> bool:
        return prove.same_bytes(self._home.plain_of(row.source, row.stream, row.generation), row.held, fd)

    def _next(self, row: StreamRow, fd: int, found: os.stat_result, *, mixed: bool) -> StreamRow:
        """The stream's next generation, of which nothing is captured yet."""
        row = next_generation(self._home, row, fd, found, mixed=mixed)
        return row if identify.known_meta(self._home, row).newest.continues is None else self._with_all_facts(row)

    def _with_all_facts(self, row: StreamRow) -> StreamRow:
        """The row with the facts of what it goes on with; checkpoints that know nothing of that are of no use."""
        checkpoints.drop_file(self._home.layout.generation(row.stream, row.generation))
        remade = remade_row(self._home, identify.known_meta(self._home, row), row)
        return changed(row, facts=remade.facts, tail=remade.tail, plain_bytes=remade.plain_bytes, checkpointed=0)

    def _grow(self, row: StreamRow, fd: int, found: os.stat_result, whole: bool) -> StreamRow:
        """Append the file's bytes behind `held`, a batch at a time, each proven to belong to what is held."""
        while row.held < found.st_size:
            plain = os.pread(fd, min(BATCH_BYTES, found.st_size - row.held), row.held)
            at_end = row.held + len(plain) >= found.st_size
            while plain.count(b"\n") > BATCH_LINES_MAX:
                plain, at_end = plain[: len(plain) // 2], False
            plain = plain[: _cut(plain, at_end=at_end, whole=whole)]
            before_length = min(prove.WINDOW_BYTES, row.held)
            before = os.pread(fd, before_length, row.held - before_length)
            if not plain or (_touched(fd, found) and not prove.ends_match(row, fd)):
                break  # rewritten while we read: the next look begins a new generation
            stamp = Stamp(row.held + len(plain), found.st_mode & 0o7777, found.st_mtime_ns, self._home.now_ms())
            row = self._appender.write(row, plain, stamp, before)
        return row

    def _stamp(self, row: StreamRow, found: os.stat_result) -> None:
        """Take down the mode and mtime that a file got without growing."""
        meta = identify.known_meta(self._home, row)
        stamp = Stamp(row.held, found.st_mode & 0o7777, found.st_mtime_ns, self._home.now_ms())
        self._home.store.write_meta(meta.with_generation(replace(meta.newest, stamp=stamp)))


def _cut(plain: bytes, *, at_end: bool, whole: bool) -> int:
    """How much of a batch to take: up to its last newline, or all of it where there is none or the tail may not wait."""
    end = plain.rfind(b"\n") + 1
    if at_end:
        return len(plain) if whole or len(plain) - end > TAIL_MAX_BYTES else end
    return end or len(plain)


def _touched(fd: int, found: os.stat_result) -> bool:
    now = os.fstat(fd)
    return (now.st_size, now.st_mtime_ns, now.st_ctime_ns) != (found.st_size, found.st_mtime_ns, found.st_ctime_ns)
