"""An event log's state: each event once, whatever order it comes in, and summaries that name what they leave."""

from __future__ import annotations

import itertools
import random
import re
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coldtrail.agents import event_log
from coldtrail.format import lines
from coldtrail.state import State
from pipeline.state.folding import Line, Log, said, state_of, whole_of

MINE = "event-log"


def event(kind: str, number: int | str | None = None, /, **fields: object) -> Line:
    own = {} if number is None else {"event_id": number if isinstance(number, str) else f"e{number:06d}"}
    return {"type": kind, **own, **fields}


def says(text: str, number: int | str | None = None, role: str = "user", **fields: object) -> Line:
    return event("message_added", number, role=role, content=text, **fields)


def invoked(invocation: str, number: int | str | None = None) -> Line:
    return event("tool_invoked", number, tool_name="t", input={"n": invocation}, invocation_id=invocation)


def completed(invocation: str, number: int | str | None = None, output: object = "done") -> Line:
    return event("tool_completed", number, invocation_id=invocation, output=output, duration_ms=5)


def mine(*events: Line) -> State:
    return state_of(MINE, events)


def test_an_event_that_was_written_twice_counts_once() -> None:
    events = [says("a", 1), invoked("t", 2), completed("t", 3), says("b", 4, usage={"output": 1})]
    once = mine(*events)
    for times in (events + events, [each for each in events for _ in range(3)], [*events, events[0], events[2]]):
        state = mine(*times)
        assert (state.hash(), state.event_count) == (once.hash(), 4)


def test_ids_that_sort_by_time_need_no_look_back() -> None:
    log = Log(MINE, [says(str(n), n) for n in range(500)])
    assert log.fold().event_count == 500
    assert log.looked == 0


@pytest.mark.parametrize("seed", range(3))
def test_ids_that_do_not_sort_count_once_too(seed: int) -> None:
    chance = random.Random(seed)
    events = [says(str(n), str(uuid.UUID(int=chance.getrandbits(128), version=4))) for n in range(200)]
    repeated = list(events)
    for each in chance.sample(events, 50):
        repeated.insert(chance.randrange(repeated.index(each) + 1, len(repeated) + 1), each)
    assert mine(*repeated).hash() == mine(*events).hash()


def test_events_without_ids_are_events_each_time() -> None:
    assert said(mine(says("a"), says("a"))) == ["a", "a"]


def test_a_completion_that_comes_before_its_invocation_ends_as_in_order() -> None:
    events = [invoked("t1", 1), invoked("t2", 2), completed("t1", 3), completed("t2", 4)]
    in_order = mine(*events)
    assert in_order.completed.count == 2
    for order in itertools.permutations(events):
        state = mine(*order)
        assert state.hash() == in_order.hash()
        assert (state.pending, state.early) == ({}, {})


def test_tools_stand_in_the_order_of_their_completion_though_they_were_invoked_late() -> None:
    late = whole_of(MINE, [completed("t1", 1), invoked("t2", 2), completed("t2", 3), invoked("t1", 4)])
    in_order = whole_of(MINE, [invoked("t1", 4), completed("t1", 5), invoked("t2", 6), completed("t2", 7)])
    assert late.document()["completed_tools"] == in_order.document()["completed_tools"]


def test_a_completion_of_what_was_never_invoked_is_completed_all_the_same() -> None:
    state = whole_of(MINE, [completed("t1", 1) | {"tool_name": "named"}])
    (tool,) = state.completed.values  # type: ignore[attr-defined]
    assert (tool["tool_name"], tool["input"], tool["output"]) == ("named", None, "done")
    assert list(state.early) == ["t1"]


def test_completions_that_wait_are_bounded() -> None:
    state = mine(*(completed(f"t{n}", n) for n in range(500)))
    assert (state.completed.count, len(state.early), list(state.early)[-1]) == (500, 64, "t499")
    assert (state.forgotten, mine(*(completed(f"t{n}", n) for n in range(64))).forgotten) == (436, 0)


def test_a_summary_takes_the_place_of_what_was_said() -> None:
    state = mine(says("a", 1), says("b", 2), event("context_summarized", 3, summary="so far", timestamp=1_767_225_600), says("c", 4))
    assert said(state) == ["so far", "c"]
    assert state.bounded()["summary_applied_at"] == "2026-01-01T00:00:00.000Z"


def test_a_summary_may_name_the_messages_that_it_leaves() -> None:
    left = [{"role": "system", "content": "so far"}, {"role": "user", "content": "b", "id": "m-2"}, {"no": "message"}, "text"]
    state = mine(says("a", 1), says("b", 2), event("context_summarized", 3, summary="unused", summarized_messages=left), says("c", 4))
    assert said(state) == ["so far", "b", "c"]
    assert [message.id for message in state.messages()] == [None, "m-2", "e000004"]
    assert said(mine(says("a", 1), event("context_summarized", 2, summarized_messages=[]))) == []


