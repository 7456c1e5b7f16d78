"""Logs in memory, and their states: what the tests of the fold share."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from coldtrail.agents import agent
from coldtrail.format.checkpoint import Checkpoint
from coldtrail.format.lines import LineSplitter
from coldtrail.indexer import read_record
from coldtrail.model import Reading
from coldtrail.state import Fold, Ref, State
from coldtrail.state.frozen import freeze, thaw

CORPUS = Path(__file__).resolve().parents[3].parent / "shared" / "corpus"
Line = dict[str, object]


class Log:
    """A log of some agent's, given as values or as bytes; it is its own past."""

    def __init__(self, agent_name: str, source: Sequence[object] | bytes, *, generation: int = 0, start: int = 0) -> None:
        self.agent = agent(agent_name)
        data = source if isinstance(source, bytes) else b"".join(json.dumps(each).encode() + b"\n" for each in source)
        splitter = LineSplitter(start)
        records = [*splitter.feed(data), *splitter.finish()]
        readings = ((Ref(generation, record.offset, record.length), read_record(self.agent, record)) for record in records)
        self.records: list[tuple[Ref, Reading]] = [(ref, reading) for ref, reading in readings if reading is not None]
        self.looked = 0  # how often the fold looked back
        self._at = dict(self.records)
        self._ids: dict[str, list[Ref]] = {}
        for ref, reading in self.records:
            if reading.id is not None:
                self._ids.setdefault(reading.id, []).append(ref)

    def find(self, record_id: str, before: Ref) -> tuple[Ref, Reading] | None:
        """The last record of that id before `before`."""
        self.looked += 1
        found = [ref for ref in self._ids.get(record_id, ()) if ref < before]
        return (found[-1], self._at[found[-1]]) if found else None

    def at(self, ref: Ref) -> Reading | None:
        """The record at a place."""
        return self._at.get(ref)

    def run(self, generation: int, start: int, end: int) -> Iterator[tuple[Ref, Reading]]:
        """The records in a run."""
        return ((ref, reading) for ref, reading in self.records if ref.generation == generation and start <= ref.offset < end)

    def fold(self, until: int | None = None, *, state: State | None = None, begin: int = 0) -> State:
        """The state after the first `until` records (all of them), going on from `state` at `begin`."""
        fold = Fold(self.agent.ids, self, state)
        for ref, reading in self.records[begin:until]:
            fold.apply(ref, reading)
        return fold.state

    def frozen(self, state: State, count: int) -> State:
        """A state after `count` records, as it comes back out of its checkpoint."""
        ref = self.records[count - 1][0]
        packed = freeze(state, "5d0c6a1f3b2e4987", ref.generation, ref.offset + ref.length, "0" * 64, "0" * 64).encode()
        return thaw(Checkpoint.decode(packed), self.agent.ids, self.run, self.at)


def state_of(agent_name: str, values: Sequence[object]) -> State:
    """The state at the end of a log."""
    return Log(agent_name, values).fold()


def whole_of(agent_name: str, values: Sequence[object]) -> State:
    """The same, with what only grows at hand."""
    return Log(agent_name, values).fold(state=State.whole())


def said(state: State) -> list[object]:
    """What the live conversation says, in order; a single text block as its text."""
    return [_text(message.content) for message in state.messages()]


def _text(content: object) -> object:
    match content:
        case [{"text": str(text)}]:
            return text
    return content


# --- lines of Claude Code's ---


def line(uuid: str, parent: str | None, *, kind: str = "user", content: object = None, answer: str | None = None, **fields: object) -> Line:
    """A line of the chain; without `content` it says its own id."""
    message: Line = {"role": kind, "content": uuid if content is None else content}
    if answer is not None:
        message["id"] = answer
    return {"type": kind, "uuid": uuid, "parentUuid": parent, "message": message, **fields}


def called(uuid: str, parent: str | None, invocation: str, *, answer: str | None = None, text: str = "") -> Line:
    """The model calls a tool."""
    blocks: list[object] = [{"type": "text", "text": text}] if text else []
    use = {"type": "tool_use", "id": invocation, "name": "Bash", "input": {"command": uuid}}
    return line(uuid, parent, kind="assistant", content=[*blocks, use], answer=answer)


def gave(uuid: str, parent: str | None, invocation: str, output: object = "done") -> Line:
    """A tool gave back."""
    return line(uuid, parent, content=[{"type": "tool_result", "tool_use_id": invocation, "content": output}])


def boundary(uuid: str, after: str | None, **about: object) -> Line:
    """A compaction begins."""
    return {
        "type": "system", "subtype": "compact_boundary", "uuid": uuid, "parentUuid": None, "logicalParentUuid": after,
        "timestamp": "2026-01-01T00:00:00.000Z", "compactMetadata": about,
    }  # fmt: skip


def summary(uuid: str, parent: str | None) -> Line:
    """What it made of the conversation."""
    return line(uuid, parent, isCompactSummary=True)


def hook(uuid: str, parent: str | None) -> Line:
    """Progress: in the chain, and silent."""
    return {"type": "progress", "uuid": uuid, "parentUuid": parent, "data": {"type": "hook_progress"}}
