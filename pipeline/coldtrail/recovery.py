"""Recover a session's state at any moment: nearest checkpoint, then replay, and the proof that it is right."""

from __future__ import annotations

import bisect
import contextlib
import hashlib
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field, fields, replace

from coldtrail import checkpoints, indexes
from coldtrail.format.checkpoint import Checkpoint
from coldtrail.format.index import mask_of
from coldtrail.format.lines import LineSplitter
from coldtrail.format.segment import BlockHashes, prefix_hash
from coldtrail.indexer import read_record
from coldtrail.lookback import LogPast
from coldtrail.model import EventType, Gap, Ids, Meaning, Position, Reading
from coldtrail.plain import Plain
from coldtrail.recover import Placed, Selection, StreamReader
from coldtrail.state import Fold, Live, Node, Ref, State, UnreadError, digest
from coldtrail.state.frozen import ReadRun, nodes_at, thaw

FOUNDING_DIGITS = 16  # of the whole state's hash, in a log's own `checkpoint` events
_TAIL_BYTES = 4096
_SAYS = mask_of((EventType.MESSAGE_ADDED, EventType.CONTEXT_SUMMARIZED))


@dataclass(frozen=True, slots=True)
class Plan:
    """What a recovery will read, told without reading it."""

    checkpoint: Position | None  # where it begins; None: at the start of the log
    until: Position | None  # the last record that it includes; None: the end
    records: int  # to be replayed
    bytes: int  # of these
    frames: int  # to be decoded, for these and, once it is asked for, for the conversation that the checkpoint refers to


@dataclass(slots=True)
class Recovery:
    """A state and how it came about."""

    state: State
    position: Position | None  # of the last record included; None where there is none
    checkpoint: Position | None  # that was used
    replayed: int  # records
    gaps: list[Gap] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)  # checkpoints passed over, and why; what a replay from the start found
    verified: bool | None = None  # whether that bore the state out; None: not asked for, or not to be said because of gaps
    differing: list[Position] = field(default_factory=list)  # the log's own `checkpoint` events that name another state

    def become(self, other: Recovery) -> Live:
        """Be another one of the same moment, for whoever has this state at hand; gives the conversation, which is to be this one's."""
        for each in fields(State):
            if each.name != "live":
                setattr(self.state, each.name, getattr(other.state, each.name))
        self.checkpoint, self.replayed = other.checkpoint, other.replayed
        self.gaps, self.notes = list(dict.fromkeys([*self.gaps, *other.gaps])), [*self.notes, *other.notes]
        return other.state.live


def ref_of(placed: Placed) -> Ref:
    """Where a record stands."""
    return Ref(placed.generation, placed.record.offset, placed.record.length)


def plan(reader: StreamReader, until: Position | None) -> Plan:
    """Which checkpoint a recovery would begin with, and how much it would read; nothing of the log is."""
    nearest = next(_candidates(reader, until, checkpoints.Notes()), None)
    count, size = 0, 0
    spans: dict[int, tuple[int, int]] = {}  # of each generation what is replayed
    for generation, row in reader.rows(_after(nearest, until)):
        count, size = count + 1, size + row.length
        spans[generation] = spans.get(generation, (row.offset, 0))[0], row.offset + row.length
    ranges = [(generation, *span) for generation, span in spans.items()]
    live: list[tuple[int, int, int]] = []
    if nearest is not None:
        tail = nearest.generation, tail_start(nearest.offset), nearest.offset
        live = [tail, *((run[0], run[1], run[2]) for run in nearest.runs)]
    return Plan(_position(nearest), until, count, size, _count_frames(reader, [*ranges, *live]))


