"""Codex CLI: whose its files are, what its lines mean in new and old files, and what a thread needs of others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath

import pytest

from coldtrail.agents import agent
from coldtrail.agents.base import Place, RestoreAdvice
from coldtrail.facts import Facts
from coldtrail.model import EventType, Record, RecordKind, Role

Logs = Callable[[str], Iterator[tuple[Path, list[object]]]]

CODEX = agent("codex")
UUID = "01a227db-9565-7ab0-a49f-e8ebe6797d79"
LATER = "01a2288b-61da-7b01-8d79-b5677e6bc870"
ROLLOUT = f"rollout-2026-11-29T15-10-31-{UUID}"


def no_head() -> bytes:
    raise AssertionError("the path tells whose this is")


def item(**payload: object) -> dict[str, object]:
    return {"timestamp": "2026-01-02T03:04:05.678Z", "type": "response_item", "payload": payload}


def shown(**payload: object) -> dict[str, object]:
    return {"timestamp": "2026-01-02T03:04:05.678Z", "type": "event_msg", "payload": payload}


def said(record: object) -> list[tuple[str, dict[str, object]]]:
    """The events of a record, plainly."""
    return [(event.type.value, dict(event.data)) for event in CODEX.read(record).events]


# --- where ---


def test_its_root_is_the_folder_that_the_environment_names_or_the_usual_one() -> None:
    assert list(CODEX.roots({}, Path("/h"))) == [Path("/h/.codex")]
    assert list(CODEX.roots({"CODEX_HOME": "/c"}, Path("/h"))) == [Path("/c")]


@pytest.mark.parametrize(
    ("path", "session"),
    [
        (f"sessions/2026/11/29/{ROLLOUT}.jsonl", UUID),
        (f"sessions/{ROLLOUT}.jsonl", UUID),
        (f"archived_sessions/{ROLLOUT}.jsonl", UUID),
        (f"sessions/2026/11/29/{ROLLOUT}.jsonl.zst", UUID),
        (f"sessions/2026/11/29/{ROLLOUT.upper()}.jsonl", UUID),
        (f"sessions/2026/11/29/{ROLLOUT}_{LATER}.jsonl", UUID),
        (f"archived_sessions/{ROLLOUT}_{LATER}.jsonl.zst", UUID),
        ("sessions/rollout-fixture.jsonl", "rollout-fixture"),
        ("sessions/2026/11/29/rollout-compress-1.tmp", None),
        (f"sessions/2026/11/29/{ROLLOUT}.jsonl.tmp", None),
        (f"sessions/2026/11/29/.{ROLLOUT}.jsonl", None),
        ("history.jsonl", None),
        ("thread-writer-locks/x.jsonl", None),
    ],
)
def test_a_thread_is_named_by_the_end_of_its_files_name_wherever_it_lies(path: str, session: str | None) -> None:
    assert CODEX.place(PurePosixPath(path), no_head) == (Place(session, "", Role.MAIN) if session else None)


@pytest.mark.parametrize(
    ("name", "log"),
    [
        (f"{ROLLOUT}.jsonl", UUID),
        (f"{ROLLOUT}_{LATER}.jsonl.zst", LATER),
        (f"{ROLLOUT}_{LATER.upper()}.jsonl", LATER),
        ("rollout-x.jsonl", None),
    ],
)
def test_a_rollout_is_named_by_others_by_its_own_id_which_after_a_revert_is_not_the_threads(name: str, log: str | None) -> None:
    assert CODEX.log_id(PurePosixPath("sessions") / name) == log
    assert LATER > UUID, "and the later one is greater"


def test_a_compressed_rollout_is_the_twin_of_the_plain_one() -> None:
    assert CODEX.plain_path(PurePosixPath(f"sessions/{ROLLOUT}.jsonl.zst")) == PurePosixPath(f"sessions/{ROLLOUT}.jsonl")
    assert CODEX.plain_path(PurePosixPath(f"sessions/{ROLLOUT}.jsonl")) is None
    assert CODEX.plain_path(PurePosixPath("sessions/notes.zst")) is None


# --- what ---


def test_a_thread_begins_with_its_id_its_folder_and_its_branch() -> None:
    meta = {"id": UUID, "cwd": "/c", "cli_version": "0.171.0", "git": {"branch": "main", "commit_hash": "abc"}}
    record: dict[str, object] = {"timestamp": "2026-01-02T03:04:05.678Z", "type": "session_meta", "payload": meta}
    reading = CODEX.read(record)
    assert (reading.time_ms, reading.id, reading.cwd) == (1767323045678, None, "/c")
    assert said(record) == [
        ("session_start", {"session_id": UUID, "cwd": "/c", "version": "0.171.0"}),
        ("environment_changed", {"git_branch": "main", "git_commit": "abc", "cwd": "/c", "version": "0.171.0"}),
    ]


@pytest.mark.parametrize(
    "named",
    [
        {"forked_from_id": "p"},
        {"history_base": {"thread_id": "p"}},
        {"parent_thread_id": "p", "forked_from_id": "p"},
        {"source": {"subagent": {"thread_spawn": {"parent_thread_id": "p"}}}},
    ],
)
def test_a_forked_or_spawned_thread_names_what_it_needs_and_whose_line_says_so(named: dict[str, object]) -> None:
    record = {"type": "session_meta", "payload": {"id": "s", **named}}
    assert said(record)[-1] == ("metadata_changed", {"parents": ["p"], "session_id": "s"})


def test_a_spawned_thread_says_which_agent_it_is() -> None:
    record = {"type": "session_meta", "payload": {"id": "s", "parent_thread_id": "p", "agent_nickname": "Kepler", "agent_role": "worker"}}
    assert said(record)[-1] == ("metadata_changed", {"parents": ["p"], "session_id": "s", "agent_name": "Kepler", "agent_role": "worker"})


def test_a_thread_that_goes_on_from_a_part_of_another_rollout_says_from_which_and_how_much() -> None:
    base = {"thread_id": LATER.upper(), "end_ordinal_exclusive": 19, "end_byte_offset": 38263}
    (start, _) = said({"type": "session_meta", "payload": {"id": "s", "history_base": base}})
    assert start == ("session_start", {"session_id": "s", "base": {"log": LATER, "bytes": 38263, "records": 19}})
    broken: list[object] = [
        {},
        {"thread_id": "p"},
        {"thread_id": 5, "end_byte_offset": 5},
        {"thread_id": "p", "end_byte_offset": 0},
        "p",
        None,
    ]
    for each in broken:
        assert said({"type": "session_meta", "payload": {"id": "s", "history_base": each}})[0] == ("session_start", {"session_id": "s"})


def test_a_thread_does_not_need_itself() -> None:
    assert said({"type": "session_meta", "payload": {"id": "s", "forked_from_id": "s"}}) == [("session_start", {"session_id": "s"})]


@pytest.mark.parametrize(
    ("role", "text", "told"),
    [
        ("user", "Hello", {"role": "user"}),
        ("assistant", "Hi", {"role": "assistant"}),
        ("developer", "Obey", {"role": "system"}),
        ("user", "<environment_context>\n", {"role": "user", "meta": True}),
        ("user", "# AGENTS.md instructions for /c", {"role": "user", "meta": True}),
    ],
)
def test_a_message_is_told_with_who_says_it_and_whether_it_was_typed(role: str, text: str, told: dict[str, object]) -> None:
    content = [{"type": "input_text", "text": text}]
    record = item(type="message", id="msg_1", role=role, content=content)
    assert said(record) == [("message_added", {**told, "content": content})]
    assert CODEX.read(record).id == "msg_1"


@pytest.mark.parametrize(
    ("payload", "name", "written"),
    [
        ({"type": "function_call", "name": "exec", "arguments": '{"cmd":"ls"}'}, "exec", '{"cmd":"ls"}'),
        ({"type": "custom_tool_call", "name": "apply_patch", "input": "*** Begin"}, "apply_patch", "*** Begin"),
        ({"type": "local_shell_call", "action": {"command": ["ls"]}}, "local_shell", {"command": ["ls"]}),
        ({"type": "tool_search_call", "arguments": {"q": 1}}, "tool_search", {"q": 1}),
    ],
)
def test_a_call_is_told_as_it_was_written_and_found_by_its_call_id(payload: dict[str, object], name: str, written: object) -> None:
    record = item(**payload, id="fc_1", call_id="call_1")
    assert said(record) == [("tool_invoked", {"tool_name": name, "input": written, "invocation_id": "call_1"})]
    assert CODEX.read(record).id == "call_1"


@pytest.mark.parametrize("kind", ["function_call_output", "custom_tool_call_output"])
def test_an_output_completes_its_call(kind: str) -> None:
    assert said(item(type=kind, call_id="call_1", output="out")) == [("tool_completed", {"invocation_id": "call_1", "output": "out"})]
    failed = said(item(type=kind, call_id="call_1", output={"content": "no", "success": False}))
    assert failed[0][1]["is_error"] is True


def test_a_search_of_the_service_is_complete_at_once() -> None:
    record = item(type="web_search_call", id="ws_1", action={"type": "search", "query": "q"})
    assert [kind for kind, _ in said(record)] == ["tool_invoked", "tool_completed"]
    assert {event["invocation_id"] for _, event in said(record)} == {"ws_1"}


def test_reasoning_is_a_decision_with_as_much_of_it_as_can_be_read() -> None:
    summary = [{"type": "summary_text", "text": "First"}, {"type": "summary_text", "text": "then"}]
    assert said(item(type="reasoning", summary=summary)) == [("decision_made", {"kind": "reasoning", "text": "First\nthen"})]
    assert said(item(type="reasoning", summary=[], encrypted_content="x")) == [("decision_made", {"kind": "reasoning", "text": ""})]


@pytest.mark.parametrize(
    ("record", "event"),
    [
        (
            {"type": "turn_context", "payload": {"cwd": "/c", "model": "m", "approval_policy": "never", "sandbox_policy": {"mode": "x"}}},
            ("environment_changed", {"cwd": "/c", "model": "m", "approval_policy": "never", "sandbox": "x"}),
        ),
        (
            {
                "type": "compacted",
                "payload": {"message": "so far", "replacement_history": [{"type": "message", "role": "developer", "content": "x"}]},
            },
            ("context_summarized", {"summary": "so far", "replacement": [{"type": "message", "role": "system", "content": "x"}]}),
        ),
        ({"type": "compacted", "payload": {"message": "so far"}}, ("context_summarized", {"summary": "so far"})),
        (
            shown(type="token_count", info={"total_token_usage": {"total_tokens": 5}}),
            ("metadata_changed", {"kind": "token_count", "usage": {"total_tokens": 5}}),
        ),
        (
            {"type": "token_usage_record", "payload": {"thread_token_usage": {"total_tokens": 5}}},
            ("metadata_changed", {"kind": "token_usage_record", "usage": {"total_tokens": 5}}),
        ),
        (
            shown(type="thread_name_updated", thread_name="T"),
            ("metadata_changed", {"kind": "thread_name_updated", "title": "T", "title_rank": 3}),
        ),
        (shown(type="thread_rolled_back", num_turns=2), ("decision_made", {"kind": "rollback", "count": 2})),
        (shown(type="shutdown_complete"), ("session_end", {})),
        (
            shown(type="exec_command_end", call_id="c", exit_code=1, duration={"secs": 2, "nanos": 5_000_000}, stdout="x"),
            ("metadata_changed", {"kind": "exec_command_end", "invocation_id": "c", "duration_ms": 2005, "exit_code": 1}),
        ),
        (
            shown(type="item_completed", item={"type": "CommandExecution", "id": "c", "status": "completed", "duration": {"secs": 1}}),
            ("metadata_changed", {"kind": "item_completed", "invocation_id": "c", "duration_ms": 1000, "status": "completed"}),
        ),
        (shown(type="user_message", message="Hello"), ("metadata_changed", {"kind": "user_message"})),
        (shown(type="error", message="no"), ("metadata_changed", {"kind": "error", "message": "no"})),
        (
            item(type="ghost_snapshot", ghost_commit={"id": "g"}),
            ("environment_changed", {"kind": "ghost_snapshot", "snapshot": {"id": "g"}}),
        ),
        (
            item(type="agent_message", author="a", recipient="b", content=[{"text": "x"}]),
            ("message_added", {"role": "user", "content": [{"text": "x"}], "meta": True, "author": "a"}),
        ),
        (shown(type="mystery_event"), ("unknown", {"type": "event_msg"})),
        (item(type="mystery_item"), ("unknown", {"type": "response_item"})),
        ({"type": "totally_new", "payload": {}}, ("unknown", {"type": "totally_new"})),
    ],
)
def test_each_other_line_is_told_as_one_event(record: dict[str, object], event: tuple[str, dict[str, object]]) -> None:
    assert said(record) == [event]


@pytest.mark.parametrize(
    ("record", "event"),
    [
        ({"id": "s", "timestamp": "2025-05-01T00:00:00Z", "instructions": None}, ("session_start", {"session_id": "s"})),
        ({"record_type": "state"}, ("metadata_changed", {"kind": "state"})),
        ({"type": "message", "role": "user", "content": "x"}, ("message_added", {"role": "user", "content": "x"})),
        (
            {"type": "function_call", "call_id": "c", "name": "shell", "arguments": "{}"},
            ("tool_invoked", {"tool_name": "shell", "input": "{}", "invocation_id": "c"}),
        ),
        ({"type": "function_call_output", "call_id": "c", "output": "x"}, ("tool_completed", {"invocation_id": "c", "output": "x"})),
    ],
)
def test_the_bare_lines_of_old_files_mean_the_same(record: dict[str, object], event: tuple[str, dict[str, object]]) -> None:
    assert said(record) == [event]


# --- made again, and back ---


def test_a_file_without_a_beginning_goes_on_if_it_completes_a_call_of_the_lost_one() -> None:
    output = CODEX.read(item(type="function_call_output", call_id="call_1", output="x"))
    other = CODEX.read(item(type="message", role="assistant", content="x"))
    call = CODEX.read(item(type="function_call", call_id="call_1", name="exec", arguments="{}"))
    start = CODEX.read({"type": "session_meta", "payload": {"id": "s"}})
    held = {"call_1"}.__contains__
    assert CODEX.continues([other, output], held)
    assert not CODEX.continues([start, output], held)
    assert not CODEX.continues([call, output], held)
    assert not CODEX.continues([other, output], {"call_2"}.__contains__)
    assert not CODEX.continues([], held)


def test_it_sweeps_nothing_keeps_mtimes_and_resumes_from_anywhere(tmp_path: Path) -> None:
    assert CODEX.sweep_days(tmp_path) is None
    assert CODEX.advise(tmp_path, 5, 6, 10**20) == RestoreAdvice(5)
    assert CODEX.resume(UUID, "/c") == f"codex resume {UUID}"


# --- the real logs ---


def test_real_logs_are_understood_and_have_folders_and_prompts(logs: Logs) -> None:
    unknown: Counter[object] = Counter()
    records, live, sessions = 0, 0, 0
    for path, values in logs("codex"):
        facts = Facts()
        for value in values:
            reading = CODEX.read(value)
            facts.add(Record(0, 1, RecordKind.DATA, value), reading)
            unknown.update(event.data["type"] for event in reading.events if event.type is EventType.UNKNOWN)
        records += len(values)
        assert facts.session_id, path
        assert facts.project, path
        if "entireio__skills" in path.parts:
            sessions += 1
            assert not (facts.prompt or "<").startswith(("<", "# AGENTS.md")), path
            live += facts.session_id == path.parts[2]
    assert records > 4_000
    # Of these, each is made up: types to come, and those of another program's output.
    assert set(unknown) == {"event_msg", "response_item", "totally_new_type"}
    assert unknown.total() < records * 0.005
    assert live == sessions > 5


def test_a_real_spawned_thread_names_its_parent(logs: Logs) -> None:
    facts = Facts()
    for path, values in logs("codex/kenn-io__agentsview"):
        for value in values if path.name == "rollout_subagent.jsonl" else ():
            facts.add(Record(0, 1, RecordKind.DATA, value), CODEX.read(value))
    assert facts.parents == ["019fbc4a-48b9-7472-a0da-6d92901383db"]
