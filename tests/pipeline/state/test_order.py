"""Claude Code's conversation where lines come in another order than that of their parents: as if they had come in it."""

from __future__ import annotations

import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.state.folding import CORPUS, Line, Log, boundary, hook, line, said, state_of, summary
from pipeline.state.test_chain import CLAUDE, claude


def test_a_child_that_comes_before_its_parent_ends_as_in_order() -> None:
    lines = [line("a", None), line("b", "a"), line("c", "b"), line("d", "c")]
    for order in itertools.permutations(range(1, 4)):
        state = claude(lines[0], *(lines[at] for at in order))
        assert said(state) == ["a", "b", "c", "d"], order
        assert state.loose == 0, order


def test_two_children_that_come_before_their_parent_end_as_in_order() -> None:
    lines = [line("a", None), line("b", "a"), line("c", "b"), line("d", "b")]
    assert said(claude(*lines)) == ["a", "b", "d"]
    assert said(claude(lines[0], lines[2], lines[3], lines[1])) == ["a", "b", "d"]


def test_a_boundary_that_comes_before_what_it_closed_ends_as_in_order() -> None:
    lines = [line("a", None), line("b", "a"), boundary("x", "b"), summary("s", "x"), line("c", "s")]
    for order in ((0, 2, 1, 3, 4), (0, 2, 3, 1, 4), (0, 2, 3, 4, 1)):
        state = claude(*(lines[at] for at in order))
        assert said(state) == ["s", "c"], order
        assert state.loose == 0, order


COMPACTIONS = {
    "of nothing kept": [line("a", None), line("b", "a"), boundary("x", "b"), summary("s", "x"), line("c", "s"), line("d", "c")],
    "of some kept by name": [
        line("a", None), line("b", "a"), line("c", "b"), boundary("x", "c", preservedMessages={"uuids": ["b", "c"]}), summary("s", "x"),
        line("d", "s"),
    ],
    "of a run kept": [
        line("a", None), line("b", "a"), line("c", "b"), boundary("x", "c", preservedSegment={"headUuid": "a", "tailUuid": "c"}),
        summary("s", "x"), line("d", "s"),
    ],
    "with a line between boundary and summary": [
        line("a", None), boundary("x", "a"), line("n", "x"), summary("s", "n"), line("c", "s"), line("d", "c"),
    ],
    "without a boundary": [line("a", None), line("b", "a"), summary("s", "b"), line("c", "s"), hook("h", "c"), line("d", "h")],
    "of one before it": [
        line("a", None), boundary("x", "a", preservedMessages={"uuids": ["a"]}), summary("s", "x"), line("b", "s"),
        boundary("y", "b", preservedSegment={"headUuid": "a", "tailUuid": "b"}), summary("t", "y"),
    ],
}  # fmt: skip


@pytest.mark.parametrize("what", COMPACTIONS)
def test_around_a_compaction_too_lines_may_come_in_any_order(what: str) -> None:
    """A summary before its boundary, what a compaction keeps behind it: all that tells the order is the parents."""
    lines = COMPACTIONS[what]
    whole = claude(*lines).hash()
    for order in itertools.permutations(range(len(lines))):
        state = claude(*(lines[at] for at in order))
        assert state.hash() == whole, order
        assert (state.loose, state.left, state.roots, state.since) == (0, [], [], None), order


def test_what_the_environment_is_told_by_the_latest_of_those_that_came_in_any_order() -> None:
    told = [{"cwd": "/1", "gitBranch": "one"}, {"cwd": "/2"}, {"cwd": "/2", "gitBranch": "two"}, {"cwd": "/3"}, {}]
    ids = [None, "a", "b", "c", "d", "e"]
    lines = [
        {**line(ids[at + 1], ids[at]), "timestamp": f"2026-01-01T00:00:0{at}.000Z", **each}  # type: ignore[arg-type] # the first has no parent
        for at, each in enumerate(told)
    ]
    in_order = claude(*lines)
    assert in_order.environment == {"cwd": "/3", "git_branch": "two"}
    for order in itertools.permutations(lines):
        assert claude(*order).hash() == in_order.hash(), [each["uuid"] for each in order]


