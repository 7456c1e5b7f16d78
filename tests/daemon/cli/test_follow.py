"""`coldtrail events --follow`: what there is, then what comes, until Ctrl-C, the limit, or nobody reads any more."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from daemon.cli.desk import FIRST, Desk

DEADLINE_S = 30.0
RECORD = {"type": "user", "uuid": "new", "timestamp": "2026-01-02T00:00:00Z", "message": {"role": "user", "content": "go on"}}


@contextmanager
def following(desk: Desk, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process that follows the first session."""
    command = desk.argv("events", FIRST, "--follow", *arguments)
    with subprocess.Popen(command, env=desk.process_env(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0) as process:
        try:
            yield process
        finally:
            process.kill()


def line(process: subprocess.Popen[bytes]) -> str:
    """The next line that it prints."""
    assert process.stdout is not None
    data, end_s = b"", time.monotonic() + DEADLINE_S
    while not data.endswith(b"\n"):
        assert select.select([process.stdout], [], [], max(end_s - time.monotonic(), 0))[0], "nothing came in time"
        data += process.stdout.read(1)
    return data.decode()


def test_lines_come_as_they_are_written_and_ctrl_c_ends_it_quietly_with_130(desk: Desk) -> None:
    log = desk.captured()
    with following(desk, "--type", "message_added") as process:
        assert [line(process).split(maxsplit=4)[4] for _ in range(2)] == ["user: list the files\n", "assistant: one file\n"]
        desk.write(log, RECORD)
        assert line(process).endswith("user: go on\n")
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=DEADLINE_S) == (b"", b"")
        assert process.returncode == 130


def test_with_json_it_prints_one_object_a_line(desk: Desk) -> None:
    log = desk.captured()
    with following(desk, "--json", "--type", "message_added", "--after", f"3-{FIRST}") as process:
        desk.write(log, RECORD)
        said = json.loads(line(process))
        assert said == {
            "position": said["position"],
            "type": "message_added",
            "time": "2026-01-02T00:00:00.000Z",
            "id": "new",
            "data": {"role": "user", "content": "go on"},
        }


def test_the_limit_ends_it(desk: Desk) -> None:
    desk.captured()
    lines = desk.run("events", FIRST, "--follow", "--limit", "3", "--json").stdout.splitlines()
    everything = desk.json("events", FIRST, "--limit", "3")["events"]
    assert [json.loads(each) for each in lines] == everything


def test_who_stops_reading_ends_it_quietly_though_nothing_comes(desk: Desk) -> None:
    desk.captured()
    with following(desk) as process:
        line(process)
        assert process.stdout is not None
        process.stdout.close()
        assert process.wait(DEADLINE_S) == 141
        assert process.stderr is not None
        assert process.stderr.read() == b""


def test_a_log_that_was_rewritten_is_told_on_stderr_and_goes_on(desk: Desk) -> None:
    log = desk.captured()
    with following(desk, "--type", "message_added") as process:
        assert [line(process)[:2] for _ in range(2)] == ["0:"] * 2
        log.write_text(json.dumps(RECORD) + "\n")  # no daemon runs: it is captured by who follows
        assert line(process).startswith("1:0.")
        process.send_signal(signal.SIGINT)
        _said, told = process.communicate(timeout=DEADLINE_S)
        assert told == b"coldtrail: generation 1 begins: the log was rewritten, cut or exchanged\n"


@pytest.mark.parametrize("arguments", [["--raw"], ["--until", "2026-01-01"]])
def test_what_has_an_end_does_not_go_with_it(desk: Desk, arguments: list[str]) -> None:
    desk.captured()
    assert "--follow" in desk.run("events", FIRST, "--follow", *arguments, code=2).stderr


def test_damage_to_our_copy_is_told_and_a_1(desk: Desk) -> None:
    log = desk.captured()
    desk.damage()
    log.unlink()
    desk.write(log, RECORD)
    desk.capture()
    result = desk.run("events", FIRST, "--follow", "--limit", "1", "--after", "0:0.0", code=1)
    assert "of generation 0 cannot be read" in result.stderr
    assert os.linesep in result.stdout
