"""Codex's conversation: the file's order, compacted histories, turns rolled back, and files that hold another thread's beginning."""

from __future__ import annotations

from coldtrail.state import State
from pipeline.state.folding import Line, Log, said, state_of, whole_of

CODEX = "codex"


def item(time: int = 0, **payload: object) -> Line:
    return {"timestamp": f"2026-01-01T00:00:{time:02d}.000Z", "type": "response_item", "payload": payload}


def message(text: str, role: str = "user") -> Line:
    return item(type="message", role=role, content=[{"type": "input_text", "text": text}])


def call(invocation: str) -> Line:
    return item(type="function_call", name="shell", arguments="{}", call_id=invocation)


def output(invocation: str, text: str = "out") -> Line:
    return item(type="function_call_output", call_id=invocation, output=text)


def shown(kind: str, **payload: object) -> Line:
    return {"type": "event_msg", "payload": {"type": kind, **payload}}


def rolled_back(turns: int) -> Line:
    return shown("thread_rolled_back", num_turns=turns)


def compacted(*history: Line, text: str = "") -> Line:
    payload = {"message": text, "replacement_history": list(history)}
    return {"timestamp": "2026-01-01T00:01:00.000Z", "type": "compacted", "payload": payload}


def meta(thread: str, cwd: str = "/here", **fields: object) -> Line:
    return {"type": "session_meta", "payload": {"id": thread, "cwd": cwd, "cli_version": thread, **fields}}


def put_in(text: str, role: str = "user") -> Line:
    return {"type": "message", "role": role, "content": [{"type": "input_text", "text": text}]}


def codex(*lines: Line) -> State:
    return state_of(CODEX, lines)


def test_the_conversation_is_the_files_order() -> None:
    assert said(codex(message("a"), message("b", "assistant"), call("t"), output("t"), message("c"))) == ["a", "b", "c"]


def test_a_compacted_history_takes_the_place_of_all() -> None:
    state = codex(message("a"), message("b", "assistant"), compacted(put_in("a"), put_in("so far", "assistant")), message("c"))
    assert said(state) == ["a", "so far", "c"]
    assert [each.role for each in state.messages()] == ["user", "assistant", "user"]
    assert state.summary_applied_ms == 1_767_225_660_000


def test_an_old_compaction_leaves_its_text_and_one_of_nothing_leaves_nothing() -> None:
    old: Line = {"type": "compacted", "payload": {"message": "so far"}}
    assert said(codex(message("a"), old, message("b"))) == ["so far", "b"]
    assert said(codex(message("a"), compacted(), message("b"))) == ["b"]


def test_a_compacted_history_is_told_in_the_words_of_all_agents() -> None:
    state = codex(compacted(put_in("be kind", "developer"), put_in("<environment_context>x"), put_in("a")))
    assert [(each.role, each.meta) for each in state.messages()] == [("system", False), ("user", True), ("user", False)]


def test_turns_are_rolled_back_with_all_that_was_said_in_them() -> None:
    lines = (message("a"), message("b", "assistant"), message("c"), message("d", "assistant"), message("e"))
    assert said(codex(*lines, rolled_back(1))) == ["a", "b", "c", "d"]
    assert said(codex(*lines, rolled_back(2), message("f"))) == ["a", "b", "f"]
    assert said(codex(*lines, rolled_back(9))) == []
    assert said(codex(*lines, rolled_back(0))) == ["a", "b", "c", "d", "e"]


def test_what_nobody_typed_is_no_turn() -> None:
    lines = (message("a"), message("<environment_context>x"), message("b"), message("<turn_aborted>"))
    assert said(codex(*lines, rolled_back(1))) == ["a", "<environment_context>x"]


def test_turns_inside_a_compacted_history_are_rolled_back_one_by_one() -> None:
    history = compacted(put_in("a"), put_in("<environment_context>x"), put_in("b"), put_in("so far", "assistant"))
    assert said(codex(history, message("c"), rolled_back(1))) == ["a", "<environment_context>x", "b", "so far"]
    assert said(codex(history, message("c"), rolled_back(2), message("d"))) == ["a", "<environment_context>x", "d"]
    assert said(codex(history, message("c"), rolled_back(3), message("d"))) == ["d"]


def test_what_happened_in_a_turn_that_was_rolled_back_has_happened() -> None:
    state = codex(message("a"), call("t1"), output("t1"), call("t2"), rolled_back(1))
    assert (state.completed.count, list(state.pending), said(state)) == (1, ["t2"], [])
    assert state.decisions.count == 1


def test_a_forks_file_is_its_own_though_it_holds_its_parents_beginning() -> None:
    state = codex(meta("child", "/child"), meta("parent", "/parent"), message("a"))
    assert state.environment == {"cwd": "/child", "version": "child"}
    assert state.session == "child"
    turn: Line = {"type": "turn_context", "payload": {"cwd": "/elsewhere", "model": "m"}}
    assert codex(meta("child", "/child"), meta("parent", "/parent"), turn).environment["cwd"] == "/elsewhere"


def test_a_resumed_thread_says_its_beginning_again() -> None:
    assert codex(meta("t", "/one"), message("a"), meta("t", "/two")).environment["cwd"] == "/two"


def test_usage_is_that_of_the_whole_thread_so_far() -> None:
    count = [shown("token_count", info={"total_token_usage": {"total_tokens": n}}) for n in (5, 9)]
    assert codex(*count).usage == {"total_tokens": 9}
    assert codex(*count, shown("token_count", info=None)).usage == {"total_tokens": 9}


def test_completed_tools_have_name_input_and_output() -> None:
    state = whole_of(CODEX, [call("t1"), call("t2"), output("t2", "two")])
    assert state.document()["completed_tools"] == [
        {"invocation_id": "t2", "tool_name": "shell", "input": "{}", "output": "two", "duration_ms": None}
    ]
    assert list(state.pending) == ["t1"]


def test_between_the_live_messages_of_a_log_one_reference_suffices() -> None:
    """However many tools were called between: they have no place in the conversation."""
    lines = [each for n in range(50) for each in (message(f"m{n}"), call(f"t{n}"), output(f"t{n}"))]
    log = Log(CODEX, lines)
    state = log.fold()
    assert log.frozen(state, len(lines)) == state
    assert sum(not node.follows for node in state.live) == 1
    state = Log(CODEX, [*lines, rolled_back(1), message("x"), call("t"), message("y")]).fold()
    assert [node.follows for node in state.live[-3:]] == [True, False, True]
