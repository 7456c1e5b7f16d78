"""The alarm command: run once an hour for each kind, told what happened by names and numbers, and never waited for."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from coldtraild.alarm import Alarm
from coldtraild.health import Finding, listed
from daemon.waiting import Clock, until

NOW_MS = 10_000_000
WRITER = "import os,sys; open(sys.argv[1], 'a').write(os.environ['COLDTRAIL_ALARM'] + ' ' + os.environ['COLDTRAIL_PLACE'] + chr(10))"


class World:
    """An alarm that writes into a file."""

    def __init__(self, folder: Path) -> None:
        self.told, self.clock = folder / "told", Clock()

    def alarm(self, *states: str, command: list[str] | None = None) -> Alarm:
        command = [sys.executable, "-c", WRITER, str(self.told)] if command is None else command
        return Alarm(command, states, "/the/home", {"NOTIFY_SOCKET": "x"}, tick_s=self.clock)

    def lines(self) -> list[str]:
        return self.told.read_text().splitlines() if self.told.exists() else []


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    return World(tmp_path)  # type: ignore[return-value]


def found(state: str, *, place: str = "/place", since_ms: int | None = None) -> list[dict[str, Any]]:
    return listed([Finding(state, "what", place, since_ms=since_ms)])


def test_it_is_run_for_a_kind_that_was_chosen_once_and_again_after_an_hour(world: World) -> None:
    alarm = world.alarm("disk-full", "damage")
    for seconds, count in ((0, 1), (1, 1), (3598, 1), (2, 2)):
        world.clock.now_s += seconds
        alarm.look(found("disk-full"), NOW_MS)
        until(lambda count=count: len(world.lines()) >= count)  # type: ignore[misc]
    alarm.look(found("stale"), NOW_MS)
    alarm.look(found("damage", place="/$(touch x); 'y'\n"), NOW_MS)
    until(lambda: len(world.lines()) >= 3)
    assert world.lines()[:3] == ["disk-full /place", "disk-full /place", "damage /$(touch x); 'y'"]
    alarm.close()


def test_what_may_pass_by_itself_must_have_lasted_a_minute(world: World) -> None:
    alarm = world.alarm("fault")
    alarm.look(found("fault", since_ms=NOW_MS - 59_000), NOW_MS)
    assert alarm._running == []
    alarm.look(found("fault", since_ms=NOW_MS - 60_000), NOW_MS)
    until(world.lines)
    alarm.close()


def test_without_a_command_nothing_is_run(world: World) -> None:
    alarm = world.alarm("damage", command=[])
    alarm.look(found("damage"), NOW_MS)
    assert alarm._running == []


def test_one_that_does_not_end_is_ended_with_all_it_started_and_is_waited_for_by_nobody(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    alarm = world.alarm("damage", command=["sh", "-c", "sleep 1000 & wait"])
    alarm.look(found("damage"), NOW_MS)
    (running,) = alarm._running
    assert running.process.poll() is None
    world.clock.now_s += 31
    alarm.look([], NOW_MS)
    assert (running.process.poll(), alarm._running) == (-9, [])
    assert "did not end within 30 s" in caplog.text


def test_one_that_fails_or_is_not_there_is_told_in_the_log(world: World, caplog: pytest.LogCaptureFixture) -> None:
    alarm = world.alarm("damage", command=["/nowhere/at/all"])
    alarm.look(found("damage"), NOW_MS)
    assert "cannot be run" in caplog.text
    failing = world.alarm("damage", command=["false"])
    failing.look(found("damage"), NOW_MS)
    until(lambda: failing._running[0].process.poll() is not None)
    failing.look([], NOW_MS)
    assert "ended with 1" in caplog.text


def test_the_command_knows_no_socket_of_the_service_manager_and_the_home(tmp_path: Path, world: World) -> None:
    code = "import os,sys; open(sys.argv[1], 'w').write(str(sorted(n for n in os.environ if n.startswith(('COLD', 'NOTIFY')))))"
    alarm = world.alarm("damage", command=[sys.executable, "-c", code, str(world.told)])
    alarm.look(found("damage"), NOW_MS)
    until(world.lines)
    names = ["ALARM", "COUNT", "HOME", "PLACE", "SESSION", "SINCE_MS", "WHAT"]
    assert world.lines() == [str([f"COLDTRAIL_{name}" for name in names])]
    alarm.close()
