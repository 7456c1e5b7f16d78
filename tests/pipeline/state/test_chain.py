"""Claude Code's conversation: the chain of parents that ends in the last line, and what counts where the chain is broken."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coldtrail.state import State
from pipeline.state.folding import Line, Log, boundary, called, gave, hook, line, said, state_of, summary

CLAUDE = "claude-code"


def claude(*lines: Line) -> State:
    return state_of(CLAUDE, lines)


def test_the_conversation_is_what_was_said_in_order() -> None:
    state = claude(line("a", None), line("b", "a", kind="assistant"), line("c", "b"))
    assert said(state) == ["a", "b", "c"]
    assert [message.role for message in state.messages()] == ["user", "assistant", "user"]
    assert (state.branches, state.loose) == (0, 0)


def test_of_two_children_of_one_parent_the_last_line_belongs_to_the_live_branch() -> None:
    state = claude(line("a", None), line("b", "a"), line("c", "b"), line("d", "a"), line("e", "d"))
    assert said(state) == ["a", "d", "e"]
    assert state.branches == 1


def test_an_abandoned_branch_can_be_taken_up_again() -> None:
    lines = (line("a", None), line("b", "a"), line("c", "b"), line("d", "a"), line("e", "c"))
    assert said(claude(*lines)) == ["a", "b", "c", "e"]
    assert claude(*lines).branches == 2


def test_two_terminals_take_turns_and_each_line_shows_its_own_branch() -> None:
    turns = [line(f"{side}{n}", f"{side}{n - 1}" if n else "r") for n in range(40) for side in "ab"]
    lines = [line("r", None), *turns]
    log = Log(CLAUDE, lines)
    assert said(log.fold()) == ["r", *(f"b{n}" for n in range(40))]
    assert said(log.fold(until=len(lines) - 1)) == ["r", *(f"a{n}" for n in range(40))]


def test_a_root_in_the_middle_begins_another_conversation() -> None:
    assert said(claude(line("a", None), line("b", "a"), line("c", None), line("d", "c"))) == ["c", "d"]


def test_parallel_tool_results_are_no_branches() -> None:
    """The lines of one answer follow each other; each result hangs on the call it answers, and the next prompt on one result."""
    lines = (
        line("p", None), called("a1", "p", "t1", answer="m", text="both"), called("a2", "a1", "t2", answer="m"),
        gave("r1", "a1", "t1"), gave("r2", "a2", "t2"), line("q", "r1"),
    )  # fmt: skip
    for order in ((0, 1, 2, 3, 4, 5), (0, 1, 3, 2, 4, 5), (0, 1, 2, 4, 3, 5)):
        state = claude(*(lines[at] for at in order))
        assert said(state) == ["p", "both", "q"]
        assert (state.branches, state.pending, state.completed.count) == (0, {}, 2)


def test_the_lines_of_one_answer_that_hang_on_the_same_line_are_no_branches() -> None:
    lines = (line("p", None), called("a1", "p", "t1", answer="m", text="one"), called("a2", "p", "t2", answer="m", text="two"))
    assert said(claude(*lines)) == ["p", "one", "two"]
    assert said(claude(*lines, gave("r1", "a1", "t1"), gave("r2", "a2", "t2"), line("q", "r2"))) == ["p", "one", "two", "q"]


def test_another_answer_to_the_same_prompt_is_a_branch() -> None:
    lines = (line("p", None), line("a", "p", kind="assistant", answer="m1"), line("b", "p", kind="assistant", answer="m2"))
    assert said(claude(*lines)) == ["p", "b"]


def test_what_is_silent_is_left_behind_by_no_one() -> None:
    state = claude(line("a", None), line("b", "a"), hook("h", "b"), line("c", "b"))
    assert said(state) == ["a", "b", "c"]
    assert state.branches == 0


# --- compaction ---


def test_a_compaction_leaves_its_summary() -> None:
    state = claude(line("a", None), line("b", "a"), boundary("x", "b"), summary("s", "x"), line("c", "s"))
    assert said(state) == ["s", "c"]
    assert state.summary_applied_ms == 1_767_225_600_000  # the boundary's: the summary has no time of its own
    assert (state.loose, state.branches) == (0, 0)


def test_between_boundary_and_summary_nothing_is_live() -> None:
    state = claude(line("a", None), line("b", "a"), boundary("x", "b"))
    assert said(state) == []
    assert state.summary_applied_ms == 1_767_225_600_000


def test_a_compaction_whose_last_line_was_never_written_is_counted() -> None:
    state = claude(line("a", None), boundary("x", "nowhere"), summary("s", "x"), line("c", "s"))
    assert said(state) == ["s", "c"]
    assert state.loose == 1


def test_a_summary_without_a_boundary_takes_the_place_of_all() -> None:
    assert said(claude(line("a", None), line("b", "a"), summary("s", "b"), line("c", "s"))) == ["s", "c"]
    assert said(claude(line("a", None), summary("s", "nowhere"), line("c", "s"))) == ["s", "c"]


def test_what_stands_between_a_boundary_and_its_summary_counts() -> None:
    between = line("n", "x", kind="system", content=None) | {"content": "note"}
    assert said(claude(line("a", None), boundary("x", "a"), between, summary("s", "n"), line("c", "s"))) == ["note", "s", "c"]


@pytest.mark.parametrize(
    "about",
    [
        {"preservedMessages": {"anchorUuid": "s", "uuids": ["b", "c"], "allUuids": ["b", "c"]}},
        {"preservedSegment": {"anchorUuid": "s", "headUuid": "b", "tailUuid": "c"}},
    ],
    ids=["named", "from-to"],
)
def test_what_a_compaction_keeps_stands_behind_its_summary(about: dict[str, object]) -> None:
    lines = (line("a", None), line("b", "a"), line("c", "b"), boundary("x", "c", **about), summary("s", "x"))
    assert said(claude(*lines)) == ["s", "b", "c"]
    for parent in ("c", "s"):  # what follows hangs on the last one kept, or on the summary
        assert said(claude(*lines, line("d", parent), line("e", "d"))) == ["s", "b", "c", "d", "e"]
    again = boundary("y", "d", preservedMessages={"uuids": ["c", "d"]})
    assert said(claude(*lines, line("d", "c"), again, summary("z", "y"), line("e", "d"))) == ["z", "c", "d", "e"]
    rewound = claude(*lines, line("d", "c"), line("f", "b"))
    assert said(rewound) == ["s", "b", "f"]


@pytest.mark.parametrize("kept", [[], ["nowhere"], [None, {"a": 1}, 7], "b", {"from": "b"}])
def test_what_it_says_to_keep_and_is_not_there_is_nothing(kept: object) -> None:
    about = {"preservedMessages": {"uuids": kept}}
    assert said(claude(line("a", None), boundary("x", "a", **about), summary("s", "x"), line("c", "s"))) == ["s", "c"]


def test_who_goes_back_before_a_compaction_has_the_conversation_as_it_was() -> None:
    lines = (line("a", None), line("b", "a"), boundary("x", "b"), summary("s", "x"), line("c", "s"))
    assert said(claude(*lines, line("d", "a"))) == ["a", "d"]
    assert said(claude(*lines, line("d", "a"), line("e", "c"))) == ["s", "c", "e"]


def test_who_takes_up_again_what_follows_a_compaction_has_what_it_keeps() -> None:
    kept = boundary("x", "c", preservedMessages={"uuids": ["b", "c"]})
    lines = (line("a", None), line("b", "a"), line("c", "b"), kept, summary("s", "x"), line("d", "s"))
    for turned in (line("e", "a"), line("e", "s")):  # before the compaction, or right behind its summary
        assert said(claude(*lines, turned, line("f", "d"))) == ["s", "b", "c", "d", "f"]


def test_a_summary_whose_boundary_was_left_behind_has_what_it_keeps() -> None:
    kept = boundary("x", "b", preservedMessages={"uuids": ["b"]})
    assert said(claude(line("a", None), line("b", "a"), kept, line("c", "a"), summary("s", "x"))) == ["s", "b"]


def test_a_boundary_on_a_branch_that_was_left_keeps_what_it_names() -> None:
    kept = boundary("x", "b", preservedSegment={"headUuid": "b", "tailUuid": "b"})
    assert said(claude(line("a", None), line("b", "a"), line("c", "a"), kept, summary("s", "x"))) == ["s", "b"]


# --- a broken chain ---


def test_a_line_whose_parent_is_nowhere_stands_in_the_files_order_and_is_counted() -> None:
    state = claude(line("a", None), line("b", "a"), line("c", "nowhere"), line("d", "c"))
    assert said(state) == ["a", "b", "c", "d"]
    assert state.loose == 1


def test_a_log_of_nothing_but_dangling_parents_is_returned_whole() -> None:
    lines = [line(f"u{n}", f"lost{n}") for n in range(300)]
    state = claude(*lines)
    assert said(state) == [f"u{n}" for n in range(300)]
    assert state.loose == 300


def test_a_log_without_its_head_begins_with_a_dangling_parent() -> None:
    state = claude(line("c", "b"), line("d", "c"))
    assert said(state) == ["c", "d"]
    assert state.loose == 1


def test_a_dangling_line_that_was_left_behind_comes_back_to_where_it_stood() -> None:
    lines = (line("a", None), line("b", "a"), line("x", "nowhere"), line("y", "x"), line("c", "b"))
    assert said(claude(*lines)) == ["a", "b", "c"]
    assert said(claude(*lines, line("z", "y"))) == ["a", "b", "x", "y", "z"]


def test_a_line_that_hangs_on_itself_is_one_line() -> None:
    state = claude(line("a", "a"), line("b", "a"))
    assert said(state) == ["a", "b"]
    assert state.loose == 1


def test_a_ring_of_parents_ends() -> None:
    state = claude(line("a", "c"), line("b", "a"), line("c", "b"), line("d", "c"))
    assert sorted(map(str, said(state))) == ["a", "b", "c", "d"]


def test_a_line_written_twice_counts_once_and_the_last_word_in_the_first_ones_place() -> None:
    lines = (line("a", None), line("b", "a", content="first"), line("c", "b"), line("b", "a", content="second"), line("d", "c"))
    state = claude(*lines)
    assert said(state) == ["a", "second", "c", "d"]
    assert state.branches == 0


def test_a_call_written_twice_is_not_pending_again_once_it_is_done() -> None:
    call, result = called("b", "a", "t1"), gave("c", "b", "t1")
    for lines in ((call, call, result), (call, result, call), (call, result, result), (call, result, call, result, call)):
        state = claude(line("a", None), *lines)
        assert (list(state.pending), state.completed.count, list(state.early)) == ([], 1, []), lines
    once = claude(line("a", None), call, result)
    assert claude(line("a", None), call, result, call, result).completed == once.completed
    assert list(claude(line("a", None), call, call).pending) == ["t1"]


@pytest.mark.parametrize("timed", [False, True])
def test_a_call_written_again_when_it_is_no_longer_live_is_one_call(timed: bool) -> None:
    """Behind a compaction, or on a branch that was left."""
    thought = {"type": "thinking", "thinking": "hm"}
    use = {"type": "tool_use", "id": "t1", "name": "Bash", "input": {}}
    call, result = line("b", "a", kind="assistant", content=[thought, use]), gave("c", "b", "t1")
    for between in ([boundary("x", "c"), summary("s", "x"), line("d", "s")], [line("d", "a")]):
        lines = [line("a", None), call, result, *between, call, result, called("e", "d", "t2"), call]
        if timed:  # a line that is written again keeps its time
            named = {id(each): n for n, each in reversed(list(enumerate(lines)))}
            lines = [{**each, "timestamp": f"2026-01-01T00:00:{named[id(each)]:02d}Z"} for each in lines]
        state = claude(*lines)
        assert (list(state.pending), state.completed.count, state.decisions.count) == (["t2"], 1, 1)
        assert state.completed == claude(*lines[:3]).completed


def test_what_was_thought_counts_once_where_the_line_is_written_twice() -> None:
    thought = line("b", "a", kind="assistant", content=[{"type": "thinking", "thinking": "hm"}])
    assert claude(line("a", None), thought, thought).decisions == claude(line("a", None), thought).decisions


def test_who_takes_up_a_branch_older_than_a_compaction_that_keeps_some_has_the_conversation_as_it_was() -> None:
    """What it kept is on that branch's way too, and is not behind its summary there."""
    lines = (line("a", None), line("b", "a"), line("o", "b"), line("c", "b"))
    kept = (boundary("x", "c", preservedMessages={"uuids": ["b", "c"]}), summary("s", "x"))
    assert said(claude(*lines, *kept)) == ["s", "b", "c"]
    assert said(claude(*lines, *kept, line("d", "o"))) == ["a", "b", "o", "d"]


