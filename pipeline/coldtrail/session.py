"""One session: what is known of it, its events, its state at any moment, its way back."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

from coldtrail.catalog import Catalog, SessionRow
from coldtrail.errors import AmbiguousError, NotFoundError, UsageError
from coldtrail.format import lines
from coldtrail.format.frames import Work
from coldtrail.format.index import mask_of
from coldtrail.format.manifest import StreamMeta
from coldtrail.home import Home
from coldtrail.model import Event, EventType, Gap, Position, Role, instant_text
from coldtrail.moments import Instant, Moment, read_moment
from coldtrail.recover import Placed, Selection, StreamReader
from coldtrail.recovery import Recovery, document, recover
from coldtrail.stage import pin
from coldtrail.stage.restore import Mtime, Passed, Restored, RestorePlan, Wish, carry_out, plan_restore
from coldtrail.state import State

When = str | int | datetime  # as the command line takes it; milliseconds since 1970 UTC; a time (naive: UTC)
_WHOLE_RECORD = 1 << 62  # behind any event of a record


@dataclass(frozen=True, slots=True)
class Recovered:
    """A session's state at a moment, and how it came about."""

    session: Session
    recovery: Recovery
    document: Mapping[str, object]  # the whole state as JSON

    @property
    def state(self) -> State:
        """The state: `messages()`, `pending`, `environment`, `metadata()` and the rest."""
        return self.recovery.state

    @property
    def state_hash(self) -> str:
        """SHA-256, 64 hex digits."""
        return self.recovery.state.hash()

    @property
    def position(self) -> Position | None:
        """The last record that it includes."""
        return self.recovery.position

    @property
    def checkpoint(self) -> Position | None:
        """The checkpoint that it began with; None: the start of the log."""
        return self.recovery.checkpoint

    @property
    def replayed(self) -> int:
        """Records read behind the checkpoint."""
        return self.recovery.replayed

    @property
    def gaps(self) -> list[Gap]:
        """Damaged or missing ranges that it had to do without."""
        return self.recovery.gaps

    def to_json(self) -> dict[str, object]:
        """As `state --json` shows it."""
        return {
            "key": self.session.key,
            "id": self.session.id,
            "position": _text(self.position),
            "state_hash": self.state_hash,
            "state_hash_short": self.state_hash[:16],
            "checkpoint": _text(self.checkpoint),
            "replayed": self.replayed,
            "verified": self.recovery.verified,
            "notes": self.recovery.notes,
            "gaps": [{"generation": gap.generation, "start": gap.start, "end": gap.end, "what": gap.what} for gap in self.gaps],
            "state": dict(self.document),
        }


