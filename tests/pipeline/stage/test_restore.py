"""Restore: byte for byte, with its mode and the mtime its agent needs, never over bytes that are not held, never out of the root."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from coldtrail import durable
from coldtrail.catalog import SessionRow
from coldtrail.errors import AmbiguousError, NotFoundError, RefusedError
from coldtrail.home import Home
from coldtrail.layout import TEMP_PREFIX
from coldtrail.stage.restore import Mtime, Passed, Restored, Wish, plan_restore
from coldtrail.stage.scan import Scanner
from pipeline.stage.places import DAY_MS, CodexWorld, FolderWorld, put_back, the_session, the_stream
from world_of import SESSION, Lines, World, metas

MODES = [0o600, 0o644, 0o400, 0o000, 0o751]


def gone(world: World, lines: Lines) -> bytes:
    """A captured session whose files are no longer there."""
    world.write(world.main(), lines.some(5))
    world.write(world.companion(), b"output")
    world.scan()
    data = world.main().read_bytes()
    shutil.rmtree(world.main().parent)
    world.scan()
    return data


def test_restoring_twice_changes_nothing_the_second_time(world: World, lines: Lines) -> None:
    data = gone(world, lines)
    with world.open() as home:
        assert [type(each) for each in put_back(home)] == [Restored, Restored]
        stats = [path.stat() for path in world.live()]
        assert [type(each) for each in put_back(home)] == [Passed, Passed]
        assert [path.stat().st_ino for path in world.live()] == [stat.st_ino for stat in stats]
    assert world.main().read_bytes() == data


def test_what_was_restored_is_no_news_to_capture(world: World, lines: Lines) -> None:
    gone(world, lines)
    with world.open() as home:
        put_back(home)
        tally = Scanner(home).scan(world.sources)
        assert (tally.captured, tally.new_bytes, tally.checked) == (0, 0, 0)
        assert the_session(home).state == "live"
        assert [len(meta.generations) for meta in metas(home)] == [1, 1]


def test_a_live_file_that_goes_on_behind_what_is_held_stays(world: World, lines: Lines) -> None:
    world.write(world.main(), lines.some(5))
    world.scan()
    world.append(world.main(), lines.line())
    longer = world.main().read_bytes()
    with world.open() as home:
        (done,) = put_back(home)
        assert isinstance(done, Passed)
        assert not done.failed
        (done,) = put_back(home, wish=Wish(overwrite=True))
        assert isinstance(done, Passed), "not even when told to overwrite: nothing that is held is missing in it"
    assert world.main().read_bytes() == longer


def test_a_live_file_that_is_shorter_is_replaced_only_when_told(world: World, lines: Lines) -> None:
    world.write(world.main(), lines.some(5))
    world.scan()
    whole = world.main().read_bytes()
    world.write(world.main(), whole[:300])
    with world.open() as home:
        with pytest.raises(RefusedError, match="is shorter than what is held from byte 300 on"):
            put_back(home)
        assert world.main().read_bytes() == whole[:300]
        put_back(home, wish=Wish(overwrite=True))
    assert world.main().read_bytes() == whole


def test_a_live_file_that_differs_is_never_replaced_before_it_is_held(world: World, lines: Lines) -> None:
    world.write(world.main(), lines.some(5))
    world.scan()
    held = world.main().read_bytes()
    diverged = held[:-2] + b"}\n" + lines.line(root=True)
    diverged = held[:500] + diverged[500:].swapcase()
    world.write(world.main(), diverged)
    with world.open() as home:
        with pytest.raises(RefusedError, match="differs from what is held from byte"):
            put_back(home)
        with pytest.raises(RefusedError, match="has bytes that the archive lacks"):
            put_back(home, wish=Wish(overwrite=True))
        assert world.main().read_bytes() == diverged
        Scanner(home).scan(world.sources)
        (done,) = put_back(home, wish=Wish(overwrite=True, generation=0))
        assert isinstance(done, Restored)
        assert world.main().read_bytes() == held
        put_back(home, wish=Wish(overwrite=True, generation=1))
    assert world.main().read_bytes() == diverged


def test_an_id_that_two_projects_have_is_asked_and_not_guessed(world: World) -> None:
    for project in ("-p", "-q"):
        world.write(world.main(project), Lines(world.clock).some(2) + project.encode())
    world.clock.tick(10_000)
    world.scan()
    contents = {path: path.read_bytes() for path in (world.main("-p"), world.main("-q"))}
    shutil.rmtree(world.root / "projects")
    world.scan()
    from coldtrail import Trail
    from coldtrail.settings import settings

    environment = {"HOME": str(world.folder), "COLDTRAIL_HOME": str(world.layout.home)}
    with Trail(settings(env=environment)) as trail:
        with pytest.raises(AmbiguousError) as raised:
            trail.session(SESSION)
        assert sorted(raised.value.candidates) == sorted(session.key for session in trail.sessions())
        for path in contents:
            trail.session(path).restore()
    assert {path: path.read_bytes() for path in contents} == contents


@pytest.mark.parametrize("mode", MODES, ids=oct)
@pytest.mark.parametrize("mask", [0o022, 0o000, 0o077], ids=oct)
def test_the_mode_comes_back_whatever_the_umask(world: World, lines: Lines, mode: int, mask: int) -> None:
    world.write(world.main(), lines.some(5))
    world.main().chmod(mode)
    before = os.umask(mask)
    try:
        world.scan()
        world.compact(cold=True)
        shutil.rmtree(world.main().parent)
        world.scan()
        with world.open() as home:
            put_back(home)
        assert world.main().stat().st_mode & 0o7777 == mode
        for path in world.layout.home.rglob("*"):
            assert path.stat().st_mode & 0o7777 == (0o700 if path.is_dir() else 0o600), path
        assert world.layout.home.stat().st_mode & 0o7777 == 0o700
    finally:
        os.umask(before)


def test_a_mode_that_was_changed_without_growth_is_the_one_that_comes_back(world: World, lines: Lines) -> None:
    world.write(world.main(), lines.some(5))
    world.scan()
    world.main().chmod(0o640)
    world.scan()
    world.main().unlink()
    with world.open() as home:
        put_back(home)
    assert world.main().stat().st_mode & 0o7777 == 0o640


AGES = [(0, "kept"), (14, "kept"), (16, "now"), (60, "now")]


@pytest.mark.parametrize(("days", "becomes"), AGES)
def test_claude_codes_mtime_is_kept_unless_it_would_soon_be_swept(world: World, lines: Lines, days: int, becomes: str) -> None:
    world.write(world.main(), lines.some(5))
    original_ns = (world.clock.now_ms - days * DAY_MS) * 1_000_000
    os.utime(world.main(), ns=(original_ns, original_ns))
    world.scan()
    world.main().unlink()
    with world.open() as home:
        (done,) = put_back(home)
        assert isinstance(done, Restored)
        assert done.mtime_ns == world.main().stat().st_mtime_ns == (original_ns if becomes == "kept" else world.clock.now_ms * 1_000_000)
        assert bool(done.note) is (becomes == "now")
        assert home.store.last_stamp(the_stream(home), 0).mtime_ns == original_ns, "the original one is remembered"
        world.main().unlink()
        put_back(home, wish=Wish(mtime=Mtime.KEEP))
        assert world.main().stat().st_mtime_ns == original_ns
        world.main().unlink()
        put_back(home, wish=Wish(mtime=Mtime.NOW))
        assert world.main().stat().st_mtime_ns == world.clock.now_ms * 1_000_000


@pytest.mark.parametrize("days", [0, 60, 4_000])
def test_codexs_mtime_is_always_kept(codex: CodexWorld, days: int) -> None:
    codex.write(codex.rollout(), codex.some(5))
    original_ns = (codex.clock.now_ms - days * DAY_MS) * 1_000_000 + 123_456
    os.utime(codex.rollout(), ns=(original_ns, original_ns))
    codex.scan()
    codex.rollout().unlink()
    with codex.open() as home:
        put_back(home)
    assert codex.rollout().stat().st_mtime_ns == original_ns


def linked(world: World, lines: Lines) -> Path:
    """A session captured through a linked project folder, and gone; gives where the link leads."""
    outside = world.folder / "outside"
    outside.mkdir()
    world.main().parent.symlink_to(outside)
    world.write(world.main(), lines.some(5))
    world.scan()
    (outside / world.main().name).unlink()
    world.scan()
    return outside


def test_a_session_in_a_linked_folder_goes_back_through_the_link(world: World, lines: Lines) -> None:
    outside = linked(world, lines)
    with world.open() as home:
        put_back(home)
    assert world.main().parent.is_symlink()
    assert (outside / world.main().name).read_bytes().count(b"\n") == 5


def test_a_link_that_leads_elsewhere_now_is_not_followed_out_of_the_root(world: World, lines: Lines) -> None:
    linked(world, lines)
    trap = world.folder / "trap"
    trap.mkdir()
    world.main().parent.unlink()
    world.main().parent.symlink_to(trap)
    with world.open() as home, pytest.raises(RefusedError, match="links lead it out"):
        put_back(home)
    assert list(trap.iterdir()) == []


@pytest.mark.parametrize("level", ["project", "session"])
def test_a_link_planted_where_a_folder_was_is_not_followed_out_of_the_root(world: World, lines: Lines, level: str) -> None:
    gone(world, lines)
    trap = world.folder / "trap"
    trap.mkdir()
    planted = world.main().parent if level == "project" else world.main().with_suffix("")
    planted.parent.mkdir(exist_ok=True)
    planted.symlink_to(trap)
    with world.open() as home, pytest.raises(RefusedError, match="links lead it out"):
        put_back(home)
    assert list(trap.iterdir()) == []


@pytest.mark.parametrize("leads_to", ["a file", "nothing"])
def test_a_link_in_a_logs_place_is_never_replaced_by_a_file(world: World, lines: Lines, leads_to: str) -> None:
    data = gone(world, lines)
    world.main().parent.mkdir()
    other = world.folder / "other.jsonl"
    if leads_to == "a file":
        other.write_bytes(data)
    world.main().symlink_to(other)
    with world.open() as home:
        for overwrite in (False, True):
            with pytest.raises(RefusedError, match="is a link"):
                put_back(home, wish=Wish(overwrite=overwrite))
    assert world.main().is_symlink()


def in_the_way(world: World) -> dict[str, Path]:
    """What may be in the way of a restore, by what it is."""
    return {"a file for a folder": world.main().with_suffix(""), "a folder for a file": world.main(), "a pipe": world.main()}


@pytest.mark.parametrize("what", ["a file for a folder", "a folder for a file", "a pipe"])
def test_what_is_in_the_way_is_told_and_stays(world: World, lines: Lines, what: str) -> None:
    gone(world, lines)
    place = in_the_way(world)[what]
    place.parent.mkdir()
    if what == "a file for a folder":
        place.write_bytes(b"in the way")
    elif what == "a pipe":
        os.mkfifo(place)
    else:
        place.mkdir()
    with world.open() as home:
        told = outcome_of(home, the_session(home).row)
    assert str(place) in told
    assert place.exists()
    assert list(world.root.rglob(TEMP_PREFIX + "*")) == []


def outcome_of(home: Home, session: SessionRow) -> str:
    """Why a restore did not put everything back."""
    from coldtrail.errors import ColdtrailError

    try:
        done = put_back(home, session)
    except ColdtrailError as error:
        return str(error)
    (why,) = (each.why for each in done if isinstance(each, Passed) and "held back" not in each.why)
    return why


def test_the_main_log_is_held_back_where_what_belongs_to_it_failed(world: World, lines: Lines) -> None:
    gone(world, lines)
    blocked = world.main().with_suffix("")
    blocked.parent.mkdir()
    blocked.write_bytes(b"in the way of tool-results/")
    with world.open() as home:
        done = put_back(home)
    assert [isinstance(each, Passed) and each.failed for each in done] == [True, True]
    assert not world.main().exists()


def test_nothing_of_ours_is_seen_in_the_agents_folder_while_a_file_is_put_back(world: World, lines: Lines) -> None:
    gone(world, lines)
    seen: set[str] = set()
    durable.fault_hook = lambda _step, _path: seen.update(path.name for path in world.root.rglob("*") if path.is_file())
    try:
        with world.open() as home:
            put_back(home)
            world.write(world.main(), world.main().read_bytes()[:100])
            put_back(home, wish=Wish(overwrite=True))
    finally:
        durable.fault_hook = None
    assert seen == {world.main().name, world.companion().name}


def test_a_generation_that_there_never_was_is_not_found(world: World, lines: Lines) -> None:
    gone(world, lines)
    with world.open() as home, pytest.raises(NotFoundError, match="no generation 7"):
        plan_restore(home, the_session(home).row, Wish(generation=7))


def test_a_name_as_long_as_names_may_be_is_no_trouble(codex: CodexWorld, mine: FolderWorld) -> None:
    log = codex.rollout().with_name("r" * 249 + ".jsonl")
    codex.write(log, codex.some(2))
    codex.scan()
    data = log.read_bytes()
    log.unlink()
    with codex.open() as home:
        put_back(home)
        log.write_bytes(data[:50])
        put_back(home, wish=Wish(overwrite=True))
    assert log.read_bytes() == data


def test_a_forked_thread_brings_the_one_it_was_forked_from_with_it(codex: CodexWorld) -> None:
    parent, child = "019dc0d3-0000-7052-b168-000000000001", "019dc0d3-0000-7052-b168-000000000002"
    codex.write(codex.rollout(parent), codex.some(4, parent))
    forked = b'{"timestamp":"2026-01-01T00:00:00Z","type":"session_meta","payload":{"id":"%s","forked_from_id":"%s"}}\n'
    codex.write(codex.rollout(child), forked % (child.encode(), parent.encode()) + codex.some(2, child))
    codex.scan()
    live = codex.live()
    shutil.rmtree(codex.root / "sessions")
    codex.scan()
    with codex.open() as home:
        (row,) = home.catalog.sessions_with_id(child)
        assert [each.path for each in put_back(home, row)] == [codex.rollout(parent), codex.rollout(child)]
    assert codex.live() == live
