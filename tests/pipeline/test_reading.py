"""Reading a session: archived and live as one, in byte order, by time and place, without touching what was not asked for."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import pytest

from coldtrail.errors import AmbiguousError, NotFoundError, UsageError
from coldtrail.home import Home
from coldtrail.model import Event, Position, instant_text
from coldtrail.plain import Plain, SegmentFile
from coldtrail.stage.scan import Scanner
from pipeline.stage.places import the_session, the_stream
from world_of import START_MS, Lines, World, compact

pytestmark = pytest.mark.usefixtures("small")

MINUTE_MS = 60_000


def record(number: int, time_ms: int, *, uuid: str | None = None, kind: str = "user", size: int = 300) -> bytes:
    """A line with a time of its own choice; an assistant's says something and calls a tool."""
    content: object = f"said {number} " + "x" * size
    if kind == "assistant":
        content = [{"type": "text", "text": f"said {number}"}, {"type": "tool_use", "id": f"t{number}", "name": "Bash", "input": {}}]
    value = {
        "type": kind,
        "uuid": uuid or f"u{number}",
        "parentUuid": f"u{number - 1}",
        "timestamp": instant_text(time_ms),
        "message": {"role": kind, "content": content},
    }
    return json.dumps(value).encode() + b"\n"


def captured(world: World, parts: list[bytes], *, sealed: int = 0) -> None:
    """Captured part by part; the first `sealed` of them are in the archive."""
    for number, part in enumerate(parts):
        world.append(world.main(), part)
        world.clock.tick(MINUTE_MS)
        world.scan()
        if number + 1 == sealed:
            world.compact(cold=True)


def said(events: Iterator[Event]) -> list[str | None]:
    """The ids of those that say something."""
    return [event.id for event in events if event.type == "message_added"]


def frames_decoded(home: Home, act: Callable[[], object]) -> int:
    before = home.work.frames_decoded
    act()
    return home.work.frames_decoded - before


@pytest.mark.parametrize("sealed", [0, 1, 2, 3])
def test_what_is_archived_held_and_only_live_is_read_as_one(world: World, lines: Lines, sealed: int) -> None:
    captured(world, [lines.some(20), lines.some(5), lines.some(5)], sealed=sealed)
    world.append(world.main(), lines.some(3) + lines.line()[:-1])
    with world.open() as home:
        session = the_session(home)
        assert said(session.events()) == [lines.id_of(number) for number in range(34)]
        assert b"".join(session.raw()) == world.main().read_bytes()
        assert b"".join(placed.raw for placed in session.records()) == world.main().read_bytes()
        positions = [event.position for event in session.events()]
        assert positions == sorted(positions)
        assert session.gaps == []


def test_the_live_file_is_not_read_where_it_is_another_one(world: World, lines: Lines) -> None:
    captured(world, [lines.some(20)])
    held = world.main().read_bytes()
    world.write(world.main(), Lines(world.clock, "other").some(60))
    with world.open() as home:
        assert b"".join(the_session(home).raw()) == held


@pytest.mark.parametrize("sealed", [False, True], ids=["open", "sealed"])
def test_what_was_not_asked_for_is_not_decoded(world: World, sealed: bool) -> None:
    captured(world, [b"".join(record(number, START_MS + number * MINUTE_MS) for number in range(900))], sealed=int(sealed))
    with world.open() as home:
        session = the_session(home)
        everything = frames_decoded(home, lambda: list(session.events()))
        assert everything > 100
        last = list(session.events())[-50 * 2]
        late = session.row.last_ms
        assert late is not None
        assert frames_decoded(home, lambda: list(session.events(since=str(last.position)))) < everything // 8
        assert frames_decoded(home, lambda: list(session.events(since=late - 10 * MINUTE_MS))) < everything // 8
        assert frames_decoded(home, lambda: list(session.events(until="#10"))) < everything // 8
        assert frames_decoded(home, lambda: list(session.events(limit=10))) < everything // 8
        assert frames_decoded(home, lambda: list(session.events(types={"tool_completed"}))) < everything // 8
        assert frames_decoded(home, lambda: list(session.events(after="u890"))) < everything // 8


