"""A reclaim that is in doubt is undone, also when somebody has come to the session's place, or what was known of it is lost."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from coldtrail.stage import aside, proof, reclaim
from coldtrail.stage.rebuild import differences, rebuild
from coldtrail.stage.reclaim import WAIT_MS, Act, pending
from reclaiming import Cold, assert_in_order_and_held, busy, damaged, grow_and_capture, held, lost, missing, pending_of, restore, settle
from world_of import assert_sound, metas

pytestmark = pytest.mark.usefixtures("small")


@pytest.fixture
def cold(tmp_path: Path) -> Cold:
    """A session that may go."""
    return Cold.made(tmp_path)


def aside_file(cold: Cold) -> Path:
    """The main log, where it waits."""
    with cold.world.open() as home:
        meta = next(each for each in metas(home) if each.path == str(cold.world.main()))
    return Path(aside.record(meta).path)


def appended(cold: Cold) -> None:
    with aside_file(cold).open("ab") as file:
        file.write(cold.line())


def touched_aside(cold: Cold) -> None:
    os.utime(aside_file(cold))


def linked_aside(cold: Cold) -> None:
    (cold.world.folder / "a second name").hardlink_to(aside_file(cold))


def clock_back(cold: Cold) -> None:
    cold.world.clock.tick(-2 * WAIT_MS)


COMEBACKS: dict[str, Callable[[Cold], None]] = {
    "appended to": appended,
    "touched": touched_aside,
    "linked": linked_aside,
    "busy": busy,
    "held": held,
    "the archive is damaged": damaged,
    "a segment is missing": missing,
    "a child came back": lambda cold: cold.world.write(cold.world.child(), b"{}\n"),
}


@pytest.mark.parametrize("change", COMEBACKS.values(), ids=list(COMEBACKS))
def test_in_doubt_everything_comes_back(cold: Cold, change: Callable[[Cold], None]) -> None:
    before = {path: path.stat().st_ino for path in cold.world.live()}
    cold.step()
    cold.world.clock.tick(WAIT_MS)
    change(cold)
    assert cold.step().act is Act.PUT_BACK
    after = {path: path.stat().st_ino for path in cold.world.live()}
    after.pop(cold.world.root / "sessions" / f"{os.getpid()}.json", None)
    assert after.keys() == before.keys()
    assert after[cold.world.main()] == before[cold.world.main()]
    assert cold.world.main().read_bytes() == b"".join(cold.written)
    assert pending_of(cold) == []
    with cold.world.open() as home:
        assert [row.state for row in home.catalog.sessions()] == ["live"]


def test_a_clock_that_went_back_is_a_doubt_too(cold: Cold) -> None:
    cold.step()
    cold.world.clock.tick(-2 * WAIT_MS)
    outcome = cold.step()
    assert (outcome.act, outcome.reason) == (Act.PUT_BACK, "the clock has gone back since")


def test_a_comeback_before_the_wait_is_over_is_not_waited_for(cold: Cold) -> None:
    cold.step()
    cold.world.append(cold.world.main(), cold.line())
    assert cold.step().act is Act.PUT_BACK
    settle(cold)
    assert_in_order_and_held(cold)


def test_bytes_that_came_to_what_was_set_aside_are_captured_though_its_place_is_taken(cold: Cold) -> None:
    """Into its own generation, before those of the file that has its place."""
    cold.step()
    appended(cold)
    grow_and_capture(cold)
    assert cold.step().act is Act.PUT_BACK
    settle(cold)
    assert_in_order_and_held(cold)
    with cold.world.open() as home:
        assert_sound(home)
        assert [row.records for row in home.catalog.sessions()] == [len(cold.written)]
        assert differences(home) == ([], [])
    cold.world.compact(cold=True)
    assert_in_order_and_held(cold)


def test_what_cannot_be_captured_stays_aside_and_is_a_fault_until_somebody_has_decided(cold: Cold) -> None:
    cold.step()
    place = aside_file(cold)
    place.write_bytes(b"other\n" * 3)
    grow_and_capture(cold)
    for _ in range(2):
        assert cold.step().act is Act.STUCK
        cold.scan()
        assert place.read_bytes() == b"other\n" * 3
        with cold.world.open() as home:
            assert [os.fsdecode(fault.place) for fault in home.catalog.faults()] == [str(place)]
            assert str(cold.world.main()) in home.catalog.faults()[0].what
    assert cold.world.child().exists()
    place.unlink()
    assert cold.step().act is Act.KEPT
    with cold.world.open() as home:
        assert home.catalog.faults() == []
        assert pending(home) == []


def test_a_session_that_is_restored_while_it_waits_is_there_once(cold: Cold) -> None:
    before = cold.world.live()
    cold.step()
    with cold.world.open() as home:
        restore(home)
    assert cold.step().act is Act.PUT_BACK
    assert cold.world.live() == before
    assert [path for path in cold.world.layout.aside.rglob("*") if path.name != "files"] == []
    settle(cold)
    assert_in_order_and_held(cold)


def test_it_can_be_undone_on_demand(cold: Cold) -> None:
    """Before a purge, for one: what is set aside has the session's text in it."""
    before = cold.world.live()
    cold.step()
    with cold.world.open() as home:
        assert reclaim.put_back(home, cold.key(home), "to be purged").act is Act.PUT_BACK
    assert cold.world.live() == before
    assert [path for path in cold.world.layout.aside.rglob("*") if path.name != "files"] == []


