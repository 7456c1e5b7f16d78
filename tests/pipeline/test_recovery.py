"""Recovery: at any moment, over generations and documents, with what is missing named, at a cost that does not grow with the log."""

from __future__ import annotations

import asyncio
import dataclasses
import hashlib
import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coldtrail import Session, checkpoints
from coldtrail.errors import AmbiguousError, NotFoundError, UsageError
from coldtrail.format import lines
from coldtrail.home import Home
from coldtrail.model import Position, instant_text
from coldtrail.recovery import founding_hash
from coldtrail.stage.checkpoint import Policy
from coldtrail.state import State
from coldtrail.state.frozen import freeze
from pipeline.recovering import EventWorld, checkpointed, file_of, held, places, points, recovered, replayed
from pipeline.stage.places import the_session, the_stream
from pipeline.state.anything import AGENTS
from pipeline.state.folding import Log
from world_of import Lines, World, compact, small_sizes


@pytest.fixture(params=["open", "sealed"])
def home(request: pytest.FixtureRequest, mine: EventWorld) -> Iterator[Home]:
    """A log of 60 turns with checkpoints, and a live tail that nobody has captured."""
    mine.append(mine.log, mine.turns(60))
    mine.scan()
    with mine.open() as home:
        checkpointed(home)
        if request.param == "sealed":
            compact(home, cold=True)
        mine.append(mine.log, mine.turns(2))
        yield home


# --- moments ---


def test_the_end_is_that_of_the_live_file(home: Home, mine: EventWorld) -> None:
    found = the_session(home).recover()
    assert found.position == places(home, the_stream(home))[-1]
    assert found.checkpoint is not None
    assert found.state.event_count == mine.count
    assert found.state_hash == replayed(home, the_stream(home))


def test_a_moment_is_a_time_an_id_a_number_or_a_position_and_is_included(home: Home) -> None:
    session, meta = the_session(home), the_stream(home)
    everywhere = places(home, meta)
    events = list(session.events())
    for n in range(0, len(everywhere), 17):
        event = events[n]
        wanted = replayed(home, meta, everywhere[n])
        for moment in (event.time_ms, instant_text(event.time_ms), event.id, f"#{n + 1}", str(event.position), event.position):
            found = session.recover(at=moment)
            assert (found.position, found.state_hash) == (everywhere[n], wanted), moment


def test_before_a_moment_is_just_short_of_it(home: Home) -> None:
    session, meta = the_session(home), the_stream(home)
    everywhere, events = places(home, meta), list(session.events())
    for n in range(1, len(everywhere), 23):
        for moment in (events[n].time_ms, events[n].id, f"#{n + 1}", everywhere[n]):
            assert session.recover(before=moment).position == everywhere[n - 1], moment
    for moment in (events[0].time_ms, events[0].id, "#1", everywhere[0]):
        nothing = session.recover(before=moment)
        assert (nothing.position, nothing.checkpoint, nothing.replayed) == (None, None, 0)
        assert nothing.state_hash == State().hash()
        assert nothing.document()["messages"] == []


def test_a_moment_that_is_not_there_is_told(home: Home) -> None:
    session = the_session(home)
    for moment, error in (
        ("e99999999", NotFoundError),
        ("#100000", NotFoundError),
        ("2020-01-01", NotFoundError),
        ("3:0.0", NotFoundError),
    ):
        with pytest.raises(error):
            session.recover(at=moment)
    with pytest.raises(UsageError, match="either"):
        session.recover(at="#1", before="#2")
    with pytest.raises(UsageError, match="either"):
        session.plan_recover(at="#1", before="#2")


def test_an_id_that_two_records_have_is_ambiguous(mine: EventWorld) -> None:
    line = mine.event("message_added", role="user", content="x")
    mine.append(mine.log, line + line)
    mine.scan()
    with mine.open() as home, pytest.raises(AmbiguousError, match="2 records"):
        the_session(home).recover(at=f"e{mine.count:08d}")


@pytest.mark.parametrize("at", ["+1", "end"])
def test_a_position_between_records_includes_what_begins_before_it(home: Home, at: str) -> None:
    session, meta = the_session(home), the_stream(home)
    everywhere = places(home, meta)
    if at == "end":
        assert session.recover(at=Position(0, 1 << 50)).position == everywhere[-1]
    else:
        place = everywhere[77]
        assert session.recover(at=Position(0, place.offset + 1)).position == place


def test_times_that_run_backwards_are_read_as_the_index_reads_them(mine: EventWorld) -> None:
    parts = []
    for at_ms in (5000, 1000, 9000, 2000, 3000):
        mine.clock.now_ms = 1_767_225_600_000 + at_ms
        parts.append(mine.event("message_added", role="user", content=str(at_ms)))
    mine.append(mine.log, b"".join(parts))
    mine.scan()
    with mine.open() as home:
        session = the_session(home)
        counts = [len(session.recover(at=1_767_225_600_000 + ms).state.messages()) for ms in (6000, 8999, 10_000)]
        assert counts == [2, 2, 5]


