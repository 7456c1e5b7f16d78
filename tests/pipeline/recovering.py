"""What the tests of checkpoints and recovery share: a world of event logs, checkpoints made in it, states recovered in every way."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from coldtrail import checkpoints
from coldtrail.agents import agent
from coldtrail.agents.walk import Source
from coldtrail.checkpoints import Notes
from coldtrail.format.checkpoint import Checkpoint
from coldtrail.format.manifest import StreamMeta
from coldtrail.home import Home
from coldtrail.model import Position
from coldtrail.recover import Selection, StreamReader
from coldtrail.recovery import Recovery, recover
from coldtrail.stage.checkpoint import Policy, advance, due
from world_of import World

OFTEN = Policy(every_events=5, least_bytes=1 << 10, cost_factor=1)  # so that a few kilobytes of log have several


@dataclass(slots=True)
class EventWorld(World):
    """A folder of event logs, and one log in it."""

    count: int = 0

    @property
    def root(self) -> Path:
        return self.folder / "logs"

    @property
    def sources(self) -> list[Source]:
        return [Source("mine", agent("event-log"), self.root)]

    @property
    def log(self) -> Path:
        """The one log."""
        return self.root / "s1.jsonl"

    def event(self, kind: str, **fields: object) -> bytes:
        """One record, with the next id; a second goes by."""
        self.count += 1
        self.clock.tick(1000)
        value = {"type": kind, "timestamp": self.clock.now_ms, "event_id": f"e{self.count:08d}", **fields}
        return json.dumps(value).encode() + b"\n"

    def turn(self, size: int = 100) -> bytes:
        """Four records: a prompt, a tool invoked and completed, an answer."""
        n = self.count
        return b"".join((
            self.event("message_added", role="user", content=f"prompt {n} " + "x" * size),
            self.event("tool_invoked", tool_name="t", input={"n": n}, invocation_id=f"t{n}"),
            self.event("tool_completed", invocation_id=f"t{n}", output=f"{n:x}" * size),
            self.event("message_added", role="assistant", content=f"answer {n}", usage={"output": 1}, message_id=f"m{n}"),
        ))  # fmt: skip

    def turns(self, count: int, *, summary_every: int = 10, size: int = 100) -> bytes:
        """Several turns, summed up now and then."""
        parts = []
        for n in range(1, count + 1):
            parts.append(self.turn(size))
            if n % summary_every == 0:
                parts.append(self.event("context_summarized", summary=f"so far {self.count}"))
        return b"".join(parts)


def checkpointed(home: Home, policy: Policy = OFTEN) -> int:
    """Make every checkpoint that is due; gives how many."""
    return sum(advance(home, row, policy) for row in list(due(home, policy)))


def held(home: Home, meta: StreamMeta, generation: int | None = None) -> list[Checkpoint]:
    """Every checkpoint of a generation that a recovery may use, in order."""
    number = meta.newest.number if generation is None else generation
    plain = home.plain(meta, number)
    return list(checkpoints.nearest(plain, home.layout.generation(meta.stream, number), plain.end(), Notes()))[::-1]


def file_of(home: Home, meta: StreamMeta) -> Path:
    """The file of checkpoints beside the open segments."""
    return home.layout.generation(meta.stream, meta.newest.number) / checkpoints.FILE_NAME


def recovered(home: Home, meta: StreamMeta, until: Position | None = None, *, verify: bool = False) -> Recovery:
    """A state, as of now."""
    with StreamReader(home, meta) as reader:
        return recover(reader, until, verify=verify)


def replayed(home: Home, meta: StreamMeta, until: Position | None = None) -> str:
    """The hash of the state that a replay of the whole log gives."""
    with StreamReader(home, meta) as reader:
        saved, checkpoints.nearest = checkpoints.nearest, lambda *_: iter(())
        try:
            return recover(reader, until).state.hash()
        finally:
            checkpoints.nearest = saved


def places(home: Home, meta: StreamMeta) -> list[Position]:
    """The position of every record."""
    with StreamReader(home, meta) as reader:
        return [Position(generation, row.offset) for generation, row in reader.rows(Selection())]


def points(home: Home, meta: StreamMeta, count: int, chance: random.Random) -> Iterator[Position | None]:
    """Some moments in a log, its end among them."""
    everywhere = places(home, meta)
    yield None
    yield from chance.sample(everywhere, min(count - 1, len(everywhere)))
