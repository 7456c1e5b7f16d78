"""`coldtrail drill`: sessions are put back into a scratch folder, and what came of it is told and kept."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from coldtrail.settings import open_home
from coldtrail.stage import drill as stage
from coldtrail.stage import prove
from coldtrail.stage.drill import NAME, SCRATCH_PREFIX, drill, last
from coldtrail.stage.sample import Sample
from daemon.cli.desk import FIRST, SECOND, Desk

ALL = ("drill", "--sample", "100%")


@pytest.fixture(autouse=True)
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The system's folder for temporary files, in which nothing may be left."""
    folder = tmp_path / "scratch"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    yield folder
    assert list(folder.iterdir()) == []


@pytest.fixture
def two(desk: Desk) -> Desk:
    """Two sessions, one with a sub-agent and a tool's output, sealed."""
    log = desk.converse()
    desk.write(
        log.with_suffix("") / "subagents" / "agent-a1.jsonl",
        {"type": "user", "sessionId": FIRST, "message": {"role": "user", "content": "go"}},
    )
    desk.write(log.with_suffix("") / "tool-results" / "t1.txt", b"output")
    desk.converse(SECOND, project="/somebody/else")
    desk.capture()
    desk.seal()
    return desk


def test_every_session_that_was_tried_came_back_as_it_was(two: Desk) -> None:
    said = two.json(*ALL)
    assert (said["verdict"], said["sessions"], said["tried"], said["ok"], said["bad"]) == ("ok", 2, 2, 2, 0)
    assert (said["files"], said["live"], said["logs"]) == (4, 4, 3)
    assert {each["id"]: each["verdict"] for each in said["results"]} == {FIRST: "ok", SECOND: "ok"}
    assert two.run(*ALL).stdout.startswith("ok: 2 of 2 sessions tried, 2 came back as captured: 4 files, ")


def test_sessions_that_their_agent_has_deleted_come_back_too(two: Desk) -> None:
    shutil.rmtree(two.user / ".claude")
    two.capture()
    said = two.json(*ALL)
    assert (said["verdict"], said["files"], said["live"]) == ("ok", 4, 0)
    assert not (two.user / ".claude").exists(), "the agent's folder is not touched"


def test_a_damaged_copy_is_bad_and_a_1_with_its_session_and_reason(two: Desk) -> None:
    segment = max(two.trail.glob("archive/*/*/*/*/*.jsonl.zst"), key=lambda path: path.stat().st_size)
    data = bytearray(segment.read_bytes())
    data[40] ^= 1
    segment.write_bytes(data)
    said = two.json(*ALL, code=1)
    assert (said["verdict"], said["ok"], said["bad"]) == ("bad", 1, 1)
    (bad,) = (each for each in said["results"] if each["verdict"] == "bad")
    assert any(str(segment) in reason for reason in bad["reasons"])
    lines = two.run(*ALL, code=1).stdout.splitlines()
    assert lines[0] == f"bad: session {bad['key']} (claude-code {bad['id']})"
    assert lines[-2].startswith("bad: 2 of 2 sessions tried, 1 came back")


def test_an_agents_file_that_was_changed_behind_our_back_is_bad(desk: Desk) -> None:
    """Its size and every time of it are those that it had when it was captured; our own copy is what cannot be told apart from it."""
    log = desk.captured()
    found = log.stat()
    with open_home(desk.settings()) as home:
        (row,) = home.catalog.all_streams()
        log.write_bytes(log.read_bytes().replace(b"list the files", b"LIST the files"))
        os.utime(log, ns=(found.st_atime_ns, found.st_mtime_ns))
        home.catalog.put(prove.seen(row, log.stat()))
    (bad,) = desk.json(*ALL, code=1)["results"]
    assert "the agent's file has other bytes" in bad["reasons"][0]


def test_an_agents_file_that_has_grown_since_is_not_compared(desk: Desk) -> None:
    log = desk.captured()
    desk.write(log, {"more": 1})
    said = desk.json(*ALL)
    assert (said["verdict"], said["live"]) == ("ok", 0)