def recover(reader: StreamReader, until: Position | None = None, *, verify: bool = False) -> Recovery:
    """The state after the record at `until` (inclusive; None: the end).

    A checkpoint that is damaged, of another version, or not borne out by the log is passed over for an earlier one, at last
    for the start of the log: the result is the same, and `notes` tells. `verify` replays from the start and compares hashes,
    also those that the log's own `checkpoint` events name.
    """
    recovery, used = _recovered(reader, until, checkpoints.Notes(), reads_all=verify)
    if verify:
        _verify(reader, recovery, until, used)
    recovery.gaps = list(dict.fromkeys(reader.gaps))
    if recovery.state.forgotten:
        recovery.notes.append(_forgotten(recovery.state.forgotten))
    if used is not None:
        _read_later(reader, recovery, used)
    return recovery


def _recovered(
    reader: StreamReader, until: Position | None, notes: checkpoints.Notes, *, before: Position | None = None, reads_all: bool
) -> tuple[Recovery, Checkpoint | None]:
    """The state, and the checkpoint that it began with, which lies before `before`; with the conversation read, or not yet."""
    for fold, used in starts(reader, until, notes, before):
        try:
            position, replayed = _replay(fold, reader, _after(used, until))
            if reads_all:
                fold.state.live.nodes  # noqa: B018 - it reads
        except UnreadError as error:
            notes.passed(_position(used), str(error))
            continue
        if position is None and used is not None:
            position = reader.before(Position(used.generation, used.offset))
        return Recovery(fold.state, position, _position(used), replayed, [], notes), used
    raise AssertionError("the start of the log always holds")


def _forgotten(count: int) -> str:
    """That the fold gave up waiting, though what it waited for may have come since."""
    return (
        f"so many records came before what they refer to, or without it, that {count} of them or of the branches beside them are no longer"
        " awaiting it: if it came later, the state may be another than if it had come first"
    )


def _read_later(reader: StreamReader, recovery: Recovery, used: Checkpoint) -> None:
    """Let the conversation be read when somebody asks for it; this reader is closed by then, and perhaps the home.

    Where the log does not give what the checkpoint refers to, the state is recovered without that one, in its place.
    """

    def read() -> list[Node]:
        with reader.again() as later:
            return nodes_at(used, later.agent.ids, run_reader(later))

    def otherwise() -> Live:
        notes = checkpoints.Notes()
        notes.passed(_position(used), "the log does not give the conversation that it refers to")
        with reader.again() as later:
            found, _ = _recovered(later, recovery.position, notes, before=_position(used), reads_all=True)
            found.gaps = list(dict.fromkeys(later.gaps))
        return recovery.become(found)

    recovery.state.live.read_by(read, otherwise)


def document(reader: StreamReader, recovery: Recovery) -> dict[str, object]:
    """The whole state as JSON: its bounded part, and what only grows, for which the log is replayed from its start."""
    bounded, state = recovery.state.bounded(), recovery.state  # in this order: what it says besides may change when it is read
    whole = State.whole()
    if recovery.position is not None:
        _replay(Fold(reader.agent.ids, LogPast(reader), whole), reader, _after(None, recovery.position))
    return {
        **whole.document(),
        **bounded,
        "last_event": None if state.last_event is None else str(state.last_event),
        "branches": state.branches,
        "loose": state.loose,
    }


def starts(
    reader: StreamReader, until: Position | None, notes: checkpoints.Notes, before: Position | None = None
) -> Iterator[tuple[Fold, Checkpoint | None]]:
    """Folds to go on from: at each checkpoint that seems to hold, the nearest first, and at the start of the log.

    UnreadError while a fold goes on: its checkpoint does not hold.
    """
    past, ids = LogPast(reader), reader.agent.ids
    for checkpoint in _candidates(reader, until, notes):
        if before is not None and Position(checkpoint.generation, checkpoint.offset) >= before:
            continue
        try:
            _check_places(reader, checkpoint)
            _check_tail(reader, checkpoint)
            state = thaw(checkpoint, ids, run_reader(reader), lambda ref: _one(reader, ref))
        except (ValueError, KeyError, IndexError, TypeError) as error:
            notes.passed(f"{checkpoint.generation}:{checkpoint.offset}", str(error))
            continue
        yield Fold(ids, past, state), checkpoint
    yield Fold(ids, past), None


