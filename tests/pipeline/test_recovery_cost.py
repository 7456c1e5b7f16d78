"""What a recovery costs does not grow with the log, and can be told before."""

from __future__ import annotations

import dataclasses
import itertools
import json
import random
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from coldtrail.format.frames import ReadAt
from coldtrail.format.ids import IdTable
from coldtrail.format.index import HEADER_BYTES, ROW_BYTES, Part, RecordIndex, id_hash
from coldtrail.format.manifest import StreamMeta
from coldtrail.format.segment import Footer
from coldtrail.home import Home
from coldtrail.lookback import LogPast
from coldtrail.model import Position
from coldtrail.plain import SegmentFile
from coldtrail.recover import Selection, StreamReader
from coldtrail.recovery import recover
from coldtrail.state import Ref
from pipeline.recovering import OFTEN, EventWorld, checkpointed, file_of, places, points, recovered
from pipeline.stage.places import flip_bit, sealed_files, the_session, the_stream
from pipeline.state.folding import line, said
from world_of import World, compact, small_sizes


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
    assert more_records <= records + 40
    assert more_frames <= frames + max(more_records - records, 4)  # a frame holds a few hundred bytes here, so some records are in two
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
        noted(monkeypatch, read)
        recovered(home, meta)
        assert len(read) <= 5  # of 13: what is replayed, and what the conversation lies across


def noted(monkeypatch: pytest.MonkeyPatch, read: list[int]) -> None:
    """Note each part of an index file that is read."""
    part = Part.read

    def noting(self: Part, source: ReadAt) -> RecordIndex:
        read.append(self.offset)
        return part(self, source)

    monkeypatch.setattr(Part, "read", noting)


