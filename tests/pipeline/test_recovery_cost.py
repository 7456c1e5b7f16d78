"""What a recovery costs does not grow with the log, and can be told before."""

from __future__ import annotations

import dataclasses
import json
import random
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from coldtrail import indexes
from coldtrail.format.index import HEADER_BYTES, ROW_BYTES, RecordIndex, id_hash
from coldtrail.format.manifest import StreamMeta
from coldtrail.format.segment import Footer
from coldtrail.home import Home
from coldtrail.lookback import IdRows, LogPast
from coldtrail.model import Position
from coldtrail.plain import SegmentFile
from coldtrail.recover import Selection, StreamReader
from coldtrail.recovery import recover
from coldtrail.state import Ref
from pipeline.recovering import OFTEN, EventWorld, checkpointed, file_of, places, points, recovered
from pipeline.stage.places import flip_bit, sealed_files, the_session, the_stream
from pipeline.state.folding import line, said
from world_of import World, compact, small_sizes


@pytest.fixture
def mine(tmp_path: Path) -> Iterator[EventWorld]:
    with small_sizes():
        yield EventWorld(tmp_path)


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


# --- its cost ---


def cost(home: Home, meta: StreamMeta) -> tuple[int, int]:
    """Frames decoded and records replayed for the state at the end."""
    home.work.frames_decoded = 0
    found = recovered(home, meta)
    assert found.notes == []
    return home.work.frames_decoded, found.replayed


@pytest.mark.parametrize("cold", [False, True], ids=["fast", "dense"])
def test_the_end_of_a_log_twenty_times_longer_costs_no_more(tmp_path: Path, cold: bool) -> None:
    costs, plans = [], []
    with small_sizes():
        for turns in (40, 800):
            mine = EventWorld(tmp_path / str(turns))
            mine.append(mine.log, mine.turns(turns - 3) + mine.turns(3))
            mine.scan()
            with mine.open() as home:
                checkpointed(home, dataclasses.replace(OFTEN, cost_factor=10, every_events=20))
                compact(home, cold=cold)
            with mine.open() as home:
                costs.append(cost(home, the_stream(home)))
                plan = the_session(home).plan_recover()
                plans.append((plan.frames, plan.records))
    (frames, records), (more_frames, more_records) = costs
    assert more_frames <= 2 * frames  # which of them the conversation lies across differs
    assert more_records <= records + 40
    assert plans[1][0] <= 2 * plans[0][0]