@st.composite
def trees(draw: st.DrawFn) -> list[Line]:
    """Logs whose every line hangs on an earlier one, with branches, silent lines and compactions."""
    lines = [line("n0", None)]
    for n in range(1, draw(st.integers(1, 25))):
        parent = f"n{draw(st.integers(max(0, n - 5), n - 1))}"
        match draw(st.sampled_from("mmmhts")):
            case "m":
                lines.append(line(f"n{n}", parent))
            case "h":
                lines.append(hook(f"n{n}", parent))
            case "t":
                lines.append(gave(f"n{n}", parent, f"t{n}"))
            case "s":
                lines.append(summary(f"n{n}", parent))
    return lines


@given(trees())
def test_the_conversation_is_the_path_that_leads_to_the_last_line(lines: list[Line]) -> None:
    """Told in another way: from the last line up, by parents, until a summary or a root."""
    by_id = {str(each["uuid"]): each for each in lines}
    path: list[Line] = []
    at: Line | None = lines[-1]
    while at is not None:
        path.append(at)
        at = None if at.get("isCompactSummary") else by_id.get(str(at["parentUuid"]))
    spoken = [each["uuid"] for each in reversed(path) if each["type"] == "user" and isinstance(each["message"]["content"], str)]  # type: ignore[index]
    assert said(state_of(CLAUDE, lines)) == spoken


