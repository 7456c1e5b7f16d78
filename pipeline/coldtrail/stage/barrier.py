"""The barrier: everything that was written to a session's files up to a moment, and what of it is not safe yet."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from coldtrail.agents.base import HEAD_BYTES, Place
from coldtrail.agents.walk import Candidate, Source, at_path, walk
from coldtrail.catalog import StreamRow
from coldtrail.errors import CorruptionError, NotFoundError, SourceError, UnverifiableError
from coldtrail.home import Home
from coldtrail.plain import Plain
from coldtrail.stage import identify, prove
from coldtrail.stage.capture import Capture
from coldtrail.stage.scan import Scanner
from coldtrail.stage.source import head, opened


@dataclass(frozen=True, slots=True)
class Mark:
    """How far a file was written when the barrier was set."""

    found: Candidate
    ends: tuple[bytes, bytes] | None  # its first bytes, and those before its end; None where it could not be read
    held: int = 0  # how many of its bytes were surely in the store then

    @property
    def size(self) -> int:
        """Its length then."""
        return self.found.stat.st_size


class Barrier:
    """Set over some files as they are now; lifted when all that they hold now is in the store, synced."""

    def __init__(self, home: Home, sources: list[Source], files: Iterable[Candidate]) -> None:
        self._sources = sources
        self._marks = [_mark(home, found) for found in files if not _is_safe(home, Mark(found, None))]
        self._taken_back: list[Mark] = []

    @classmethod
    def over(cls, home: Home, sources: list[Source], session: str) -> Self:
        """Over the files of a session by its key, those that nobody has met yet too."""
        sources = _with_own(home, sources, session)
        return cls(home, sources, _of_session(home, sources, session))

    @classmethod
    def at(cls, home: Home, sources: list[Source], path: Path) -> Self:
        """Over a log that nobody has met, and the files of its session; NotFoundError where no agent's is there."""
        return cls(home, sources, _at(home, sources, path))

    @classmethod
    def everywhere(cls, home: Home, sources: list[Source]) -> Self:
        """Over every file of every source."""
        found = (each for source in sources for each in walk(source, _pass_over))
        return cls(home, sources, (each for each in found if _is_ours(home, each)))

    def missing(self, home: Home) -> list[str]:
        """What is not safe yet, a text for each file. What has been found safe is not looked at again.

        Of bytes that were taken back before anybody captured them it is told too, and what is there instead is waited for. When
        all of that is safe there is nothing left to wait for: UnverifiableError.
        """
        there, away = list[Mark](), list[Mark]()
        for mark in self._marks:
            if not _is_safe(home, mark):
                (there if _is_there(mark) else away).append(mark)
        self._marks = there + [mark for mark in self._instead(home, away) if not _is_safe(home, mark)]
        lost = [_lost(mark) for mark in self._taken_back if not _is_safe(home, mark)]
        if lost and not self._marks:
            raise UnverifiableError("; ".join(lost), hint="nobody can capture them any more; everything that is there now is safe")
        return [_told(home, mark) for mark in self._marks] + lost

    def _instead(self, home: Home, away: list[Mark]) -> Iterator[Mark]:
        """Marks over what is now where these were, and where their files have gone to; what is nowhere is taken down as lost."""
        now = [found for source in {mark.found.source for mark in away} for found in walk(source, _pass_over)]
        by_path, by_inode = {found.path: found for found in now}, {prove.identity(found.stat): found for found in now}
        for mark in away:
            here, moved = by_path.get(mark.found.path), by_inode.get(prove.identity(mark.found.stat))
            if moved is not None and not _begins_so(mark, moved.file):
                moved = None  # the inode is another file's by now
            if moved is None and (here is None or here.is_twin == mark.found.is_twin):
                self._taken_back.append(mark)
            yield from (_mark(home, each) for each in dict.fromkeys((here, moved)) if each is not None and _is_ours(home, each))

    def capture(self, home: Home) -> None:
        """Take what is missing, unfinished lines too. The caller holds the daemon's lock."""
        take(home, self._sources, [mark.found.path for mark in self._marks])


