"""The service makes checkpoints as the config says, one log after the other, and what fails is that log's alone."""

from __future__ import annotations

import itertools
import logging
import os
from pathlib import Path

import pytest

from coldtrail.agents import agents
from coldtrail.errors import StoreFullError
from coldtrail.home import Home
from coldtrail.settings import Settings, now_ms, open_home, settings
from coldtrail.stage.checkpoint import advance
from coldtrail.stage.scan import BACK_OFF_MS, Scanner
from coldtraild import jobs
from coldtraild.log import NAME
from pipeline.recovering import EventWorld
from world_of import Clock

FEW = 'least = "1KiB"\ncost_factor = 1\nevery_events = 1000000\nevery = "1y"\non = []\n'


@pytest.fixture(autouse=True)
def _nothing_waits_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda _fd: None)


def found(folder: Path, text: str, logs: int = 1) -> Settings:
    """Some logs of 100 KB and a config with these checkpoints, all captured."""
    for number in range(logs):
        world = EventWorld(folder)
        world.append(world.root / f"s{number}.jsonl", world.turns(200))
    config = folder / "config.toml"
    config.write_text(f'discover = false\n[checkpoint]\n{text}\n[[source]]\nname = "mine"\nagent = "event-log"\nroot = "{folder}/logs"\n')
    made = settings(folder / "home", config, env={"HOME": str(folder)})
    with open_home(made) as home:
        assert Scanner(home).scan(made.sources, whole=True).captured == logs
    return made


def made(folder: Path, text: str) -> int:
    """How many checkpoints one pass makes."""
    config = found(folder, text)
    with open_home(config) as home:
        return jobs.checkpoint(home, config, lambda: False)


@pytest.mark.parametrize(
    ("text", "least", "most"),
    [
        ("", 1, 3),
        ('least = "1KiB"\ncost_factor = 1', 50, 200),
        ('least = "16KiB"\ncost_factor = 1', 5, 12),
        ('least = "1KiB"\ncost_factor = 20', 5, 20),
        (FEW, 0, 0),
        (FEW.replace("1000000", "20"), 30, 60),
        (FEW.replace('"1y"', '"20s"'), 30, 60),
        (FEW.replace("[]", '["context_summarized"]'), 15, 25),
        (FEW + 'replay_max = "20KiB"', 4, 12),
        (FEW + "replay_max_records = 100", 6, 10),
    ],
)
def test_every_key_of_the_config_acts(tmp_path: Path, text: str, least: int, most: int) -> None:
    assert least <= made(tmp_path, text) <= most


def test_a_log_of_which_none_can_be_made_stops_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    config, calls = found(tmp_path, 'least = "1KiB"\ncost_factor = 1', logs=3), [0]

    def failing(*given: object) -> int:
        calls[0] += 1
        if calls[0] == 2:
            raise RuntimeError("broken")
        return advance(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(jobs, "advance", failing)
    with open_home(config) as home, caplog.at_level(logging.ERROR, NAME):
        assert jobs.checkpoint(home, config, lambda: False) > 100
        assert "no checkpoint made" in caplog.text
        assert jobs.checkpoint(home, config, lambda: False) == 0, "it waits"
    clock = Clock(now_ms() + BACK_OFF_MS)
    with Home.open(config.layout, agents(), clock) as home:
        assert jobs.checkpoint(home, config, lambda: False) > 50
        assert home.catalog.faults() == []
        assert jobs.checkpoint(home, config, lambda: False) == 0


def test_a_log_that_keeps_failing_is_tried_ever_more_seldom_and_never_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config, tries, clock = found(tmp_path, 'least = "1KiB"'), list[int](), Clock(now_ms())
    began_ms = clock.now_ms

    def failing(*_: object) -> int:
        tries.append((clock.now_ms - began_ms) // 1000)
        raise RuntimeError("broken")

    monkeypatch.setattr(jobs, "advance", failing)
    with Home.open(config.layout, agents(), clock) as home:
        for _ in range(6 * 60):
            jobs.checkpoint(home, config, lambda: False)
            (fault,) = home.catalog.faults()
            assert fault.place.endswith(b"/000000/checkpoints")
            assert (fault.tries, "nothing is lost" in fault.hint) == (len(tries), True)
            clock.tick(60_000)
        waits = [after - before for before, after in itertools.pairwise(tries)]
        assert waits == sorted(waits)
        assert (waits[0], waits[-1]) == (60, 3_600)
        assert len(tries) < 16
        monkeypatch.undo()
        clock.tick(3_600_000)
        assert jobs.checkpoint(home, config, lambda: False) > 0
        assert home.catalog.faults() == []


def test_the_fault_of_a_log_that_was_rewritten_since_is_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*_: object) -> int:
        raise RuntimeError("broken")

    config = found(tmp_path, 'least = "1KiB"')
    with open_home(config) as home:
        with monkeypatch.context() as patched:
            patched.setattr(jobs, "advance", failing)
            jobs.checkpoint(home, config, lambda: False)
        assert len(home.catalog.faults()) == 1
        log = tmp_path / "logs" / "s0.jsonl"
        log.write_bytes(log.read_bytes()[:100])
        Scanner(home).scan(config.sources, whole=True)
        jobs.checkpoint(home, config, lambda: False)
        assert home.catalog.faults() == []


def test_a_full_disk_is_for_the_caller(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> int:
        raise StoreFullError(tmp_path)

    config = found(tmp_path, 'least = "1KiB"')
    monkeypatch.setattr(jobs, "advance", full)
    with open_home(config) as home, pytest.raises(StoreFullError):
        jobs.checkpoint(home, config, lambda: False)


def test_who_is_stopping_makes_no_more(tmp_path: Path) -> None:
    config = found(tmp_path, 'least = "1KiB"')
    with open_home(config) as home:
        assert jobs.checkpoint(home, config, lambda: True) == 0
