"""What is missing of a log is named, and its generations are one log, or several, as they are related."""

from __future__ import annotations

import json
import random
from contextlib import closing
from pathlib import Path

import pytest

from coldtrail.agents import agent
from coldtrail.agents.walk import Source
from coldtrail.format.frames import Frame
from coldtrail.format.manifest import StreamMeta
from coldtrail.home import Home
from coldtrail.model import Position, Relation
from pipeline.recovering import EventWorld, checkpointed, places, points, recovered, replayed
from pipeline.stage.places import flip_bit, sealed_files, the_session, the_stream
from world_of import World, compact

# --- what is missing ---


def damaged(mine: EventWorld, at: float) -> None:
    (path,) = sealed_files(mine)
    begin = path.read_bytes().index(b"\x50\x2a\x4d\x18")  # behind the data
    flip_bit(path, int(begin * at))


def test_a_damaged_range_is_named_once_and_what_is_left_is_recovered(mine: EventWorld) -> None:
    mine.append(mine.log, mine.turns(60))
    mine.scan()
    with mine.open() as home:
        compact(home, cold=True)
    mine.log.unlink()
    damaged(mine, 0.5)
    with mine.open() as home:
        found = recovered(home, the_stream(home), verify=True)
        (gap,) = found.gaps
        assert 0 < gap.start < gap.end < home.plain(the_stream(home), 0).end()
        assert found.state.event_count > mine.count / 2
        assert found.position == places(home, the_stream(home))[-1]
        assert found.verified is True
        assert the_session(home).recover().to_json()["gaps"] == [{"generation": 0, "start": gap.start, "end": gap.end, "what": gap.what}]


def test_a_checkpoint_behind_a_damaged_range_makes_good_for_it(mine: EventWorld) -> None:
    """It was made when all was whole; whether it is right cannot be said any more."""
    mine.append(mine.log, mine.turns(60))
    mine.scan()
    with mine.open() as home:
        checkpointed(home)
        compact(home, cold=True)
        meta = the_stream(home)
        wanted = recovered(home, meta)
    mine.log.unlink()
    damaged(mine, 0.1)
    with mine.open() as home:
        found = recovered(home, meta)
        assert (found.state, found.gaps) == (wanted.state, [])
        found = recovered(home, meta, verify=True)
        assert found.state == wanted.state
        assert found.verified is None
        assert len(found.gaps) == 1
        assert "cannot be verified" in found.notes[-1]


@pytest.mark.parametrize("verify", [False, True])
def test_a_checkpoint_whose_records_are_damaged_is_passed_over_once_they_are_asked_for(mine: EventWorld, verify: bool) -> None:
    mine.append(mine.log, mine.turns(60, summary_every=1000))
    mine.scan()
    with mine.open() as home:
        checkpointed(home)
        compact(home, cold=True)
        meta = the_stream(home)
    mine.log.unlink()
    damaged(mine, 0.1)
    with mine.open() as home:
        found = recovered(home, meta, verify=verify)
        assert 0 < len(found.state.messages()) < 120
        assert found.checkpoint is None or found.checkpoint.offset < found.gaps[0].end
        assert found.notes
        assert len(found.gaps) == 1
        other = recovered(home, meta, verify=not verify).state
        assert (other.messages(), other) == (found.state.messages(), found.state)
        for first, second in ((recovered(home, meta).state, other), (other, recovered(home, meta).state)):
            assert first == second  # though one is recovered anew while they are compared
        told = the_session(home).recover().to_json()
        assert told["state_hash"] == found.state.hash()
        assert told["notes"]


def test_damage_in_the_agents_own_bytes_is_no_gap(mine: EventWorld) -> None:
    mine.append(mine.log, mine.turns(10) + b'{"torn":' + mine.turns(10) + b"\0" * 500 + b"\n" + mine.turns(10))
    mine.scan()
    with mine.open() as home:
        checkpointed(home)
        found = recovered(home, the_stream(home), verify=True)
        assert (found.verified, found.gaps, found.notes) == (True, [], [])
        assert found.state.event_count == mine.count


