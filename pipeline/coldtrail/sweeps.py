"""What the agents will delete of their own logs, and when; and whether we hold all of it by then."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from coldtrail.agents.walk import Source
from coldtrail.catalog import FaultRow, SessionRow
from coldtrail.home import Home
from coldtrail.sessions import by_session, mains_of, merged
from coldtrail.sums import Trace, traces

ALARM_MS = 2 * 86_400_000  # what is not held so long before its agent deletes it is an alarm
_DAY_MS = 86_400_000


@dataclass(frozen=True, slots=True)
class Fate:
    """What becomes of a session's own files."""

    deletes_ms: int | None  # from when on its agent deletes them; None: never, nobody knows, or they are gone
    kept: bool  # we hold all that was ever seen of them


@dataclass(frozen=True, slots=True)
class Danger:
    """Something that its agent deletes soon, and that we do not hold."""

    path: str
    agent: str
    deletes_ms: int
    what: str
    key: str = ""  # of the session; empty: the file was never captured
    id: str = ""


@dataclass(frozen=True, slots=True)
class Outlook:
    """The fate of every session by its key, and what is in danger, the most urgent first."""

    fates: Mapping[str, Fate]
    dangers: tuple[Danger, ...]

    def within(self, now_ms: int, span_ms: int) -> list[tuple[str, Fate]]:
        """The keys of the sessions that their agents delete within a span, or should have deleted, the first one first."""
        soon = [(key, each) for key, each in self.fates.items() if each.deletes_ms is not None and each.deletes_ms <= now_ms + span_ms]
        return sorted(soon, key=lambda item: (item[1].deletes_ms, item[0]))


@dataclass(frozen=True, slots=True)
class Sweep:
    """A source's agent as far as it deletes: after how many days, and by which time."""

    source: Source
    days: float | None
    by_mtime: bool

    @classmethod
    def of(cls, source: Source) -> Sweep:
        """As the agent's settings say now."""
        return cls(source, source.agent.sweep_days(source.root), source.agent.sweep_key_is_mtime())

    def due_ms(self, mtime_ms: int, last_ms: int | None) -> int | None:
        """From when on a file is deleted, of that mtime and that newest time inside."""
        since_ms = mtime_ms if self.by_mtime or last_ms is None else last_ms
        return None if self.days is None else since_ms + round(self.days * _DAY_MS)


def look(home: Home, sources: Iterable[Source], sessions: Iterable[SessionRow] | None = None) -> Outlook:
    """The outlook as catalog and agents' settings tell it; of what could not be captured the file's own mtime is asked for.

    `sessions`: all of them, of who has them at hand.
    """
    streams = by_session(traces(home.catalog))
    sweeps = {source.name: Sweep.of(source) for source in sources}
    faults = {fault.place: fault for fault in home.catalog.faults()}
    seen = [row for row in (home.catalog.sessions() if sessions is None else sessions) if row.key in streams]
    fates = {row.key: fate(sweeps.get(row.source) if row.host == home.host else None, streams[row.key], faults) for row in seen}
    known = {row.path for rows in streams.values() for row in rows}
    dangers = [*_not_whole(seen, fates, home.now_ms()), *unmet(sweeps.values(), faults, known, home.now_ms(), mtime_ms)]
    return Outlook(fates, tuple(sorted(dangers, key=lambda each: (each.deletes_ms, each.path))))


def fate(sweep: Sweep | None, streams: Sequence[Trace], faults: Mapping[bytes, FaultRow]) -> Fate:
    """What becomes of a session of these streams; its main log decides, for what lies beside it goes with it. Pure."""
    kept = all(row.held >= row.size and not row.check_due and row.path not in faults for row in streams)
    dates = [_deletes_ms(sweep, row) for row in mains_of(streams) if row.gone_ms is None] if sweep is not None else []
    return Fate(max((each for each in dates if each is not None), default=None), kept)


def _deletes_ms(sweep: Sweep, row: Trace) -> int | None:
    seen_ms = row.mtime_ns // 1_000_000 or row.grew_ms  # of one that was not met since a rebuild no mtime is known
    return sweep.due_ms(seen_ms, None if sweep.by_mtime else merged(row).last_ms)


def _not_whole(sessions: Iterable[SessionRow], fates: Mapping[str, Fate], now_ms: int) -> Iterator[Danger]:
    for row in sessions:
        found = fates[row.key]
        if not found.kept and found.deletes_ms is not None and found.deletes_ms <= now_ms + ALARM_MS:
            yield Danger(_path(row), row.agent, found.deletes_ms, "not all of it is held", row.key, row.id)


def _path(row: SessionRow) -> str:
    """Where it lies, as its row has it in JSON."""
    return row.paths.removeprefix('["').removesuffix('"]').split('","')[0]


def unmet(
    sweeps: Iterable[Sweep], faults: Mapping[bytes, FaultRow], known: Iterable[bytes], now_ms: int, mtime: Callable[[bytes], int | None]
) -> Iterator[Danger]:
    """The agents' files that are deleted soon and of which nothing was ever captured, because something is wrong with them."""
    never = [place for place in faults if place not in set(known)]
    for sweep in sweeps:
        for place in never:
            path = Path(os.fsdecode(place))
            if sweep.days is None or not _is_session(sweep.source, path) or (seen_ms := mtime(place)) is None:
                continue
            deletes_ms = sweep.due_ms(seen_ms, None)
            if deletes_ms is not None and deletes_ms <= now_ms + ALARM_MS:
                yield Danger(str(path), sweep.source.agent.name, deletes_ms, f"never captured: {faults[place].what}")


def _is_session(source: Source, path: Path) -> bool:
    """Whether a file is one of a session; where only its first bytes would tell it is taken for one."""
    if source.root not in path.parents:
        return False
    rel = PurePosixPath(path.relative_to(source.root).as_posix())
    try:
        return source.agent.place(rel, _unread) is not None
    except OSError:
        return True


def _unread() -> bytes:
    raise PermissionError("not read: something is wrong with it")


def mtime_ms(place: bytes) -> int | None:
    """A file's mtime; None for what is no file, or gone."""
    try:
        found = os.stat(place)
    except OSError:
        return None
    return found.st_mtime_ns // 1_000_000 if os.path.isfile(place) else None