@pytest.mark.parametrize("turns", [200, 1600])
def test_ids_that_do_not_sort_are_looked_for_at_once_in_all_that_nobody_has_sealed(
    mine: EventWorld, monkeypatch: pytest.MonkeyPatch, turns: int
) -> None:
    """Each record's, however many parts the index has: it is read twice, once for a table of ids and once for the records."""
    monkeypatch.setattr("coldtrail.indexes._RUN_ROWS", 20)
    chance, read, asked = random.Random(3), list[int](), list[int]()
    ids = [str(uuid.UUID(int=chance.getrandbits(128), version=4)) for _ in range(turns)]
    lines = [b'{"type":"decision_made","event_id":"%s","kind":"reasoning"}\n' % each.encode() for each in ids]
    mine.append(mine.log, b"".join([*lines, lines[7], lines[turns // 2]]))
    mine.scan()
    having = IdTable.having

    def asking(self: IdTable, hashed: int) -> list[int]:
        asked.append(hashed)
        return having(self, hashed)

    noted(monkeypatch, read)
    monkeypatch.setattr(IdTable, "having", asking)
    with mine.open() as home:
        checkpointed(home)
        parts = -(-(turns + 2) // 20)
        assert len(asked) <= turns + 2
        assert len(read) <= 2 * parts + 4  # to see that it is whole, and for the two that were there before
        assert recovered(home, the_stream(home)).state.decisions.count == turns
        assert recovered(home, the_stream(home), verify=True).verified is True


def test_times_are_asked_of_hundreds_of_parts_one_after_the_other(mine: EventWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """The newest time before a part is that of the part before it: of the last one it is asked first here."""
    monkeypatch.setattr("coldtrail.indexes._RUN_ROWS", 2)
    mine.append(mine.log, mine.turns(400))
    mine.scan()
    with mine.open() as home, StreamReader(home, the_stream(home)) as reader:
        runs = reader._known_runs(0)[0]
        assert len(runs) > sys.getrecursionlimit() // 2
        assert runs[-1].index.base_ms == runs[-2].newest_ms == mine.clock.now_ms - 1000 * (len(runs[-1].index))


def test_an_index_file_that_is_cut_while_it_is_read_is_looked_up_again(mine: EventWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """Segments were sealed meanwhile: what is left in the file stands elsewhere in it."""
    monkeypatch.setattr("coldtrail.indexes._RUN_ROWS", 20)
    mine.append(mine.log, mine.turns(60))
    mine.scan()
    with mine.open() as home:
        meta = the_stream(home)
        wanted = places(home, meta)
        with StreamReader(home, meta) as reader:
            rows = reader.rows(Selection())
            found = [Position(generation, row.offset) for generation, row in itertools.islice(rows, 30)]
            compact(home, cold=True)
            found += [Position(generation, row.offset) for generation, row in rows]
        assert found == wanted


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
            recovered(home, meta, moment).state.messages()
            assert plan.frames <= home.work.frames_decoded <= 3 * plan.frames  # for its last bytes, the replay, the conversation


def test_of_a_log_of_ids_that_do_not_sort_no_index_is_read_but_that_of_the_end(mine: EventWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor of a log of several segments more than of one; and one that was there long ago counts once all the same."""
    monkeypatch.setattr("coldtrail.stage.compact.TIER_FACTOR", 0)  # nothing is merged
    chance, read = random.Random(4), list[int]()
    index = SegmentFile.index

    def noted(segment: SegmentFile, footer: Footer) -> RecordIndex:
        read.append(segment.name.start)
        return index(segment, footer)

    def some() -> list[bytes]:
        ids = [uuid.UUID(int=chance.getrandbits(128), version=4) for _ in range(100)]
        return [b'{"type":"message_added","role":"user","event_id":"%s","content":"%d"}\n' % (str(each).encode(), each.int) for each in ids]

    first = some()
    for part in (first, some(), some(), some(), [*some(), first[7]]):
        mine.append(mine.log, b"".join(part))
        mine.scan()
        with mine.open() as home:
            checkpointed(home)
            compact(home, cold=True)
    assert len(sealed_files(mine)) == 5
    monkeypatch.setattr(SegmentFile, "index", noted)
    with mine.open() as home:
        meta, last = the_stream(home), places(home, the_stream(home))[-2]
        read.clear()
        found = recovered(home, meta, last)
        assert (found.state.event_count, len(set(read))) == (500, 1)
        assert found.replayed > 2
        read.clear()
        found = recovered(home, meta)
        assert (found.state.event_count, set(read)) == (500, {0, max(read)})
        assert recovered(home, meta, verify=True).verified is True


@pytest.mark.slow
def test_a_log_of_ids_that_do_not_sort_is_folded_at_the_same_speed(tmp_path: Path) -> None:
    """60,000 events with random ids, 1,000 of them twice: exact, and with a table of some bytes a record."""
    chance = random.Random(9)
    ids = [str(uuid.UUID(int=chance.getrandbits(128), version=4)) for _ in range(60_000)]
    world = EventWorld(tmp_path)
    repeated = set(chance.sample(range(30_000), 1000))
    lines = [b'{"type":"decision_made","event_id":"%s","kind":"reasoning"}\n' % each.encode() for each in ids]
    again = [lines[n] for n in sorted(repeated)]
    world.append(world.log, b"".join(lines[:45_000]) + b"".join(again) + b"".join(lines[45_000:]))
    world.scan()
    with world.open() as home:
        meta = the_stream(home)
        with StreamReader(home, meta) as reader:
            assert len(list(reader.having_id(id_hash(ids[min(repeated)])))) == 2
            for each in ids[:20_000:100]:
                assert list(reader.having_id(id_hash(each[::-1]))) == []
                assert len(list(reader.having_id(id_hash(each)))) >= 1
            (file, *_) = {run.file for run in reader._known_runs(0)[0] if run.file is not None}
            assert file._table is not None
            assert file._table.bytes < 20 * 61_000
        found = recovered(home, meta)
        assert found.state.event_count == 60_000
        assert found.state.decisions.count == 60_000
        assert found.replayed == 61_000


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
                state = recover(reader).state
        assert said(state) == ["r", *(f"b{n}" for n in range(300))]
        assert read <= len(lines)