def test_when_a_compaction_was_is_the_latest_time_that_one_of_its_lines_says() -> None:
    begun, summed = boundary("x", "a"), {**summary("s", "x"), "timestamp": "2026-01-01T00:00:01.000Z"}
    for order in itertools.permutations([begun, summed, line("c", "s")]):
        assert claude(line("a", None), *order).summary_applied_ms == 1_767_225_601_000, order


def test_what_hangs_on_a_kept_line_goes_on_behind_the_compaction_only_where_it_stands_behind_its_boundary() -> None:
    """Nothing but the file's order tells whether it came before, and is a branch that was left, or after."""
    kept = [line("a", None), line("b", "a")]
    closed = [boundary("x", "b", preservedMessages={"uuids": ["b"]}), summary("s", "x")]
    assert said(claude(*kept, *closed, line("d", "b"))) == ["s", "b", "d"]
    assert said(claude(*kept, line("d", "b"), *closed)) == ["s", "b"]


@pytest.mark.parametrize("count", [4, 5, 6, 7])
def test_a_path_ends_as_in_order_in_whatever_order_it_comes(count: int) -> None:
    lines = [line(f"n{n}", f"n{n - 1}" if n else None) for n in range(count)]
    whole = claude(*lines).hash()
    for order in itertools.permutations(range(count)):
        state = claude(*(lines[at] for at in order))
        assert state.hash() == whole, order
        assert (state.loose, state.left, state.roots) == (0, [], []), order


@st.composite
def shuffled(draw: st.DrawFn) -> tuple[list[Line], int]:
    """The lines of a tree in any order, and a place among them."""
    count = draw(st.integers(2, 14))
    lines = [line(f"n{n}", f"n{draw(st.integers(max(0, n - 3), n - 1))}" if n else None) for n in range(count)]
    return draw(st.permutations(lines)), draw(st.integers(1, count))


@given(shuffled())
def test_in_whatever_order_lines_come_the_conversation_leads_to_the_last_on_which_none_hangs(drawn: tuple[list[Line], int]) -> None:
    """In order that is the last line; and what waits for a parent is in the checkpoints too."""
    lines, place = drawn
    hung_on, by_id = {each["parentUuid"] for each in lines}, {each["uuid"]: each for each in lines}
    path, at = list[object](), [each["uuid"] for each in lines if each["uuid"] not in hung_on][-1]
    while at is not None:
        path, at = [at, *path], by_id[at]["parentUuid"]
    log = Log(CLAUDE, lines)
    state = log.fold()
    assert said(state) == path
    assert (state.loose, state.left, state.roots) == (0, [], [])
    assert log.fold(state=log.frozen(log.fold(until=place), place), begin=place) == state


@st.composite
def compacted(draw: st.DrawFn) -> tuple[list[Line], dict[str, list[str]]]:
    """The lines of a tree with compactions, in any order; and what the conversation says that ends with each of them."""
    lines, told, inside = [line("n0", None)], {"n0": ["n0"]}, set[str]()
    for n in range(1, draw(st.integers(2, 9))):
        parent = draw(st.sampled_from([str(each["uuid"]) for each in lines[-4:] if each["uuid"] not in inside]))
        if draw(st.integers(0, 2)):
            lines.append(line(f"n{n}", parent))
            told[f"n{n}"] = [*told[parent], f"n{n}"]
            continue
        kept = told[parent][len(told[parent]) - draw(st.integers(0, len(told[parent]) - 1)) :]
        kept = kept if not any(each["parentUuid"] in kept and each["uuid"] not in told[parent] for each in lines) else []
        if draw(st.booleans()) and kept:
            lines.append(boundary(f"x{n}", parent, preservedSegment={"headUuid": kept[0], "tailUuid": kept[-1]}))
        else:
            lines.append(boundary(f"x{n}", parent, preservedMessages={"uuids": kept}))
        lines.append(summary(f"s{n}", f"x{n}"))
        told |= {f"x{n}": kept, f"s{n}": [f"s{n}", *kept]}
        inside |= {f"x{n}", *kept}  # what hangs on these is where the file's order tells
    return draw(st.permutations(lines)), told


def parent_of(each: Line) -> object:
    return each["parentUuid"] or each.get("logicalParentUuid")


