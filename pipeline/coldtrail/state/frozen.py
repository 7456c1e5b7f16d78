"""A state as a checkpoint, and back: only structure and small values are kept, content is read from the log again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields, replace

from coldtrail.format.checkpoint import Checkpoint, Run, ToldElsewhere
from coldtrail.format.fields import array
from coldtrail.model import EventType, Ids, Position, Reading
from coldtrail.state.fold import VERSION
from coldtrail.state.live import Base, Live
from coldtrail.state.nodes import nodes_of
from coldtrail.state.state import State
from coldtrail.state.values import Early, Grown, Node, Ref, Tool

ReadRun = Callable[[int, int, int], Iterable[tuple[Ref, Reading]]]  # generation, start, end -> the records there with a place in it
ReadOne = Callable[[Ref], Reading | None]

_GROWN = ("completed", "decisions", "snapshots")
_IN_THE_LOG = frozenset({"live", "left", "roots", "since", "pending", "early", "answers", "last_event", *_GROWN})
_PLAIN = tuple(f.name for f in fields(State) if f.name not in _IN_THE_LOG)


def freeze(state: State, stream: str, generation: int, offset: int, prefix_sha256: str, tail_sha256: str) -> Checkpoint:
    """The checkpoint of a state after the record that ends at `offset`."""
    base, nodes = state.live.base, state.live.tail
    first = 0 if base is None else base.count  # of these: those of the base are not read for it
    messages, chain = state.live.chain()
    small: dict[str, object] = {name: getattr(state, name) for name in _PLAIN}
    small |= {name: getattr(state, name).to_json() for name in _GROWN}
    small["answers"] = [[answer, usage] for answer, usage in state.answers.items()]  # in order: the oldest is the next to be forgotten
    small["left"] = [_place(ref) for ref in state.left]
    small["roots"] = [[parent, *_place(ref)] for parent, ref in state.roots]
    small["since"] = None if state.since is None else list(_place(state.since))
    small["last_event"] = None if state.last_event is None else str(state.last_event)
    return Checkpoint(
        version=VERSION,
        stream=stream,
        generation=generation,
        offset=offset,
        prefix_sha256=prefix_sha256,
        tail_sha256=tail_sha256,
        state_hash=state.hash(),
        live=(chain.hex(), len(state.live), messages),
        runs=_runs(() if base is None else base.runs, nodes),
        loose=(*(() if base is None else base.loose), *(at for at, node in enumerate(nodes, first) if node.loose)),
        told=(*(() if base is None else base.told), *_told(nodes, first)),
        tools=tuple((invocation, *_place(tool.ref)) for invocation, tool in state.pending.items()),
        early=tuple((invocation, *_place(done.ref)) for invocation, done in state.early.items()),
        small=small,
    )


def thaw(checkpoint: Checkpoint, ids: Ids, read: ReadRun, read_one: ReadOne) -> State:
    """The state of a checkpoint, its conversation not read yet; ValueError where it is not one of this log, as far as can be seen."""
    if checkpoint.version != VERSION:
        raise ValueError(f"made by version {checkpoint.version} of the fold; this one is version {VERSION}")
    state = _small(checkpoint.small)
    state.live = _conversation(checkpoint, lambda: nodes_at(checkpoint, ids, read))
    for invocation, *place in checkpoint.tools:
        time_ms, data = _event(read_one, Ref(*place), EventType.TOOL_INVOKED, invocation)
        state.pending[invocation] = Tool(Ref(*place), data.get("tool_name"), data.get("input"), time_ms)
    for invocation, *place in checkpoint.early:
        state.early[invocation] = Early(Ref(*place), _event(read_one, Ref(*place), EventType.TOOL_COMPLETED, invocation)[1])
    state.left, state.roots, state.since = _waiting(checkpoint)
    if state.hash() != checkpoint.state_hash:
        raise ValueError("its state has another hash than it names")
    return state


def settle(state: State, checkpoint: Checkpoint, ids: Ids, read: ReadRun) -> None:
    """Let a state hold its conversation as a checkpoint of it does, if none of it is asked for while the log goes on."""
    if ids in (Ids.LOOSE, Ids.UNIQUE):
        state.live = _conversation(checkpoint, lambda: nodes_at(checkpoint, ids, read))


def nodes_at(checkpoint: Checkpoint, ids: Ids, read: ReadRun) -> list[Node]:
    """The nodes that a checkpoint refers to; ValueError where the log does not give them."""
    try:
        nodes = [node for run in checkpoint.runs for node in _nodes(run, ids, read)]
        for at in checkpoint.loose:
            nodes[at] = replace(nodes[at], loose=True)
        for at, *place in checkpoint.told:
            nodes[at] = replace(nodes[at], told=Ref(*place))
    except IndexError as error:
        raise ValueError("the log gives fewer records than it refers to") from error
    return nodes


def _conversation(checkpoint: Checkpoint, read: Callable[[], list[Node]]) -> Live:
    """The live nodes, which are read when they are asked for."""
    chain, count, messages = checkpoint.live
    return Live(base=Base(count, messages, bytes.fromhex(chain), checkpoint.runs, checkpoint.loose, checkpoint.told, read))


def _waiting(checkpoint: Checkpoint) -> tuple[list[Ref], list[tuple[str | None, Ref]], Ref | None]:
    """Where branches end that were left behind, and what waits there for a parent; ValueError where these are no places before it."""
    left, roots = array(checkpoint.small, "left"), array(checkpoint.small, "roots")
    since = () if checkpoint.small["since"] is None else array(checkpoint.small, "since")
    places, end = [*left, *(root[1:] for root in roots), *([since] if since else [])], (checkpoint.generation, checkpoint.offset)
    if any(len(place) != 3 or (place[0], place[1] + place[2]) > end for place in places):
        raise ValueError("it refers to what the log does not have there")
    return [Ref(*place) for place in left], [(parent, Ref(*place)) for parent, *place in roots], Ref(*since) if since else None


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


def _told(nodes: list[Node], first: int) -> Iterator[ToldElsewhere]:
    return ((at, *_place(node.told)) for at, node in enumerate(nodes, first) if node.told not in (None, node.ref))


def _runs(before: tuple[Run, ...], nodes: list[Node]) -> tuple[Run, ...]:
    """Records, those that follow each other in the log as one run: what lies between has no place in the conversation."""
    runs = list(before)
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