def _check_places(reader: StreamReader, checkpoint: Checkpoint) -> None:
    """ValueError where a checkpoint refers to what lies behind itself: that is looked for nowhere."""
    ends = {number: reader.end(number) for number in reader.chain if number < checkpoint.generation}
    ends[checkpoint.generation] = checkpoint.offset
    named = [*checkpoint.tools, *checkpoint.early, *checkpoint.told]
    places = [(run[0], run[2]) for run in checkpoint.runs] + [(each[1], each[2] + each[3]) for each in named]
    if any(end > ends.get(generation, -1) for generation, end in places):
        raise ValueError("it refers to what the log does not have there")


def _check_tail(reader: StreamReader, checkpoint: Checkpoint) -> None:
    """ValueError where a checkpoint was made of a log that says something else right before it; what cannot be read does not."""
    start, end = tail_start(checkpoint.offset), checkpoint.offset
    data = b"".join(part for _, part in reader.plain(checkpoint.generation).read(start, end, gaps=[]))
    if len(data) == end - start and tail_sha256(data) != checkpoint.tail_sha256:
        raise ValueError("the log says something else right before it")


def tail_start(end: int) -> int:
    """Where the last few bytes before a checkpoint begin, by which it is known to be of this log."""
    return max(0, end - _TAIL_BYTES)


def tail_sha256(data: bytes) -> str:
    """Their hash."""
    return hashlib.sha256(data).hexdigest()


def _verify(reader: StreamReader, recovery: Recovery, until: Position | None, used: Checkpoint | None) -> None:
    """Replay from the start, and say whether that gives the same state, and those that the log names itself; and the same bytes."""
    whole, met = State.whole(), set(reader.gaps)
    _replay(Fold(reader.agent.ids, LogPast(reader), whole), reader, _after(None, until), recovery)
    is_same = whole.hash() == recovery.state.hash() and not recovery.differing
    if is_same or met.issuperset(reader.gaps):
        recovery.verified = is_same
    else:  # the checkpoint was made when those ranges were whole
        recovery.notes.append("it cannot be verified: the log has gaps before the checkpoint")
    if used is not None and recovery.verified is not None and (differs := _differs(reader, used)) is not None:
        recovery.verified = False
        recovery.notes.append(differs)


def _differs(reader: StreamReader, used: Checkpoint) -> str | None:
    """Where the log has other bytes than when a checkpoint was made, as far as earlier ones tell; None where it has not, or has a gap."""
    plain = reader.plain(used.generation)
    if _prefix(plain, used.offset) in (None, used.prefix_sha256):
        return None
    earlier = reader.checkpoints(used.generation, used.offset - 1, checkpoints.Notes())
    same = next((each.offset for each in earlier if _prefix(plain, each.offset) == each.prefix_sha256), 0)
    return f"the log's bytes between {used.generation}:{same} and {used.offset} are not those of which the checkpoint there was made"


def _prefix(plain: Plain, end: int) -> str | None:
    """The hash of a generation's first bytes, read again; None where they cannot be."""
    blocks, gaps = BlockHashes(), list[Gap]()
    for _, data in plain.read(0, end, gaps):
        blocks.feed(data)
    return None if gaps else prefix_hash(blocks.digests())


def _candidates(reader: StreamReader, until: Position | None, notes: checkpoints.Notes) -> Iterator[Checkpoint]:
    """The checkpoints before a moment, by place, the nearest first."""
    for number in reversed(reader.chain):
        if until is not None and number > until.generation:
            continue
        end = reader.end(number)
        limit = end if until is None or number < until.generation else min(end, until.offset)
        yield from reader.checkpoints(number, limit, notes)


