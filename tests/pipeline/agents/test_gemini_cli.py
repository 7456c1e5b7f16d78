"""Gemini CLI: whose its files are, what its lines and its old documents mean, and what its sweep does to a restored session."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath

import pytest

from coldtrail.agents import agent
from coldtrail.agents.base import Place
from coldtrail.facts import Facts
from coldtrail.model import EventType, Record, RecordKind, Role

Logs = Callable[[str], Iterator[tuple[Path, list[object]]]]

GEMINI = agent("gemini-cli")
ID = "a940d15c-6e32-4776-9bc8-fc99817d0bdc"
LOG = "tmp/proj/chats/session-2026-11-29T15-00-a940d15c.jsonl"
STARTED = "2026-01-02T03:04:05.678Z"
HEADER = {"sessionId": ID, "projectHash": "94ce", "startTime": STARTED, "lastUpdated": STARTED, "kind": "main"}
CONTEXT = "<session_context>\nThis is the Gemini CLI.\n- **Workspace Directories:**\n  - /my code\n  - /other\n</session_context>"
DAY_MS = 86_400_000


def no_head() -> bytes:
    raise AssertionError("the path tells whose this is")


def place(path: str, head: Callable[[], bytes] = no_head) -> Place | None:
    return GEMINI.place(PurePosixPath(path), head)


def said(record: object) -> list[tuple[str, dict[str, object]]]:
    """The events of a record, plainly."""
    return [(event.type.value, dict(event.data)) for event in GEMINI.read(record).events]


# --- where ---


def test_its_root_lies_in_the_home_that_the_environment_names() -> None:
    assert list(GEMINI.roots({}, Path("/h"))) == [Path("/h/.gemini"), Path("/h/.cache/.gemini")]
    assert GEMINI.roots({"GEMINI_CLI_HOME": "/g"}, Path("/h"))[0] == Path("/g/.gemini")


@pytest.mark.parametrize(
    ("path", "owner"),
    [
        (f"tmp/proj/chats/{ID}/b1.jsonl", Place(ID, "proj", Role.CHILD)),
        (f"tmp/proj/logs/session-{ID}.jsonl", Place(ID, "proj", Role.COMPANION)),
        (f"tmp/proj/tool-outputs/session-{ID}/shell_1.txt", Place(ID, "proj", Role.COMPANION)),
        (f"tmp/proj/{ID}/plans/plan.md", Place(ID, "proj", Role.COMPANION)),
        (f"tmp/proj/chats/{ID}/notes.txt", None),
        ("tmp/proj/tool-outputs/loose.txt", None),
        ("tmp/proj/memory/MEMORY.md", None),
        ("tmp/proj/.project_root", None),
        ("tmp/proj/shell_history", None),
        ("tmp/proj/chats/notes.txt", None),
        ("tmp/proj/chats/session-2026-11-29T15-00-a940d15c.jsonl.tmp-77", None),
        ("history/proj/.project_root", None),
        ("projects.json", None),
    ],
)
def test_whose_a_file_is(path: str, owner: Place | None) -> None:
    assert place(path) == owner


@pytest.mark.parametrize(
    ("path", "head", "owner"),
    [
        (LOG, f'{{"sessionId":"{ID}","projectHash":"x"}}\n', Place(ID, "proj", Role.MAIN)),
        (LOG, f'{{"sessionId":"{ID}","proj', Place(ID, "proj", Role.MAIN)),
        (LOG.replace(".jsonl", ".json"), f'{{\n  "messages": [],\n  "sessionId": "{ID}"\n}}', Place(ID, "proj", Role.MAIN)),
        (LOG, '{"id":"m","type":"gemini","toolCalls":[{"args":{"sessionId":"another"}}]}\n', Place("a940d15c", "proj", Role.MAIN)),
        (LOG, f'{{"id":"m","type":"user"}}\n{{"$set":{{"sessionId":"{ID}"}}}}\n', Place(ID, "proj", Role.MAIN)),
        ("tmp/proj/chats/my.log.jsonl", '{"sessionId":"other"}\n', Place("other", "proj", Role.MAIN)),
        ("tmp/proj/chats/my.json", "{}", Place("my", "proj", Role.MAIN)),
        (LOG, '{"sess', None),  # asked again when there is more
        (LOG, "", None),
        (LOG + ".unreadable-1795964449082", f'{{"sessionId":"{ID}"}}\nrubbish', Place(ID, "proj", Role.COMPANION)),
    ],
)
def test_a_session_says_its_whole_id_in_its_head_and_its_name_the_start_of_it(path: str, head: str, owner: Place | None) -> None:
    assert place(path, head.encode) == owner


# --- what ---


def test_a_session_begins_with_its_header() -> None:
    assert said(HEADER) == [("session_start", {"session_id": ID, "kind": "main"})]
    reading = GEMINI.read({**HEADER, "directories": ["/c"], "summary": "T"})
    assert (reading.time_ms, reading.id, reading.cwd) == (1767323045678, None, "/c")
    assert dict(reading.events[1].data) == {"title": "T", "title_rank": 1}


def test_a_message_has_its_id_its_time_and_who_says_it() -> None:
    record: dict[str, object] = {"id": "m1", "timestamp": "2026-01-02T03:04:05.678Z", "type": "user", "content": [{"text": "Hello"}]}
    reading = GEMINI.read(record)
    assert (reading.time_ms, reading.id) == (1767323045678, "m1")
    assert said(record) == [("message_added", {"role": "user", "content": [{"text": "Hello"}], "message_id": "m1"})]
    for kind in ("info", "warning", "error"):
        assert said({"id": "m1", "type": kind, "content": "x"})[0][1]["role"] == "system"


def test_an_answer_is_told_as_thoughts_words_and_tools_with_their_results() -> None:
    record = {
        "id": "m2", "type": "gemini", "content": "I look", "model": "g", "tokens": {"total": 5},
        "thoughts": [{"subject": "Plan", "description": "look first", "timestamp": "2026-01-02T03:04:05Z"}],
        "toolCalls": [
            {"id": "t1", "name": "ls", "args": {"path": "."}, "result": [{"functionResponse": {}}], "status": "error"},
            {"name": "cat", "args": {}, "status": "scheduled"},
        ],
    }  # fmt: skip
    assert said(record) == [
        ("decision_made", {"kind": "reasoning", "text": "Plan: look first", "message_id": "m2"}),
        ("message_added", {"role": "assistant", "content": "I look", "message_id": "m2", "model": "g", "usage": {"total": 5}}),
        ("tool_invoked", {"tool_name": "ls", "input": {"path": "."}, "invocation_id": "t1"}),
        ("tool_completed", {"invocation_id": "t1", "output": [{"functionResponse": {}}], "tool_name": "ls", "is_error": True}),
        ("tool_invoked", {"tool_name": "cat", "input": {}, "invocation_id": "m2#1"}),
    ]


def test_an_answer_without_words_tells_its_usage() -> None:
    record = {"id": "m2", "type": "gemini", "content": "", "thoughts": [], "tokens": {"total": 5}, "model": "g"}
    assert said(record) == [("metadata_changed", {"message_id": "m2", "model": "g", "usage": {"total": 5}})]


def test_what_a_tool_gave_back_is_told_once_with_its_call() -> None:
    record = {"id": "m3", "type": "user", "content": [{"functionResponse": {"id": "t1", "response": {"output": "x"}}}]}
    assert said(record) == [("metadata_changed", {"kind": "functionResponse", "message_id": "m3"})]


def test_a_call_is_no_word_of_an_answer() -> None:
    call = {"id": "t1", "name": "ls", "args": {}, "status": "success", "result": "a"}
    record = {"id": "m2", "type": "gemini", "model": "g", "content": [{"functionCall": {"id": "t1", "name": "ls"}}], "toolCalls": [call]}
    assert [kind for kind, _ in said(record)] == ["metadata_changed", "tool_invoked", "tool_completed"]
    record["content"] = [{"text": "I look"}, {"functionCall": {"id": "t1", "name": "ls"}}]
    assert [kind for kind, _ in said(record)] == ["message_added", "tool_invoked", "tool_completed"]


def test_a_conversation_set_anew_replaces_what_was_said_and_names_the_folder() -> None:
    messages = [
        {"id": "m0", "type": "user", "content": [{"text": CONTEXT}]},
        {"id": "m1", "type": "user", "content": [{"text": "Hello"}]},
        {"id": "m2", "type": "gemini", "content": "", "toolCalls": [{"id": "t1", "name": "ls", "status": "success"}]},
        {"id": "m3", "type": "user", "content": [{"functionResponse": {"id": "t1"}}]},
        {"id": "m4", "type": "gemini", "content": [{"functionCall": {"id": "t2", "name": "ls"}}]},
    ]
    record: dict[str, object] = {"$set": {"messages": messages, "lastUpdated": "2026-01-02T03:04:05.678Z"}}
    reading = GEMINI.read(record)
    assert (reading.time_ms, reading.cwd) == (1767323045678, "/my code")
    assert said(record) == [
        ("context_summarized", {"replacement": []}),
        ("message_added", {"role": "user", "content": [{"text": CONTEXT}], "message_id": "m0", "meta": True}),
        ("message_added", {"role": "user", "content": [{"text": "Hello"}], "message_id": "m1"}),
    ]


@pytest.mark.parametrize(
    ("record", "event"),
    [
        ({"$set": {"lastUpdated": "2026-01-02T03:04:05Z"}}, ("metadata_changed", {"kind": "$set", "keys": ["lastUpdated"]})),
        ({"$set": {"summary": "T"}}, ("metadata_changed", {"title": "T", "title_rank": 1})),
        ({"$set": {"directories": ["/c"]}}, ("environment_changed", {"cwd": "/c", "directories": ["/c"]})),
        ({"$rewindTo": "m1"}, ("decision_made", {"kind": "rollback", "target": "m1"})),
        ({"$set": 5}, ("unknown", {"type": None})),
        ({"id": "m", "type": "novelty"}, ("unknown", {"type": "novelty"})),
    ],
)
def test_each_other_line_is_told_as_one_event(record: dict[str, object], event: tuple[str, dict[str, object]]) -> None:
    assert said(record) == [event]


def test_an_old_session_is_one_document_with_all_its_messages() -> None:
    talk = [{"id": "m1", "type": "user", "content": "Hello"}, {"id": "m2", "type": "gemini", "content": "Hi"}]
    messages = [*talk, {"id": "m3", "type": "model"}, 5]
    reading = GEMINI.read({**HEADER, "lastUpdated": "2026-01-03T00:00:00Z", "messages": messages})
    assert reading.time_ms == 1767398400000
    assert [event.type.value for event in reading.events] == ["session_start", "message_added", "message_added", "unknown", "unknown"]


# --- made again, and back ---


def test_a_log_made_again_goes_on_if_it_lacks_the_header() -> None:
    header, update, rubbish = GEMINI.read(HEADER), GEMINI.read({"$set": {"a": 1}}), GEMINI.read({"rubbish": 1})
    message = GEMINI.read({"id": "m", "type": "gemini", "content": "x"})
    assert GEMINI.continues([message], bool)
    assert GEMINI.continues([update, message], bool)
    assert not GEMINI.continues([header, message], bool)
    assert not GEMINI.continues([rubbish, message], bool)
    assert not GEMINI.continues([], bool)


@pytest.mark.parametrize(
    ("retention", "days"),
    [
        ("{}", 30),
        ('{"enabled": true, "maxAge": "7d"}', 7),
        ('{"maxAge": "2w"}', 14),
        ('{"maxAge": "36h"}', 1.5),
        ('{"maxAge": "24h"}', 1),
        ('{"maxAge": "3m"}', 90),
        ('{"enabled": false, "maxAge": "7d"}', None),
        ('{"maxAge": "1Y"}', None),  # the program refuses these and sweeps nothing
        ('{"maxAge": "0d"}', None),
        ('{"maxAge": "2h"}', None),
        ('{"maxAge": "2d", "minRetention": "1w"}', None),
        ("5", 30),
    ],
)
def test_it_sweeps_after_the_time_that_its_settings_say(tmp_path: Path, retention: str, days: float | None) -> None:
    (tmp_path / "settings.json").write_text(f'{{"general": {{"sessionRetention": {retention}}}}}')
    assert GEMINI.sweep_days(tmp_path) == days


def test_without_settings_it_sweeps_after_30_days_by_the_time_inside(tmp_path: Path) -> None:
    assert GEMINI.sweep_days(tmp_path) == 30
    assert not GEMINI.sweep_key_is_mtime()


def test_a_restored_session_keeps_its_mtime_and_an_old_one_gets_a_warning(tmp_path: Path) -> None:
    now_ms = 1000 * DAY_MS
    young = GEMINI.advise(tmp_path, 5, now_ms - 29 * DAY_MS, now_ms * 1_000_000)
    assert (young.mtime_ns, young.warning) == (5, "")
    old = GEMINI.advise(tmp_path, 5, now_ms - 31 * DAY_MS, now_ms * 1_000_000)
    assert old.mtime_ns == 5
    assert "30 days" in old.warning
    assert str(tmp_path / "settings.json") in old.warning
    assert GEMINI.advise(tmp_path, 5, None, now_ms * 1_000_000).warning == ""


@pytest.mark.parametrize(
    ("retention", "is_told"),
    [('{"maxCount": 5}', True), ('{"maxCount": 5, "enabled": false}', False), ('{"maxCount": 0}', False), ("{}", False)],
)
def test_where_it_keeps_so_many_sessions_a_restored_one_gets_a_warning(tmp_path: Path, retention: str, *, is_told: bool) -> None:
    (tmp_path / "settings.json").write_text(f'{{"general": {{"sessionRetention": {retention}}}}}')
    assert ("the 5 newest" in GEMINI.advise(tmp_path, 5, 1000 * DAY_MS, 1000 * DAY_MS * 1_000_000).warning) is is_told


def test_a_session_is_resumed_by_its_whole_id_from_its_own_folder() -> None:
    assert GEMINI.resume(ID, "/c") == f"cd /c && gemini --resume {ID}"
    assert GEMINI.resume(ID, None) == f"gemini --resume {ID}"


# --- the real logs ---


def test_real_logs_are_understood_and_have_prompts(logs: Logs) -> None:
    unknown, untitled, files = [], [], 0
    for path, values in logs("gemini"):
        facts = Facts()
        for value in values:
            reading = GEMINI.read(value)
            facts.add(Record(0, 1, RecordKind.DATA, value), reading)
            unknown += [event.data["type"] for event in reading.events if event.type is EventType.UNKNOWN]
        files += 1
        untitled += [] if facts.title or facts.prompt else [path.name]
    assert files > 15
    assert sorted(map(str, unknown)) == ["None", "model", "model"]  # made up: another program's words
    assert len(untitled) <= 3  # one holds a warning alone, one notes of the program, one says nothing known