def test_damage_inside_a_line_that_is_not_finished_moves_no_record(mine: EventWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """The line lies in several frames, of which one cannot be read; what comes behind it stands where it stood."""
    head = mine.turns(3)
    long = mine.event("message_added", role="user", content="".join(map(str, random.Random(3).choices(range(10), k=9000))))[:-20]
    mine.append(mine.log, head + long)
    mine.scan()
    mine.clock.tick(60_000)
    mine.scan()
    mine.log.unlink()
    with mine.open() as home:
        meta = the_stream(home)
        assert home.plain(meta, 0).end() == len(head + long)
        wanted = places(home, meta)
        assert wanted[-1] == Position(0, len(head))
        name, frame, start = [each for each in frames_of(home, meta) if len(head) < each[2] < len(head) + 5000][1]
        flip_bit(home.layout.generation(meta.stream, 0) / name, frame.offset + frame.length - 6)
    with mine.open() as home:
        records = places(home, meta)
        assert records[: len(wanted) - 1] == wanted[:-1]
        behind = Position(0, start + frame.plain_length)
        assert behind in records
        assert recovered(home, meta).gaps[0].start == start


def frames_of(home: Home, meta: StreamMeta) -> list[tuple[str, Frame, int]]:
    """The frames of what is in open segments: the segment's name, the frame, where its content stands."""
    plain, found = home.plain(meta, 0), list[tuple[str, Frame, int]]()
    for piece in plain.pieces():
        with closing(plain.segment(piece)) as segment:
            found += [(str(piece.name), *each) for each in zip(segment.frames, segment.starts, strict=False)]
    return found


# --- generations ---


def test_a_log_made_again_without_its_head_goes_on_where_the_lost_one_ended(mine: EventWorld) -> None:
    first = mine.turns(40)
    mine.append(mine.log, first)
    mine.scan()
    with mine.open() as home:
        checkpointed(home)
        compact(home, cold=True)
    mine.log.unlink()
    mine.append(mine.log, mine.turns(30))
    mine.scan()
    with mine.open() as home:
        meta = the_stream(home)
        assert [each.relation for each in meta.generations] == [None, Relation.CONTINUES]
        assert recovered(home, meta).checkpoint.generation == 0  # type: ignore[union-attr]
        assert checkpointed(home) > 5
        found = recovered(home, meta, verify=True)
        assert found.verified is True
        assert found.checkpoint is not None
        assert found.checkpoint.generation == 1
        assert found.state.event_count == mine.count
        for moment in points(home, meta, 20, random.Random(2)):
            assert recovered(home, meta, moment).state.hash() == replayed(home, meta, moment)
        boundary = next(place for place in places(home, meta) if place.generation == 1)
        assert the_session(home).recover(before=boundary).position == [p for p in places(home, meta) if p.generation == 0][-1]
        # the conversation that is live has records of both generations
        joined = recovered(home, meta, boundary)
        assert {node.ref.generation for node in joined.state.live} == {0, 1}


def test_of_a_log_that_was_rewritten_a_position_leads_into_the_one_before(mine: EventWorld) -> None:
    mine.append(mine.log, mine.turns(30))
    mine.scan()
    with mine.open() as home:
        checkpointed(home)
        wanted = recovered(home, the_stream(home))
    mine.write(mine.log, mine.turns(20))
    mine.scan()
    with mine.open() as home:
        session = the_session(home)
        found = session.recover(at=wanted.position)
        assert (found.position, found.state_hash) == (wanted.position, wanted.state.hash())
        assert found.document()["event_count"] == wanted.state.event_count
        assert session.recover().position == places(home, the_stream(home))[-1]
        assert session.recover().position.generation == 1  # type: ignore[union-attr]


def test_an_old_gemini_session_is_a_document_and_has_a_state(tmp_path: Path) -> None:
    class Gemini(World):
        @property
        def sources(self) -> list[Source]:
            return [Source("gemini-cli", agent("gemini-cli"), self.root)]

    world = Gemini(tmp_path)
    path = world.root / "tmp" / "p" / "chats" / "session-2026-01-01T00-00-11111111.json"
    messages = [{"id": f"m{n}", "type": "user" if n % 2 else "gemini", "content": f"said {n}"} for n in range(4)]
    head = {"sessionId": "11111111-2222", "projectHash": "h", "startTime": "2026-01-01T00:00:00.000Z"}
    for count in (2, 4):
        world.write(path, json.dumps({**head, "messages": messages[:count]}, indent=2).encode())
        world.scan()
        with world.open() as home:
            session = the_session(home)
            found = session.recover(verify=True)
            assert [message.content for message in found.state.messages()] == [f"said {n}" for n in range(count)]
            assert (found.recovery.verified, found.gaps) == (True, [])
            assert found.position == Position(the_stream(home).newest.number, 0)


def test_a_record_across_two_segments_is_read_though_the_index_of_the_second_is_damaged(
    mine: EventWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("coldtrail.stage.compact.TIER_FACTOR", 0)
    long = mine.event("message_added", role="user", content="y" * 20_000)
    for part in (mine.turns(3), long[:9000], long[9000:] + mine.turns(3)):
        mine.append(mine.log, part)
        mine.clock.tick(60_000)
        mine.scan()
        mine.clock.tick(60_000)
        mine.scan()
        mine.compact(cold=True)
    mine.log.unlink()
    with mine.open() as home:
        meta = the_stream(home)
        wanted = places(home, meta)
        before = recovered(home, meta).state
    last = sealed_files(mine)[-1]
    assert len(sealed_files(mine)) == 3
    flip_bit(last, last.read_bytes().index(b"CTix") + 40)
    with mine.open() as home:
        assert places(home, meta) == wanted
        found = recovered(home, meta, verify=True)
        assert (found.state, found.verified, found.gaps) == (before, True, [])
