"""Recover a session's state at any moment: nearest checkpoint, then replay, and the proof that it is right."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from coldtrail import checkpoints
from coldtrail.format.checkpoint import Checkpoint
from coldtrail.format.index import mask_of
from coldtrail.format.lines import LineSplitter
from coldtrail.home import Home
from coldtrail.indexer import read_record
from coldtrail.model import Event, EventType, Gap, Position, Reading
from coldtrail.recover import Placed, Selection, StreamReader
from coldtrail.state import Fold, Ref, State, Tool, completed_tool
from coldtrail.state.frozen import thaw


@dataclass(frozen=True, slots=True)
class Plan:
    """What a recovery will read, told without reading it."""

    checkpoint: Position | None  # where it begins; None: at the start of the log
    until: Position | None  # the last record that it includes; None: the end
    records: int  # to be replayed
    bytes: int  # of these


@dataclass(slots=True)
class Recovery:
    """A state and how it came about."""

    state: State
    position: Position | None  # of the last record included; None where there is none
    checkpoint: Position | None  # that was used
    replayed: int  # records
    gaps: list[Gap] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)  # checkpoints passed over, and why
    verified: bool | None = None  # whether a replay from the start gave the same hash; None: not asked for


class LogPast:
    """The records of a stream, looked up by id; see state.Past."""

    def __init__(self, reader: StreamReader) -> None:
        self._reader = reader

    def find(self, record_id: str, before: Ref) -> tuple[Ref, Reading] | None:
        """The last record of that id before `before`."""
        found = None
        for placed in self._reader.placed(Selection(id=record_id)):
            ref = ref_of(placed)
            if (
                placed.reading is not None
                and placed.reading.id == record_id
                and (ref.generation, ref.offset) < (before.generation, before.offset)
            ):
                found = ref, placed.reading
        return found


def ref_of(placed: Placed) -> Ref:
    """Where a record stands."""
    return Ref(placed.generation, placed.record.offset, placed.record.length)


def plan(home: Home, reader: StreamReader, until: Position | None) -> Plan:
    """Which checkpoint a recovery would begin with, and how much it would replay; nothing of the log is read."""
    nearest = next(_candidates(home, reader, until, []), None)
    rows = [row for _, row in reader.rows(_after(nearest, until))]
    return Plan(_position(nearest), until, len(rows), sum(row.length for row in rows))


def recover(home: Home, reader: StreamReader, until: Position | None = None, *, verify: bool = False) -> Recovery:
    """The state after the record at `until` (inclusive; None: the end).

    A checkpoint that is damaged, of another version, or not borne out by the log is passed over for an earlier one, at last
    for the start of the log: the result is the same, and `notes` tells. `verify` replays from the start and compares hashes.
    """
    notes: list[str] = []
    fold, used = start(home, reader, until, notes)
    position, replayed = _replay(fold, reader, _after(used, until))
    recovery = Recovery(fold.state, position or _position(used), _position(used), replayed, reader.gaps, notes)
    if verify:
        whole = Fold(reader.agent.ids, LogPast(reader))
        _replay(whole, reader, _after(None, until))
        recovery.verified = whole.state.hash() == fold.state.hash()
        recovery.state = whole.state
    return recovery


def document(reader: StreamReader, recovery: Recovery) -> dict[str, object]:
    """The whole state as JSON: its bounded part, and what only grows, read from the log."""
    state = recovery.state
    return {
        **state.bounded(),
        "completed_tools": list(completed_tools(reader, recovery.position)),
        "decisions": [dict(event.data) for event in _events(reader, {EventType.DECISION_MADE}, recovery.position)],
        "last_event": None if state.last_event is None else str(state.last_event),
        "branches": state.branches,
        "loose": state.loose,
    }


def completed_tools(reader: StreamReader, until: Position | None) -> Iterator[dict[str, object]]:
    """The tools completed up to a moment, in the order of their completion; of one that is told again the last word counts."""
    invoked: dict[str, Tool] = {}
    done: dict[str, Event] = {}
    for event in _events(reader, {EventType.TOOL_INVOKED, EventType.TOOL_COMPLETED}, until):
        invocation, data = str(event.data.get("invocation_id")), event.data
        if event.type is EventType.TOOL_INVOKED:
            ref = Ref(event.position.generation, event.position.offset, 0)
            invoked[invocation] = Tool(ref, data.get("tool_name"), data.get("input"), event.time_ms)
        else:
            done[invocation] = event
    for invocation, event in done.items():
        yield completed_tool(invoked.get(invocation), event.data)


def _events(reader: StreamReader, types: set[EventType], until: Position | None) -> Iterator[Event]:
    for placed in reader.placed(Selection(mask=mask_of(types), until=until)):
        yield from (event for event in placed.events() if event.type in types)


def start(home: Home, reader: StreamReader, until: Position | None, notes: list[str]) -> tuple[Fold, Checkpoint | None]:
    """A fold at the nearest checkpoint that holds, or at the start of the log."""
    past = LogPast(reader)
    for checkpoint in _candidates(home, reader, until, notes):
        try:
            state = thaw(checkpoint, lambda generation, begin, end: _records(reader, generation, begin, end))
        except (ValueError, KeyError, IndexError, TypeError) as error:
            notes.append(f"the checkpoint at {_position(checkpoint)} is passed over ({error})")
            continue
        return Fold(reader.agent.ids, past, state), checkpoint
    return Fold(reader.agent.ids, past), None


def _candidates(home: Home, reader: StreamReader, until: Position | None, notes: list[str]) -> Iterator[Checkpoint]:
    """The checkpoints before a moment, by place, the nearest first."""
    for number in reversed(reader.chain):
        if until is not None and number > until.generation:
            continue
        limit = reader.content(number).end if until is None or number < until.generation else until.offset
        folder = home.layout.generation(reader.meta.stream, number)
        for checkpoint in checkpoints.nearest(home.plain(reader.meta, number), folder, limit, notes):
            if checkpoint.generation == number:
                yield checkpoint
            else:
                notes.append(f"the checkpoint at {_position(checkpoint)} is passed over (it lies with generation {number})")


def _records(reader: StreamReader, generation: int, begin: int, end: int) -> Iterator[tuple[Ref, Reading]]:
    """The records in a run of a generation's bytes."""
    splitter = LineSplitter(begin)
    data = reader.content(generation).get(begin, end)
    if len(data) < end - begin:
        raise ValueError(f"the log has a gap in {generation}:{begin} to {end}")
    for record in [*splitter.feed(data), *splitter.finish()]:
        reading = read_record(reader.agent, record)
        if reading is not None:
            yield Ref(generation, record.offset, record.length), reading


def _replay(fold: Fold, reader: StreamReader, wanted: Selection) -> tuple[Position | None, int]:
    """Apply the selected records; gives the last one's position and how many there were."""
    position, count = None, 0
    for placed in reader.placed(wanted):
        position, count = placed.position, count + 1
        if placed.reading is not None:
            fold.apply(ref_of(placed), placed.reading)
    return position, count


def _after(checkpoint: Checkpoint | None, until: Position | None) -> Selection:
    """The records behind a checkpoint, up to a moment."""
    begin = Position(checkpoint.generation, checkpoint.offset) if checkpoint is not None else None
    return Selection(begin=begin, until=replace(until, k=0) if until is not None else None)


def _position(checkpoint: Checkpoint | None) -> Position | None:
    """Where a checkpoint stands: behind its last record."""
    return None if checkpoint is None else Position(checkpoint.generation, checkpoint.offset)