def take(home: Home, sources: list[Source], paths: list[Path]) -> None:
    """Capture some files whole, and compare those that changed without growing. The caller holds the daemon's lock."""
    Scanner(home).look(sources, paths, whole=True)
    capture = Capture(home)
    for path in paths:
        row = home.catalog.stream_at(os.fsencode(path))
        if row is not None and row.check_due:
            with contextlib.suppress(SourceError):
                capture.check(row)


def catch_up(home: Home, sources: list[Source], session: str) -> None:
    """Capture a session's files as far as their lines are finished, and note which are gone. The caller holds the daemon's lock."""
    sources = _with_own(home, sources, session)
    paths = {found.path for found in _of_session(home, sources, session)}
    gone = {Path(os.fsdecode(row.path)) for row in home.catalog.streams_of(session) if row.gone_ms is None}
    Scanner(home).look(sources, sorted(paths | gone))


def _with_own(home: Home, sources: list[Source], session: str) -> list[Source]:
    """The sources, and those of the session that are watched no more."""
    names = {source.name for source in sources}
    rows = {row.source: row for row in home.catalog.streams_of(session) if row.source not in names}
    return sources + [Source(name, home.agents[row.agent], Path(identify.known_meta(home, row).root)) for name, row in rows.items()]


def _of_session(home: Home, sources: list[Source], session: str) -> Iterator[Candidate]:
    rows = home.catalog.streams_of(session)
    for source in sources:
        ids = {row.session_id for row in rows if row.source == source.name}
        if ids:
            yield from _files(home, source, ids, session)


def _at(home: Home, sources: list[Source], path: Path) -> Iterator[Candidate]:
    for source in sources:
        found = at_path(source, path, _pass_over) if source.root in path.parents else None
        place = _place(found) if found is not None else None
        if found is not None and place is not None:
            session = identify.session_of(home, found, place)
            yield from _files(home, source, {place.session_id}, session)
            return
    raise NotFoundError(f"{path}: no agent has a log there", hint="`coldtrail status` shows which folders are watched")


def _files(home: Home, source: Source, ids: set[str], session: str | None) -> Iterator[Candidate]:
    known = {row.path: row for row in home.catalog.streams_below(os.fsencode(source.root) + b"/")}
    for found in walk(source, _pass_over):
        row = known.get(os.fsencode(found.path)) or identify.known(home, found)
        if row is not None:
            if row.session == session:
                yield found
            continue
        place = _place(found)
        if place is not None and place.session_id in ids and identify.session_of(home, found, place) == session:
            yield found


def _place(found: Candidate) -> Place | None:
    """Whose a file is; None too where it cannot be read."""
    with contextlib.suppress(SourceError):
        return found.source.agent.place(found.rel, lambda: head(found.file, HEAD_BYTES))
    return None


def _is_ours(home: Home, found: Candidate) -> bool:
    """Whether it is a session's file."""
    return identify.known(home, found) is not None or _place(found) is not None


def _pass_over(path: Path, error: OSError) -> None:
    """What cannot be read now is captured by nobody, and `status` tells of it."""


def _mark(home: Home, found: Candidate) -> Mark:
    """Take down both ends of a file, so that the store can be asked for them, and how much of it is held."""
    try:
        with opened(found.file) as fd:
            return Mark(found, _ends(fd, found.stat.st_size), _held(identify.known(home, found), found, fd))
    except SourceError:
        return Mark(found, None)


def _held(row: StreamRow | None, found: Candidate, fd: int) -> int:
    """How much of a log that has grown is surely held; of one that changed otherwise nothing is sure."""
    grew = row is not None and _is_log(found) and row.held < found.stat.st_size and not row.check_due
    return row.held if row is not None and grew and prove.ends_match(row, fd) else 0