# --- the same with checkpoints and without ---


def test_at_random_moments_it_is_what_a_replay_gives(home: Home) -> None:
    meta = the_stream(home)
    for moment in points(home, meta, 20, random.Random(5)):
        found = recovered(home, meta, moment, verify=True)
        assert found.verified is True
        assert found.state.hash() == replayed(home, meta, moment)


@settings(max_examples=15, deadline=None)
@given(st.data())
def test_of_any_log_it_is_what_a_replay_gives(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(["claude-code", "event-log"]))
    values = data.draw(st.lists(AGENTS[name], min_size=5, max_size=40))
    world = World(tmp_path_factory.mktemp("any")) if name == "claude-code" else EventWorld(tmp_path_factory.mktemp("any"))
    path = world.log if isinstance(world, EventWorld) else world.main()
    policy = Policy(every_events=1, least_bytes=200, cost_factor=0)
    with small_sizes():
        cut = data.draw(st.integers(1, len(values)))
        for part in (values[:cut], values[cut:]):
            world.append(path, b"".join(json.dumps(each).encode() + b"\n" for each in part))
            world.scan()
            with world.open() as home:
                checkpointed(home, policy)
                if data.draw(st.booleans()):
                    compact(home, cold=True)
        with world.open() as home:
            meta = the_stream(home)
            for moment in [None, *places(home, meta)]:
                found = recovered(home, meta, moment)
                assert found.state.hash() == replayed(home, meta, moment)
                assert found.notes == []


def test_the_document_is_the_whole_state_whatever_it_began_with(home: Home, mine: EventWorld) -> None:
    session, meta = the_session(home), the_stream(home)
    everywhere = places(home, meta)
    for moment in points(home, meta, 6, random.Random(3)):
        found = session.recover(at=moment)
        document = found.document()
        whole = Log("event-log", mine.log.read_bytes()).fold(everywhere.index(moment or everywhere[-1]) + 1, state=State.whole())
        assert document["completed_tools"] == whole.completed.values  # type: ignore[attr-defined]
        assert document["messages"] == [message.to_json() for message in found.state.messages()]
        assert document["last_event"] == str(found.state.last_event)
        assert found.to_json()["state"] == document
        assert found.to_json()["state_hash_short"] == found.state_hash[:16]
        said = {key: each for key, each in document.items() if key not in ("last_event", "branches", "loose")}
        assert founding_hash(whole) == hashlib.sha256(lines.dumps(said, sort=True)).hexdigest()[:16]


def test_a_document_of_a_moment_does_not_change_when_the_log_goes_on(mine: EventWorld) -> None:
    mine.append(mine.log, mine.turns(5))
    mine.scan()
    with mine.open() as home:
        found = the_session(home).recover()
        before = found.document()
        mine.append(mine.log, mine.turns(5))
        mine.scan()
        assert found.document() == before


# --- proof ---


def test_a_checkpoint_that_lies_is_found_out(mine: EventWorld) -> None:
    """Its hash is right, but it is not the state of this log: what grows was counted wrong when it was made."""
    mine.append(mine.log, mine.turns(60))
    mine.scan()
    with mine.open() as home:
        checkpointed(home)
        meta = the_stream(home)
        state = recovered(home, meta).state
        state.completed.add("never happened")
        end = mine.log.stat().st_size
        honest = held(home, meta)[-1]
        lying = freeze(state, meta.stream, 0, end, honest.prefix_sha256, hashlib.sha256(mine.log.read_bytes()[-4096:]).hexdigest())
        checkpoints.add_to_file(file_of(home, meta).parent, [(end, lying.encode())], after=end)
        found = recovered(home, meta, verify=True)
        assert found.checkpoint == Position(0, end)
        assert (found.verified, found.differing) == (False, [])
        assert recovered(home, meta).verified is None


@pytest.mark.parametrize("wrong", [1, 3])
def test_bytes_that_are_not_those_of_the_checkpoint_are_found_and_it_is_said_where(mine: EventWorld, wrong: int) -> None:
    """The last few checkpoints name another hash of all before them than the log has."""
    mine.append(mine.log, mine.turns(60) + mine.turns(3))
    mine.scan()
    with mine.open() as home:
        checkpointed(home)
        meta = the_stream(home)
        before = held(home, meta)
        lying = [dataclasses.replace(each, prefix_sha256="0" * 64) for each in before[-wrong:]]
        checkpoints.add_to_file(
            file_of(home, meta).parent, [(each.offset, each.encode()) for each in lying], after=before[-wrong - 1].offset
        )
        found = recovered(home, meta, verify=True)
        assert found.verified is False
        same, differs = before[-wrong - 1].offset, before[-1].offset
        assert found.notes == [f"the log's bytes between 0:{same} and {differs} are not those of which the checkpoint there was made"]
        assert recovered(home, meta).notes == []