def test_of_a_long_log_only_the_indexes_that_are_needed_are_read(mine: EventWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("coldtrail.stage.compact.TIER_FACTOR", 0)  # nothing is merged
    for _ in range(6):
        mine.append(mine.log, mine.turns(30))
        mine.scan()
        with mine.open() as home:
            checkpointed(home)
            compact(home, cold=True)
    with mine.open() as home:
        assert len(sealed_files(mine)) == 6
        read: list[int] = []
        index = SegmentFile.index

        def noted(segment: SegmentFile, footer: Footer) -> RecordIndex:
            read.append(segment.name.start)
            return index(segment, footer)

        monkeypatch.setattr(SegmentFile, "index", noted)
        meta = the_stream(home)
        recovered(home, meta)
        assert len(read) <= 1
        read.clear()
        recovered(home, meta, Position(0, mine.log.stat().st_size // 2))
        assert len(read) <= 2
        read.clear()
        assert recovered(home, meta, verify=True).verified is True
        assert len(read) == 6


@pytest.mark.parametrize("row", [0, 1, 77, 80, 239, None])
def test_the_index_of_what_is_still_growing_is_read_in_parts_and_each_made_good_where_it_is_damaged(
    mine: EventWorld, monkeypatch: pytest.MonkeyPatch, row: int | None
) -> None:
    monkeypatch.setattr("coldtrail.indexes._RUN_ROWS", 20)
    mine.append(mine.log, mine.turns(60))
    mine.scan()
    with mine.open() as home:
        checkpointed(home)
        meta = the_stream(home)
        wanted, everywhere = recovered(home, meta).state, places(home, meta)
        moments = [event.time_ms for event in the_session(home).events()][::31]
        counts = [the_session(home).recover(at=moment).state.event_count for moment in moments]
        if row is not None:
            flip_bit(file_of(home, meta).with_name("index"), HEADER_BYTES + row * ROW_BYTES + 5)
        assert places(home, meta) == everywhere
        assert recovered(home, meta, verify=True).verified is True
        assert recovered(home, meta).state == wanted
        assert [the_session(home).recover(at=moment).state.event_count for moment in moments] == counts
        read: list[int] = []
        part = indexes._read_part

        def noted(*given: Any) -> RecordIndex:
            read.append(given[3])
            return part(*given)

        monkeypatch.setattr(indexes, "_read_part", noted)
        recovered(home, meta)
        assert len(read) <= 4  # of 13: what is replayed, and what the conversation lies across


def test_segments_that_are_merged_while_their_indexes_are_read_lose_no_record(mine: EventWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("coldtrail.stage.compact.TIER_FACTOR", 0)
    for _ in range(4):
        mine.append(mine.log, mine.turns(20))
        mine.scan()
        with mine.open() as home:
            compact(home, cold=True)
    mine.append(mine.log, mine.turns(2))
    mine.scan()
    monkeypatch.setattr("coldtrail.stage.compact.TIER_FACTOR", 1000)
    with mine.open() as home:
        meta = the_stream(home)
        wanted = places(home, meta)
        with StreamReader(home, meta) as reader:
            found: list[Position] = []
            for generation, row in reader.rows(Selection()):
                if len(found) == 90:
                    with mine.open() as other:
                        compact(other, cold=True)
                    assert len(sealed_files(mine)) == 1
                found.append(Position(generation, row.offset))
            assert found == wanted
            assert reader.before(wanted[-1]) == wanted[-2]


def test_a_plan_tells_what_is_read(home: Home) -> None:
    session, meta = the_session(home), the_stream(home)
    for moment in points(home, meta, 8, random.Random(1)):
        plan, found = session.plan_recover(at=moment), recovered(home, meta, moment)
        assert (plan.checkpoint, plan.records, plan.until) == (found.checkpoint, found.replayed, moment)
        assert plan.bytes > 0
    assert session.plan_recover(before="#1").records == 0


def test_a_plan_reads_nothing_of_the_log(mine: EventWorld) -> None:
    mine.append(mine.log, mine.turns(60))
    mine.scan()
    with mine.open() as home:
        checkpointed(home)
        compact(home, cold=True)
    mine.log.unlink()
    with mine.open() as home:
        session, meta = the_session(home), the_stream(home)
        for moment in points(home, meta, 8, random.Random(1)):
            home.work.frames_decoded = 0
            plan = session.plan_recover(at=moment)
            assert home.work.frames_decoded == 0
            recovered(home, meta, moment)
            assert plan.frames <= home.work.frames_decoded <= 2 * plan.frames


@pytest.mark.slow
def test_a_log_of_ids_that_do_not_sort_is_folded_at_the_same_speed(tmp_path: Path) -> None:
    """200,000 events with random ids, 1,000 of them twice: exact, and with a table of some bytes a record."""
    chance = random.Random(9)
    ids = [str(uuid.UUID(int=chance.getrandbits(128), version=4)) for _ in range(200_000)]
    world = EventWorld(tmp_path)
    repeated = set(chance.sample(range(100_000), 1000))
    lines = [b'{"type":"decision_made","event_id":"%s","kind":"reasoning"}\n' % each.encode() for each in ids]
    again = [lines[n] for n in sorted(repeated)]
    world.append(world.log, b"".join(lines[:150_000]) + b"".join(again) + b"".join(lines[150_000:]))
    world.scan()
    with world.open() as home:
        meta = the_stream(home)
        with StreamReader(home, meta) as reader:
            rows = IdRows(reader)
            assert sum(map(sys.getsizeof, rows._buckets)) < 20 * 201_000
            behind = Ref(0, 1 << 40, 0)
            assert len(list(rows.having(id_hash(ids[min(repeated)]), behind))) == 2
            assert list(rows.having(id_hash("nowhere"), behind)) == []
        found = recovered(home, meta)
        assert found.state.event_count == 200_000
        assert found.state.decisions.count == 200_000
        assert found.replayed == 201_000


def test_two_ids_of_one_hash_are_two_ids(mine: EventWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("coldtrail.indexer.id_hash", lambda _: 7)
    monkeypatch.setattr("coldtrail.lookback.id_hash", lambda _: 7)
    events = [json.dumps({"type": "session_end", "event_id": name}).encode() + b"\n" for name in ("c", "b", "a", "b", "d", "c")]
    mine.append(mine.log, b"".join(events))
    mine.scan()
    with mine.open() as home:
        meta = the_stream(home)
        assert recovered(home, meta).state.event_count == 4
        with StreamReader(home, meta) as reader:
            past = LogPast(reader)
            ref, reading = past.find("b", Ref(0, 1 << 40, 0)) or (None, None)
            assert ref is not None
            assert reading is not None
            assert (ref.offset, reading.id) == (places(home, meta)[3].offset, "b")
            assert past.find("d", Ref(0, places(home, meta)[4].offset, 0)) is None


def test_two_terminals_on_one_session_are_recovered_in_no_time_that_squares(tmp_path: Path) -> None:
    """Each line shows the branch of its own terminal: the records of the other are read once, not once a line."""
    world = World(tmp_path)
    lines = [line("r", None), *(line(f"{side}{n}", f"{side}{n - 1}" if n else "r") for n in range(300) for side in "ab")]
    world.append(world.main(), b"".join(json.dumps(each).encode() + b"\n" for each in lines))
    world.scan()
    with world.open() as home:
        meta = the_stream(home)
        read = 0
        with StreamReader(home, meta) as reader:
            again = LogPast._read_again

            def counted(past: LogPast, ref: Ref) -> object:
                nonlocal read
                read += 1
                return again(past, ref)

            with pytest.MonkeyPatch.context() as patched:
                patched.setattr(LogPast, "_read_again", counted)
                state = recover(home, reader).state
        assert said(state) == ["r", *(f"b{n}" for n in range(300))]
        assert read <= len(lines)
