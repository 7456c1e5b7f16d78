"""Checkpoints are made while a log grows: what proposes one, what bounds them, and how they live on when segments are sealed."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from coldtrail import checkpoints
from coldtrail.catalog import changed
from coldtrail.home import Home
from coldtrail.model import EventType, Position
from coldtrail.recover import Selection, StreamReader
from coldtrail.stage import checkpoint
from coldtrail.stage.checkpoint import Policy, advance, due
from coldtrail.stage.rebuild import differences, rebuild
from coldtrail.state import VERSION
from pipeline.recovering import OFTEN, EventWorld, checkpointed, file_of, held, places, recovered, replayed
from pipeline.stage.places import flip_bit, sealed_files, the_stream
from world_of import compact, small_sizes

NEVER_EVENTS, NEVER_MS = 1 << 30, 1 << 40
SILENT = Policy(every_events=NEVER_EVENTS, every_ms=NEVER_MS, on=frozenset(), least_bytes=0, cost_factor=0)  # nothing proposes


@pytest.fixture
def mine(tmp_path: Path) -> Iterator[EventWorld]:
    with small_sizes():
        yield EventWorld(tmp_path)


def captured(world: EventWorld, data: bytes) -> Home:
    """Append and capture; gives the home, open."""
    world.append(world.log, data)
    world.scan()
    return world.open()


def stands(home: Home) -> list[int]:
    """Behind how many records each checkpoint stands."""
    meta = the_stream(home)
    offsets = [place.offset for place in places(home, meta)]
    return [sum(offset < each.offset for offset in offsets) for each in held(home, meta)]


# --- what proposes one ---


def test_nothing_that_proposes_nothing_is_made(mine: EventWorld) -> None:
    with captured(mine, mine.turns(50)) as home:
        assert checkpointed(home, SILENT) == 0


@pytest.mark.parametrize("every", [1, 7, 50])
def test_one_is_made_every_so_many_events(mine: EventWorld, every: int) -> None:
    with captured(mine, mine.turns(40)) as home:
        checkpointed(home, dataclasses.replace(SILENT, every_events=every))
        count = len(places(home, the_stream(home)))
        assert stands(home) == list(range(every, count + 1, every))


def test_one_is_made_when_so_much_time_has_gone_by_in_the_log(mine: EventWorld) -> None:
    with captured(mine, mine.turns(25)) as home:
        checkpointed(home, dataclasses.replace(SILENT, every_ms=10_000))
        assert stands(home) == list(range(11, len(places(home, the_stream(home))) + 1, 11))  # a second lies between two records


def test_times_that_run_backwards_propose_nothing(mine: EventWorld) -> None:
    data = []
    for _ in range(50):
        mine.clock.tick(-3000)
        data.append(mine.event("message_added", role="user", content="x"))
    with captured(mine, b"".join(data)) as home:
        assert checkpointed(home, dataclasses.replace(SILENT, every_ms=1)) == 0


@pytest.mark.parametrize("kind", [EventType.TOOL_COMPLETED, EventType.CONTEXT_SUMMARIZED])
def test_one_is_made_after_an_event_of_a_chosen_type(mine: EventWorld, kind: EventType) -> None:
    with captured(mine, mine.turns(25)) as home:
        checkpointed(home, dataclasses.replace(SILENT, on=frozenset({kind})))
        meta = the_stream(home)
        with StreamReader(home, meta) as reader:
            wanted = [n for n, placed in enumerate(reader.placed(Selection()), 1) if any(each.type is kind for each in placed.events())]
        assert stands(home) == wanted


def test_what_holds_with_no_config_is_what_the_policy_says(mine: EventWorld) -> None:
    said = Policy()
    assert (said.every_events, said.every_ms, said.on) == (50, 300_000, frozenset({EventType.TOOL_COMPLETED}))
    assert (said.least_bytes, said.cost_factor) == (64 << 10, 50)


# --- what bounds them ---


def gaps_between(home: Home) -> list[int]:
    """How much log lies before each checkpoint, since the one before."""
    offsets = [each.offset for each in held(home, the_stream(home))]
    return [end - start for start, end in zip([0, *offsets], offsets, strict=False)]


@pytest.mark.parametrize("least", [1 << 10, 5000, 20_000])
def test_so_much_log_lies_between_two_at_least(mine: EventWorld, least: int) -> None:
    with captured(mine, mine.turns(200)) as home:
        made = checkpointed(home, dataclasses.replace(SILENT, every_events=1, least_bytes=least))
        longest = max(row.length for _, row in StreamReader(home, the_stream(home)).rows(Selection()))
        assert made == len(gaps_between(home)) > 3
        assert all(least <= gap < least + longest for gap in gaps_between(home))


@pytest.mark.parametrize("factor", [1, 5, 50])
def test_so_many_times_its_own_size_of_log_lies_before_the_next_one(mine: EventWorld, factor: int) -> None:
    with captured(mine, mine.turns(400)) as home:
        assert checkpointed(home, dataclasses.replace(SILENT, every_events=1, cost_factor=factor)) > 1
        sizes = [len(each.encode()) for each in held(home, the_stream(home))]
        assert all(gap >= factor * size for gap, size in zip(gaps_between(home)[1:], sizes, strict=False))
        if factor == 50:
            assert sum(sizes) <= 0.03 * mine.log.stat().st_size


@pytest.mark.parametrize("bound", [{"replay_max_bytes": 5000}, {"replay_max_records": 30}], ids=["bytes", "records"])
def test_no_replay_is_longer_than_the_bound_whatever_it_costs(mine: EventWorld, bound: dict[str, int]) -> None:
    policy = dataclasses.replace(SILENT, cost_factor=1 << 20, **bound)  # type: ignore[arg-type] # they are bounds
    with captured(mine, mine.turns(100)) as home:
        assert checkpointed(home, policy) > 3
        meta = the_stream(home)
        for place in places(home, meta)[::7]:
            found = recovered(home, meta, place)
            assert found.replayed <= bound.get("replay_max_records", 1 << 30)
            begin = found.checkpoint.offset if found.checkpoint is not None else 0
            assert place.offset - begin <= bound.get("replay_max_bytes", 1 << 30)


def test_a_log_is_due_when_it_has_grown_enough(mine: EventWorld) -> None:
    policy = dataclasses.replace(OFTEN, least_bytes=4 << 10)
    with captured(mine, mine.turns(3)) as home:
        assert list(due(home, policy)) == []
        checkpointed(home, policy)
    with captured(mine, mine.turns(10)) as home:
        assert len(list(due(home, policy))) == 1
        assert checkpointed(home, policy) > 0
        assert list(due(home, policy)) == []
    with captured(mine, mine.turns(1)) as home:
        assert list(due(home, policy)) == []


def test_those_made_while_it_grew_are_those_made_at_once(tmp_path: Path) -> None:
    made = []
    with small_sizes():
        for name, step in (("at once", 40), ("in steps", 4)):
            mine = EventWorld(tmp_path / name)
            for _ in range(0, 40, step):
                with captured(mine, mine.turns(step, summary_every=4)) as home:
                    checkpointed(home, dataclasses.replace(OFTEN, least_bytes=512))
            with mine.open() as home:
                made.append([(each.offset, each.state_hash, each.prefix_sha256) for each in held(home, the_stream(home))])
    assert made[0] == made[1]
    assert len(made[0]) > 10


def test_an_unfinished_record_is_not_in_a_checkpoint(mine: EventWorld) -> None:
    data = mine.turns(20)
    with captured(mine, data + b'{"type":"message_added","role":"us') as home:
        checkpointed(home, dataclasses.replace(SILENT, every_events=1))
        assert held(home, the_stream(home))[-1].offset <= len(data)


# --- where they lie ---


def test_each_names_the_bytes_that_it_stands_behind(mine: EventWorld) -> None:
    from coldtrail.format.segment import BlockHashes, prefix_hash

    with captured(mine, mine.turns(60)) as home:
        checkpointed(home)
        compact(home, cold=False)
    with captured(mine, mine.turns(60)) as home:
        checkpointed(home)
        data, meta = mine.log.read_bytes(), the_stream(home)
        assert len(held(home, meta)) > 10
        for each in held(home, meta):
            blocks = BlockHashes()
            blocks.feed(data[: each.offset])
            assert each.prefix_sha256 == prefix_hash(blocks.digests())
            assert (each.stream, each.generation, each.version) == (meta.stream, 0, VERSION)


def test_sealed_segments_carry_theirs_and_merged_ones_too(mine: EventWorld) -> None:
    for turns in (40, 30, 30):
        with captured(mine, mine.turns(turns)) as home:
            checkpointed(home)
    with mine.open() as home:
        meta = the_stream(home)
        before = held(home, meta)
        compact(home, cold=False)
        assert held(home, meta) == before
        sealed_end = max(piece.end or 0 for piece in home.plain(meta, 0).pieces() if not piece.name.is_open)
        assert all(offset > sealed_end for offset, _ in checkpoints.read_file(file_of(home, meta).parent))
        compact(home, cold=True)
        assert held(home, meta) == before
        assert not file_of(home, meta).parent.exists()
        assert len(sealed_files(mine)) == 1
    with captured(mine, mine.turns(30)) as home:
        checkpointed(home)
        compact(home, cold=True)
        assert held(home, meta)[: len(before)] == before
        assert len(held(home, meta)) > len(before)
        assert recovered(home, meta, verify=True).verified is True


def test_a_segment_that_is_sealed_meanwhile_loses_none(mine: EventWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """They were made for open segments; before they are written those are sealed and gone."""
    with captured(mine, mine.turns(60)) as home:
        (row,) = due(home, OFTEN)
        made = checkpoint._made

        def sealed_meanwhile(*given: object) -> object:
            found = made(*given)  # type: ignore[arg-type]
            with mine.open() as other:
                compact(other, cold=True)
            return found

        monkeypatch.setattr(checkpoint, "_made", sealed_meanwhile)
        count = advance(home, row, OFTEN)
        assert len(held(home, the_stream(home))) == count > 5
        compact(home, cold=True)
        assert len(held(home, the_stream(home))) == count


# --- what is lost is made again ---


def test_a_file_that_is_lost_is_made_again(mine: EventWorld) -> None:
    with captured(mine, mine.turns(60)) as home:
        checkpointed(home)
        before, meta = held(home, the_stream(home)), the_stream(home)
        file_of(home, meta).unlink()
        assert held(home, meta) == []
        assert checkpointed(home) == len(before)
        assert held(home, meta) == before
        assert list(due(home, OFTEN)) == []


def test_a_log_of_which_none_is_made_is_not_looked_at_again_and_again(mine: EventWorld) -> None:
    with captured(mine, mine.turns(60)) as home:
        policy = dataclasses.replace(SILENT, least_bytes=1 << 10)
        assert checkpointed(home, policy) == 0
        assert list(due(home, policy)) == []


def test_a_catalog_that_is_lost_costs_one_look(mine: EventWorld) -> None:
    with captured(mine, mine.turns(60)) as home:
        checkpointed(home)
        before = held(home, the_stream(home))
        compact(home, cold=True)
    mine.forget_catalog()
    with mine.open() as home:
        rebuild(home)
        assert len(list(due(home, OFTEN))) == 1
        checkpointed(home)
        assert held(home, the_stream(home)) == before
        assert list(due(home, OFTEN)) == []


def test_how_far_it_has_come_is_no_difference_of_the_catalog(mine: EventWorld) -> None:
    with captured(mine, mine.turns(60)) as home:
        checkpointed(home)
        assert differences(home) == ([], [])


def test_those_of_another_fold_are_made_again_in_sealed_segments_too(mine: EventWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    with captured(mine, mine.turns(60)) as home:
        with monkeypatch.context() as older:
            older.setattr("coldtrail.state.frozen.VERSION", 0)
            older.setattr("coldtrail.state.fold.VERSION", 0)
            older.setattr("coldtrail.stage.checkpoint.VERSION", 0)
            older.setattr("coldtrail.checkpoints.VERSION", 0)
            count = checkpointed(home)
            assert len(held(home, the_stream(home))) == count > 5
        compact(home, cold=True)
        meta = the_stream(home)
        found = recovered(home, meta)
        assert found.checkpoint is None
        assert len(found.notes) == 1
        assert "version 0" in found.notes[0]
        assert f"so are {count - 1} before it" in found.notes[0]
        assert checkpointed(home) == count
        assert [each.version for each in held(home, meta)] == [VERSION] * count
        assert recovered(home, meta).checkpoint is not None
        assert recovered(home, meta).notes == []
        assert list(due(home, OFTEN)) == []
    with captured(mine, mine.turns(60)) as home:  # and when all is sealed once more they go in
        compact(home, cold=True)
        assert len(sealed_files(mine)) == 1
        assert not file_of(home, meta).exists()
        assert [each.version for each in held(home, meta)] == [VERSION] * count


def test_one_that_does_not_hold_is_replaced_and_what_stands_behind_it(mine: EventWorld) -> None:
    with captured(mine, mine.turns(60)) as home:
        checkpointed(home)
        meta, before = the_stream(home), held(home, the_stream(home))
        wrong = [dataclasses.replace(each, state_hash="0" * 64) for each in before[3:]]
        entries = [(each.offset, each.encode()) for each in [*before[:3], *wrong]]
        checkpoints.add_to_file(file_of(home, meta).parent, entries, after=0)
    with captured(mine, mine.turns(40)) as home:
        checkpointed(home)
        assert held(home, meta)[: len(before)] == before


def test_a_rewritten_log_begins_anew(mine: EventWorld) -> None:
    with captured(mine, mine.turns(60)) as home:
        checkpointed(home)
        old = held(home, the_stream(home))
    mine.write(mine.log, mine.turns(30))
    mine.scan()
    with mine.open() as home:
        meta = the_stream(home)
        assert meta.newest.number == 1
        assert checkpointed(home) > 3
        assert all(each.generation == 1 for each in held(home, meta))
        assert held(home, meta, 0) == old
        assert recovered(home, meta).state.hash() == replayed(home, meta)


def test_behind_damage_to_our_copy_none_is_made(mine: EventWorld) -> None:
    with captured(mine, mine.turns(60)) as home:
        compact(home, cold=True)
    flip_bit(sealed_files(mine)[0], 200)
    mine.append(mine.log, mine.turns(60))
    mine.log.unlink()
    with mine.open() as home:
        assert checkpointed(home) == 0
        assert list(due(home, OFTEN)) == []


def test_only_logs_have_checkpoints(mine: EventWorld) -> None:
    with captured(mine, mine.turns(60)) as home:
        (row,) = home.catalog.all_streams()
        home.catalog.put(changed(row, is_log=0))
        assert list(due(home, OFTEN)) == []


def test_a_full_disk_leaves_the_file_as_it_was(mine: EventWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    from coldtrail.errors import StoreFullError

    with captured(mine, mine.turns(60)) as home:
        checkpointed(home)
        meta, before = the_stream(home), held(home, the_stream(home))
    with captured(mine, mine.turns(60)) as home:
        (row,) = due(home, OFTEN)

        def full(*_: object) -> int:
            raise OSError(28, "No space left on device")

        with monkeypatch.context() as patched:
            patched.setattr(os, "write", full)
            with pytest.raises(StoreFullError):
                advance(home, row, OFTEN)
        assert held(home, meta) == before
        assert advance(home, row, OFTEN) > 0
        assert recovered(home, meta).position == places(home, meta)[-1]
        assert recovered(home, meta, Position(0, 0)).checkpoint is None
