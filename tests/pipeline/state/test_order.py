"""Claude Code's conversation where lines come in another order than that of their parents: as if they had come in it."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.state.folding import Line, Log, boundary, hook, line, said, state_of, summary
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


def test_around_a_compaction_too_lines_may_come_in_any_order_in_which_its_summary_is_behind_it() -> None:
    """An agent writes both at once, in this order."""
    lines = [line("a", None), line("b", "a"), boundary("x", "b"), summary("s", "x"), line("c", "s"), line("d", "c")]
    for order in itertools.permutations(range(6)):
        if order.index(2) < order.index(3):
            state = claude(*(lines[at] for at in order))
            assert (said(state), state.loose) == (["s", "c", "d"], 0), order


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


def test_so_many_wait_for_a_parent_as_are_kept_and_no_more() -> None:
    """Every second line of a path comes first, each behind one of another branch: what waits is bounded, however many there are."""
    lines = [line("r", None), *(each for n in range(400) for each in (line(f"x{n}", f"lost{n}"), line(f"y{n}", "r")))]
    state = claude(*lines)
    assert said(state) == ["r", "y399"]
    assert (len(state.left), len(state.roots), state.loose) == (128, 128, 400)


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
