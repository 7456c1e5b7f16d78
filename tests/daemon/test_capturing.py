"""The capture thread when its settings change, and when somebody asks: only what is new is looked at, and what is asked for at once."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

from coldtrail.agents.walk import Source
from coldtrail.errors import SourceError, UnverifiableError
from coldtrail.settings import now_ms, open_home
from coldtrail.stage.barrier import Barrier
from coldtrail.stage.scan import Scanner, Tally
from coldtraild import capturing as room
from coldtraild.capturing import Capturing, Listeners
from coldtraild.marks import Marks
from coldtraild.report import Known
from coldtraild.reporter import Parts, Reporter
from coldtraild.runs import Runs
from coldtraild.schedule import Schedule
from coldtraild.watch import Watcher
from daemon.cli.desk import Desk
from daemon.waiting import DEADLINE_S, until

QUICK = '[capture]\ndebounce = "1ms"\n'
EVENT = {"event_type": "session_start", "session_id": "a"}


class World:
    """A desk with a source of the user's own beside Claude Code's, and the capture thread over it."""

    def __init__(self, folder: Path) -> None:
        self.desk = Desk(folder)
        self.desk.converse()
        self.log = self.desk.write(folder / "logs" / "a.jsonl", EVENT)
        self.scans: list[list[str]] = []  # of which sources each scan was
        self.missed: list[Path] = []
        self.between: Callable[[], None] | None = None  # what happens when the thread next asks what time it is
        self.with_mine()
        self.capturing = Capturing(self.desk.settings(), Marks(), Listeners(missed=self.missed.extend), clock_ms=self.clock_ms)

    def clock_ms(self) -> int:
        act, self.between = self.between, None
        if act is not None:
            act()
        return now_ms()

    def with_mine(self, agent: str = "event-log") -> None:
        self.desk.configure(f'{QUICK}[[source]]\nname = "mine"\nagent = "{agent}"\nroot = "{self.log.parent}"\n')

    def without_mine(self) -> None:
        self.desk.configure(QUICK)

    def begin(self) -> None:
        self.capturing.start()
        assert self.capturing.ready.wait(DEADLINE_S)
        self.scans.clear()

    def use(self) -> None:
        self.capturing.use(self.desk.settings())

    def captured(self, log: Path) -> bool:
        with open_home(self.desk.settings()) as home:
            row = home.catalog.stream_at(str(log).encode())
            return row is not None and row.held == log.stat().st_size

    def served(self) -> None:
        """Wait until the thread has done what it was asked for so far."""
        log = self.desk.write(self.desk.log(), {"type": "user", "uuid": f"{time.monotonic_ns()}"})
        self.capturing.sync([str(log)])
        until(lambda: self.captured(log))


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    made, real = World(tmp_path), Scanner.scan

    def scan(self: Scanner, sources: Iterable[Source], *, whole: bool = False) -> Tally:
        listed = list(sources)
        made.scans.append([source.name for source in listed if source.root.is_dir()])
        return real(self, listed, whole=whole)

    monkeypatch.setattr(Scanner, "scan", scan)
    yield made
    assert made.capturing.stop(DEADLINE_S)


def test_settings_that_change_no_source_make_nobody_look_at_anything(world: World) -> None:
    world.begin()
    world.desk.configure(world.desk.config.read_text().replace("1ms", "2ms"))
    world.use()
    world.served()
    assert world.scans == []


def test_a_source_that_is_new_is_looked_at_and_no_other(world: World) -> None:
    world.without_mine()
    world.use()
    world.begin()
    world.with_mine()
    world.use()
    until(lambda: world.captured(world.log))
    world.served()
    assert world.scans == [["mine"]]


def test_a_source_of_another_agent_than_before_is_looked_at(world: World) -> None:
    world.begin()
    world.with_mine("jsonl")
    world.use()
    until(lambda: world.scans == [["mine"]])


def test_a_source_that_is_gone_again_is_not_looked_at(world: World) -> None:
    world.without_mine()
    world.use()
    world.with_mine()
    world.use()
    world.without_mine()
    world.use()
    world.begin()
    world.served()
    assert not world.captured(world.log)


def test_a_source_that_nobody_has_looked_at_yet_is_not_called_fresh(world: World) -> None:
    world.begin()
    world.without_mine()
    world.use()
    world.served()
    assert world.capturing.stop(DEADLINE_S)  # so that nobody comes to look
    world.with_mine()
    world.use()
    found = world.desk.settings()
    watcher, schedule = Watcher(lambda _: None), Schedule(lambda *_: None, now_ms)
    with open_home(found) as home:
        parts = Parts(Marks(), watcher, schedule, world.capturing, Runs(found.layout.schedule), Known())
        document = Reporter(home, parts, "").document(found)
    told = {source["name"]: source["freshness"] for source in document["sources"] if source["there"]}
    assert told == {"mine": "unknown", "claude-code": "fresh"}


@pytest.mark.parametrize("comes_back", ["before a scan", "in a scan"])
def test_what_changed_in_a_source_while_it_was_away_was_missed_by_no_event(
    world: World, comes_back: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room, "_MISSED_S", 0.2)
    world.begin()
    world.without_mine()
    world.use()
    world.desk.write(world.log, EVENT)
    ctime_s = world.log.stat().st_ctime
    until(lambda: time.time() > ctime_s + 0.5)
    world.with_mine()
    if comes_back == "in a scan":
        world.between = world.use
    else:
        world.use()
    world.capturing.scan()
    until(lambda: world.captured(world.log))
    world.capturing.scan()
    world.served()
    until(lambda: ["mine", "claude-code"] in world.scans)
    assert world.missed == []


def test_after_a_pass_that_failed_nobody_who_asks_waits_for_the_next_try(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "RETRY_S", 60.0)
    real = Scanner.scan

    def refuse(self: Scanner, sources: Iterable[Source], *, whole: bool = False) -> Tally:
        if not whole:
            raise SourceError("/there", "cannot be read")
        return real(self, sources, whole=whole)

    monkeypatch.setattr(Scanner, "scan", refuse)
    world.capturing.start()
    until(lambda: world.capturing.last.error_ms)
    asked_s = time.monotonic()
    world.capturing.sync()
    until(lambda: world.captured(world.log))
    assert time.monotonic() - asked_s < DEADLINE_S < room.RETRY_S
    monkeypatch.setattr(Scanner, "scan", real)


def test_bytes_that_were_taken_back_are_told_by_whoever_waits_for_them_and_fail_no_pass(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = threading.Event()

    def lost(*_: object) -> list[str]:
        seen.set()
        raise UnverifiableError("bytes were taken back before they were captured")

    world.begin()
    with monkeypatch.context() as patched:
        patched.setattr(Barrier, "missing", lost)
        world.capturing.sync([str(world.log)])
        assert seen.wait(DEADLINE_S)
    world.served()
    assert world.capturing.last.error_ms is None
