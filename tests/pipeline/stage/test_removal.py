"""Removal under trouble: crashes with the catalog lost, and wishes that come between a plan and its doing."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from coldtrail.catalog import SessionRow
from coldtrail.errors import NotFoundError, RefusedError
from coldtrail.format.manifest import Aside
from coldtrail.format.wishes import Act
from coldtrail.home import Home
from coldtrail.sessions import read_manifest
from coldtrail.stage import expire, wish
from coldtrail.stage.adopt import adopt_wishes
from coldtrail.stage.rebuild import rebuild
from coldtrail.stage.restore import Wish, plan_restore
from coldtrail.stage.restore import carry_out as put_back
from coldtrail.stage.verify import verify
from crash.killing import dies_at
from pipeline.stage.removing import DAY, files, kept, marked, removed, the_session
from world_of import Lines, World, metas

pytestmark = pytest.mark.usefixtures("small")


# ---- crashes ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("catalog", ["kept", "lost"])
@pytest.mark.parametrize("act", list(Act))
def test_killed_at_every_step_a_start_leaves_all_of_it_or_the_tombstone_alone(
    world: World, lines: Lines, tmp_path: Path, act: Act, catalog: str
) -> None:
    kept(world, lines)
    world.append(world.main(), lines.some(3))
    world.scan()
    marked(world)
    whole, saved = files(world), tmp_path / "saved"
    shutil.copytree(world.folder / "trail", saved)

    def work() -> None:
        with world.open() as home:
            expire.remove(home, the_session(home), act, "rule 1")

    def started() -> None:
        with world.open() as home:
            if home.owes_rebuild():
                assert rebuild(home) == []
            expire.finish(home)
            assert adopt_wishes(home) == []

    step, gone = 1, 0
    while dies_at(step, work):
        if catalog == "lost":
            world.forget_catalog()
        started()
        assert world.scan().new_bytes == 0, f"step {step}"
        left = {name for name in files(world) if ".tmp-" not in name}
        with world.open() as home:
            assert verify(home).word == "ok", f"step {step}"
            if home.catalog.sessions():
                assert left == whole, f"step {step}"
                assert the_session(home).state == "expiring"
            else:
                gone += 1
                assert all(name.endswith(f"{session}.json") for name in left for session in [next(iter(home.catalog.graves())).session])
                assert len(left) == 1, f"step {step}"
        shutil.rmtree(world.folder / "trail")
        shutil.copytree(saved, world.folder / "trail")
        step += 1
    assert 3 < gone < step


def test_a_removal_that_was_cut_short_is_forgotten_where_the_session_has_grown(world: World, lines: Lines) -> None:
    kept(world, lines)
    marked(world)

    with world.open() as home:
        row = the_session(home)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(expire, "_drop", lambda *_: None)
            assert expire.remove(home, row, Act.EXPIRED, "rule 1") is not None
        assert read_manifest(home, row.source, row.key).tombstone is not None
    world.append(world.main(), lines.line())
    world.scan()
    with world.open() as home:
        assert adopt_wishes(home) == []
        row = the_session(home)
        assert (row.state, read_manifest(home, row.source, row.key).tombstone) == ("live", None)
        assert verify(home).word == "ok"


def test_a_rewrite_of_the_same_length_is_no_leftover_of_a_removal(world: World, lines: Lines) -> None:
    kept(world, lines)
    marked(world)
    with world.open() as home, pytest.MonkeyPatch.context() as patch:
        patch.setattr(expire, "_drop", lambda *_: None)
        expire.remove(home, the_session(home), Act.EXPIRED, "rule 1")
    data = world.main().read_bytes()
    world.write(world.main(), data.replace(b"/there", b"/other"))
    world.scan()
    world.forget_catalog()
    with world.open() as home:
        assert rebuild(home) == []
        assert the_session(home).state == "live"


def test_a_catalog_of_tombstones_alone_is_not_made_anew_at_every_start(world: World, lines: Lines) -> None:
    kept(world, lines)
    removed(world)
    with world.open() as home:
        assert not home.owes_rebuild()


# ---- what comes between a plan and its doing ------------------------------------------------------------------------------


def pinned(home: Home, row: SessionRow) -> None:
    wish.set_pin(home, row, pinned=True)


def held(home: Home, row: SessionRow) -> None:
    wish.hold(home, row, home.now_ms() + DAY)


def lifted(home: Home, row: SessionRow) -> None:
    expire.lift(home, row)


@pytest.mark.parametrize("between", [pinned, held, lifted])
def test_who_is_asked_to_keep_it_between_plan_and_removal_keeps_it(
    world: World, lines: Lines, between: Callable[[Home, SessionRow], None]
) -> None:
    kept(world, lines)
    marked(world)
    with world.open() as home:
        row = the_session(home)
        between(home, row)
        assert expire.remove(home, row, Act.EXPIRED, "rule 1") is None
        assert verify(home).word == "ok"
        assert the_session(home).bytes > 0


def test_a_wish_for_what_was_removed_meanwhile_is_refused_and_its_tombstone_stays(world: World, lines: Lines) -> None:
    kept(world, lines)
    marked(world)
    with world.open() as home:
        row = the_session(home)
        expire.remove(home, row, Act.PURGED, "asked for")
        for act in (pinned, held, lifted):
            with pytest.raises(NotFoundError, match="removed meanwhile"):
                act(home, row)
        assert expire.mark(home, row, "rule 1") is False
        assert read_manifest(home, row.source, row.key).tombstone is not None


def test_a_restore_that_was_planned_before_the_removal_writes_nothing(world: World, lines: Lines) -> None:
    kept(world, lines)
    shutil.rmtree(world.root / "projects" / "-p")
    world.scan()
    marked(world)
    with world.open() as home:
        plan = plan_restore(home, the_session(home), Wish())
        expire.remove(home, the_session(home), Act.EXPIRED, "rule 1")
        assert all(getattr(each, "failed", False) for each in put_back(home, plan))
        assert list(home.store.streams()) == []
    assert world.live() == {}


def test_what_is_set_aside_by_reclaim_is_not_removed(world: World, lines: Lines) -> None:
    kept(world, lines)
    marked(world)
    with world.open() as home:
        (meta,) = [meta for meta in metas(home) if meta.path == str(world.main())]
        home.store.write_meta(replace(meta, aside=Aside("/elsewhere/x", 1, 2, 0, world.clock())))
        for act in Act:
            with pytest.raises(RefusedError, match="set aside"):
                expire.remove(home, the_session(home), act, "rule 1")
        assert [entry.act.value for entry in home.journal.read()] == ["marked"]