def test_types_choose_events_and_not_only_records(world: World) -> None:
    captured(world, [record(0, START_MS) + record(1, START_MS, kind="assistant") + record(2, START_MS)], sealed=1)
    with world.open() as home:
        session = the_session(home)
        assert [(event.type, event.id) for event in session.events(types={"tool_invoked"})] == [("tool_invoked", "u1")]
        both = [(str(event.type), event.id) for event in session.events(types={"tool_invoked", "message_added"})]
        assert both == [("message_added", "u0"), ("message_added", "u1"), ("tool_invoked", "u1"), ("message_added", "u2")]
        with pytest.raises(UsageError, match="tool_invokd"):
            list(session.events(types={"tool_invokd"}))


@pytest.mark.parametrize("count", [0, 1, 3, 100])
def test_a_limit_is_of_events(world: World, lines: Lines, count: int) -> None:
    captured(world, [lines.some(10)])
    with world.open() as home:
        everything = list(the_session(home).events())
        assert list(the_session(home).events(limit=count)) == everything[:count]


@pytest.mark.parametrize("sealed", [0, 1, 2])
def test_every_position_leads_back_to_its_event(world: World, sealed: int) -> None:
    parts = [b"".join(record(number, START_MS, kind=kind) for number in range(at, at + 4) for kind in ["assistant"]) for at in (0, 4)]
    captured(world, parts, sealed=sealed)
    with world.open() as home:
        session = the_session(home)
        everything = list(session.events())
        assert len({event.position for event in everything}) == len(everything)
        for number, event in enumerate(everything):
            text = str(event.position)
            assert Position.parse(text) == event.position
            assert list(session.events(since=text)) == everything[number:]
            assert list(session.events(until=text)) == everything[: number + 1]
            assert list(session.events(after=text)) == everything[number + 1 :]
            assert list(session.events(after=event.position)) == everything[number + 1 :]
            assert list(session.events(since=text, until=text)) == [event]


def test_positions_are_the_same_before_and_after_compaction(world: World, lines: Lines) -> None:
    captured(world, [lines.some(30), lines.some(30)])
    with world.open() as home:
        before = list(the_session(home).events())
        compact(home, cold=False)
        assert list(the_session(home).events()) == before
        compact(home, cold=True)
        assert list(the_session(home).events()) == before


def test_an_id_or_a_number_stands_for_all_that_its_record_holds(world: World) -> None:
    captured(world, [b"".join(record(number, START_MS, kind="assistant") for number in range(4))], sealed=1)
    with world.open() as home:
        session = the_session(home)
        for moment in ("u1", "#2"):
            assert {event.id for event in session.events(since=moment)} == {"u1", "u2", "u3"}
            assert [event.id for event in session.events(until=moment)].count("u1") == 2
            assert {event.id for event in session.events(after=moment)} == {"u2", "u3"}
            assert [placed.reading and placed.reading.id for placed in session.records(after=moment)] == ["u2", "u3"]
        with pytest.raises(NotFoundError, match="only 4 records"):
            list(session.events(since="#5"))
        with pytest.raises(NotFoundError, match="no record of this session has that id"):
            list(session.events(after="u9"))


@pytest.mark.parametrize("sealed", [0, 1, 2])
def test_an_id_that_several_records_have_is_asked_and_their_positions_listed(world: World, sealed: int) -> None:
    parts = [record(0, START_MS) + record(1, START_MS, uuid="twice"), record(2, START_MS, uuid="twice") + record(3, START_MS)]
    captured(world, parts, sealed=sealed)
    with world.open() as home:
        session = the_session(home)
        with pytest.raises(AmbiguousError) as raised:
            list(session.events(after="twice"))
        wanted = [str(placed.position) for placed in session.records() if placed.reading and placed.reading.id == "twice"]
        assert list(raised.value.candidates) == wanted
        assert said(session.events(since=wanted[1])) == ["twice", "u3"]


BACKWARDS = [0, 10, 5, 20, 15, 3, 30]  # minutes