def test_a_folder_that_went_meanwhile_is_made_again(cold: Cold) -> None:
    cold.step()
    appended(cold)
    shutil.rmtree(cold.world.root / "projects" / "-p")
    assert cold.step().act is Act.PUT_BACK
    assert cold.world.main().read_bytes() == b"".join(cold.written)


# ---- what is known of it is lost --------------------------------------------------------------------------------------------


def test_a_file_of_which_the_metadata_no_longer_tells_is_found_by_its_name(cold: Cold) -> None:
    """A meta.json that was made anew from its copy in the manifest."""
    before = cold.world.live()
    cold.step()
    with cold.world.open() as home:
        for meta in metas(home):
            home.store.write_meta(replace(meta, aside=None))
        assert pending(home) == [cold.key(home)]
    cold.world.clock.tick(WAIT_MS - 1)
    assert cold.step().act is Act.SET_ASIDE
    with cold.world.open() as home:
        assert reclaim.put_back(home, cold.key(home), "asked for").act is Act.PUT_BACK
    assert cold.world.live() == before


def test_with_a_catalog_made_again_it_goes_on(cold: Cold) -> None:
    cold.step()
    cold.world.forget_catalog()
    with cold.world.open() as home:
        assert rebuild(home) == []
    cold.world.clock.tick(WAIT_MS)
    assert cold.step().act is Act.RECLAIMED
    assert lost(cold) == []


# ---- a program that starts while a long proof goes on ------------------------------------------------------------------------


@pytest.mark.parametrize("second", [False, True], ids=["the first look", "the second look"])
def test_a_program_that_starts_during_the_proof_keeps_its_session(cold: Cold, monkeypatch: pytest.MonkeyPatch, *, second: bool) -> None:
    before = cold.world.live()
    if second:
        cold.step()
        cold.world.clock.tick(WAIT_MS)
    real = proof.unproven

    def slow(*arguments: Any) -> str | None:
        if not (cold.world.root / "sessions").exists():
            busy(cold)
        return real(*arguments)

    monkeypatch.setattr(reclaim, "unproven", slow)
    outcome = cold.step()
    assert outcome.act is (Act.PUT_BACK if second else Act.KEPT)
    assert outcome.reason.startswith("busy: ")
    after = cold.world.live()
    after.pop(cold.world.root / "sessions" / f"{os.getpid()}.json")
    assert after == before