# --- side conversations ---


def aside(each: Line) -> Line:
    return {**each, "isSidechain": True}


def test_a_side_conversation_in_the_log_is_not_in_the_conversation_be_it_spoken_or_of_tools() -> None:
    """Older versions wrote sub-agents into the main log, line by line between its own."""
    side = [line("s1", None), called("s2", "s1", "t9"), gave("s3", "s2", "t9"), hook("s4", "s3"), line("s5", "s4", kind="assistant")]
    main = [line("a", None), called("b", "a", "t1"), gave("c", "b", "t1"), line("d", "c")]
    mixed = [each for pair in itertools.zip_longest(main, map(aside, side)) for each in pair if each is not None]
    state = claude(*mixed)
    assert said(state) == ["a", "d"]
    assert (state.branches, state.loose, state.sidechain) == (0, 0, False)
    assert state.completed.count == 2


def test_a_sub_agents_own_log_is_its_conversation() -> None:
    state = claude(*map(aside, (gave("x", "nowhere", "t0"), line("a", "x"), called("b", "a", "t1"), gave("c", "b", "t1"), line("d", "c"))))
    assert said(state) == ["a", "d"]
    assert state.sidechain


def test_a_log_that_begins_with_a_side_conversation_is_its_main_one_all_the_same() -> None:
    state = claude(aside(line("s1", None)), aside(line("s2", "s1")), line("a", None), aside(line("s3", "s2")), line("b", "a"))
    assert said(state) == ["a", "b"]


# --- the cost of looking back ---


def test_a_straight_log_never_looks_back() -> None:
    lines = [line("n0", None)]
    for n in range(1, 200):
        lines += [called(f"n{n}", f"{'r' if n > 1 else 'n'}{n - 1}", f"t{n}"), gave(f"r{n}", f"n{n}", f"t{n}")]
    log = Log(CLAUDE, [each | {"timestamp": f"2026-01-01T00:{n // 60:02d}:{n % 60:02d}Z"} for n, each in enumerate(lines)])
    log.fold()
    assert log.looked == 0
