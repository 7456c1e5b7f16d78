"""Fork: what each agent needs changed in the copy, and where it must lie; nothing else is another."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from coldtrail import UsageError
from coldtrail.model import Position, instant_text
from pipeline.stage.forks import CHAT, GeminiWorld, fork, forked_of, session_of
from pipeline.stage.places import THREAD, CodexWorld, FolderWorld


@pytest.fixture
def gemini(tmp_path: Path) -> GeminiWorld:
    """Gemini CLI has been here."""
    return GeminiWorld(tmp_path)


def test_a_codex_fork_changes_the_threads_id_in_its_first_line_and_nothing_else(codex: CodexWorld) -> None:
    line = '{"type" : "session_meta", "payload": {"session_id": "%s", "note": "\\"id\\":\\"%s\\"", "x": {"id": "%s"}, "id" :\t"%s"}}\n'
    first = (line % ((THREAD,) * 4)).encode()
    parent = b'{"type":"session_meta","payload":{"id":"019dc0d3-0000-7052-b168-4487a38e0f4d","to":"%s"}}\n' % THREAD.encode()
    codex.count = 1  # no second first line
    rest = codex.some(3) + b'{"type":"event_msg","payload":{"id":"%s"}}\n' % THREAD.encode()
    codex.write(codex.rollout(), first + parent + rest)
    codex.scan()
    done = fork(codex, at="#6")
    assert done.path == codex.rollout(done.id)
    changed = first[: first.rindex(THREAD.encode())] + done.id.encode() + b'"}}\n'
    assert done.path.read_bytes() == changed + parent + rest
    assert done.changed_lines == 1
    assert done.resume == f"codex resume {done.id}"
    codex.scan()
    with codex.open() as home:
        assert {row.id for row in home.catalog.sessions()} == {THREAD, done.id}


def test_an_archived_codex_thread_is_forked_to_where_it_can_be_resumed(codex: CodexWorld) -> None:
    codex.write(codex.archived(), codex.some(4))
    codex.scan()
    assert fork(codex, at="#2").path.parent == codex.rollout().parent


def test_what_a_codex_thread_was_forked_from_is_put_back_with_the_fork(codex: CodexWorld) -> None:
    parent = "019dc0d3-0000-7052-b168-4487a38e0f4d"
    codex.write(codex.rollout(parent), codex.some(3, parent))
    base = {"thread_id": parent, "end_byte_offset": 10}
    meta = {"type": "session_meta", "payload": {"id": THREAD, "cwd": "/there", "history_base": base}}
    codex.write(codex.rollout(), json.dumps(meta).encode() + b"\n" + codex.some(3))
    codex.scan()
    wanted = codex.rollout(parent).read_bytes()
    shutil.rmtree(codex.root / "sessions")
    codex.scan()
    with codex.open() as home:
        done = session_of(home, THREAD).restore(at="#2")
    assert [each.path for each in done] == [codex.rollout(parent), forked_of(done).path]
    assert codex.rollout(parent).read_bytes() == wanted
    assert not codex.rollout().exists()


def test_a_gemini_fork_changes_each_line_that_says_whose_log_it_is(gemini: GeminiWorld) -> None:
    header = {"sessionId": CHAT, "projectHash": "ff", "startTime": "2026-01-01T00:00:00.000Z"}
    said = {"id": "m1", "type": "user", "content": [{"text": f'{{"sessionId":"{CHAT}"}}'}], "sessionId": CHAT}
    records = [
        header,
        {"$set": {"messages": [{**said, "id": "m0"}], "lastUpdated": "2026-01-01T00:00:01.000Z"}},
        said,
        header,  # a resume says it again
        {"$set": {"sessionId": CHAT}},
        {"$set": {"sessionId": "another"}},
    ]
    written = [json.dumps(record, separators=(",", ":")).encode() + b"\n" for record in records]
    gemini.write(gemini.chat(), b"".join(written))
    gemini.scan()
    done = fork(gemini, at="#6")
    assert done.path == gemini.chat().with_name(f"session-2026-01-01T00-00-{done.id[:8]}.jsonl")
    renamed = [line.replace(CHAT.encode(), done.id.encode()) if at in (0, 3, 4) else line for at, line in enumerate(written)]
    assert done.path.read_bytes() == b"".join(renamed)
    assert done.changed_lines == 3
    gemini.scan()
    with gemini.open() as home:
        assert {row.id for row in home.catalog.sessions()} == {CHAT, done.id}


def test_of_records_glued_to_one_line_only_those_before_the_cut_are_copied_and_changed(gemini: GeminiWorld) -> None:
    header = b'{"sessionId":"%s","projectHash":"ff"}' % CHAT.encode()
    gemini.write(gemini.chat(), header + b"\n" + header + header + b"\n")
    gemini.scan()
    done = fork(gemini, at=Position(0, len(header) + 1))
    assert done.path.read_bytes() == (header + b"\n").replace(CHAT.encode(), done.id.encode()) * 2
    assert done.changed_lines == 2
    assert "a newline was added" in done.note


def test_a_session_of_ones_own_agent_is_forked_under_a_name_beside_it(mine: FolderWorld) -> None:
    path = mine.root / "deep" / "log.jsonl"
    mine.write(path, b'{"n":1}\n{"n":2}\n')
    mine.scan()
    done = fork(mine, at="#1")
    assert done.path == path.with_name(f"{done.id}.jsonl")
    assert done.id.startswith("log-")
    assert (done.path.read_bytes(), done.changed_lines, done.resume) == (b'{"n":1}\n', 0, None)


def test_what_no_part_can_be_gone_on_with_is_not_forked(gemini: GeminiWorld) -> None:
    document = {"sessionId": CHAT, "messages": [{"id": "m1", "type": "user", "content": "hello"}]}
    gemini.write(gemini.chat(".json"), json.dumps(document).encode())
    gemini.scan()
    with pytest.raises(UsageError, match="gemini-cli could not go on with a part of it"):
        fork(gemini, at="#1")
    assert list(gemini.chat().parent.iterdir()) == [gemini.chat(".json")]


@pytest.mark.parametrize("name", ["rollout-without-a-time.jsonl", f"rollout-2026-01-01T00-00-00-{THREAD}_1.jsonl"])
def test_a_rollout_whose_name_codex_would_not_take_is_not_forked(codex: CodexWorld, name: str) -> None:
    codex.write(codex.rollout().with_name(name), codex.some(3))
    codex.scan()
    with pytest.raises(UsageError, match="codex could not go on"):
        fork(codex, at="#2")


def test_a_gemini_fork_that_its_sweep_would_take_is_told(gemini: GeminiWorld) -> None:
    header = {"sessionId": CHAT, "projectHash": "ff", "startTime": instant_text(gemini.clock.now_ms)}
    gemini.write(gemini.chat(), json.dumps(header).encode() + b"\n")
    gemini.scan()
    assert fork(gemini, at="#1").note == ""
    gemini.clock.tick(40 * 86_400_000)
    assert "it will delete this one at its next start" in fork(gemini, at="#1").note
