"""One session: what is known of it, its events, its state at any moment, its way back."""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from coldtrail.catalog import Catalog, SessionRow
from coldtrail.choice import When, moment_of, select, types_of
from coldtrail.errors import AmbiguousError, CorruptionError, NotFoundError, UsageError
from coldtrail.follow import ALONE, Follower, Stop, Surroundings, afollow, follow
from coldtrail.format.frames import Work
from coldtrail.format.manifest import StreamMeta
from coldtrail.home import Home
from coldtrail.lineage import newest_first, whole
from coldtrail.model import Event, EventType, Gap, Position, Role
from coldtrail.moments import Instant
from coldtrail.recover import Placed, StreamReader
from coldtrail.recovered import Recovered
from coldtrail.recovery import Plan as RecoveryPlan
from coldtrail.recovery import Recovery, document, recover
from coldtrail.recovery import plan as plan_recovery
from coldtrail.sessions import as_json, tags_of
from coldtrail.stage import fork, wish
from coldtrail.stage.fork import ForkPlan
from coldtrail.stage.restore import Mtime, Passed, Restored, RestorePlan, Wish, carry_out, chain_of, plan_restore
from coldtrail.state import State
from coldtrail.uncaptured import uncaptured

_T = TypeVar("_T")


class Session:
    """One conversation: what is known of it, its events, its way back."""

    def __init__(self, home: Home, row: SessionRow, around: Surroundings = ALONE) -> None:
        self._home, self._row, self._around = home, row, around
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
        return as_json(self._row)

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
        and noted in `gaps`; of a log that goes on from a part of another one (Codex) only its own are told, and `recover` counts
        both. UsageError, NotFoundError, AmbiguousError.

            for event in session.events(types={"tool_completed"}, since="2h"):
                print(event.position, event.data["output"])
        """
        wanted_types = types_of(types)
        with self._reading(stream) as reader:
            some = wanted_types or frozenset(EventType)  # bytes that hold no event are not read
            selection = select(reader, self._home.now_ms(), some, since, until, after)
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
        with self._reading(stream) as reader:
            selection = select(reader, self._home.now_ms(), types_of(types), since, until, after)
            for placed in reader.placed(selection):
                if selection.after is None or placed.position > selection.after:
                    yield placed

    def follow(
        self,
        *,
        types: Collection[str] | None = None,
        since: When | None = None,
        after: Position | str | None = None,
        stream: str | None = None,
        poll_s: float = 0.2,
        stop: Stop | None = None,
    ) -> Iterator[Event]:
        """Its events as `events` gives them, then those that are written, each once and whole lines only; for ever.

        A file that is made again, or rewritten, goes on in the next generation, from its first byte: positions tell, and the
        stream's metadata how the two relate. What the agent takes back before it was captured is noted in `gaps`, and read
        again as it is now; that the session goes on in another log, as a reverted Codex thread does, is noted there too. `after` a
        position of an older generation reads all since. `stop` is asked whenever there is nothing new, every `poll_s` seconds.
        Where no daemon runs, a file that was made again is captured by this call.

            for event in session.follow(types={"tool_completed"}):
                print(event.position, event.data["output"])
        """
        return follow(self._follower(types, since, after, stream), self._around.wait, poll_s, stop)

    def afollow(
        self,
        *,
        types: Collection[str] | None = None,
        since: When | None = None,
        after: Position | str | None = None,
        stream: str | None = None,
        poll_s: float = 0.2,
        stop: Stop | None = None,
    ) -> AsyncIterator[Event]:
        """The same for asyncio: it reads in threads, and waits without one."""

        def make() -> Follower:
            follower = self._elsewhere(lambda session: session._follower(types, since, after, stream))
            self.gaps = follower.gaps
            return follower

        return afollow(make, poll_s, stop)

    def _follower(self, types: Collection[str] | None, since: When | None, after: Position | str | None, stream: str | None) -> Follower:
        with self.reader(stream) as reader:
            follower = Follower.of(self._home, reader, types, since, after, self._around.capture)
        self.gaps = follower.gaps
        return follower

    def raw(self, stream: str | None = None) -> Iterator[bytes]:
        """The bytes of its main log, or of another stream; CorruptionError at a damaged place."""
        with self._reading(stream) as reader:
            yield from reader.raw()

    @contextlib.contextmanager
    def _reading(self, stream: str | None) -> Iterator[StreamReader]:
        """A reader for the block, its gaps noted; NotFoundError where what it misses went with the session."""
        with self.reader(stream) as reader:
            self.gaps = reader.gaps
            with self._removal_told():
                yield reader

    @contextlib.contextmanager
    def _removal_told(self) -> Iterator[None]:
        """A session that is removed while it is read is not damaged, and what was read of it may not be all."""
        try:
            yield
        except CorruptionError as error:
            if self._is_removed():
                raise self._removed() from error
            raise
        if self._is_removed():
            raise self._removed()

    def _is_removed(self) -> bool:
        return self._home.catalog.session(self.key) is None and bool(self._home.catalog.graves(session=self.key))

    def _removed(self) -> NotFoundError:
        return NotFoundError(f"session {self.key}: it was removed", hint=f"`coldtrail journal --session {self.key}` tells when and why")

    def reader(self, stream: str | None = None) -> StreamReader:
        """Its main log (or another stream, by id or path), open for reading. Close it after use."""
        return self._open(self._stream(stream))

    def _open(self, meta: StreamMeta) -> StreamReader:
        """A reader that tells, too, what the agent has written and nobody has captured."""
        reader = StreamReader(self._home, meta)
        if (lacking := uncaptured(self._home, meta)) is not None:
            reader.gaps.append(lacking)
        return reader

    def _stream(self, name: str | None) -> StreamMeta:
        metas = self.streams()
        if not metas and self._is_removed():
            raise self._removed()
        if name is None:
            mains = [meta for meta in metas if meta.role is Role.MAIN]
            chosen = newest_first(self._home, sorted(mains or metas, key=lambda meta: (meta.gone_ms is not None, not meta.is_log)))
        else:
            chosen = [meta for meta in metas if name == meta.stream or meta.path == os.path.abspath(name) or Path(meta.path).name == name]
        if not chosen:
            raise NotFoundError(f"{name or self.key}: no such stream in this session", hint=f"`coldtrail show {self.key}` lists them")
        if name is not None and len(chosen) > 1:
            raise AmbiguousError(f"{name}: {len(chosen)} streams fit", [meta.stream for meta in chosen])
        return chosen[0]

    def recover(
        self, at: When | Position | None = None, *, before: When | Position | None = None, verify: bool = False, stream: str | None = None
    ) -> Recovered:
        """Its state at a moment: nearest checkpoint, then replay. `at` includes the moment, `before` stops just short of it.

        A moment is a time, a position, an id or `#N`; neither given: the end. `verify` replays the whole log and compares
        hashes. NotFoundError, AmbiguousError, UsageError.

            recovered = session.recover(at="2026-01-31T12:00Z", verify=True)
            print([message.role for message in recovered.state.messages()], recovered.state_hash)
        """
        return self._recovered(self._recover(at, before, stream, verify=verify), stream)

    async def arecover(
        self, at: When | Position | None = None, *, before: When | Position | None = None, verify: bool = False, stream: str | None = None
    ) -> Recovered:
        """The same for asyncio, in a thread of its own, with a home of its own."""
        from asyncio import to_thread  # noqa: PLC0415 - most who import the library do without

        found = await to_thread(self._elsewhere, lambda session: session._recover(at, before, stream, verify=verify))
        return self._recovered(found, stream)

    def plan_recover(
        self, at: When | Position | None = None, *, before: When | Position | None = None, stream: str | None = None
    ) -> RecoveryPlan:
        """Where `recover` would begin and how much it would read, without reading it. Moments are as there."""
        with self._reader_at(at if before is None else before, stream) as reader:
            until, empty = self._until(reader, at, before)
            if empty:
                return RecoveryPlan(None, None, 0, 0, 0)
            with whole(reader) as logs:
                return plan_recovery(logs, until)

    def _recover(self, at: When | Position | None, before: When | Position | None, stream: str | None, *, verify: bool) -> Recovery:
        with self._reader_at(at if before is None else before, stream) as reader:
            until, empty = self._until(reader, at, before)
            if empty:
                return Recovery(State(), None, None, 0)
            with self._removal_told(), whole(reader) as logs:
                return recover(logs, until, verify=verify)

    def _recovered(self, recovery: Recovery, stream: str | None) -> Recovered:
        def read(recovery: Recovery) -> Mapping[str, object]:
            with self._reader_at(recovery.position, stream) as reader, whole(reader) as logs:
                return document(logs, recovery)

        return Recovered(self.key, self.id, recovery, read)

    def _reader_at(self, when: When | Position | None, stream: str | None) -> StreamReader:
        """A reader of its newest chain, or of the one that a position names."""
        meta, moment = self._stream(stream), moment_of(when, self._home.now_ms())
        named = moment.generation if isinstance(moment, Position) else None
        if named is None or named in self._home.newest_chain(meta):
            return self._open(meta) if moment is None or isinstance(moment, Instant) else StreamReader(self._home, meta)
        if named not in (each.number for each in meta.generations):
            raise NotFoundError(f"{moment}: there is no generation {named}")
        return StreamReader(self._home, meta, generation=named)

    def _elsewhere(self, work: Callable[[Session], _T]) -> _T:
        home = replace(self._home, catalog=Catalog(self._home.layout.catalog), work=Work())
        with home:
            return work(Session(home, self._row, self._around))

    def _until(self, reader: StreamReader, at: When | Position | None, before: When | Position | None) -> tuple[Position | None, bool]:
        """The last record to include (None: the last there is), and whether none is."""
        if at is not None and before is not None:
            raise UsageError("a moment is either `at` or `before`")
        said = at if before is None else before
        moment = moment_of(said, self._home.now_ms())
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

    def plan_fork(self, at: When | Position | None = None, *, before: When | Position | None = None, wish: Wish | None = None) -> ForkPlan:
        """What `restore` up to a moment would write: a session of its own. Moments are as in `recover`."""
        if (at is None) == (before is None):
            raise UsageError("a moment is either `at` or `before`")
        wish, meta = wish or Wish(), self._stream(None)
        if meta.role is not Role.MAIN:
            raise NotFoundError(f"{self.key}: its main log is not held")
        chain_of(self._home, meta, wish.generation)
        with StreamReader(self._home, meta, generation=wish.generation) as reader:
            until, _ = self._until(reader, at, before)
            if until is None:
                raise NotFoundError(f"{before}: no record is before that")
            return fork.plan_fork(self._home, self._row, reader, until, wish)

    def restore(
        self,
        to: str | Path | None = None,
        *,
        at: When | Position | None = None,
        before: When | Position | None = None,
        overwrite: bool = False,
        mtime: str = "auto",
        generation: int | None = None,
    ) -> list[Restored | Passed]:
        """Put its files back to where the agent looks for them (or below `to`); doing it twice changes nothing.

        With a moment (as in `recover`) the main log up to it becomes a new session that the agent can go on with, each time
        another one; the last of the results is then a `Forked`, and the original is not touched. RefusedError where bytes would
        be lost, CorruptionError where our copy is damaged; nothing is half written.

            forked = session.restore(before="2026-01-31T12:00Z")[-1]
        """
        try:
            wish = Wish(Path(to).absolute() if to is not None else None, overwrite, Mtime(mtime), generation)
        except ValueError as error:
            raise UsageError(f"mtime={mtime!r}: one of auto, keep, now") from error
        if at is not None or before is not None:
            return list(fork.make(self._home, self.plan_fork(at, before=before, wish=wish)))
        return list(carry_out(self._home, self.plan_restore(wish)))

    def pin(self, *, pinned: bool = True) -> None:
        """Keep it whatever retention says; `pinned=False` lifts that."""
        self._row = wish.set_pin(self._home, self._row, pinned=pinned)

    @property
    def tags(self) -> tuple[str, ...]:
        """The words by which retention's rules may know it."""
        return tags_of(self._row)

    def tag(self, *, add: Iterable[str] = (), remove: Iterable[str] = ()) -> None:
        """Give it tags, and take others away."""
        self._row = wish.set_tags(self._home, self._row, add=add, remove=remove)
