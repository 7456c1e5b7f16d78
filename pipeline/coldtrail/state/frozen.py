"""A state as a checkpoint, and back: only structure and small values are kept, content is read from the log again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, replace

from coldtrail.format.checkpoint import Checkpoint
from coldtrail.model import EventType, Meaning, Position, Reading
from coldtrail.state.conversation import node_of
from coldtrail.state.fold import VERSION
from coldtrail.state.values import Early, Grown, Node, Ref, State, Tool

ReadRun = Callable[[int, int, int], Iterable[tuple[Ref, Reading]]]  # generation, start, end -> the records there

_GROWN = ("completed", "decisions", "snapshots")
_IN_THE_LOG = frozenset({"live", "pending", "early", "last_event", *_GROWN})
_PLAIN = tuple(f.name for f in fields(State) if f.name not in _IN_THE_LOG)


def freeze(state: State, generation: int, offset: int, prefix_sha256: str) -> Checkpoint:
    """The checkpoint of a state after the record that ends at `offset`."""
    small: dict[str, object] = {name: getattr(state, name) for name in _PLAIN}
    small |= {name: getattr(state, name).to_json() for name in _GROWN}
    small["last_event"] = None if state.last_event is None else str(state.last_event)
    return Checkpoint(
        version=VERSION,
        generation=generation,
        offset=offset,
        prefix_sha256=prefix_sha256,
        state_hash=state.hash(),
        runs=_runs(state.live),
        loose=tuple(at for at, node in enumerate(state.live) if node.loose),
        tools=tuple((invocation, *_place(tool.ref)) for invocation, tool in state.pending.items()),
        early=tuple((invocation, *_place(done.ref)) for invocation, done in state.early.items()),
        small=small,
    )


def thaw(checkpoint: Checkpoint, read: ReadRun) -> State:
    """The state of a checkpoint; ValueError where the log does not give what the checkpoint refers to, or hashes differ."""
    if checkpoint.version != VERSION:
        raise ValueError(f"made by version {checkpoint.version} of the fold; this one is version {VERSION}")
    state = _small(checkpoint.small)
    for run in checkpoint.runs:
        state.live += [node_of(ref, reading)[0] for ref, reading in read(*run)]
    for at in checkpoint.loose:
        state.live[at] = replace(state.live[at], loose=True)
    for invocation, *place in checkpoint.tools:
        ref, reading, meaning = _event(read, place, EventType.TOOL_INVOKED, invocation)
        state.pending[invocation] = Tool(ref, meaning.data.get("tool_name"), meaning.data.get("input"), reading.time_ms)
    for invocation, *place in checkpoint.early:
        ref, _, meaning = _event(read, place, EventType.TOOL_COMPLETED, invocation)
        state.early[invocation] = Early(ref, meaning.data)
    if state.hash() != checkpoint.state_hash:
        raise ValueError("its state has another hash than it names")
    return state


def _small(small: Mapping[str, object]) -> State:
    state = State()
    for name in _PLAIN:
        setattr(state, name, small[name])
    for name in _GROWN:
        count, total = small[name]  # type: ignore[misc] # what `to_json` gave
        setattr(state, name, Grown(count, int(total, 16)))  # type: ignore[has-type]
    last = small["last_event"]
    state.last_event = Position.parse(last) if isinstance(last, str) else None
    return state


def _event(read: ReadRun, place: list[int], kind: EventType, invocation: str) -> tuple[Ref, Reading, Meaning]:
    generation, offset, length = place
    for ref, reading in read(generation, offset, offset + length):
        for meaning in reading.events:
            if meaning.type is kind and str(meaning.data.get("invocation_id")) == invocation:
                return ref, reading, meaning
    raise ValueError(f"the record at {generation}:{offset} does not tell of {invocation}")


def _place(ref: Ref) -> tuple[int, int, int]:
    return ref.generation, ref.offset, ref.length


def _runs(live: list[Node]) -> tuple[tuple[int, int, int], ...]:
    """The live records, those that follow each other in the log as one run."""
    runs: list[tuple[int, int, int]] = []
    for node in live:
        generation, start, end = node.ref.generation, node.ref.offset, node.ref.offset + node.ref.length
        if runs and runs[-1][0] == generation and runs[-1][2] == start:
            runs[-1] = (generation, runs[-1][1], end)
        else:
            runs.append((generation, start, end))
    return tuple(runs)
