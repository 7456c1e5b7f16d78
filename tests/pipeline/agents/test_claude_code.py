"""Claude Code: whose its files are, what its lines mean, when a log made again goes on, and how a session goes back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath

import pytest

from coldtrail.agents import agent
from coldtrail.agents.base import HEAD_BYTES, Place
from coldtrail.facts import Facts
from coldtrail.model import EventType, Reading, Record, RecordKind, Role

Logs = Callable[[str], Iterator[tuple[Path, list[object]]]]

CLAUDE = agent("claude-code")
UUID = "ae3d54a6-0001-4000-8000-000000000001"
DAY_NS = 86_400 * 10**9
CHAIN = {"uuid": "u2", "parentUuid": "u1", "sessionId": UUID, "timestamp": "2026-01-02T03:04:05.678Z", "cwd": "/c", "version": "2.1"}


def no_head() -> bytes:
    raise AssertionError("the path tells whose this is")


def place(path: str, head: Callable[[], bytes] = no_head) -> Place | None:
    return CLAUDE.place(PurePosixPath(path), head)


def said(record: object) -> list[tuple[str, dict[str, object]]]:
    """The events of a record, plainly."""
    return [(event.type.value, dict(event.data)) for event in CLAUDE.read(record).events]


# --- where ---


def test_its_roots_are_every_config_folder_it_ever_used() -> None:
    home = Path("/h")
    assert list(CLAUDE.roots({}, home)) == [home / ".claude", home / ".config/claude"]
    env = {"CLAUDE_CONFIG_DIR": "/elsewhere", "XDG_CONFIG_HOME": "/xdg"}
    assert list(CLAUDE.roots(env, home)) == [Path("/elsewhere"), home / ".claude", Path("/xdg/claude"), home / ".config/claude"]


@pytest.mark.parametrize(
    ("path", "owner"),
    [
        (f"projects/-p/{UUID}.jsonl", Place(UUID, "-p", Role.MAIN)),
        ("projects/-p/my-session.jsonl", Place("my-session", "-p", Role.MAIN)),
        (f"projects/-p/{UUID}/subagents/agent-a1.jsonl", Place(UUID, "-p", Role.CHILD)),
        (f"projects/-p/{UUID}/subagents/workflows/wf_1/agent-a1.jsonl", Place(UUID, "-p", Role.CHILD)),
        (f"projects/-p/{UUID}/subagents/workflows/wf_1/journal.jsonl", Place(UUID, "-p", Role.CHILD)),
        (f"projects/-p/{UUID}/subagents/agent-a1.meta.json", Place(UUID, "-p", Role.COMPANION)),
        (f"projects/-p/{UUID}/tool-results/toolu_1.txt", Place(UUID, "-p", Role.COMPANION)),
        (f"projects/-p/{UUID}/workflows/wf_1.json", Place(UUID, "-p", Role.COMPANION)),
        (f"file-history/{UUID}/0a1b2c@v2", Place(UUID, "", Role.COMPANION)),
        ("projects/-p/memory/MEMORY.md", None),
        ("projects/-p/memory/agent-notes.jsonl", None),
        ("projects/-p/sessions-index.json", None),
        ("projects/-p/.session-aliases", None),
        (f"projects/-p/.{UUID}.jsonl", None),
        ("projects/stray.jsonl", None),
        ("file-history/stray", None),
        ("history.jsonl", None),
        (f"todos/{UUID}.json", None),
    ],
)
def test_whose_a_file_is(path: str, owner: Place | None) -> None:
    assert place(path) == owner


@pytest.mark.parametrize(
    ("head", "owner"),
    [
        (b'{"parentUuid":null,"isSidechain":true,"sessionId":"s1"}\n', Place("s1", "-p", Role.CHILD)),
        (b'{"type":"file-history-snapshot"}\n{"sessionId":"s1"}\n', Place("s1", "-p", Role.CHILD)),
        (b'{"parentUuid":null,"sessionId":"s1","message":{"content":"a first line that is still being wri', Place("s1", "-p", Role.CHILD)),
        (b'{"silly":1}\n', Place("agent-a1", "-p", Role.CHILD)),
        (b"x" * HEAD_BYTES, Place("agent-a1", "-p", Role.CHILD)),
        (b'{"parentUuid":nu', None),  # asked again when there is more
        (b"", None),
    ],
)
def test_an_old_sub_agent_beside_the_sessions_says_whose_it_is(head: bytes, owner: Place | None) -> None:
    assert place("projects/-p/agent-a1.jsonl", lambda: head) == owner


# --- what ---


def test_a_prompt_tells_where_it_was_typed_and_what() -> None:
    record = {**CHAIN, "type": "user", "gitBranch": "main", "message": {"role": "user", "content": "Hello"}}
    reading = CLAUDE.read(record)
    assert (reading.time_ms, reading.id, reading.parent, reading.cwd) == (1767323045678, "u2", "u1", "/c")
    assert said(record) == [
        ("environment_changed", {"cwd": "/c", "git_branch": "main", "version": "2.1"}),
        ("message_added", {"role": "user", "content": "Hello"}),
    ]


def test_the_first_record_of_a_chain_starts_the_session_and_a_sub_agents_does_not() -> None:
    record = {**CHAIN, "type": "progress", "parentUuid": None, "data": {"type": "hook_progress"}}
    assert said(record)[0] == ("session_start", {"session_id": UUID, "cwd": "/c", "version": "2.1"})
    assert [kind for kind, _ in said({**record, "isSidechain": True})] == ["metadata_changed"]


def test_a_copied_session_says_from_which_and_does_not_need_it() -> None:
    record = {**CHAIN, "type": "progress", "parentUuid": None, "forkedFrom": {"sessionId": "origin", "messageUuid": "u"}}
    told = said(record)
    assert told[0] == ("session_start", {"session_id": UUID, "cwd": "/c", "version": "2.1", "forked_from": "origin"})
    assert all("parents" not in data for _, data in told)


def test_a_record_of_a_type_to_come_that_starts_a_chain_is_still_told_as_unknown() -> None:
    assert [kind for kind, _ in said({**CHAIN, "type": "novelty", "parentUuid": None})] == ["session_start", "unknown"]


def test_an_answer_is_told_in_the_order_of_its_blocks() -> None:
    blocks = [
        {"type": "thinking", "thinking": "hm", "signature": "s"},
        {"type": "text", "text": "one"},
        {"type": "tool_use", "id": "t1", "name": "Bash", "input": {"command": "ls"}},
        {"type": "text", "text": "two"},
    ]
    message = {"id": "m1", "model": "opus", "role": "assistant", "content": blocks, "usage": {"output_tokens": 5}}
    assert said({**CHAIN, "type": "assistant", "message": message}) == [
        ("decision_made", {"kind": "reasoning", "text": "hm"}),
        (
            "message_added",
            {"role": "assistant", "content": [blocks[1], blocks[3]], "message_id": "m1", "model": "opus", "usage": {"output_tokens": 5}},
        ),
        ("tool_invoked", {"tool_name": "Bash", "input": {"command": "ls"}, "invocation_id": "t1"}),
    ]


def test_usage_is_told_of_an_answer_that_says_nothing() -> None:
    blocks = [{"type": "tool_use", "id": "t1", "name": "Bash", "input": {}}]
    message = {"id": "m1", "model": "opus", "content": blocks, "usage": {"output_tokens": 5}}
    assert said({**CHAIN, "type": "assistant", "message": message})[1:] == [
        ("metadata_changed", {"message_id": "m1", "model": "opus", "usage": {"output_tokens": 5}})
    ]


@pytest.mark.parametrize(
    ("copy", "took"),
    [
        ({"durationMs": 12}, 12),
        ({"totalDurationMs": 34}, 34),
        ({"durationSeconds": 1.5}, 1500),
        ("text", None),
        ({"durationMs": "x"}, None),
    ],
)
def test_a_tools_result_has_the_time_that_its_structured_copy_says(copy: object, took: int | None) -> None:
    block = {"type": "tool_result", "tool_use_id": "t1", "content": "out", "is_error": True}
    record = {**CHAIN, "type": "user", "message": {"role": "user", "content": [block]}, "toolUseResult": copy}
    expected = {"invocation_id": "t1", "output": "out", "is_error": True} | ({} if took is None else {"duration_ms": took})
    assert said(record) == [("tool_completed", expected)]


def test_a_result_that_was_too_long_says_where_the_whole_of_it_lies() -> None:
    block = {"type": "tool_result", "tool_use_id": "t1", "content": "<persisted-output>"}
    copy = {"persistedOutputPath": "/c/tool-results/b1.txt", "persistedOutputSize": 9}
    record = {**CHAIN, "type": "user", "message": {"role": "user", "content": [block]}, "toolUseResult": copy}
    assert said(record)[0][1]["output_path"] == "/c/tool-results/b1.txt"


def test_several_results_and_a_text_in_one_record_are_each_told() -> None:
    blocks: list[object] = [{"type": "tool_result", "tool_use_id": f"t{n}", "content": "x"} for n in (1, 2)]
    record = {"type": "user", "message": {"content": [*blocks, {"type": "text", "text": "and"}]}, "toolUseResult": {"durationMs": 1}}
    told = said(record)
    assert [kind for kind, _ in told] == ["tool_completed", "tool_completed", "environment_changed", "message_added"]
    assert "duration_ms" not in told[0][1]  # it cannot be said whose
    assert told[3][1]["content"] == [{"type": "text", "text": "and"}]


@pytest.mark.parametrize(
    "text",
    [
        "<command-name>/exit</command-name>",
        "<local-command-stdout>Bye</local-command-stdout>",
        "Caveat: The messages below were",
        "<bash-input>ls",
    ],
)
def test_what_nobody_typed_as_a_prompt_is_marked(text: str) -> None:
    assert said({"type": "user", "message": {"role": "user", "content": text}})[-1][1]["meta"] is True
    assert said({"type": "user", "message": {"role": "user", "content": [{"type": "text", "text": text}]}})[-1][1]["meta"] is True


def test_synthetic_and_side_messages_are_marked() -> None:
    record = {"type": "user", "isMeta": True, "isSidechain": True, "message": {"content": "x"}}
    assert said(record)[-1][1] == {"role": "user", "content": "x", "meta": True, "sidechain": True}


def test_a_compaction_is_told_with_what_it_hangs_on_and_then_its_summary() -> None:
    boundary = {
        **CHAIN, "type": "system", "subtype": "compact_boundary", "parentUuid": None, "logicalParentUuid": "u1", "content": "compacted",
        "compactMetadata": {"trigger": "auto", "preTokens": 155_000},
    }  # fmt: skip
    assert said(boundary) == [("context_summarized", {"trigger": "auto", "tokens_before": 155_000})]
    assert CLAUDE.read(boundary).parent == "u1"
    summary = {"type": "user", "isCompactSummary": True, "message": {"content": [{"type": "text", "text": "so far"}]}}
    assert said(summary) == [("context_summarized", {"summary": "so far"})]


@pytest.mark.parametrize(
    ("about", "kept"),
    [
        ({"preservedSegment": {"headUuid": "u1", "tailUuid": "u3", "anchorUuid": "s"}}, {"from": "u1", "to": "u3"}),
        ({"preservedSegment": {"headUuid": "u1", "tailUuid": "u3"}, "preservedMessages": {"uuids": ["u1", "u3"]}}, ["u1", "u3"]),
        ({"preservedSegment": {"headUuid": "u1"}}, None),
        ({}, None),
    ],
)
def test_a_compaction_tells_what_it_keeps_word_for_word(about: dict[str, object], kept: object) -> None:
    boundary = {**CHAIN, "type": "system", "subtype": "compact_boundary", "content": "compacted", "compactMetadata": about}
    assert said(boundary) == [("context_summarized", {} if kept is None else {"kept": kept})]


@pytest.mark.parametrize(
    ("record", "event"),
    [
        ({"type": "summary", "summary": "S", "leafUuid": "l"}, {"kind": "summary", "title": "S", "title_rank": 1}),
        ({"type": "ai-title", "aiTitle": "A"}, {"kind": "ai-title", "title": "A", "title_rank": 2}),
        ({"type": "custom-title", "customTitle": "C"}, {"kind": "custom-title", "title": "C", "title_rank": 3}),
        ({"type": "custom-title", "customTitle": ""}, {"kind": "custom-title"}),
        ({"type": "queue-operation", "operation": "enqueue", "content": "x"}, {"kind": "queue-operation", "operation": "enqueue"}),
        ({"type": "permission-mode", "permissionMode": "plan"}, {"kind": "permission-mode", "permissionMode": "plan"}),
        ({"type": "last-prompt", "lastPrompt": "x"}, {"kind": "last-prompt"}),
        ({"type": "system", "subtype": "turn_duration", "durationMs": 5}, {"kind": "turn_duration", "duration_ms": 5}),
        (
            {"type": "progress", "data": {"type": "bash_progress"}, "parentToolUseID": "t1"},
            {"kind": "progress", "progress": "bash_progress", "invocation_id": "t1"},
        ),
    ],
)
def test_bookkeeping_changes_metadata(record: dict[str, object], event: dict[str, object]) -> None:
    assert said(record) == [("metadata_changed", event)]


@pytest.mark.parametrize(
    ("record", "event"),
    [
        (
            {"type": "file-history-snapshot", "messageId": "m", "snapshot": {"trackedFileBackups": {}}},
            {"snapshot": {"trackedFileBackups": {}}, "message_id": "m"},
        ),
        ({"type": "relocated", "relocatedCwd": "/new"}, {"cwd": "/new"}),
        ({"type": "worktree-state", "worktreeSession": {"worktreePath": "/w", "worktreeBranch": "b"}}, {"cwd": "/w", "git_branch": "b"}),
        ({"type": "worktree-state", "worktreeSession": None}, {}),
    ],
)
def test_snapshots_and_moves_change_the_environment(record: dict[str, object], event: dict[str, object]) -> None:
    assert said(record) == [("environment_changed", event)]


def test_a_prompt_typed_while_it_worked_is_the_users_and_other_attachments_are_not() -> None:
    queued = {"type": "attachment", "attachment": {"type": "queued_command", "prompt": "also this"}}
    assert said(queued) == [("message_added", {"role": "user", "content": "also this"})]
    listing = {"type": "skill_listing", "content": "x"}
    assert said({"type": "attachment", "attachment": listing}) == [
        ("message_added", {"role": "system", "content": [listing], "meta": True})
    ]


def test_a_note_of_the_program_is_a_system_message() -> None:
    assert said({"type": "system", "subtype": "away_summary", "content": "done"}) == [
        ("message_added", {"role": "system", "content": "done"})
    ]


@pytest.mark.parametrize("record", [{"silly": "this"}, {"type": "user"}, {"type": "assistant", "message": {"content": None}}, {"type": 5}])
def test_what_says_nothing_known_is_unknown_by_its_own_word(record: dict[str, object]) -> None:
    kind = record.get("type")
    assert said(record) == [("unknown", {"type": kind if isinstance(kind, str) else None})]


# --- made again ---


def chain(*ids: str, parent: str | None) -> list[Reading]:
    parents = [parent, *ids[:-1]]
    return [Reading((), id=each, parent=before) for each, before in zip(ids, parents, strict=True)]


def test_a_log_made_again_goes_on_if_it_hangs_on_a_record_that_only_the_lost_one_has() -> None:
    lost = {"u1", "u2", "u3"}
    untied = Reading(())
    assert CLAUDE.continues([untied, *chain("u4", "u5", parent="u3")], lost.__contains__)
    assert not CLAUDE.continues(chain("u4", "u5", parent=None), lost.__contains__)
    assert not CLAUDE.continues(chain("v1", "v2", parent="v0"), lost.__contains__)
    assert not CLAUDE.continues(chain("u2", "u3", parent="u1"), lost.__contains__)  # the same records without their head
    assert not CLAUDE.continues([], lost.__contains__)


# --- back ---


@pytest.mark.parametrize(
    ("settings", "days"),
    [
        ('{"cleanupPeriodDays": 90}', 90.0),
        ('{"cleanupPeriodDays": 1}', 1.0),
        ('{"cleanupPeriodDays": 0}', 30.0),  # the program rejects it
        ('{"cleanupPeriodDays": true}', 30.0),
        ('{"cleanupPeriodDays": "90"}', 30.0),
        ('{"cleanupPeriodDays": NaN}', 30.0),
        ("{", 30.0),
        (None, 30.0),
    ],
)
def test_it_sweeps_after_the_days_that_its_settings_say(tmp_path: Path, settings: str | None, days: float) -> None:
    if settings is not None:
        (tmp_path / "settings.json").write_text(settings)
    assert CLAUDE.sweep_days(tmp_path) == days


def test_a_restored_file_keeps_its_mtime_until_half_of_the_period_is_over(tmp_path: Path) -> None:
    now = 1000 * DAY_NS
    assert CLAUDE.advise(tmp_path, now - 15 * DAY_NS, None, now).mtime_ns == now - 15 * DAY_NS
    late = CLAUDE.advise(tmp_path, now - 16 * DAY_NS, None, now)
    assert late.mtime_ns == now
    assert "1972-09-11" in late.warning
    assert "30 days" in late.warning
    (tmp_path / "settings.json").write_text('{"cleanupPeriodDays": 3650}')
    assert CLAUDE.advise(tmp_path, now - 16 * DAY_NS, None, now).warning == ""


def test_a_session_is_resumed_from_its_own_folder() -> None:
    assert CLAUDE.resume(UUID, "/my code") == f"cd '/my code' && claude --resume {UUID}"
    assert CLAUDE.resume(UUID, None) == f"claude --resume {UUID}"


# --- the real logs ---


def test_real_logs_are_understood_and_have_folders_and_titles(logs: Logs) -> None:
    unknown: Counter[object] = Counter()
    records, untitled, nowhere, sessions = 0, [], [], 0
    for path, values in logs("claude"):
        facts = Facts()
        for value in values:
            reading = CLAUDE.read(value)
            facts.add(Record(0, 1, RecordKind.DATA, value), reading)
            unknown.update(event.data["type"] for event in reading.events if event.type is EventType.UNKNOWN)
        records += len(values)
        if "entireio__" in path.parts[1]:  # real sessions, whole
            sessions += 1
            untitled += [] if facts.title or facts.prompt else [path]
            nowhere += [] if facts.project else [path]
    assert records > 40_000
    # A demo format of its own, records cut short on purpose, and values that are no objects.
    assert set(unknown) <= {"tool_use", "tool_result", "user", "assistant", None}
    assert unknown.total() < records * 0.002
    assert sessions > 90
    assert len(untitled) <= 1
    assert nowhere == []


def test_a_real_log_cut_in_two_goes_on_and_a_whole_one_does_not(logs: Logs) -> None:
    tried = 0
    for path, values in logs("claude/entireio__cli"):
        readings = [CLAUDE.read(value) for value in values]
        half = len(readings) // 2
        before = {reading.id for reading in readings[:half]}
        first = next((reading for reading in readings[half:] if reading.parent is not None), None)
        if first is None or first.id in before or first.parent not in before:
            continue  # cut at a record that stands there twice, or that begins anew
        tried += 1
        assert CLAUDE.continues(readings[half : half + 64], before.__contains__), path
        assert not CLAUDE.continues(readings[:64], {reading.id for reading in readings}.__contains__), path
    assert tried > 50