class Session:
    """One conversation: what is known of it, its events, its way back."""

    def __init__(self, home: Home, row: SessionRow) -> None:
        self._home, self._row = home, row
        self.gaps: list[Gap] = []  # damaged ranges that reading has met

    @property
    def key(self) -> str:
        """Unique in this home."""
        return self._row.key

    @property
    def id(self) -> str:
        """The agent's own id; two sessions may share one."""
        return self._row.id

    @property
    def agent(self) -> str:
        """Whose session it is."""
        return self._row.agent

    @property
    def title(self) -> str | None:
        """What it is about: the title it was given, or how its first prompt begins."""
        return self._row.title

    @property
    def project(self) -> str | None:
        """The folder that it was in, as it says itself."""
        return self._row.project

    @property
    def state(self) -> str:
        """`live` while the agent's file is there, then `gone`."""
        return self._row.state

    @property
    def row(self) -> SessionRow:
        """Everything that the catalog has of it."""
        return self._row

    def to_json(self) -> dict[str, object]:
        """As `ls --json` shows it."""
        row = self._row
        return {
            "key": row.key,
            "id": row.id,
            "agent": row.agent,
            "project": row.project,
            "title": row.title,
            "first_activity": instant_text(row.first_ms),
            "last_activity": instant_text(row.last_ms),
            "records": row.records,
            "damaged": row.damaged,
            "bytes": row.bytes,
            "stored_bytes": row.stored_bytes,
            "state": row.state,
            "pinned": bool(row.pinned),
            "tags": lines.loads(row.tags.encode()),
            "paths": lines.loads(row.paths.encode()),
            "host": row.host,
            "source": row.source,
            "orphan": bool(row.orphan),
        }

    def streams(self) -> list[StreamMeta]:
        """Its files, the main log first: paths, generations, modes, times."""
        metas = [self._home.store.meta(row.stream) for row in self._home.catalog.streams_of(self.key)]
        return [meta for meta in metas if meta is not None]

    def events(
        self,
        *,
        types: Collection[str] | None = None,
        since: When | None = None,
        until: When | None = None,
        after: Position | str | None = None,
        stream: str | None = None,
        limit: int | None = None,
    ) -> Iterator[Event]:
        """Its events in byte order, archived and live as one, lazily; frames outside the range are not decoded.

        `types` are words of EventType; `since` and `until` are inclusive; `after` is a position or one of the agent's
        ids, exclusive; `stream` is a child's stream id or path, else the main log is read. Damaged ranges are left out
        and noted in `gaps`. UsageError, NotFoundError, AmbiguousError.

            for event in session.events(types={"tool_completed"}, since="2h"):
                print(event.position, event.data["output"])
        """
        wanted_types = _types(types)
        with self.reader(stream) as reader:
            self.gaps = reader.gaps
            selection = self._selection(
                reader, wanted_types or frozenset(EventType), since, until, after
            )  # bytes that hold no event are not read
            left = limit
            for placed in reader.placed(selection):
                for event in placed.events():
                    if left is not None and left <= 0:
                        return
                    if (not wanted_types or event.type in wanted_types) and selection.has(event.position):
                        yield event
                        left = None if left is None else left - 1

    def records(
        self,
        *,
        types: Collection[str] | None = None,
        since: When | None = None,
        until: When | None = None,
        after: Position | str | None = None,
        stream: str | None = None,
    ) -> Iterator[Placed]:
        """Its records with their bytes, chosen as events are; damaged ones too, unless only some `types` are wanted."""
        with self.reader(stream) as reader:
            self.gaps = reader.gaps
            selection = self._selection(reader, _types(types), since, until, after)
            for placed in reader.placed(selection):
                if selection.after is None or placed.position > selection.after:
                    yield placed

    def raw(self, stream: str | None = None) -> Iterator[bytes]:
        """The bytes of its main log, or of another stream; CorruptionError at a damaged place."""
        with self.reader(stream) as reader:
            yield from reader.raw()

    def reader(self, stream: str | None = None) -> StreamReader:
        """Its main log (or another stream, by id or path), open for reading. Close it after use."""
        return StreamReader(self._home, self._stream(stream))

    def _stream(self, name: str | None) -> StreamMeta:
        metas = self.streams()
        if name is None:
            mains = [meta for meta in metas if meta.role is Role.MAIN]
            chosen = sorted(mains or metas, key=lambda meta: (meta.gone_ms is not None, not meta.is_log))
        else:
            chosen = [meta for meta in metas if name == meta.stream or meta.path == os.path.abspath(name) or Path(meta.path).name == name]
        if not chosen:
            raise NotFoundError(f"{name or self.key}: no such stream in this session", hint=f"`coldtrail show {self.key}` lists them")
        if name is not None and len(chosen) > 1:
            raise AmbiguousError(f"{name}: {len(chosen)} streams fit", [meta.stream for meta in chosen])
        return chosen[0]

    def _selection(
        self, reader: StreamReader, types: frozenset[EventType], since: When | None, until: When | None, after: Position | str | None
    ) -> Selection:
        lower, upper = _moment(since, self._home.now_ms()), _moment(until, self._home.now_ms())
        behind = read_moment(after, self._home.now_ms()) if isinstance(after, str) else after
        ends = _last_event(reader, upper) if upper is not None and not isinstance(upper, Instant) else None
        begins = reader.locate(lower) if lower is not None and not isinstance(lower, Instant) else None
        return Selection(
            mask=mask_of(types) if types else None,
            since_ms=lower.ms if isinstance(lower, Instant) else None,
            until_ms=upper.ms if isinstance(upper, Instant) else None,
            begin=begins,
            after=None if behind is None else _last_event(reader, behind),
            until=ends,
        )

    def recover(
        self, at: When | Position | None = None, *, before: When | Position | None = None, verify: bool = False, stream: str | None = None
    ) -> Recovered:
        """Its state at a moment: nearest checkpoint, then replay. `at` includes the moment, `before` stops just short of it.

        A moment is a time, a position, an id or `#N`; neither given: the end. `verify` replays the whole log and compares
        hashes. NotFoundError, AmbiguousError, UsageError.

            recovered = session.recover(at="2026-01-31T12:00Z", verify=True)
            print([message.role for message in recovered.state.messages()], recovered.state_hash)
        """
        if at is not None and before is not None:
            raise UsageError("a moment is either `at` or `before`")
        with self.reader(stream) as reader:
            until, empty = self._until(reader, at, before)
            recovery = recover(self._home, reader, until, verify=verify) if not empty else Recovery(State(), None, None, 0)
            return Recovered(self, recovery, document(reader, recovery))

    async def arecover(
        self, at: When | Position | None = None, *, before: When | Position | None = None, verify: bool = False, stream: str | None = None
    ) -> Recovered:
        """The same for asyncio, in a thread of its own, with a home of its own."""
        from asyncio import to_thread  # noqa: PLC0415 - most who import the library do without

        return await to_thread(self._elsewhere, lambda session: session.recover(at, before=before, verify=verify, stream=stream))

    def _elsewhere(self, work: Callable[[Session], Recovered]) -> Recovered:
        home = replace(self._home, catalog=Catalog(self._home.layout.catalog), work=Work())
        with home:
            return work(Session(home, self._row))

    def _until(self, reader: StreamReader, at: When | Position | None, before: When | Position | None) -> tuple[Position | None, bool]:
        """The last record to include (None: the last there is), and whether none is."""
        said = at if before is None else before
        moment = said if isinstance(said, Position) else _moment(said, self._home.now_ms())
        if moment is None:
            return None, False
        if before is None:
            return reader.locate(moment), False
        if isinstance(moment, Instant):
            moment = Instant(moment.ms - 1)
            try:
                return reader.locate(moment), False
            except NotFoundError:
                return None, True
        found = reader.before(reader.locate(moment))
        return found, found is None

    def plan_restore(self, wish: Wish | None = None) -> RestorePlan:
        """What `restore` would do, file by file. RefusedError where something is in the way."""
        return plan_restore(self._home, self._row, wish or Wish())

    def restore(
        self, to: str | Path | None = None, *, overwrite: bool = False, mtime: str = "auto", generation: int | None = None
    ) -> list[Restored | Passed]:
        """Put its files back to where the agent looks for them (or below `to`); doing it twice changes nothing.

        RefusedError where bytes would be lost, CorruptionError where our copy is damaged; nothing is half written.
        """
        try:
            wish = Wish(Path(to).absolute() if to is not None else None, overwrite, Mtime(mtime), generation)
        except ValueError as error:
            raise UsageError(f"mtime={mtime!r}: one of auto, keep, now") from error
        return list(carry_out(self._home, self.plan_restore(wish)))

    def pin(self, *, pinned: bool = True) -> None:
        """Keep it whatever retention says; `pinned=False` lifts that."""
        self._row = pin.set_pin(self._home, self._row, pinned=pinned)


def _text(position: Position | None) -> str | None:
    return None if position is None else str(position)


def _types(types: Collection[str] | None) -> frozenset[EventType]:
    try:
        return frozenset(EventType(each) for each in types or ())
    except ValueError as error:
        raise UsageError(str(error), hint=f"the types are {', '.join(EventType)}") from error


def _last_event(reader: StreamReader, moment: Moment) -> Position:
    """The last event that a moment includes: a position is one event's, any other moment is a whole record."""
    found = reader.locate(moment)
    return found if isinstance(moment, Position) else replace(found, k=_WHOLE_RECORD)


def _moment(when: When | None, clock_ms: int) -> Moment | None:
    if when is None or isinstance(when, str):
        return None if when is None else read_moment(when, clock_ms)
    if isinstance(when, int):
        return Instant(when)
    return read_moment(when.isoformat(), clock_ms)
