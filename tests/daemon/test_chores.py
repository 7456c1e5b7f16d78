"""The jobs that the schedule calls: what each says it did, how it steps back for a pause, how fast it may go."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from coldtrail.errors import StoreFullError
from coldtrail.settings import now_ms
from coldtraild import keeping, pace
from coldtraild.chores import DRILL_EVERY_S, Chores
from coldtraild.keeping import RETAIN_EVERY_S
from coldtraild.report import Known
from coldtraild.runs import JobStatus, Last, Pause, Runs
from coldtraild.schedule import Schedule
from daemon.cli.desk import FIRST, Desk
from daemon.scheduling import Errors
from daemon.waiting import DEADLINE_S, until

DAY_MS = 86_400_000


class Strict:
    """The clock, but never the same time twice: two runs of a job may end within one millisecond."""

    def __init__(self) -> None:
        self._last_ms = 0

    def __call__(self) -> int:
        self._last_ms = max(now_ms(), self._last_ms + 1)
        return self._last_ms


class World:
    """A desk, a schedule and its chores; nothing runs until it is told to."""

    def __init__(self, folder: Path) -> None:
        self.desk = Desk(folder)
        self.errors, self.known, self.stopping = Errors(), Known(), threading.Event()
        self.desk.converse()
        self.desk.capture()
        self.runs = Runs(self.desk.trail / "schedule.json")
        self.schedule = Schedule(self.errors, Strict(), self.runs)
        self.chores = Chores(self.desk.settings(), self.schedule, self.runs, self.known, self.stopping)

    def start(self) -> None:
        self.chores.use(self.desk.settings())
        self.chores.add()
        self.schedule.start()

    def job(self, name: str) -> JobStatus:
        return next(each for each in self.schedule.status() if each.name == name)

    def done(self, name: str) -> str:
        """Run a job now; gives what it says it has done."""
        before = self.job(name).last.success_ms
        self.schedule.run_now(name)
        until(lambda: self.job(name).last.success_ms not in (None, before))
        return self.job(name).last.said


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    monkeypatch.setattr(os, "fsync", lambda _fd: None)
    made = World(tmp_path)
    yield made
    made.stopping.set()
    assert made.schedule.stop(DEADLINE_S)


def test_each_says_what_it_did_and_the_rare_ones_are_remembered(world: World) -> None:
    world.desk.configure('[compact]\nafter = "0s"\n[[retention.rule]]\nkeep_last = 1\n')
    world.start()
    assert world.done("retain") == "marked 0, kept after all 0, removed 0 sessions, 0 bytes freed"
    assert world.done("drill") == "ok: tried 1 sessions"
    until(lambda: world.job("compact").last.said)
    assert "1 streams into 1 segments" in world.job("compact").last.said
    assert (world.done("reclaim"), world.done("clock"), world.done("outlook")) == ("nothing to do", "steady", "0 in danger")
    assert {name: last.said for name, last in Runs(world.desk.trail / "schedule.json").all().items()} == {
        "retain": "marked 0, kept after all 0, removed 0 sessions, 0 bytes freed",
        "drill": "ok: tried 1 sessions",
    }
    said = world.desk.status()
    assert said["drill"]["verdict"] == "ok"
    assert {each["name"]: each["last_said"] for each in said["jobs"]}["retain"].startswith("marked 0")
    shown = world.desk.run("status", code=None).stdout
    assert "drill     ok: 1 of 1 sessions came back" in shown
    assert "retain: just now: marked 0" in shown


def test_without_a_policy_retention_says_so(world: World) -> None:
    world.start()
    assert world.done("retain") == "nothing is asked for"


def test_what_was_done_yesterday_is_not_done_at_a_restart_and_what_was_missed_is(world: World) -> None:
    world.runs.note("retain", Last(success_ms=now_ms() - DAY_MS // 2))
    world.runs.note("drill", Last(success_ms=now_ms() - 30 * DAY_MS))
    world.start()
    due_s = {name: ((world.job(name).next_ms or 0) - now_ms()) / 1000 for name in ("retain", "drill")}
    assert RETAIN_EVERY_S / 2 - 60 < due_s["retain"] <= RETAIN_EVERY_S / 2 + 300
    assert due_s["drill"] < 3_600 + 301 < DRILL_EVERY_S


def test_while_paused_nothing_is_done_and_then_it_is(world: World) -> None:
    world.desk.configure('[compact]\nafter = "0s"\n')
    world.runs.set_pause(Pause(now_ms()))
    world.start()
    for name in ("compact", "retain", "drill", "reclaim"):
        world.schedule.run_now(name)
        until(lambda name=name: world.job(name).last.start_ms and not world.job(name).running)  # type: ignore[misc]
        assert world.job(name).last.success_ms is None
    assert (world.errors.seen, list(world.desk.trail.glob("archive/*/*/*/*/*.zst"))) == ([], [])
    assert world.done("clock") == "steady", "what only looks goes on"
    world.runs.set_pause(None)
    assert "1 segments" in world.done("compact")


def test_a_pass_that_a_pause_ended_half_way_is_made_again(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def retain(*_: object) -> keeping.Retained:
        world.runs.set_pause(Pause(now_ms()))
        return keeping.Retained(marked=1)

    monkeypatch.setattr(keeping, "retain", retain)
    world.start()
    world.schedule.run_now("retain")
    until(lambda: world.job("retain").last.start_ms and not world.job("retain").running)
    assert (world.job("retain").last.success_ms, world.runs.all()) == (None, {})
    until(lambda: (world.job("retain").next_ms or 0) < now_ms() + 61_000)


def test_compaction_keeps_to_its_rate_and_behind_all_others(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    took, stepped = list[int](), list[str]()
    monkeypatch.setattr(pace.Bucket, "take", lambda _bucket, size: took.append(size))
    monkeypatch.setattr(pace, "step_back", lambda: stepped.append(threading.current_thread().name))
    world.desk.configure('[compact]\nafter = "0s"\nrate = "1MiB"\n')
    world.start()
    until(lambda: world.job("compact").last.said)
    assert sum(took) == world.desk.log().stat().st_size
    assert stepped[0].startswith("coldtrail-compact")


def test_a_job_that_finds_the_disk_full_is_told_and_tried_again(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise StoreFullError("/there/archive")

    monkeypatch.setattr(keeping, "retain", full)
    world.start()
    world.schedule.run_now("retain")
    assert world.errors.wait_for(1)
    said = world.desk.status()
    assert {each["state"] for each in said["findings"]} >= {"disk-full"}
    assert "no space left" in world.job("retain").last.error


def test_a_clock_that_jumped_is_known(world: World) -> None:
    clock = world.desk.trail / "clock"
    world.start()
    world.done("clock")
    seen = json.loads(clock.read_bytes())
    clock.write_text(json.dumps(seen | {"at_ms": seen["at_ms"] - 400 * DAY_MS - DAY_MS // 2}))
    assert "the clock went ahead by 400 days" in world.done("clock")
    assert "the clock went ahead by 400 days" in world.known.clock


def test_run_once_remembers_its_pass_of_retention_too(world: World) -> None:
    world.desk.configure("[[retention.rule]]\nkeep_last = 1\n")
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-m", "coldtraild.cli", "run", "--once"], env=world.desk.process_env(), capture_output=True, check=False
        )
        assert done.returncode == 0
    first = Runs(world.desk.trail / "schedule.json").last("retain").success_ms
    assert first is not None
    assert first <= now_ms()
    assert FIRST in world.desk.run("ls", "--json").stdout
