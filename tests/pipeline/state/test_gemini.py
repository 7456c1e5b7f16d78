"""Gemini CLI's conversation: messages said again under their ids, conversations put in place of others, and rewinds."""

from __future__ import annotations

import pytest

from coldtrail.state import State
from pipeline.state.folding import Line, Log, said, state_of, whole_of

GEMINI = "gemini-cli"
HEADER: Line = {"sessionId": "s-1", "projectHash": "h", "startTime": "2026-01-01T00:00:00.000Z", "kind": "main"}


def user(name: str, text: str | None = None) -> Line:
    return {"id": name, "type": "user", "content": [{"text": name if text is None else text}]}


def model(name: str, text: str = "", *calls: Line, **fields: object) -> Line:
    return {"id": name, "type": "gemini", "content": text, "toolCalls": list(calls), **fields}


def call(name: str, result: object = None) -> Line:
    done = {} if result is None else {"status": "success", "result": result}
    return {"id": name, "name": "read", "args": {"path": name}, **done}


def put(*messages: Line) -> Line:
    return {"$set": {"messages": list(messages)}}


def rewind(name: str) -> Line:
    return {"$rewindTo": name}


def gemini(*lines: Line) -> State:
    return state_of(GEMINI, (HEADER, *lines))


def test_a_message_said_again_stands_where_it_was_said_first() -> None:
    assert said(gemini(user("a"), model("b", "half"), user("c"), model("b", "whole"))) == ["a", "whole", "c"]


def test_tools_thoughts_and_usage_of_a_message_said_again_count_once() -> None:
    thought = [{"subject": "s", "description": "d"}]
    steps = [
        model("b", ""),
        model("b", "", call("t1"), thoughts=thought),
        model("b", "", call("t1", "one"), thoughts=thought, tokens={"input": 5, "output": 1}),
        model("b", "x", call("t1", "one"), call("t2"), thoughts=thought, tokens={"input": 5, "output": 3}),
        model("b", "x", call("t1", "one!"), call("t2", "two"), thoughts=thought, tokens={"input": 5, "output": 3}),
    ]
    pending = [[], ["t1"], [], ["t2"], []]
    for count, names in enumerate(pending, 1):
        assert list(gemini(user("a"), *steps[:count]).pending) == names, count
    state, last = gemini(user("a"), *steps), gemini(user("a"), steps[-1])
    assert (state.completed, state.decisions, state.usage) == (last.completed, last.decisions, last.usage)
    assert said(state) == said(last) == ["a", "x"]
    assert state.usage == {"input": 5, "output": 3}


def test_usage_of_a_message_said_again_much_later_counts_once() -> None:
    lines = [model(f"m{n}", "x", tokens={"output": 1}) for n in range(9)]
    assert gemini(*lines, lines[0]).usage == {"output": 9}


def test_a_message_said_again_without_a_tool_has_it_no_more() -> None:
    assert gemini(model("b", "", call("t1", "one")), model("b", "none")).completed.count == 0


def test_a_conversation_put_in_its_place_is_the_conversation() -> None:
    state = gemini(user("a"), model("b", "x"), put(user("summary"), model("b", "x")), user("c"))
    assert said(state) == ["summary", "x", "c"]


def test_of_a_conversation_put_in_its_place_a_message_can_be_said_again() -> None:
    lines = (user("a"), model("b", "x", call("t1", "one")), put(user("s"), model("b", "x", call("t1", "masked")), user("c")))
    state = gemini(*lines, model("b", "y", call("t1", "one"), call("t2", "two")))
    assert said(state) == ["s", "y", "c"]
    assert state.completed == gemini(model("b", "y", call("t1", "one"), call("t2", "two"))).completed
    twice = gemini(*lines, put(user("s"), model("b", "x")), model("b", "y", call("t1", "one"), call("t2", "two")))
    assert twice.completed == state.completed


@pytest.mark.parametrize(("target", "left"), [("s", []), ("b", ["s"]), ("c", ["s", "x"])])
def test_a_conversation_put_in_its_place_can_be_rewound_into(target: str, left: list[str]) -> None:
    assert said(gemini(user("a"), put(user("s"), model("b", "x"), user("c")), rewind(target))) == left


def test_a_rewind_takes_the_message_and_all_behind_it() -> None:
    lines = (user("a"), model("b", "x"), user("c"), model("d", "y"))
    assert said(gemini(*lines, rewind("c"))) == ["a", "x"]
    assert said(gemini(*lines, rewind("c"), user("e"))) == ["a", "x", "e"]


def test_a_rewind_to_what_is_not_there_leaves_nothing() -> None:
    """As the program reads its own log."""
    assert said(gemini(user("a"), model("b", "x"), rewind("nowhere"), user("c"))) == ["c"]


def test_what_a_tool_gave_back_has_a_place_to_rewind_to_though_it_says_nothing() -> None:
    response: Line = {"id": "r", "type": "user", "content": [{"functionResponse": {"id": "t1"}}]}
    assert said(gemini(user("a"), model("b", "x", call("t1", "one")), response, user("c"), rewind("r"))) == ["a", "x"]


def test_metadata_changes_no_conversation() -> None:
    state = gemini(user("a"), {"$set": {"lastUpdated": "2026-01-02T00:00:00.000Z", "summary": "title"}}, user("b"))
    assert said(state) == ["a", "b"]
    assert (state.title, state.metadata()["updated"]) == ("title", "2026-01-02T00:00:00.000Z")


def test_an_old_session_is_one_document() -> None:
    document = {**HEADER, "messages": [user("a"), model("b", "x", call("t1", "one"), call("t2"), tokens={"output": 2})]}
    state = whole_of(GEMINI, [document])
    assert said(state) == ["a", "x"]
    assert [message.id for message in state.messages()] == ["a", "b"]
    assert (state.completed.count, list(state.pending), state.usage) == (1, ["t2"], {"output": 2})


@pytest.mark.parametrize("until", range(1, 9))
def test_a_state_with_parts_of_records_comes_back_as_it_was(until: int) -> None:
    lines = (
        HEADER, user("a"), model("b", "x", call("t1", "one")), put(user("s"), model("b", "x"), user("c"), user("d")),
        model("b", "y", call("t1", "one")), user("c", "C"), rewind("d"), user("e"), put(user("f")),
    )  # fmt: skip
    log = Log(GEMINI, lines)
    state = log.fold(until)
    assert log.frozen(state, until) == state
