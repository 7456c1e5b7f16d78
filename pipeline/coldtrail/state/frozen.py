"""A state as a checkpoint, and back: only structure and small values are kept, content is read from the log again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, replace

from coldtrail.format.checkpoint import Checkpoint, Run
from coldtrail.model import EventType, Ids, Position, Reading
from coldtrail.state.fold import VERSION
from coldtrail.state.nodes import nodes_of
from coldtrail.state.values import Early, Grown, Node, Ref, State, Tool

ReadRun = Callable[[int, int, int], Iterable[tuple[Ref, Reading]]]  # generation, start, end -> the records there with a place in it
ReadOne = Callable[[Ref], Reading | None]

_GROWN = ("completed", "decisions", "snapshots")
_IN_THE_LOG = frozenset({"live", "left", "pending", "early", "answers", "last_event", *_GROWN})
_PLAIN = tuple(f.name for f in fields(State) if f.name not in _IN_THE_LOG)


def freeze(state: State, stream: str, generation: int, offset: int, prefix_sha256: str) -> Checkpoint:
    """The checkpoint of a state after the record that ends at `offset`."""
    nodes = [*state.live, *state.left]
    small: dict[str, object] = {name: getattr(state, name) for name in _PLAIN}
    small |= {name: getattr(state, name).to_json() for name in _GROWN}
    small["answers"] = [[answer, usage] for answer, usage in state.answers.items()]  # in order: the oldest is the next to be forgotten
    small["left"] = len(state.left)
    small["last_event"] = None if state.last_event is None else str(state.last_event)
    return Checkpoint(
        version=VERSION,
        stream=stream,
        generation=generation,
        offset=offset,
        prefix_sha256=prefix_sha256,
        state_hash=state.hash(),
        runs=_runs(nodes),
        loose=tuple(at for at, node in enumerate(nodes) if node.loose),
        told=tuple((at, *_place(node.told)) for at, node in enumerate(nodes) if node.told not in (None, node.ref)),
        tools=tuple((invocation, *_place(tool.ref)) for invocation, tool in state.pending.items()),
        early=tuple((invocation, *_place(done.ref)) for invocation, done in state.early.items()),
        small=small,
    )


def thaw(checkpoint: Checkpoint, ids: Ids, read: ReadRun, read_one: ReadOne) -> State:
    """The state of a checkpoint; ValueError where the log does not give what the checkpoint refers to, or hashes differ."""
    if checkpoint.version != VERSION:
        raise ValueError(f"made by version {checkpoint.version} of the fold; this one is version {VERSION}")
    state = _small(checkpoint.small)
    for run in checkpoint.runs:
        state.live += _nodes(run, ids, read)
    for at in checkpoint.loose:
        state.live[at] = replace(state.live[at], loose=True)
    for at, *place in checkpoint.told:
        state.live[at] = replace(state.live[at], told=Ref(*place))
    for invocation, *place in checkpoint.tools:
        time_ms, data = _event(read_one, Ref(*place), EventType.TOOL_INVOKED, invocation)
        state.pending[invocation] = Tool(Ref(*place), data.get("tool_name"), data.get("input"), time_ms)
    for invocation, *place in checkpoint.early:
        state.early[invocation] = Early(Ref(*place), _event(read_one, Ref(*place), EventType.TOOL_COMPLETED, invocation)[1])
    left = checkpoint.small["left"]
    if not isinstance(left, int) or not 0 <= left <= len(state.live):
        raise ValueError("it has fewer records than it says were left behind")
    state.live, state.left = state.live[: len(state.live) - left], state.live[len(state.live) - left :]
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
    state.answers = dict(small["answers"])  # type: ignore[call-overload] # pairs, as `freeze` wrote them
    last = small["last_event"]
    state.last_event = Position.parse(last) if isinstance(last, str) else None
    return state


def _nodes(run: Run, ids: Ids, read: ReadRun) -> list[Node]:
    """The live nodes of a run: all of its records', or some of one record's."""
    generation, start, end, *parts = run
    nodes = [node for ref, reading in read(generation, start, end) for node in nodes_of(ref, reading, ids)]
    if parts:
        return nodes[parts[0] : parts[1] + 1]
    return [*nodes[:1], *(replace(node, follows=ids in (Ids.LOOSE, Ids.UNIQUE)) for node in nodes[1:])]


def _event(read_one: ReadOne, ref: Ref, kind: EventType, invocation: str) -> tuple[int | None, Mapping[str, object]]:
    """The time and the data of what a record tells of a tool."""
    reading = read_one(ref)
    for meaning in reversed(reading.events if reading is not None else ()):
        if meaning.type is kind and str(meaning.data.get("invocation_id")) == invocation:
            return reading.time_ms if reading is not None else None, meaning.data
    raise ValueError(f"the record at {ref.generation}:{ref.offset} does not tell of {invocation}")


def _place(ref: Ref | None) -> tuple[int, int, int]:
    assert ref is not None
    return ref.generation, ref.offset, ref.length


def _runs(nodes: list[Node]) -> tuple[Run, ...]:
    """Records, those that follow each other in the log as one run: what lies between has no place in the conversation."""
    runs: list[Run] = []
    for node in nodes:
        generation, start, end = node.ref.generation, node.ref.offset, node.ref.offset + node.ref.length
        last = runs[-1] if runs else ()
        if node.part is not None:
            if last[:3] == (generation, start, end) and last[4:] == (node.part - 1,):
                runs[-1] = (*last[:4], node.part)
            else:
                runs.append((generation, start, end, node.part, node.part))
        elif len(last) == 3 and (node.follows or last[::2] == (generation, start)):
            runs[-1] = (generation, last[1], end)
        else:
            runs.append((generation, start, end))
    return tuple(runs)