@given(compacted(), st.data())
def test_in_whatever_order_lines_come_a_compaction_stands_before_what_follows_it(
    drawn: tuple[list[Line], dict[str, list[str]]], data: st.DataObject
) -> None:
    """As with any tree the conversation leads to the last line on which none hangs; what waits is in the checkpoints too."""
    lines, told = drawn
    hung_on = {parent_of(each) for each in lines}
    latest = [str(each["uuid"]) for each in lines if each["uuid"] not in hung_on][-1]
    log, place = Log(CLAUDE, lines), data.draw(st.integers(1, len(lines)))
    state = log.fold()
    assert said(state) == told[latest]
    assert (state.loose, state.left, state.roots, state.since) == (0, [], [], None)
    assert log.fold(state=log.frozen(log.fold(until=place), place), begin=place) == state


@given(compacted(), st.data())
def test_as_many_lines_are_loose_as_have_a_parent_that_is_nowhere_in_whatever_order_they_come(
    drawn: tuple[list[Line], dict[str, list[str]]], data: st.DataObject
) -> None:
    lines = drawn[0][: data.draw(st.integers(1, len(drawn[0])))]
    ids = {each["uuid"] for each in lines}
    assert claude(*lines).loose == sum(parent_of(each) not in ids and parent_of(each) is not None for each in lines)


@pytest.mark.skipif(not CORPUS.is_dir(), reason=f"the real logs are missing: {CORPUS}")
def test_the_lines_of_a_real_compaction_may_come_in_any_order() -> None:
    """Two lines before it, its boundary and summary, two behind it, at the end of the log that they are from."""
    (path,) = CORPUS.glob("claude/entireio__cli/2026-01-07-198393f2-*/03-a6_*_0.jsonl")
    records = [json.loads(each) for each in path.read_bytes().split(b"\n") if each]
    at = next(at for at, each in enumerate(records) if each.get("subtype") == "compact_boundary")
    chained = [each for each, record in enumerate(records) if "uuid" in record]
    first = chained[chained.index(at) - 2]
    around = [records[each] for each in chained if each >= first][:6]
    whole = claude(*records[:first], *around)
    assert len(whole.messages()) >= 1
    for order in itertools.permutations(around):
        state = claude(*records[:first], *order)
        assert (state.hash(), state.loose) == (whole.hash(), whole.loose)


def test_so_many_wait_for_a_parent_as_are_kept_and_no_more_and_the_others_are_counted() -> None:
    """Every second line of a path comes first, each behind one of another branch: what waits is bounded, however many there are."""
    lines = [line("r", None), *(each for n in range(400) for each in (line(f"x{n}", f"lost{n}"), line(f"y{n}", "r")))]
    state = claude(*lines)
    assert said(state) == ["r", "y399"]
    assert (len(state.left), len(state.roots), state.loose) == (128, 128, 400)
    assert state.forgotten >= 400 - 128
    assert claude(*lines[:120]).forgotten == 0


def test_a_late_parent_of_what_was_left_behind_does_not_take_it_up_again() -> None:
    state = claude(line("a", None), line("c", "b"), line("d", "a"), line("b", "a"), line("e", "d"))
    assert said(state) == ["a", "d", "e"]
    assert state.loose == 0


@st.composite
def late_parents(draw: st.DrawFn) -> tuple[list[Line], list[Line]]:
    """A log of a growing tree; and the same with a line behind its first child, right before which it stands in the other."""
    count = draw(st.integers(3, 14))
    lines = [line("n0", None)]
    for n in range(1, count):
        parent = draw(st.integers(max(0, n - 4), n - 1))
        silent = draw(st.booleans())
        lines.append(hook(f"n{n}", f"n{parent}") if silent else line(f"n{n}", f"n{parent}"))
    at = draw(st.integers(1, count - 1))
    moved = lines.pop(at)
    child = next((place for place, each in enumerate(lines) if each["parentUuid"] == moved["uuid"]), len(lines))
    later = min(child + draw(st.integers(0, 4)), len(lines))
    return [*lines[:child], moved, *lines[child:]], [*lines[:later], moved, *lines[later:]]


@given(late_parents())
def test_any_parent_that_comes_late_ends_as_in_order(logs: tuple[list[Line], list[Line]]) -> None:
    in_order, late = (state_of(CLAUDE, lines) for lines in logs)
    assert said(late) == said(in_order)
    assert late.loose == in_order.loose == 0