def _ends(fd: int, size: int) -> tuple[bytes, bytes]:
    window = min(prove.WINDOW_BYTES, size)
    return os.pread(fd, min(prove.HEAD_BYTES, size), 0), os.pread(fd, window, size - window)


def _is_log(found: Candidate) -> bool:
    """Whether a file grows; any other is rewritten whole, and what is there when it is captured is enough."""
    return found.path.suffix == identify.LOG_SUFFIX and not found.is_twin


def _is_there(mark: Mark) -> bool:
    """Whether what was in a file then still is; or may be, where nobody can look."""
    try:
        now, then = mark.found.file.stat(), mark.found.stat
        is_alike = (now.st_size, now.st_ctime_ns, prove.identity(now)) == (then.st_size, then.st_ctime_ns, prove.identity(then))
        return is_alike or not _is_log(mark.found) or _begins_so(mark, mark.found.file)
    except FileNotFoundError:
        return _disk_of(mark.found.file) != mark.found.stat.st_dev  # its disk is not mounted
    except OSError:
        return True


def _begins_so(mark: Mark, file: Path) -> bool:
    """Whether a file begins with what the mark stands for, as far as its ends tell; or may, where nobody can read one of them."""
    try:
        with opened(file) as fd:
            return os.fstat(fd).st_size >= mark.size and mark.ends in (None, _ends(fd, mark.size))
    except SourceError:
        return True


def _disk_of(file: Path) -> int:
    """The device of the nearest folder above a file that is there."""
    return next(folder for folder in file.parents if folder.exists()).stat().st_dev


def _is_safe(home: Home, mark: Mark) -> bool:
    row = identify.known(home, mark.found)
    if row is None:
        return False
    is_log = row.is_log and not mark.found.is_twin
    if row.check_due and not _is_same(home, row, mark.found):
        return False
    if prove.unchanged(row, mark.found.stat) and (row.held >= mark.size or not is_log):
        return True
    return _is_held(home, row, mark) if is_log else _is_captured_since(row, mark.found)


def _is_same(home: Home, row: StreamRow, found: Candidate) -> bool:
    """Whether a file that changed without growing is what is held all the same."""
    try:
        with opened(found.file) as fd:
            return os.fstat(fd).st_size >= row.held and prove.same_bytes(_plain(home, row, row.generation), row.held, fd)
    except SourceError:
        return False


def _is_held(home: Home, row: StreamRow, mark: Mark) -> bool:
    """Whether a generation has what was there then: both ends, and all of it where capture has not looked at the file since."""
    for number in range(row.generation, -1, -1):
        if _has_ends(_plain(home, row, number), mark):
            seen_since = number < row.generation or row.ctime_ns >= mark.found.stat.st_ctime_ns
            if seen_since or _is_same(home, row, mark.found):
                return True
    return False


def _has_ends(plain: Plain, mark: Mark) -> bool:
    if mark.ends is None or plain.end() < mark.size:
        return False
    places = (0, mark.size - len(mark.ends[1]))
    try:
        parts = [plain.read(start, start + len(end)) for start, end in zip(places, mark.ends, strict=True)]
        return mark.ends == tuple(b"".join(data for _, data in part) for part in parts)
    except CorruptionError:
        return False


def _is_captured_since(row: StreamRow, found: Candidate) -> bool:
    """Whether a file that is rewritten whole was captured as it is now."""
    try:
        return prove.unchanged(row, found.file.stat())
    except OSError:
        return False


def _plain(home: Home, row: StreamRow, number: int) -> Plain:
    return home.plain_of(row.source, row.stream, number)


def _lost(mark: Mark) -> str:
    return f"{mark.found.path}: up to {mark.size - mark.held} of {mark.size} bytes were taken back before they were captured"


def _told(home: Home, mark: Mark) -> str:
    row, fault = identify.known(home, mark.found), home.catalog.fault(os.fsencode(mark.found.path))
    held = f"{row.held if row else 0} of {mark.size} bytes are safe"
    return f"{mark.found.path}: {held}{f' ({fault.what})' if fault else ''}"