def naming(world: EventWorld, turns: int, state_of: Callable[[], State], **wrong: object) -> bytes:
    """Turns, and behind them an event that names the state before it."""
    data = world.turns(turns)
    world.append(world.log, data)
    state = state_of()
    named: dict[str, object] = {"state_hash": founding_hash(state), "event_count": state.event_count, **wrong}
    return world.event("checkpoint", **named)


def test_the_logs_own_checkpoints_are_compared_with_the_replay(mine: EventWorld) -> None:
    def whole() -> State:
        return Log("event-log", mine.log.read_bytes()).fold(state=State.whole())

    mine.append(mine.log, naming(mine, 12, whole))
    mine.append(mine.log, naming(mine, 12, whole))
    mine.scan()
    with mine.open() as home:
        meta = the_stream(home)
        found = recovered(home, meta, verify=True)
        assert (found.verified, found.differing, found.notes) == (True, [], [])
    for wrong in ({"state_hash": "0" * 16}, {"event_count": 5}):
        mine.append(mine.log, naming(mine, 3, whole, **wrong))
    full = whole()
    mine.append(mine.log, mine.event("checkpoint", state_hash=founding_hash(full).upper() + "0" * 48))  # all of it may be named
    mine.append(mine.log, mine.event("checkpoint", state_hash=5) + mine.event("checkpoint"))  # says nothing that could be wrong
    mine.scan()
    with mine.open() as home:
        found = recovered(home, meta, verify=True)
        assert found.verified is False
        wrong_ones = [event.position for event in the_session(home).events(types={"checkpoint"})][2:4]
        assert found.differing == wrong_ones
        assert [str(place) in note for place, note in zip(wrong_ones, found.notes, strict=True)] == [True, True]
        assert recovered(home, meta).differing == []
        assert the_session(home).recover(verify=True).to_json()["differing"] == [str(place) for place in wrong_ones]


def test_a_checkpoint_event_that_was_written_twice_is_compared_once(mine: EventWorld) -> None:
    def whole() -> State:
        return Log("event-log", mine.log.read_bytes()).fold(state=State.whole())

    event = naming(mine, 3, whole)
    mine.append(mine.log, event + mine.turns(2) + event)
    mine.scan()
    with mine.open() as home:
        found = recovered(home, the_stream(home), verify=True)
        assert (found.verified, found.differing) == (True, [])


def test_what_is_no_longer_awaited_is_told(mine: EventWorld) -> None:
    """Completions whose invocation has not come: so many are kept, from a checkpoint too, and the others are a note, not silence."""
    early = [mine.event("tool_completed", invocation_id=f"early{n}", output="x" * 100) for n in range(70)]
    mine.append(mine.log, b"".join(early[:64]))
    mine.scan()
    with mine.open() as home:
        assert recovered(home, the_stream(home)).notes == []
    mine.append(mine.log, b"".join(early[64:]))
    mine.scan()
    with mine.open() as home:
        assert checkpointed(home)
        found = recovered(home, the_stream(home), verify=True)
        assert (found.checkpoint is not None, found.verified, found.state.forgotten) == (True, True, 6)
        (note,) = found.notes
        assert " 6 of them " in note
        assert the_session(home).recover().to_json()["notes"] == [note]


# --- the API ---


def test_the_asynchronous_twin_gives_the_same_and_stays_usable(home: Home) -> None:
    session = the_session(home)
    wanted = session.recover(at="#50", verify=True)
    found = asyncio.run(session.arecover(at="#50", verify=True))
    assert (found.state, found.position, found.recovery.verified) == (wanted.state, wanted.position, True)
    assert found.document() == wanted.document()
    assert found.to_json() == wanted.to_json()
    assert len(list(session.events())) > 50

    async def several() -> list[str]:
        return [each.state_hash for each in await asyncio.gather(*(session.arecover(at=f"#{n}") for n in (5, 50, 150)))]

    assert asyncio.run(several()) == [session.recover(at=f"#{n}").state_hash for n in (5, 50, 150)]


def test_the_twin_tells_what_is_wrong_too(home: Home) -> None:
    with pytest.raises(NotFoundError):
        asyncio.run(the_session(home).arecover(at="nowhere"))


def test_a_sub_agents_log_has_a_state_of_its_own(tmp_path: Path) -> None:
    with small_sizes():
        world = World(tmp_path)
        world.append(world.main(), Lines(world.clock).some(5))
        world.append(world.child(), Lines(world.clock, count=100).some(3))
        world.scan()
        with world.open() as home:
            (row,) = home.catalog.sessions()
            session = Session(home, row)
            assert len(session.recover().state.messages()) == 5
            assert len(session.recover(stream="agent-a1.jsonl").state.messages()) == 3
            assert len(held(home, the_stream(home, world.main()))) == 0
