"""Follow a stream: its history, then what is written to it, with no gap and no duplicate, whatever becomes of its file meanwhile."""

from __future__ import annotations

import itertools
import os
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

from coldtrail.choice import When, select, types_of
from coldtrail.errors import NotFoundError, UsageError
from coldtrail.format.manifest import StreamMeta
from coldtrail.home import Home
from coldtrail.indexer import read_record
from coldtrail.lineage import Successors
from coldtrail.model import Elsewhere, Event, EventType, Gap, Position, Reading, Record, RecordKind
from coldtrail.recover import Placed, Selection, StreamReader
from coldtrail.tail import DocumentTail, LogTail, Looks, looks

_BATCH_EVENTS = 256
_LOOK_OUT_MS = 5_000  # so often, where no daemon runs, the agent's folder is looked through for further logs of the session

Stop = Callable[[], bool]  # asked whenever there is nothing new


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What the library leaves to its caller: how to wait, and how to capture where no daemon does."""

    wait: Callable[[float], None]  # seconds
    capture: Callable[[str], bool]  # a session by its key; False: somebody else holds the lock, and is at it


def _nobody_waits(_: float) -> None:
    raise UsageError("nobody has said how to wait", hint="open the home with coldtrail.open()")


ALONE = Surroundings(_nobody_waits, lambda _: False)


class Follower:
    """Reads one stream on and on. Each life of the file is read to its end before the next one is begun, from its first byte.

    What capture has not seen yet is read from the live file, under the positions that it will have; so a new life is waited for
    until it is captured and has its number. The catalog is not asked, so each call may come from another thread.
    """

    def __init__(
        self,
        home: Home,
        meta: StreamMeta,
        wanted: Selection,
        types: frozenset[EventType],
        *,
        identity: str = "",
        capture: Callable[[str], bool] = lambda _: False,
    ) -> None:
        """`types` empty: all; `identity`: of the file that was captured last, as the catalog has it."""
        self._home, self._meta, self._wanted, self._types = home, meta, wanted, types
        self._agent = home.agents[meta.agent]
        self._identities = {meta.newest.number: identity}
        self._capture, self._successors, self._looked_out_ms = capture, Successors(home, meta), home.now_ms()
        self.gaps: list[Gap] = []
        self._tail: LogTail | DocumentTail
        self._number = 0
        self._replaced: set[int] = set()  # lives between those of the newest chain: no part of the history that is told
        self._running_ms: int | None = None
        self._meta_looks: Looks | None = None
        self._asked: object = None

    @classmethod
    def of(
        cls,
        home: Home,
        reader: StreamReader,
        types: Collection[str] | None,
        since: When | None,
        after: Position | str | None,
        capture: Callable[[str], bool],
    ) -> Self:
        """A follower of the stream that is open for reading; UsageError, NotFoundError, AmbiguousError."""
        wanted = types_of(types)
        selection = select(reader, home.now_ms(), wanted or frozenset(EventType), since, None, after)
        row = home.catalog.stream(reader.meta.stream)
        identity = row.identity if row is not None and row.generation == reader.meta.newest.number else ""
        return cls(home, reader.meta, selection, wanted, identity=identity, capture=capture)

    def read(self) -> Iterator[Event | None]:
        """Each event once, in order; None whenever there is nothing new. It does not end.

        NotFoundError once the stream is no longer kept, CorruptionError where it cannot be read at all.
        """
        self._number = self._first()
        while True:
            yield from self._begin()
            while (following := self._following()) is None:
                yield from self._new()
                self._look_out()
                yield None
            yield from self._chosen(self._tail.finish())
            self._number = following

    def _first(self) -> int:
        """The newest chain's first generation; an older one where the caller has come no further."""
        chain, after = self._home.newest_chain(self._meta), self._wanted.after
        known = {each.number for each in self._meta.generations if after is not None and each.number >= after.generation}
        self._replaced = set(range(chain[0], chain[-1])) - {*chain} - known
        return min({chain[0], *known})

    def _following(self) -> int | None:
        """The next life, if there is one."""
        self._refresh()
        later = (each.number for each in self._meta.generations if each.number > self._number)
        return next((number for number in later if number not in self._replaced), None)

    def _refresh(self) -> None:
        found = self._looks_of_meta()
        if found == self._meta_looks:
            return
        meta = self._home.store.meta(self._meta.stream)
        if meta is None:
            raise self._is_lost()
        self._meta, self._meta_looks = meta, found

    def _looks_of_meta(self) -> Looks:
        try:
            return looks(os.stat(self._home.layout.meta(self._meta.stream)))
        except FileNotFoundError as error:
            raise self._is_lost() from error

    def _is_lost(self) -> NotFoundError:
        return NotFoundError(f"{self._meta.path}: it is no longer kept", hint="`coldtrail ls` shows what there is")

    def _begin(self) -> Iterator[Event]:
        """What the store holds of a generation, whole records only; frames that hold nothing wanted are not decoded."""
        is_read = False
        with StreamReader(self._home, self._meta, generation=self._number, held_only=True) as reader:
            reader.chain, reader.gaps = [self._number], self.gaps
            end = reader.indexed_end(self._number)
            self._running_ms = reader.newest_ms(self._number) if self._wanted.since_ms is not None else None
            for placed in reader.placed(replace(self._wanted, until=Position(self._number, end - 1))):
                is_read |= placed.record.kind is RecordKind.DATA
                yield from self._of(placed)
        if self._meta.is_log:
            self._tail = LogTail(self._home, self._meta, self._number, end, self._identities.get(self._number, ""), self.gaps)
        else:
            self._tail = DocumentTail(self._home, self._meta, self._number, is_read=is_read)

    def _new(self) -> Iterator[Event]:
        """What has come since the last time."""
        tail = self._tail
        while isinstance(tail, LogTail) and (data := tail.look(Path(self._meta.path))) is not None:
            if not data or self._looks_of_meta() != self._meta_looks:  # what was read may be of the next life
                return
            yield from self._chosen(tail.held() if tail.is_behind() else tail.take(data))
        yield from self._chosen(tail.held())
        self._ask()

    def _ask(self) -> None:
        """The live file is not there, or of another life that has no number yet: where no daemon runs, we capture it ourselves."""
        try:
            live = looks(os.stat(self._meta.path))
        except OSError:
            live = None
        if live is None and self._meta.gone_ms is not None:
            return
        if self._asked != (live, self._meta_looks) and self._capture(self._meta.session):
            self._asked = live, self._meta_looks

    def _look_out(self) -> None:
        """Another main log of the session is where its agent goes on: it is not read here, for places in it are others."""
        now_ms = self._home.now_ms()
        if self._successors.may_come and now_ms - self._looked_out_ms >= _LOOK_OUT_MS:  # where no daemon runs, nobody else meets it
            self._looked_out_ms = now_ms
            self._capture(self._meta.session)
        if (newer := self._successors.look()) is not None:
            what = f"the session goes on in {newer.path} (stream {newer.stream})"
            self.gaps.append(Elsewhere(self._number, 0, 0, what))

    def _chosen(self, records: Iterable[Record]) -> Iterator[Event]:
        for record in records:
            reading = read_record(self._agent, record)
            if reading is not None and self._is_late_enough(reading):
                yield from self._of(Placed(self._number, record, b"", reading))

    def _is_late_enough(self, reading: Reading) -> bool:
        """Whether the newest time up to this record is not before the one asked for."""
        if reading.time_ms is not None:
            self._running_ms = max(reading.time_ms, self._running_ms or reading.time_ms)
        since_ms = self._wanted.since_ms
        return since_ms is None or (self._running_ms is not None and self._running_ms >= since_ms)

    def _of(self, placed: Placed) -> Iterator[Event]:
        for event in placed.events():
            if (not self._types or event.type in self._types) and self._wanted.has(event.position):
                yield event


def follow(follower: Follower, wait: Callable[[float], None], poll_s: float, stop: Stop | None) -> Iterator[Event]:
    """Its events, for ever; or until `stop` says so, when there is nothing new."""
    for event in follower.read():
        if event is not None:
            yield event
        elif stop is not None and stop():
            return
        else:
            wait(poll_s)


async def afollow(make: Callable[[], Follower], poll_s: float, stop: Stop | None) -> AsyncIterator[Event]:
    """The same for asyncio: the reading is done in threads, one call at a time, the waiting by asyncio."""
    from asyncio import sleep, to_thread  # noqa: PLC0415 - most who import the library do without

    events = (await to_thread(make)).read()
    while True:
        batch = await to_thread(_batch, events)
        for event in batch:
            if event is not None:
                yield event
        if batch[-1] is None:
            if stop is not None and stop():
                return
            await sleep(poll_s)


def _batch(events: Iterator[Event | None]) -> list[Event | None]:
    """Some events, up to the first pause."""
    batch: list[Event | None] = []
    for event in itertools.islice(events, _BATCH_EVENTS):
        batch.append(event)
        if event is None:
            break
    return batch
