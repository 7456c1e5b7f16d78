"""What the agents will delete, and when: told from the catalog's rows and the agents' settings alone."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from coldtrail import sweeps
from coldtrail.agents import agent
from coldtrail.agents.walk import Source
from coldtrail.catalog import FaultRow
from coldtrail.format import lines
from coldtrail.sums import Trace
from coldtrail.sweeps import Fate, Sweep
from world_of import Lines, World

DAY = 86_400_000
NOW = 1_767_225_600_000
MAIN = b"/r/projects/-p/11111111-2222-4333-8444-555555555555.jsonl"


def stream(*, mtime_ms: int = NOW, last_ms: int | None = None, role: str = "main", **more: object) -> Trace:
    """A stream of which everything is held."""
    facts = lines.dumps({} if last_ms is None else {"first_ms": last_ms, "last_ms": last_ms}).decode()
    row = Trace("k" * 16, role, MAIN, 100, 100, 0, None, mtime_ms * 1_000_000, 0, facts, "{}")
    return row._replace(**more)  # type: ignore[arg-type]


def sweep(name: str = "claude-code", root: Path = Path("/r")) -> Sweep:
    return Sweep.of(Source(name, agent(name), root))


def fault(place: bytes) -> FaultRow:
    return FaultRow(place, "Permission denied", "", 0, 1, 0)


# ---- when ---------------------------------------------------------------------------------------------------------------


def test_claude_code_deletes_by_the_mtime_of_the_main_log() -> None:
    rows = [stream(mtime_ms=NOW - 10 * DAY, last_ms=NOW - 40 * DAY), stream(role="companion", mtime_ms=NOW - 90 * DAY)]
    assert sweeps.fate(sweep(), rows, {}) == Fate(NOW + 20 * DAY, kept=True)


def test_the_days_are_those_of_its_settings(tmp_path: Path) -> None:
    (tmp_path / "settings.json").write_text('{"cleanupPeriodDays": 3}')
    assert sweeps.fate(sweep(root=tmp_path), [stream()], {}).deletes_ms == NOW + 3 * DAY


def test_gemini_deletes_by_the_time_inside_and_by_the_mtime_where_there_is_none() -> None:
    gemini = sweep("gemini-cli")
    assert sweeps.fate(gemini, [stream(last_ms=NOW - 20 * DAY)], {}).deletes_ms == NOW + 10 * DAY
    assert sweeps.fate(gemini, [stream(mtime_ms=NOW - DAY)], {}).deletes_ms == NOW + 29 * DAY


@pytest.mark.parametrize("name", ["codex", "event-log", "jsonl"])
def test_the_others_delete_nothing(name: str) -> None:
    assert sweeps.fate(sweep(name), [stream(mtime_ms=NOW - 900 * DAY)], {}).deletes_ms is None


def test_of_what_is_gone_or_of_no_source_there_is_no_date() -> None:
    assert sweeps.fate(sweep(), [stream(gone_ms=NOW)], {}) == Fate(None, kept=True)
    assert sweeps.fate(None, [stream()], {}) == Fate(None, kept=True)


def test_of_one_that_was_not_met_since_a_rebuild_its_last_growth_tells() -> None:
    assert sweeps.fate(sweep(), [stream(mtime_ms=0, grew_ms=NOW, size=-1)], {}) == Fate(NOW + 30 * DAY, kept=True)


# ---- kept or not --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lacking", [{"held": 99}, {"check_due": 1}, {"held": 99, "gone_ms": NOW}])
def test_what_is_not_held_whole_is_not_kept(lacking: dict[str, object]) -> None:
    assert not sweeps.fate(sweep(), [stream(), stream(role="child")._replace(**lacking)], {}).kept  # type: ignore[arg-type]


def test_a_fault_at_one_of_its_files_means_that_it_is_not_kept() -> None:
    assert not sweeps.fate(sweep(), [stream()], {MAIN: fault(MAIN)}).kept
    assert sweeps.fate(sweep(), [stream()], {b"/r/other": fault(b"/r/other")}).kept


def test_of_a_compressed_twin_more_is_held_than_the_file_is_long() -> None:
    assert sweeps.fate(sweep("codex"), [stream(size=40)], {}).kept


# ---- what was never captured --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("place", "days", "told"),
    [
        (MAIN, 29, True),
        (MAIN, 28, True),
        (MAIN, 27, False),
        (MAIN, 400, True),
        (MAIN.replace(b"11111111", b"agent-22"), 29, True),  # its first bytes would tell, and cannot be read
        (b"/r/settings.json", 29, False),
        (b"/r/projects/-p/memory/notes.md", 29, False),
        (b"/elsewhere/projects/-p/x.jsonl", 29, False),
    ],
)
def test_a_sessions_file_that_was_never_captured_is_in_danger_two_days_before(place: bytes, days: int, told: bool) -> None:
    found = list(sweeps.unmet([sweep()], {place: fault(place)}, [], NOW, lambda _: NOW - days * DAY))
    assert [(each.path, each.deletes_ms) for each in found] == [(os.fsdecode(place), NOW + (30 - days) * DAY)] * told
    assert all("never captured" in each.what and "Permission denied" in each.what for each in found)


def test_a_known_stream_a_folder_and_what_is_gone_are_no_file_that_was_never_captured() -> None:
    assert list(sweeps.unmet([sweep()], {MAIN: fault(MAIN)}, [MAIN], NOW, lambda _: 0)) == []
    assert list(sweeps.unmet([sweep()], {MAIN: fault(MAIN)}, [], NOW, lambda _: None)) == []
    assert list(sweeps.unmet([sweep("codex")], {MAIN: fault(MAIN)}, [], NOW, lambda _: 0)) == []
    assert sweeps.mtime_ms(b"/") is None
    assert sweeps.mtime_ms(b"/not/there") is None


# ---- all together -------------------------------------------------------------------------------------------------------


@pytest.fixture
def world(tmp_path: Path) -> World:
    world = World(tmp_path)
    world.append(world.main(), Lines(world.clock).some(5))
    world.scan()
    return world


@pytest.mark.parametrize(("days", "soon", "dangers"), [(0, 0, 0), (22, 0, 0), (23, 1, 0), (27, 1, 0), (28, 1, 1), (60, 1, 1)])
def test_what_is_not_held_two_days_before_its_date_is_in_danger(world: World, days: int, soon: int, dangers: int) -> None:
    with world.open() as home:
        (row,) = home.catalog.all_streams()
        home.catalog.put(row._replace(size=row.held + 1))
        world.clock.tick(days * DAY)
        outlook = sweeps.look(home, world.sources)
        assert len(outlook.within(world.clock(), 7 * DAY)) == soon
        assert [(each.path, each.key) for each in outlook.dangers] == [(str(world.main()), row.session)] * dangers
        home.catalog.put(row)
        assert sweeps.look(home, world.sources).dangers == ()


def test_what_is_in_danger_first_comes_first(world: World) -> None:
    for number in range(3):
        path = world.main(session=f"{number}0000000-2222-4333-8444-555555555555")
        world.append(path, Lines(world.clock, path.stem).some(1))
        world.clock.tick(DAY)
    world.scan()
    with world.open() as home:
        for row in list(home.catalog.all_streams()):
            home.catalog.put(row._replace(size=row.held + 1))
        world.clock.tick(29 * DAY)
        dates = [each.deletes_ms for each in sweeps.look(home, world.sources).dangers]
        assert len(dates) == 4
        assert dates == sorted(dates)


def test_what_was_removed_is_in_no_danger(world: World) -> None:
    from coldtrail.format.wishes import Act
    from coldtrail.stage import expire

    with world.open() as home:
        (row,) = home.catalog.sessions()
        expire.remove(home, row, Act.PURGED, "asked for")
        world.clock.tick(60 * DAY)
        assert sweeps.look(home, world.sources) == sweeps.Outlook({}, ())