def test_rollbacks_end_at_a_message_or_some_turns_back() -> None:
    events = [says("a", 1), says("b", 2, "assistant"), says("c", 3), says("d", 4, "assistant")]
    assert said(mine(*events, event("decision_made", 5, kind="rollback", count=1))) == ["a", "b"]
    assert said(mine(*events, event("decision_made", 5, kind="rollback", target="e000002"), says("e", 6))) == ["a", "e"]
    assert said(mine(*events, event("decision_made", 5, kind="rollback", target="nowhere"))) == ["a", "b", "c", "d"]
    left = [{"role": "user", "content": "x", "id": "x"}, {"role": "user", "content": "y", "id": "y"}]
    summed = event("context_summarized", 5, summarized_messages=left)
    assert said(mine(*events, summed, says("z", 6), event("decision_made", 7, kind="rollback", target="y"))) == ["x"]
    assert said(mine(*events, summed, says("z", 6), event("decision_made", 7, kind="rollback", count=2))) == ["x"]


def test_usage_counts_once_a_message_id_its_largest_figures() -> None:
    def told(number: int, answer: str | None, **usage: int) -> Line:
        return says("x", number, "assistant", usage=usage, **({} if answer is None else {"message_id": answer}))

    assert mine(told(1, "m", input=5, output=1), told(2, "m", input=5, output=7), told(3, "m", output=2)).usage == {"input": 5, "output": 7}
    assert mine(told(1, "m", output=1), told(2, "n", output=2), told(3, "m", output=4)).usage == {"output": 6}
    assert mine(told(1, None, output=1), told(2, None, output=2)).usage == {"output": 3}
    assert mine(says("x", 1, usage={"output": True, "cost": 0.5, "n": 1})).usage == {"n": 1}


def test_metadata_is_title_times_and_usage() -> None:
    state = mine(
        says("a", 1, timestamp="2026-01-02T00:00:00Z"), says("b", 2, timestamp="2026-01-01T00:00:00Z"),
        event("metadata_changed", 3, title="mine"), event("metadata_changed", 4, title="theirs", title_rank=2),
    )  # fmt: skip
    assert state.metadata() == {"title": "mine", "created": "2026-01-01T00:00:00.000Z", "updated": "2026-01-02T00:00:00.000Z", "usage": {}}


def test_the_environment_is_the_last_said_of_each() -> None:
    state = mine(
        event("session_start", 1, session_id="s", cwd="/one", model="m1"), event("environment_changed", 2, git_branch="main", kind="k"),
        event("environment_changed", 3, cwd="/two", snapshot={"files": ["a"]}), says("x", 4, model="m2"),
    )  # fmt: skip
    assert state.environment == {"cwd": "/two", "model": "m2", "git_branch": "main"}
    assert state.snapshots.count == 1


def test_the_whole_state_is_what_the_formats_page_says() -> None:
    """Of a `checkpoint` event, whose hash is taken of it."""
    said = re.findall(r"^      (\w+) +\S", event_log.__doc__ or "", re.MULTILINE)
    assert sorted(State.whole().document()) == sorted(said)
    document = whole_of(MINE, [says("é", 1, timestamp=1_767_225_600), invoked("t", 2), invoked("u", 3), completed("u", 4)]).document()
    assert lines.dumps(document, sort=True).decode() == (
        '{"completed_tools":[{"duration_ms":5,"input":{"n":"u"},"invocation_id":"u","output":"done","tool_name":"t"}],"decisions":[],'
        '"environment":{},"event_count":4,"messages":[{"content":"é","id":"e000001","role":"user","timestamp":"2026-01-01T00:00:00.000Z"}],'
        '"metadata":{"created":"2026-01-01T00:00:00.000Z","title":null,"updated":"2026-01-01T00:00:00.000Z","usage":{}},'
        '"pending_tools":{"t":{"input":{"n":"t"},"started_at":null,"tool_name":"t"}},"snapshots":[],"summary_applied_at":null}'
    )


def test_the_whole_state_holds_each_decision_tool_and_snapshot_in_order() -> None:
    events = [event("decision_made", n, kind="reasoning", text=str(n)) for n in range(3)]
    state = whole_of(MINE, [*events, event("environment_changed", 3, snapshot=1), invoked("t", 4), completed("t", 5)])
    document = state.document()
    assert document["decisions"] == [{"kind": "reasoning", "text": str(n)} for n in range(3)]
    assert document["snapshots"] == [{"snapshot": 1}]
    assert document["completed_tools"] == [
        {"invocation_id": "t", "tool_name": "t", "input": {"n": "t"}, "output": "done", "duration_ms": 5}
    ]
    assert state.hash() == mine(*events, event("environment_changed", 3, snapshot=1), invoked("t", 4), completed("t", 5)).hash()


@given(st.integers(1, 900))
def test_a_message_of_any_depth_has_a_place(depth: int) -> None:
    log = Log(MINE, b'{"type":"message_added","role":"user","content":' + b"[" * depth + b"]" * depth + b"}\n")
    assert len(log.fold().hash()) == 64


def test_text_that_is_no_unicode_has_a_place() -> None:
    head = b'{"type":"message_added","role":"user","content":'
    log = Log(MINE, head + b'"\\ud83d \xff"}\n' + head + b"NaN}\n")
    assert len(log.fold().hash()) == 64
    assert len(log.fold().live) == 2
