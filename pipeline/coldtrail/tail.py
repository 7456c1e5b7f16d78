"""The end of one generation, read on as it grows: from the agent's live file while that proves to be the same, else from the store."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator
from hashlib import blake2b
from pathlib import Path

from coldtrail.catalog import changed
from coldtrail.content import goes_on
from coldtrail.errors import SourceError
from coldtrail.filesource import FileSource
from coldtrail.format.growing import last_stamp
from coldtrail.format.lines import LineSplitter, read_line
from coldtrail.format.manifest import StreamMeta
from coldtrail.home import Home
from coldtrail.indexer import DOCUMENT_MAX_BYTES
from coldtrail.layout import SegmentName
from coldtrail.model import Gap, Record, RecordKind
from coldtrail.plain import Plain
from coldtrail.stage import prove
from coldtrail.stage.identify import row_of
from coldtrail.stage.source import opened

TAKEN_BACK = "its agent took this back before it was captured; what stands there now is read instead"
_STEP_BYTES = 1 << 20
_LINES_MAX = 2048  # so many are remembered, to tell how far what was read still stands

Looks = tuple[int, int, int, int, int]
ReadRange = Callable[[int, int], bytes]  # the bytes in [start, end), fewer where they are not there


def looks(found: os.stat_result) -> Looks:
    """By what a file is told to have changed."""
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


class _Lines:
    """The last lines that were read, by their digests."""

    def __init__(self, start: int) -> None:
        self._ends: deque[tuple[int, bytes]] = deque()
        self.start = self._at = start  # of the first line that is remembered
        self._line = blake2b(digest_size=16)

    def feed(self, data: bytes) -> None:
        """Take what was read next."""
        begin = 0
        while (newline := data.find(b"\n", begin)) >= 0:
            self._line.update(data[begin : newline + 1])
            self._at += newline + 1 - begin
            self._ends.append((self._at, self._line.digest()))
            self._line, begin = blake2b(digest_size=16), newline + 1
        self._line.update(data[begin:])
        self._at += len(data) - begin
        while len(self._ends) > _LINES_MAX:
            self.start, _ = self._ends.popleft()

    def cut(self, at: int) -> None:
        """Forget what ends behind `at`, where a line begins."""
        while self._ends and self._ends[-1][0] > at:
            self._ends.pop()
        self.start, self._at, self._line = min(self.start, at), at, blake2b(digest_size=16)

    def first_lost(self, read: ReadRange, limit: int, *, cut: bool) -> int | None:
        """Where the first line begins that is another one now, of those that end at or before `limit`; None where all are the same.

        `cut`: what lies beyond the limit is lost too.
        """
        start = self.start
        for end, digest in self._ends:
            if end > limit:
                return start if cut else None
            if _digest(read, start, end) != digest:
                return start
            start = end
        return None


def _digest(read: ReadRange, start: int, end: int) -> bytes:
    found = blake2b(digest_size=16)
    for at in range(start, end, _STEP_BYTES):
        found.update(read(at, min(at + _STEP_BYTES, end)))
    return found.digest()


class LogTail:
    """A log's records behind `start`, each once. Lines of the live file that are not finished are waited for."""

    def __init__(self, home: Home, meta: StreamMeta, number: int, start: int, identity: str, gaps: list[Gap]) -> None:
        """`identity` is that of the file which was captured last, as the catalog has it; "" where nobody knows."""
        self._home, self._stream, self._number, self._gaps = home, meta.stream, number, gaps
        self._plain: Plain = home.plain(meta, number)
        self._row = changed(row_of(meta), generation=number, identity=identity)  # how far was read, with the proof of it, as capture has it
        self._before, self._splitter, self._lines = b"", LineSplitter(start), _Lines(start)
        self._place(start, self._stored_bytes)
        self._stored = start  # up to here all that was read came from the store
        self._safe = start  # and so did all whole lines up to here
        self._live: Looks | None = None  # how the live file looked when all of it was read, or when it proved to be another
        self._ours = False
        self._looked: Looks | None = None
        self._suspect: Looks | None = None
        self._drained: object = None  # how the store looked when all of it was read
        self._known: tuple[object, int] = (None, 0)  # how far it reached when it looked so

    # ---- the live file ------------------------------------------------------------------------------------------------

    def look(self, path: Path) -> bytes | None:
        """What the live file has beyond what was read, a piece of it, to be given to `take`; None where there is no such file.

        Empty where it has nothing, or is just being rewritten. It costs one stat where nothing has changed.
        """
        try:
            if looks(os.stat(path)) == self._live:
                return b"" if self._ours else None
            with opened(path) as fd:
                return self._read_live(fd)
        except (OSError, SourceError):
            self._live = None
            return None

    def _read_live(self, fd: int) -> bytes | None:
        found = os.fstat(fd)
        now, at = looks(found), self._row.held
        if not prove.ends_match(self._row, fd):
            return self._differs(fd, found)
        if not self._is_known(fd, found):
            self._set_aside(found)
            return None
        data = os.pread(fd, min(_STEP_BYTES, found.st_size - at), at)
        if looks(os.fstat(fd)) != now and (os.pread(fd, len(data), at) != data or not prove.ends_match(self._row, fd)):
            return b""
        self._row = changed(self._row, identity=prove.identity(found))
        self._looked, self._suspect = now if at + len(data) == found.st_size else None, None
        if not data:
            self._live, self._ours = self._looked, True
        return data

    def _is_known(self, fd: int, found: os.stat_result) -> bool:
        """Whether it is the file that was captured; of another one, perhaps a copy, all is compared that the store holds."""
        return self._row.identity == prove.identity(found) or prove.same_bytes(self._plain, self._plain.end(), fd)

    def _differs(self, fd: int, found: os.stat_result) -> bytes | None:
        """The file is not what was read: of another life, or what is not captured yet was taken back.

        A capture tells the two apart by what the store holds, and so is it done here. Who rewrites a file may be in the
        midst of it: only what looks the same at the next look is believed.
        """
        held = self._plain.end()
        if found.st_size < held or not goes_on(self._plain, held, fd) or not self._is_known(fd, found):
            self._set_aside(found)
            return None
        if self._suspect != looks(found):
            self._suspect = looks(found)
            return b""

        def read(start: int, end: int) -> bytes:
            return os.pread(fd, end - start, start)

        lost, line = self._lines.first_lost(read, found.st_size, cut=True), self._splitter.pending_start
        self._go_back(lost if lost is not None else line if line < self._row.held else self._safe, read)
        return b""

    def _set_aside(self, found: os.stat_result) -> None:
        """Another file: it is not read until it looks otherwise."""
        self._live, self._ours = looks(found), False

    def take(self, data: bytes) -> Iterator[Record]:
        """The records that the piece completes."""
        yield from self._feed(data)
        if self._looked is not None:
            self._live, self._ours = self._looked, True

    # ---- the store ----------------------------------------------------------------------------------------------------

    def is_behind(self) -> bool:
        """Whether the store holds more than was read: then that comes first, for it is certain."""
        names, seen = self._store_looks()
        if self._known[0] != seen:
            self._known = seen, self._store_end(names)
        return seen != self._drained and self._known[1] > self._row.held

    def held(self, *, last: bool = False) -> Iterator[Record]:
        """What the store has beyond what was read; costs a listing and a stat where it has not changed, unless it is the `last` time."""
        _, seen = self._store_looks()
        if seen == self._drained and not last:
            return
        end = self._plain.end()
        if self._row.held > self._stored:  # some was read from the live file
            lost, line = self._lines.first_lost(self._stored_bytes, end, cut=False), self._splitter.pending_start
            if lost is not None or line <= end:
                self._go_back(line if lost is None else lost, self._stored_bytes)
        for offset, data in self._plain.read(self._row.held, end, self._gaps):
            if offset > self._row.held:
                self._pass_over(offset)
            yield from self._feed(data)
        if self._row.held <= end:
            self._stored, self._safe = self._row.held, self._splitter.pending_start
        self._drained = seen

    def finish(self) -> Iterator[Record]:
        """The rest, the unfinished last line too: this generation grows no more."""
        yield from self.held(last=True)
        if self._row.held == self._stored:
            yield from self._splitter.finish()

    def _store_looks(self) -> tuple[list[SegmentName], object]:
        names = self._home.store.open_names(self._stream, self._number)
        try:
            return names, (names, os.stat(self._path(names[-1])).st_size if names else 0)
        except FileNotFoundError:  # sealed since
            return names, (names, -1)

    def _store_end(self, names: list[SegmentName]) -> int:
        """Behind the last byte held, by the stamp that an append ends with."""
        try:
            with FileSource(self._path(names[-1]), self._home.work) as source:
                stamp = last_stamp(source)
                if stamp is not None or not source.size:
                    return stamp.end if stamp else names[-1].start
        except (IndexError, FileNotFoundError):  # sealed
            pass
        return self._plain.end()

    def _path(self, name: SegmentName) -> Path:
        return self._home.layout.generation(self._stream, self._number) / str(name)

    def _stored_bytes(self, start: int, end: int) -> bytes:
        return b"".join(data for _, data in self._plain.read(start, end, gaps=[]))

    # ---- both ---------------------------------------------------------------------------------------------------------

    def _feed(self, data: bytes) -> Iterator[Record]:
        self._row = prove.with_ends(self._row, data, self._before)
        self._before = (self._before + data)[-prove.WINDOW_BYTES :]
        self._lines.feed(data)
        yield from self._splitter.feed(data)

    def _place(self, at: int, read: ReadRange) -> None:
        """Read on from `at`, where a line begins; `read` gives the bytes before it."""
        head, before = read(0, min(prove.HEAD_BYTES, at)), read(max(0, at - prove.WINDOW_BYTES), at)
        self._row = changed(
            self._row, held=at, head=prove.digest(head), head_length=len(head), window=prove.digest(before), window_length=len(before)
        )
        self._before, self._splitter = before, LineSplitter(at)

    def _pass_over(self, at: int) -> None:
        """Read on behind a gap."""
        self._place(at, self._stored_bytes)
        self._lines = _Lines(at)

    def _go_back(self, line: int, read: ReadRange) -> None:
        """Read on from a line that was read and is another one now; what was told from there on was taken back."""
        told = self._splitter.pending_start
        at = min(line, self._safe) if line == self._lines.start else line
        if at < told:
            self._gaps.append(Gap(self._number, at, told, TAKEN_BACK))
        self._place(at, read)
        self._lines.cut(at)


class DocumentTail:
    """What a file that is rewritten whole says, once it is captured whole: each of its contents is a generation of its own."""

    def __init__(self, home: Home, meta: StreamMeta, number: int, *, is_read: bool) -> None:
        self._plain, self._is_read = home.plain(meta, number), is_read
        self._end = -1

    def held(self, *, last: bool = False) -> Iterator[Record]:
        """Its records, as soon as they are whole; whatever there is, if it is the `last` time."""
        if self._is_read or (end := self._plain.end()) > DOCUMENT_MAX_BYTES or (end == self._end and not last):
            return
        self._end = end
        records = read_line(b"".join(data for _, data in self._plain.read(0, end, gaps=[])), 0)
        if last or any(record.kind is RecordKind.DATA for record in records):
            self._is_read = True
            yield from records

    def finish(self) -> Iterator[Record]:
        """The same, for the last time."""
        yield from self.held(last=True)
