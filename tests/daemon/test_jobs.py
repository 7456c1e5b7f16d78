"""The service's jobs: what stops a pass stands in status until one comes through, and every start mends what the last run left."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from coldtrail.catalog import FaultRow
from coldtrail.errors import StoreFullError
from coldtrail.home import Home
from coldtrail.layout import TEMP_PREFIX
from coldtrail.settings import Settings, open_home
from coldtrail.stage.scan import Scanner, Tally
from coldtraild import capturing as room
from coldtraild import jobs
from coldtraild.capturing import Capturing, Listeners
from coldtraild.marks import Marks
from daemon.cli.desk import Desk
from daemon.waiting import until


@pytest.fixture
def found(tmp_path: Path) -> Settings:
    desk = Desk(tmp_path)
    desk.converse()
    return desk.settings()


@pytest.fixture(autouse=True)
def _tries_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "RETRY_S", 0.01)
    monkeypatch.setattr(room, "RETRY_MAX_S", 0.01)
    monkeypatch.setattr(os, "fsync", lambda _fd: None)


def faults(found: Settings) -> list[FaultRow]:
    with open_home(found) as home:
        return home.catalog.faults()


@pytest.fixture
def capturing(found: Settings) -> Iterator[Capturing]:
    made = Capturing(found, Marks(), Listeners())
    yield made
    if made._thread.is_alive():
        assert made.stop(30)


def failing(monkeypatch: pytest.MonkeyPatch, error: Exception) -> list[int]:
    """Every scan fails for as long as the list is not empty."""
    scan, wrong = Scanner.scan, [1]

    def broken(scanner: Scanner, *given: object, **named: object) -> Tally:
        if wrong:
            raise error
        return scan(scanner, *given, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(Scanner, "scan", broken)
    return wrong


@pytest.mark.parametrize(
    ("error", "said", "hint"),
    [
        (RuntimeError("a secret of somebody's"), "RuntimeError at ", "please report it"),
        (StoreFullError("/there/trail"), "paused: /there/trail: no space left on device", "free some space"),
    ],
    ids=["a fault of ours", "a full disk"],
)
def test_what_stops_a_pass_is_shown_and_forgotten_once_one_comes_through(
    found: Settings, capturing: Capturing, monkeypatch: pytest.MonkeyPatch, error: Exception, said: str, hint: str
) -> None:
    wrong = failing(monkeypatch, error)
    capturing.start()
    until(lambda: [fault.tries for fault in faults(found)] >= [2])
    (fault,) = faults(found)
    assert fault.place == os.fsencode(found.layout.home)
    assert fault.what.startswith(said)
    assert "secret" not in fault.what
    assert hint in fault.hint
    wrong.clear()
    until(lambda: faults(found) == [])
    with open_home(found) as home:
        assert home.catalog.sessions()[0].bytes > 0


def test_a_look_at_some_paths_does_not_hide_that_the_scan_of_everything_fails(
    found: Settings, capturing: Capturing, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong, looks, look = failing(monkeypatch, RuntimeError("broken")), list[int](), Scanner.look

    def counted(scanner: Scanner, *given: object, **named: object) -> Tally:
        looks.append(1)
        return look(scanner, *given, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(Scanner, "look", counted)
    monkeypatch.setattr(capturing, "_again", lambda _wait_s, whole: setattr(capturing, "_whole_failed", whole))
    capturing.start()
    until(lambda: len(faults(found)) == 1)
    capturing._marks.later(found.sources[0].root / "projects", 0)
    until(lambda: looks)
    capturing._marks.later(found.sources[0].root / "projects", 0)
    until(lambda: len(looks) > 1)  # the first has ended
    assert len(faults(found)) == 1
    wrong.clear()
    capturing._marks.everything()
    until(lambda: faults(found) == [])


def test_a_catalog_that_takes_no_fault_either_does_not_end_the_capture(
    found: Settings, capturing: Capturing, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong, refused = failing(monkeypatch, StoreFullError("/there")), list[int]()

    def full(_home: Home, *_: object) -> None:
        refused.append(1)
        raise StoreFullError("/there/catalog.db")

    monkeypatch.setattr(jobs, "_note_fault", full)
    capturing.start()
    until(lambda: len(refused) > 2)
    assert capturing.broken is None
    wrong.clear()
    with open_home(found) as home:
        until(lambda: any(row.bytes for row in home.catalog.sessions()))


def test_what_stops_a_compaction_pass_is_shown_until_one_comes_through(found: Settings) -> None:
    with open_home(found) as home:
        for _ in range(2):
            with pytest.raises(StoreFullError), jobs.shown(home, home.layout.archive):
                raise StoreFullError(home.layout.archive)
        (fault,) = home.catalog.faults()
        assert (fault.place, fault.tries) == (os.fsencode(home.layout.archive), 2)
        with jobs.shown(home, home.layout.archive):
            pass
        assert home.catalog.faults() == []


def test_a_start_removes_the_temps_of_killed_restores(found: Settings) -> None:
    root = found.sources[0].root
    temps = [folder / f"{TEMP_PREFIX}restore-0123456789ab" for folder in (found.layout.home, root.parent)]
    with open_home(found) as home:
        for temp in temps:
            temp.write_bytes(b"half a log")
        jobs.prepare(home, found)
    assert [temp for temp in temps if temp.exists()] == []