@pytest.mark.parametrize("sealed", [0, 1, 2])
def test_where_times_run_backwards_a_time_means_what_stands_before_anything_later(world: World, sealed: int) -> None:
    rows = [record(number, START_MS + minute * MINUTE_MS) for number, minute in enumerate(BACKWARDS)]
    captured(world, [b"".join(rows[:4]), b"".join(rows[4:])], sealed=sealed)
    with world.open() as home:
        session = the_session(home)

        def numbers(**bounds: int) -> list[int]:
            bounds = {name: START_MS + minute * MINUTE_MS for name, minute in bounds.items()}
            return [int((identity or "u")[1:]) for identity in said(session.events(**bounds))]  # type: ignore[arg-type]

        assert numbers(until=12) == [0, 1, 2], "everything before the first record that is later"
        assert numbers(until=20) == [0, 1, 2, 3, 4, 5]
        assert numbers(until=-1) == []
        assert numbers(since=12) == [3, 4, 5, 6], "and the other way round: the two meet without hole or overlap"
        assert numbers(since=20) == [3, 4, 5, 6]
        assert numbers(since=31) == []
        assert numbers() == list(range(7)), "the order is that of the bytes"
        (row,) = home.catalog.sessions()
        assert (row.first_ms, row.last_ms) == (START_MS, START_MS + 30 * MINUTE_MS)


def test_a_childs_events_come_by_naming_it_and_not_among_the_sessions_own(world: World, lines: Lines) -> None:
    child = Lines(world.clock, "child000-0000")
    world.write(world.child(), child.some(3))
    world.write(world.companion(), b"a tool's output")
    captured(world, [lines.some(3)], sealed=1)
    with world.open() as home:
        session = the_session(home)
        assert said(session.events()) == [lines.id_of(number) for number in range(3)]
        stream = the_stream(home, world.child()).stream
        for name in (stream, str(world.child()), world.child().name):
            assert said(session.events(stream=name)) == [child.id_of(number) for number in range(3)]
        assert b"".join(session.raw(world.companion().name)) == b"a tool's output"
        with pytest.raises(NotFoundError, match="no such stream"):
            list(session.events(stream="nobody"))


def test_a_name_that_two_children_share_is_asked(world: World, lines: Lines) -> None:
    for run in ("run1", "run2"):
        world.write(world.child().parent / "workflows" / run / "journal.jsonl", b'{"type":"started"}\n')
    captured(world, [lines.some(1)])
    with world.open() as home, pytest.raises(AmbiguousError, match="2 streams fit"):
        list(the_session(home).events(stream="journal.jsonl"))


@pytest.mark.parametrize("already", [0, 1, 25, 59])
def test_a_reader_that_holds_a_cursor_reads_on_while_compaction_removes_its_segments(world: World, lines: Lines, already: int) -> None:
    captured(world, [lines.some(20), lines.some(20), lines.some(20)], sealed=1)
    with world.open() as home, world.open() as other:
        cursor = (event for event in the_session(home).events() if event.type == "message_added")
        found = [next(cursor).id for _ in range(already)]
        compact(other, cold=False)
        world.append(world.main(), lines.some(5))
        Scanner(other).scan(world.sources)
        compact(other, cold=True)
        found += [event.id for event in cursor]
    assert found[:60] == [lines.id_of(number) for number in range(60)]
    assert len(found) in (60, 65), "as of when it began, or as of now"


@pytest.mark.parametrize("nth", range(12))
@pytest.mark.parametrize("what", ["pieces", "segment"])
def test_compaction_at_any_moment_is_not_noticed_by_a_reader(
    world: World, lines: Lines, monkeypatch: pytest.MonkeyPatch, what: str, nth: int
) -> None:
    """Compacted right after the n-th listing of the segments, or right before the n-th is opened."""
    captured(world, [lines.some(20), lines.some(20), lines.some(20)], sealed=1)
    left, listing, opening = nth, Plain.pieces, Plain.segment

    def meanwhile() -> None:
        nonlocal left
        left -= 1
        if left == -1:
            monkeypatch.undo()
            world.compact(cold=True)

    def listed(self: Plain) -> object:
        found = listing(self)
        meanwhile()
        return found

    def opened(self: Plain, piece: object) -> SegmentFile:
        meanwhile()
        return opening(self, piece)  # type: ignore[arg-type]

    with world.open() as home:
        session = the_session(home)
        monkeypatch.setattr(Plain, what, listed if what == "pieces" else opened)
        assert said(session.events()) == [lines.id_of(number) for number in range(60)]
        assert session.gaps == []
