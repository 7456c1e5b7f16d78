"""Thinning: of a companion only the newest versions stay, whatever stops it in between, and nothing else is touched."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from coldtrail import durable
from coldtrail.catalog import SessionRow
from coldtrail.format.manifest import Generation, Stamp, StreamMeta
from coldtrail.home import Home
from coldtrail.model import Relation
from coldtrail.sessions import read_manifest
from coldtrail.stage import mend, thin, wish
from coldtrail.stage.rebuild import differences, rebuild
from coldtrail.stage.restore import Wish, carry_out, plan_restore
from coldtrail.stage.verify import verify
from crash.killing import dies_at
from world_of import Lines, World, generation_bytes, metas, small_sizes

DAY = 86_400_000
VERSIONS = [f"version {number}\n".encode() * 40 for number in range(5)]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """A session whose companion was rewritten four times, and whose main log once; the older half of it sealed."""
    with small_sizes():
        world = World(tmp_path)
        lines = Lines(world.clock)
        for number, data in enumerate(VERSIONS):
            if number in (0, 2):
                world.write(world.main(), lines.some(10))
            world.write(world.companion(), data)
            world.write(world.child(), b'{"type":"user"}\n' * (number + 1))
            world.scan()
            world.clock.tick(10_000)
            if number == 2:
                world.compact(cold=True)
        yield world


def the_session(home: Home) -> SessionRow:
    (row,) = home.catalog.sessions()
    return row


def companion(home: Home) -> StreamMeta:
    (found,) = [meta for meta in metas(home) if meta.role.value == "companion"]
    return found


def held(home: Home) -> list[bytes]:
    """The versions of the companion that are held."""
    meta = companion(home)
    return [generation_bytes(home, meta, each.number) for each in meta.generations]


def assert_nothing_else_is_gone(home: Home) -> None:
    assert verify(home).word == "ok"
    (main,) = [meta for meta in metas(home) if meta.role.value == "main"]
    assert [each.number for each in main.generations] == [0, 1]
    assert differences(home) == ([], [])


@pytest.mark.parametrize("keep", [1, 2, 4, 5, 9])
def test_the_newest_versions_stay_and_the_plan_is_what_is_done(world: World, keep: int) -> None:
    with world.open() as home:
        before, stored = thin.plan(home, keep), the_session(home).stored_bytes
        assert len(before) == max(0, 5 - keep)
        told: list[thin.Thinned] = []
        freed = thin.thin(home, keep, told.append)
        assert (freed, sum(each.versions for each in told)) == (sum(each.bytes for each in before), len(before))
        assert held(home) == VERSIONS[-keep:]
        assert the_session(home).stored_bytes == stored - freed
        assert [each.act.value for each in home.journal.read()] == ["thinned"] * bool(before)
        assert thin.plan(home, keep) == ()
        assert thin.thin(home, keep) == 0, "twice is once"
        assert_nothing_else_is_gone(home)


def test_what_is_left_goes_on_restores_and_is_rebuilt(world: World) -> None:
    with world.open() as home:
        thin.thin(home, 2)
    world.write(world.companion(), b"version 5\n")
    world.scan()
    world.compact(cold=True)
    world.forget_catalog()
    with world.open() as home:
        assert rebuild(home) == []
        assert held(home) == [*VERSIONS[-2:], b"version 5\n"]
        assert [each.number for each in companion(home).generations] == [3, 4, 5]
        assert_nothing_else_is_gone(home)
        shutil.rmtree(world.root / "projects")
        list(carry_out(home, plan_restore(home, the_session(home), Wish())))
    assert world.companion().read_bytes() == b"version 5\n"


def test_the_archive_alone_and_a_damaged_meta_know_of_the_missing_numbers(world: World) -> None:
    world.compact(cold=True)
    with world.open() as home:
        thin.thin(home, 2)
        stream = companion(home).stream
    world.layout.meta(stream).write_bytes(b"{")
    with world.open() as home:
        assert rebuild(home) == []
        assert held(home) == VERSIONS[-2:]
    shutil.rmtree(world.layout.store)
    world.forget_catalog()
    with world.open() as home:
        assert rebuild(home) == []
        assert held(home) == VERSIONS[-2:]
        assert_nothing_else_is_gone(home)


@pytest.mark.parametrize("sealed", [True, False])
def test_killed_at_every_step_all_that_is_to_stay_is_there_and_doing_it_again_ends_it(world: World, tmp_path: Path, sealed: bool) -> None:
    if sealed:
        world.compact(cold=True)
    saved = tmp_path / "saved"
    shutil.copytree(world.folder / "trail", saved)

    def work() -> None:
        with world.open() as home:
            thin.thin(home, 2)

    step = 1
    while dies_at(step, work):
        with world.open() as home:
            assert verify(home).word == "ok", f"step {step}"
            assert held(home)[-2:] == VERSIONS[-2:], f"step {step}"
        if step % 3 == 0:
            world.forget_catalog()
            with world.open() as home:
                assert rebuild(home) == []
        work()
        with world.open() as home:
            meta = companion(home)
            assert held(home) == VERSIONS[-2:], f"step {step}"
            assert set(mend.numbers(home, meta)) <= {3, 4}, f"step {step}: files of versions that nobody knows are left"
            manifest = read_manifest(home, meta.source, meta.session)
            assert {each.generation for stream, each in manifest.sealed if stream == meta.stream} <= {3, 4}
            assert_nothing_else_is_gone(home)
        shutil.rmtree(world.folder / "trail")
        shutil.copytree(saved, world.folder / "trail")
        step += 1
    assert step > 8


def test_what_is_pinned_or_held_or_compacted_or_whose_source_is_away_is_left_alone(world: World) -> None:
    with world.open() as home:
        everything = thin.plan(home, 1)
        assert thin.plan(home, 1, present={"claude-code"}) == everything
        assert thin.plan(home, 1, present=()) == ()
        assert thin.plan(home, 1, going={the_session(home).key}) == ()
        with durable.locked(world.layout.compact_lock(the_session(home).key)):
            assert [each.passed for each in thin.carry_out(home, everything, 1)] == ["it is being compacted"]
        wish.set_pin(home, the_session(home), pinned=True)
        assert thin.plan(home, 1) == ()
        assert [each.versions for each in thin.carry_out(home, everything, 1)] == [0], "pinned since the plan"
        wish.set_pin(home, the_session(home), pinned=False)
        wish.hold(home, the_session(home), world.clock() + DAY)
        assert thin.plan(home, 1) == ()
        assert held(home) == VERSIONS


def test_by_damaged_metadata_nothing_is_thinned(world: World) -> None:
    world.compact(cold=True)
    with world.open() as home:
        planned = thin.plan(home, 1)
        (manifest,) = world.layout.archive.glob("*/*/*.json")
        whole = manifest.read_bytes()
        manifest.write_bytes(whole[:-20])
        (done,) = thin.carry_out(home, planned, 1)
        assert "rebuild" not in done.passed
        assert (done.versions, bool(done.passed)) == (0, True)
        manifest.write_bytes(whole)
        meta_file = world.layout.meta(companion(home).stream)
        data = meta_file.read_bytes()
        meta_file.write_bytes(b"{}")
        assert thin.plan(home, 1) == ()
        meta_file.write_bytes(data)
        assert held(home) == VERSIONS


def test_where_the_journal_cannot_be_written_nothing_is_thinned(world: World) -> None:
    world.layout.journal.mkdir()
    with world.open() as home:
        with pytest.raises(IsADirectoryError):
            thin.thin(home, 1)
        assert held(home) == VERSIONS


def test_a_version_that_goes_while_it_is_verified_is_no_damage(world: World) -> None:
    with world.open() as home:

        def thin_first(_: object) -> None:
            thin.thin(home, 1)

        assert verify(home, progress=thin_first).word == "ok"
        assert held(home) == VERSIONS[-1:]


# ---- which stay, purely -------------------------------------------------------------------------------------------------


def generation(number: int, relation: Relation | None = Relation.REPLACES, continues: int | None = None) -> Generation:
    return Generation(number, 0, Stamp(0, 0o600, 0, 0), relation if number else None, continues)


@pytest.fixture
def some(world: World) -> StreamMeta:
    """Metadata of a companion to be given other generations."""
    with world.open() as home:
        return companion(home)


def test_a_version_that_holds_no_byte_does_not_count_but_the_newest_stays(some: StreamMeta) -> None:
    meta = replace(some, generations=tuple(map(generation, range(5))))
    assert thin.staying(meta, 2, {0, 1, 2, 3}) == {2, 3, 4}
    assert thin.staying(meta, 1, {0, 1, 2, 3, 4}) == {4}
    assert thin.staying(meta, 1, ()) == {4}


def test_what_a_kept_version_continues_or_was_restored_from_stays(some: StreamMeta) -> None:
    chained = [generation(0), generation(1), generation(2, Relation.CONTINUES, 1), generation(3)]
    assert thin.staying(replace(some, generations=tuple(chained)), 2, range(4)) == {1, 2, 3}
    restored = [generation(0), generation(2), generation(5, Relation.RESTORED)]
    assert thin.staying(replace(some, generations=tuple(restored)), 1, (0, 2, 5)) == {2, 5}
