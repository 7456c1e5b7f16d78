"""What compaction plans to make: all that must be made, no more than may be held, and no byte rewritten often."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable
from contextlib import closing

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coldtrail.stage import compact
from coldtrail.stage.compact import SEGMENT_MAX_BYTES, SEGMENT_MAX_RECORDS, TIER_FACTOR, Part, plan
from coldtrail.stage.seal import Order
from world_of import Lines, World, assert_sound, metas, small_sizes

patient = settings(deadline=None)  # a busy machine is no fault
MIB = 1 << 20
LEVEL = 9


@st.composite
def parts_of_a_stream(draw: st.DrawFn) -> list[Part]:
    """Segments as they may lie, a few of them with a hole before them."""
    parts, at = [], 0
    for _ in range(draw(st.integers(0, 12))):
        at += draw(st.sampled_from([0, 0, 0, 0, 0, 7]))
        size = draw(st.integers(1, 9) | st.integers(1, 2 * SEGMENT_MAX_BYTES))
        sealed = draw(st.booleans())
        records = draw(st.integers(0, 2 * SEGMENT_MAX_RECORDS) | st.just(1)) if sealed else 0
        parts.append(Part(at, at + size, records, sealed=sealed, dense=sealed and draw(st.booleans())))
        at += size
    return parts


def needs(part: Part, cold: bool) -> bool:
    return not part.sealed or (cold and not part.dense)


def within(parts: list[Part], order: Order) -> list[Part]:
    return [part for part in parts if order.start <= part.start and part.end <= order.end]


def carried_out(parts: list[Part], orders: list[Order]) -> list[Part]:
    """The parts there are once these segments have been made."""
    for order in orders:
        inside = within(parts, order)
        made = Part(order.start, order.end, sum(part.records for part in inside), sealed=True, dense=order.dense)
        parts = sorted([part for part in parts if part not in inside] + [made], key=lambda part: part.start)
    return parts


# ---- one plan ---------------------------------------------------------------------------------------------------------


@patient
@given(parts_of_a_stream(), st.booleans())
def test_every_part_that_needs_it_is_in_one_order_and_orders_are_made_of_whole_neighbours(parts: list[Part], cold: bool) -> None:
    orders = plan(parts, cold=cold, level=LEVEL)
    for before, behind in itertools.pairwise(orders):
        assert before.end <= behind.start, "ascending, and none overlaps another"
    for order in orders:
        inside = within(parts, order)
        assert (inside[0].start, inside[-1].end) == (order.start, order.end)
        assert all(one.end == other.start for one, other in itertools.pairwise(inside)), "a hole is never bridged"
        assert any(needs(part, cold) for part in inside), "nothing is made without need"
        assert (order.dense, order.level) == (cold, LEVEL)
    covered = [part for order in orders for part in within(parts, order)]
    assert [part for part in parts if needs(part, cold)] == [part for part in covered if needs(part, cold)]


@patient
@given(parts_of_a_stream(), st.booleans())
def test_no_order_is_larger_than_allowed_unless_one_part_is_so_by_itself(parts: list[Part], cold: bool) -> None:
    for order in plan(parts, cold=cold, level=LEVEL):
        inside = within(parts, order)
        if len(inside) > 1:
            assert order.end - order.start <= SEGMENT_MAX_BYTES
            assert sum(part.records for part in inside) <= SEGMENT_MAX_RECORDS


@patient
@given(parts_of_a_stream(), st.booleans())
def test_what_needs_nothing_is_rewritten_only_where_it_is_small_beside_what_follows(parts: list[Part], cold: bool) -> None:
    for order in plan(parts, cold=cold, level=LEVEL):
        for part in within(parts, order):
            assert needs(part, cold) or part.end - part.start <= TIER_FACTOR * (order.end - part.end)


@patient
@given(parts_of_a_stream(), st.booleans())
def test_a_plan_that_was_carried_out_leaves_nothing_to_do(parts: list[Part], cold: bool) -> None:
    after = carried_out(parts, plan(parts, cold=cold, level=LEVEL))
    assert not any(needs(part, cold) for part in after)
    assert plan(after, cold=cold, level=LEVEL) == []
    assert sum(part.end - part.start for part in after) == sum(part.end - part.start for part in parts)


@pytest.mark.parametrize(
    ("parts", "cold", "orders"),
    [
        ([], True, []),
        ([(100, "open")], False, [(0, 100)]),
        ([(100, "fast")], False, []),
        ([(100, "fast")], True, [(0, 100)]),
        ([(100, "dense"), (50, "open")], True, [(0, 150)]),
        ([(101, "dense"), (50, "open")], True, [(101, 151)]),
        ([(400, "dense"), (100, "dense"), (50, "open")], True, [(400, 550)]),
        ([(300, "dense"), (100, "dense"), (50, "open")], True, [(0, 450)]),
        ([(9, "fast"), (900, "open"), (1, "open")], False, [(0, 910)]),
        ([(200 * MIB, "fast"), (100 * MIB, "fast")], True, [(0, 200 * MIB), (200 * MIB, 300 * MIB)]),
        ([(300 * MIB, "open"), (1, "open")], True, [(0, 300 * MIB), (300 * MIB, 300 * MIB + 1)]),
    ],
)
def test_plans_by_example(parts: list[tuple[int, str]], cold: bool, orders: list[tuple[int, int]]) -> None:
    ends = list(itertools.accumulate(size for size, _ in parts))
    made = [Part(end - size, end, 1, sealed=kind != "open", dense=kind == "dense") for end, (size, kind) in zip(ends, parts, strict=True)]
    assert [(order.start, order.end) for order in plan(made, cold=cold, level=LEVEL)] == orders


# ---- many plans, one after the other ----------------------------------------------------------------------------------


def rewritten(sizes: list[int], *, cold: bool = True) -> tuple[int, int]:
    """Bytes written by sealing after each append, and the most segments there were."""
    parts: list[Part] = []
    total, most, at = 0, 0, 0
    for size in sizes:
        parts.append(Part(at, at + size, 1, sealed=False, dense=False))
        at += size
        orders = plan(parts, cold=cold, level=LEVEL)
        total += sum(order.end - order.start for order in orders)
        parts = carried_out(parts, orders)
        most = max(most, len(parts))
    return total, most


DAYS = 1_000
chance = random.Random(1)
DAILY: dict[str, Callable[[int], int]] = {
    "the same each day": lambda day: 10_000,
    "any size": lambda day: chance.randrange(1, 100_000),
    "mostly little, at times much": lambda day: int(1_000 * chance.paretovariate(1)),
    "less and less": lambda day: MIB // (day + 1) + 1,
    "more and more": lambda day: 1_000 * (day + 1),
    "much and little in turn": lambda day: 100_000 if day % 2 else 1_000,
    "much once, then little": lambda day: 1 if day else 100 * MIB,
}


@pytest.mark.parametrize("size_of", DAILY.values(), ids=DAILY)
def test_a_thousand_daily_appends_rewrite_each_byte_a_few_times(size_of: Callable[[int], int]) -> None:
    """Measured: at most 0.73 * bytes * log2(appends), the same size each day being the worst of these; so 7 times in three years."""
    sizes = [size_of(day) for day in range(DAYS)]
    total, most = rewritten(sizes)
    assert total <= 0.8 * sum(sizes) * math.log2(DAYS)
    assert most <= 2 * math.log2(DAYS)


@settings(deadline=None, max_examples=60)
@given(st.lists(st.integers(1, 9) | st.integers(1, 10**6), min_size=2, max_size=80))
def test_no_order_of_appends_rewrites_a_byte_more_often_than_its_segment_can_grow(sizes: list[int]) -> None:
    """Each time it does, its segment becomes at least 1.5 times as large."""
    total, _ = rewritten(sizes)
    growths = math.log(sum(sizes) / min(sizes), 1 + 1 / TIER_FACTOR)
    assert total <= sum(sizes) * (1 + growths)


def test_a_segment_that_is_full_is_not_rewritten_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compact, "SEGMENT_MAX_BYTES", MIB)
    total, most = rewritten([10_000] * DAYS)
    assert total <= 0.8 * 10_000 * DAYS * math.log2(MIB / 10_000)
    assert most <= 10_000 * DAYS / (MIB / 2) + 8


# ---- carried out ------------------------------------------------------------------------------------------------------


def densities(world: World) -> list[bool]:
    """Whether each sealed segment of the one stream is dense, in order."""
    with world.open() as home:
        plain = home.plain(metas(home)[0], 0)
        found = []
        for piece in plain.pieces():
            with closing(plain.segment(piece)) as segment:
                found.append(segment.footer().meta.dense)
        return found


def test_a_cold_stream_that_needs_several_segments_is_dense_in_all_of_them(
    world: World, lines: Lines, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compact, "SEGMENT_MAX_BYTES", 12_000)
    with small_sizes():
        for _ in range(6):
            world.append(world.main(), lines.some(20, size=250))
            world.scan()
            world.compact(cold=False)
        world.compact(cold=True)
        with world.open() as home:
            assert_sound(home)
        assert len(densities(world)) > 1
        assert all(densities(world))