def run_reader(reader: StreamReader) -> ReadRun:
    """How a checkpoint's runs are read: of a log without chains only the records that say something, for no others are live."""
    if reader.agent.ids in (Ids.LOOSE, Ids.UNIQUE):
        return lambda generation, begin, end: _saying(reader, generation, begin, end)
    return lambda generation, begin, end: _records(reader, generation, begin, end)


def _saying(reader: StreamReader, generation: int, begin: int, end: int) -> Iterator[tuple[Ref, Reading]]:
    """The records in a run that say something."""
    wanted = Selection(mask=_SAYS, begin=Position(generation, begin), until=Position(generation, end - 1))
    return ((ref_of(placed), placed.reading) for placed in reader.placed(wanted) if placed.reading is not None)


def _one(reader: StreamReader, ref: Ref) -> Reading | None:
    """The record at a place."""
    return next((reading for _, reading in _records(reader, ref.generation, ref.offset, ref.offset + ref.length)), None)


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


def _replay(fold: Fold, reader: StreamReader, wanted: Selection, recovery: Recovery | None = None) -> tuple[Position | None, int]:
    """Apply the selected records; gives the last one's position and how many there were."""
    position, count = None, 0
    for placed in reader.placed(wanted):
        position, count = placed.position, count + 1
        if placed.reading is None:
            continue
        named = _named_states(placed.reading) if recovery is not None else []
        before = founding_hash(fold.state) if named else ""
        if fold.apply(ref_of(placed), placed.reading) and recovery is not None:
            for meaning in named:
                _compare(recovery, placed.position, meaning, before, fold.state.event_count - len(placed.reading.events))
    return position, count


def _named_states(reading: Reading) -> list[Meaning]:
    return [each for each in reading.events if each.type is EventType.CHECKPOINT and isinstance(each.data.get("state_hash"), str)]


def _compare(recovery: Recovery, position: Position, meaning: Meaning, before: str, event_count: int) -> None:
    """Note a `checkpoint` event of the log that names another state than the replay has before it."""
    named, counted = str(meaning.data["state_hash"]), meaning.data.get("event_count")
    if named[:FOUNDING_DIGITS].lower() != before or counted not in (None, event_count):
        recovery.differing.append(position)
        told, found = f"the state {named} after {counted} events", f"{before} after {event_count}"
        recovery.notes.append(f"the checkpoint event at {position} names {told}; replayed it is {found}")


def founding_hash(state: State) -> str:
    """What a log's own `checkpoint` event names: the first 16 hex digits of the SHA-256 of the whole state's canonical JSON."""
    return digest(state.document()).hex()[:FOUNDING_DIGITS]


def _count_frames(reader: StreamReader, spans: list[tuple[int, int, int]]) -> int:
    """How many frames hold these ranges: generation, start, end. A segment that is being compacted meanwhile is left out."""
    found: set[tuple[int, int]] = set()
    for number in reader.chain:
        plain = reader.plain(number)
        for piece in indexes.cover(plain):
            with contextlib.suppress(FileNotFoundError), closing(plain.segment(piece)) as segment:
                for generation, begin, end in spans:
                    if generation == number and begin < segment.plain_end and end > piece.name.start:
                        first = max(bisect.bisect_right(segment.starts, begin) - 1, 0)
                        found |= {(number, at) for at in segment.starts[first : bisect.bisect_left(segment.starts, end)]}
    return len(found)


def _after(checkpoint: Checkpoint | None, until: Position | None) -> Selection:
    """The records behind a checkpoint, up to a moment."""
    begin = Position(checkpoint.generation, checkpoint.offset) if checkpoint is not None else None
    return Selection(begin=begin, until=replace(until, k=0) if until is not None else None)


def _position(checkpoint: Checkpoint | None) -> Position | None:
    """Where a checkpoint stands: behind its last record."""
    return None if checkpoint is None else Position(checkpoint.generation, checkpoint.offset)