def test_a_share_is_at_least_one_session_and_the_seed_chooses_the_same(two: Desk) -> None:
    said = [two.json("drill", "--sample", "1%", "--seed", str(seed)) for seed in (*range(8), 3)]
    assert {each["tried"] for each in said} == {1}
    chosen = [each["results"][0]["id"] for each in said]
    assert set(chosen) == {FIRST, SECOND}
    assert chosen[3] == chosen[8]
    assert said[3]["seed"] == 3


@pytest.mark.parametrize("wrong", ["5 %", "-1", "101%", "all", ""])
def test_what_is_no_sample_is_a_2(two: Desk, wrong: str) -> None:
    assert "--sample" in two.run("drill", f"--sample={wrong}", code=2).stderr


def test_an_empty_home_is_ok(desk: Desk) -> None:
    assert desk.json(*ALL)["tried"] == 0
    assert desk.run(*ALL).stdout == "ok: there is no session to try\n"


def test_what_came_of_the_last_one_is_kept_without_any_text(two: Desk) -> None:
    assert last(two.trail) is None
    two.run(*ALL)
    kept = last(two.trail)
    assert kept is not None
    assert {"verdict", "at", "took_ms", "sessions", "tried", "ok", "bad", "unverifiable", "failures"} <= kept.keys()
    assert kept["failures"] == []
    assert oct((two.trail / NAME).stat().st_mode & 0o777) == "0o600"
    assert b"list the files" not in (two.trail / NAME).read_bytes()


@pytest.mark.parametrize("text", ["", "[]", '{"version": 2}'])
def test_a_damaged_note_of_the_last_one_is_none(two: Desk, text: str) -> None:
    (two.trail / NAME).write_text(text)
    assert last(two.trail) is None


def test_the_scratch_folder_is_private_and_holds_one_session_at_a_time(two: Desk, scratch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    put_back = stage._put_back

    def looked(*args: object) -> None:
        put_back(*args)  # type: ignore[arg-type]
        (folder,) = scratch.iterdir()
        seen.append((oct(folder.stat().st_mode & 0o777), folder.name.startswith(SCRATCH_PREFIX), len(list(folder.iterdir()))))

    monkeypatch.setattr(stage, "_put_back", looked)
    two.run(*ALL)
    assert seen == [("0o700", True, 1)] * 2


def test_nothing_is_left_after_a_failure(two: Desk, scratch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(stage, "recover", fails)
    with open_home(two.settings()) as home, pytest.raises(KeyboardInterrupt):
        drill(home, Sample(count=1), Random(1), scratch)
    assert list(scratch.iterdir()) == []


def test_a_disk_without_room_proves_nothing_and_is_a_5(two: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    full = os.statvfs_result((4096, 4096, 10, 0, 0, 10, 10, 10, 0, 255))
    monkeypatch.setattr(os, "statvfs", lambda _: full)
    said = two.json(*ALL, code=5)
    assert (said["verdict"], said["unverifiable"]) == ("unverifiable", 2)
    assert "has no room" in said["results"][0]["reasons"][0]


def test_a_killed_drill_leaves_nothing_that_the_next_does_not_remove(two: Desk, scratch: Path) -> None:
    for end, is_left in ((signal.SIGTERM, False), (signal.SIGKILL, True)):
        waits = "import time\nfrom coldtrail.stage import drill\ndrill.recover = lambda *_, **__: time.sleep(60)"
        process = subprocess.Popen(two.argv(*ALL, before=waits), env=two.process_env(TMPDIR=str(scratch)))
        deadline = time.monotonic() + 30
        while not list(scratch.rglob("*.jsonl")) and time.monotonic() < deadline:
            time.sleep(0.02)
        other = drill_now(two, scratch)
        assert other == "ok", "one that is at work is let be"
        assert list(scratch.rglob("*.jsonl"))
        process.send_signal(end)
        process.wait(30)
        assert bool(list(scratch.iterdir())) is is_left
    drill_now(two, scratch)


def drill_now(desk: Desk, scratch: Path) -> str:
    with open_home(desk.settings()) as home:
        return drill(home, Sample(percent=100), Random(1), scratch).word


def test_the_document_is_json(two: Desk) -> None:
    assert json.loads(two.run(*ALL, "--json").stdout)["at"].endswith("Z")
