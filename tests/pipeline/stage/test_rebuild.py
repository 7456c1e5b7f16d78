"""The catalog is a cache: made again from store and archive it says the same, whatever has happened to the sessions."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from coldtrail import Session
from coldtrail.home import Home
from coldtrail.stage.adopt import tidy
from coldtrail.stage.rebuild import differences, rebuild
from coldtrail.stage.restore import Wish
from coldtrail.stage.scan import Scanner
from coldtrail.stage.wish import set_pin
from pipeline.stage.places import DAY_MS, put_back, the_session
from world_of import Lines, World, compact

BOOKKEEPING = b'{"type":"ai-title","aiTitle":"A title","sessionId":"s"}\n{"type":"mode","mode":"default","sessionId":"s"}\n'


def documents(home: Home) -> list[dict[str, object]]:
    """What `ls --json` prints."""
    return [Session(home, row).to_json() for row in home.catalog.sessions()]


def made_again(world: World) -> list[dict[str, object]]:
    """The same after the catalog was lost."""
    world.forget_catalog()
    with world.open() as home:
        assert rebuild(home) == []
        assert differences(home) == ([], [])
        return documents(home)


def populated(world: World) -> None:
    """Sessions of many kinds, each with a past of its own."""
    for number in range(12):
        world.clock.tick(DAY_MS)
        lines = Lines(world.clock, f"{number:08d}-0000-4000-8000-000000000000")
        main = world.main(f"-p{number % 3}", lines.session)
        world.write(main, lines.some(number))
        if number % 2:
            world.write(world.companion(f"-p{number % 3}", lines.session), b"output" * number)
            world.write(world.child(f"-p{number % 3}", lines.session), lines.some(3))
        world.scan()
        if number % 3 == 0:
            world.write(main, lines.line(root=True) + b'{"torn' + lines.some(2))
        elif number % 3 == 1:
            world.append(main, BOOKKEEPING + lines.line()[:-1])
        if number % 4 == 0:
            main.unlink()
            world.scan()
            world.write(main, lines.some(4))
        world.clock.tick(10_000)
        world.scan()


def sealed_hot(home: Home) -> None:
    compact(home, cold=False)


def sealed_cold(home: Home) -> None:
    compact(home, cold=True)


def pinned(home: Home) -> None:
    for row in home.catalog.sessions()[::2]:
        set_pin(home, row, pinned=True)


def untouched(home: Home) -> None:
    """As it was captured."""


STEPS: list[Callable[[Home], None]] = [untouched, pinned, sealed_hot, sealed_cold]


@pytest.mark.parametrize("gone", [False, True], ids=["live", "gone"])
def test_a_lost_catalog_is_made_again_as_it_was_at_every_station(world: World, gone: bool) -> None:
    populated(world)
    if gone:
        shutil.rmtree(world.root / "projects")
        world.scan()
    for step in STEPS:
        with world.open() as home:
            step(home)
            before = documents(home)
        assert made_again(world) == before, step.__name__
        assert {each["state"] for each in before} == ({"gone"} if gone else {"live"})
        assert sum(bool(each["pinned"]) for each in before) == (0 if step is untouched else 6)
    with world.open() as home:
        for row in home.catalog.sessions():
            put_back(home, row, Wish(overwrite=True))
        Scanner(home).scan(world.sources)
        before = documents(home)
    assert made_again(world) == before, "restored"


def test_with_the_store_lost_too_the_archive_alone_says_the_same(world: World) -> None:
    populated(world)
    with world.open() as home:
        pinned(home)
        sealed_cold(home)
        before = documents(home)
    shutil.rmtree(world.layout.store)
    assert made_again(world) == before


def order(world: World) -> list[str]:
    with world.open() as home:
        return [row.id for row in home.catalog.sessions()]


def test_114_logs_restamped_to_one_second_with_bookkeeping_appended_keep_their_order_and_their_times(world: World) -> None:
    ids = [f"{number:08d}-0000-4000-8000-000000000000" for number in range(114)]
    shuffled = ids[:]
    random.Random(7).shuffle(shuffled)
    for session in shuffled:
        world.clock.tick(3_600_000)
        world.write(world.main("-p", session), Lines(world.clock, session).some(2))
        os.utime(world.main("-p", session), ns=((world.clock.now_ms - 5 * DAY_MS) * 1_000_000,) * 2)
    world.scan()
    latest_first = shuffled[::-1]
    with world.open() as home:
        times = {row.id: (row.first_ms, row.last_ms) for row in home.catalog.sessions()}

    def unchanged(after: str) -> None:
        assert order(world) == latest_first, after
        with world.open() as home:
            assert {row.id: (row.first_ms, row.last_ms) for row in home.catalog.sessions()} == times, after

    unchanged("capture")
    world.clock.tick(10 * DAY_MS)
    for session in ids:
        world.append(world.main("-p", session), BOOKKEEPING)
        world.stamp(world.main("-p", session))
    world.scan()
    unchanged("bookkeeping in all of them within one second")
    with world.open() as home:
        assert {row.title for row in home.catalog.sessions()} == {"A title"}
    for session in ids:
        copy = world.folder / "copy"
        shutil.copy(world.main("-p", session), copy)
        os.replace(copy, world.main("-p", session))
    world.scan()
    unchanged("each is a copy")
    world.compact(cold=True)
    unchanged("compaction")
    shutil.rmtree(world.root / "projects")
    world.scan()
    unchanged("all are gone")
    world.clock.tick(DAY_MS)
    with world.open() as home:
        for row in home.catalog.sessions():
            put_back(home, row)
    world.scan()
    unchanged("all are restored")
    world.forget_catalog()
    with world.open() as home:
        rebuild(home)
    unchanged("the catalog is made again")


def test_what_the_agent_swept_is_still_gone_after_a_rescan_and_a_rebuild(world: World, lines: Lines) -> None:
    world.write(world.main(), lines.some(3))
    world.scan()
    world.main().unlink()
    world.clock.tick(60_000)
    world.scan()
    swept_ms = world.clock.now_ms
    for _ in range(2):
        world.clock.tick(60_000)
        world.scan()
        world.forget_catalog()
        with world.open() as home:
            rebuild(home)
            (meta,) = the_session(home).streams()
            assert (the_session(home).state, meta.gone_ms) == ("gone", swept_ms)


def test_a_session_that_could_not_be_read_yet_is_listed_the_same_after_a_rebuild(
    world: World, lines: Lines, unreadable: Callable[[Path], None]
) -> None:
    world.write(world.main(), lines.some(3))
    unreadable(world.main())
    world.scan()
    with world.open() as home:
        before = documents(home)
        assert [each["bytes"] for each in before] == [0]
    assert made_again(world) == before


@pytest.mark.parametrize("is_long", [False, True])
def test_a_file_that_is_met_anew_is_compared_at_once_and_a_long_one_behind_all_that_is_new(
    world: World, lines: Lines, monkeypatch: pytest.MonkeyPatch, *, is_long: bool
) -> None:
    world.write(world.main(), lines.some(3))
    world.scan()
    world.forget_catalog()
    if is_long:
        monkeypatch.setattr("coldtrail.stage.capture.AT_ONCE_BYTES", world.main().stat().st_size - 1)  # of what was held
    world.append(world.main(), lines.some(1))
    with world.open() as home:
        rebuild(home)
        scanner = Scanner(home)
        assert scanner.look(world.sources, [world.main()]).new_bytes > 0
        (row,) = home.catalog.all_streams()
        assert (row.held, row.check_due) == (world.main().stat().st_size, is_long)
        assert scanner.scan(world.sources).checked == is_long
        assert [(each.generation, each.check_due) for each in home.catalog.all_streams()] == [(0, 0)]


def test_folders_that_vanish_under_a_start_are_passed_over(world: World, lines: Lines, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who prunes needs no daemon, and may be at it while one starts."""
    world.write(world.main(), lines.some(3))
    world.write(world.child(), lines.some(3))
    world.scan()
    with world.open() as home:
        gone, there = (home.layout.stream(row.stream) for row in home.catalog.all_streams())
        (there / ".tmp-0123456789ab").touch()
        os.utime(there / ".tmp-0123456789ab", (0, 0))
        listed = os.scandir

        def removing(folder: Path | str) -> object:
            if Path(folder) == gone:
                gone.rename(world.folder / "elsewhere")
            return listed(folder)

        monkeypatch.setattr(os, "scandir", removing)
        assert tidy(home, 0) == 1
        assert not gone.exists()
