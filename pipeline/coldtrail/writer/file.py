"""A log file under several writers: one holds it at a time, knows its end, and leaves it ending with a newline."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path

from coldtrail import durable
from coldtrail.agents.reading import word
from coldtrail.errors import ColdtrailError, SourceError, StoreFullError
from coldtrail.format.lines import MAX_LINE_BYTES, LineSplitter, read_line
from coldtrail.model import Record, RecordKind
from coldtrail.writer.ids import SortableIds
from coldtrail.writer.places import Places
from coldtrail.writer.whole import WholeState

_NOT_WRITTEN = "append it again once that is mended: nothing of it is in the log"
_NOT_DURABLE = "what was appended since the last flush is in the file, but a power cut may take it"
_STEP_BYTES = 1 << 20
_TAIL_BYTES = 64 << 10  # what is read of a log's end at first, to know the last ids


class LogFile:
    """Append to it only between `lock` and `unlock`. Not for several threads at once.

    Between processes a flock on the file itself decides. What others have appended since the last time is read when the lock
    is taken; a torn tail, which a crash has left, is closed with a newline then, so that its bytes stay as a record of their own.
    """

    def __init__(self, path: Path, checkpoint_every: int | None = None) -> None:
        self.path = path
        self._checkpoint_every = checkpoint_every  # events; None: the state need not be known
        self.whole: WholeState | None = None
        self.ids = SortableIds()
        self.end = 0  # behind the last byte that is known; always behind a newline
        self.last_id: str | None = None  # of the last record that has one
        self.is_blank = True  # it holds no record yet
        self.is_dirty = False  # it may have bytes that a power cut would take
        self._places: Places | None = None  # of all ids, once somebody has asked
        self._fd = -1
        self._open()

    def close(self) -> None:
        """Let the file go."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def forked(self) -> None:
        """In a child process: let the parent's file go, for its lock would be shared; the next `lock` opens another."""
        self.close()

    # ---- the lock -------------------------------------------------------------------------------------------------

    def lock(self) -> None:
        """Hold the file against everybody else; waits. What is known of it is true until `unlock`, which must follow in any case.

        SourceError, StoreFullError.
        """
        found = self._hold()
        while found is None or not found.st_nlink:  # a child process, or the file is gone from its folder: go on where readers look
            self._open()
            found = self._hold()
        if found.st_size != self.end:
            self._catch_up(found.st_size)

    def unlock(self) -> None:
        """Let others append; unlocked already is done."""
        if self._fd >= 0:
            fcntl.flock(self._fd, fcntl.LOCK_UN)

    def _hold(self) -> os.stat_result | None:
        if self._fd < 0:
            return None
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX)
        except OSError as error:  # some network file systems have no locks
            raise self._told(error, "keep the log on a disk of this machine") from error
        return os.fstat(self._fd)

    def _open(self) -> None:
        self.close()
        self._forget()
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK  # a pipe of that name must not hang us
        try:
            durable.make_folder(self.path.parent)
            self._fd = os.open(self.path, flags, durable.FILE_MODE)
            durable.sync_folder(self.path.parent)
            is_file = stat.S_ISREG(os.fstat(self._fd).st_mode)
        except OSError as error:
            raise self._told(error, "see to its folder's rights") from error
        if not is_file:
            self.close()
            raise SourceError(self.path, "not a file", hint="a session is a file: name another one")

    # ---- what others have written ---------------------------------------------------------------------------------

    def _forget(self) -> None:
        self.end, self.last_id, self.is_blank, self._places = 0, None, True, None
        self.whole = WholeState(self._checkpoint_every, self) if self._checkpoint_every is not None else None

    def _catch_up(self, size: int) -> None:
        if self.end and self.end < size:
            self._take_from(self.end, size)
            return
        window = _TAIL_BYTES if self.whole is None else size  # it is new to us, or was cut: its last ids, wherever they are, and no more
        while True:
            self._forget()
            begin = self._line_behind(max(0, size - window), size)
            sortable = self._take_from(begin, size)
            if begin == 0 or (sortable and self.last_id is not None):
                return
            size, window = self.end, window * 8

    def _take_from(self, begin: int, size: int) -> bool:
        """Take what stands in [begin, size), and close it with a newline; whether an id of our form is among it."""
        splitter, sortable = LineSplitter(begin), False
        for at in range(begin, size, _STEP_BYTES):
            for record in splitter.feed(self._read(at, min(at + _STEP_BYTES, size))):
                sortable |= self._take(record)
        if splitter.pending_length:
            closing = _closing(self._read(splitter.pending_start, size)) if splitter.pending_length < MAX_LINE_BYTES else b"\n"
            self._write(closing)
            for record in splitter.feed(closing):
                sortable |= self._take(record)
        self.end, self.is_dirty = splitter.pending_start, True
        return sortable

    def _take(self, record: Record) -> bool:
        self.is_blank = self.is_blank and record.kind is not RecordKind.DATA
        event_id = _id_of(record)
        if event_id is not None:
            self._note(event_id, record.offset)
        if self.whole is not None:
            self.end = record.offset + record.length  # it may look back, and must not be given a record twice
            self.whole.take(record)
        return self.ids.see(event_id)

    def _note(self, event_id: str, offset: int) -> None:
        self.last_id = event_id
        if self._places is not None:
            self._places.add(event_id, offset)

    def _line_behind(self, at: int, size: int) -> int:
        """Where the first line begins that begins at or behind `at`; `size` where none does."""
        for place in range(max(at - 1, 0), size if at else 0, _STEP_BYTES):
            newline = self._read(place, min(place + _STEP_BYTES, size)).find(b"\n")
            if newline >= 0:
                return place + newline + 1
        return size if at else 0

    def _read(self, start: int, end: int) -> bytes:
        parts = []
        while start < end and (part := os.pread(self._fd, end - start, start)):
            parts.append(part)
            start += len(part)
        if start < end:
            raise SourceError(self.path, "it was cut while it was read", hint="only appending to it is safe")
        return b"".join(parts)

    # ---- ids ------------------------------------------------------------------------------------------------------

    def find(self, event_id: str) -> int | None:
        """The offset of the first record of that id; None where there is none. The first call reads the whole log."""
        return next((record.offset for record in self.having(event_id)), None)

    def having(self, event_id: str) -> Iterator[Record]:
        """The records of that id, in order."""
        if self._places is None:
            self._places = self._all_places()
        for offset in self._places.of(event_id):
            record = self.at(offset)
            if record is not None and _id_of(record) == event_id:
                yield record

    def learn_ids(self) -> None:
        """Read the ids that the log is known to have, so that `find` need not do it while others wait."""
        if self._places is None and self._fd >= 0:
            with contextlib.suppress(SourceError):  # it was cut: `lock` will see that
                self._places = self._all_places()

    def _all_places(self) -> Places:
        places, splitter = Places(), LineSplitter(0)
        for at in range(0, self.end, _STEP_BYTES):
            for record in splitter.feed(self._read(at, min(at + _STEP_BYTES, self.end))):
                if (event_id := _id_of(record)) is not None:
                    places.add(event_id, record.offset)
        return places

    def at(self, offset: int) -> Record | None:
        """The record that begins at `offset`."""
        line, step = b"", 4096
        while b"\n" not in line and offset + len(line) < self.end:
            line += self._read(offset + len(line), min(offset + len(line) + step, self.end))
            step *= 4
        line = line[: line.find(b"\n") + 1]
        return next((record for record in read_line(line, offset) if record.offset == offset), None)

    # ---- appending ------------------------------------------------------------------------------------------------

    def append(self, data: bytes, ids: Mapping[str, int]) -> int:
        """Append whole lines in one write; gives where they begin. All is there afterwards, or nothing. SourceError, StoreFullError.

        `ids` are those of the lines, each with its line's place in `data`.
        """
        self.is_dirty = True
        self._write(data)
        begin = os.lseek(self._fd, 0, os.SEEK_CUR) - len(data)
        if begin == self.end:  # else somebody without the lock has come between: the next one to lock reads what there is
            self.end, self.is_blank = begin + len(data), False
            for event_id, place in ids.items():
                self._note(event_id, begin + place)
            if self.whole is not None:
                for record in LineSplitter(begin).feed(data):
                    self.whole.take(record)
        return begin

    def _write(self, data: bytes) -> None:
        left = memoryview(data)
        try:
            while left:
                left = left[os.write(self._fd, left) :]
        except OSError as error:
            self._cut_back(self.end, len(data) - len(left))
            raise self._told(error, _NOT_WRITTEN) from error

    def _cut_back(self, end: int, own: int) -> None:
        """Take back the part of a line that there was room for, unless somebody without the lock has appended behind it."""
        with contextlib.suppress(OSError):
            if own and os.fstat(self._fd).st_size == end + own:
                os.ftruncate(self._fd, end)

    def sync(self) -> None:
        """Make all that was appended durable."""
        if self.is_dirty and self._fd >= 0:
            try:
                durable.sync_fd(self._fd, self.path)
            except OSError as error:
                raise self._told(error, _NOT_DURABLE) from error
            self.is_dirty = False

    def _told(self, error: OSError, hint: str) -> ColdtrailError:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            return StoreFullError(self.path, hint=hint)
        return SourceError(self.path, error.strerror or str(error), hint=hint)


def _closing(tail: bytes) -> bytes:
    """What makes a line of a torn tail.

    Torn behind an object inside it, a newline alone would make it look like a torn record onto which a whole one was glued.
    """
    as_it_is, with_newline = ([record.value for record in read_line(each, 0)] for each in (tail, tail + b"\n"))
    return b"\n" if as_it_is == with_newline else b"~\n"


def _id_of(record: Record) -> str | None:
    return word(record.value.get("event_id")) if isinstance(record.value, dict) else None
