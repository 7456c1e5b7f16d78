"""Removal with other machines in the archive, and with disks that are away, full, or damaged."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from coldtrail import durable
from coldtrail.errors import ColdtrailError, RefusedError, StoreFullError
from coldtrail.format.wishes import Act
from coldtrail.home import Home
from coldtrail.sessions import read_manifest
from coldtrail.stage import expire, purge, wish
from coldtrail.stage.rebuild import rebuild
from coldtrail.stage.verify import verify
from pipeline.stage.removing import files, kept, marked, the_session
from world_of import Lines, World

pytestmark = pytest.mark.usefixtures("small")


# ---- another machine in the same archive ----------------------------------------------------------------------------------


@pytest.fixture
def foreign(world: World, lines: Lines) -> Iterator[Home]:
    """Our catalog, which knows the session of another machine that has its archive in the same place."""
    kept(world, lines)
    shutil.copytree(world.layout.home / "archive", world.folder / "theirs" / "archive")
    shutil.copytree(world.layout.home / "store", world.folder / "theirs" / "store")
    other = World(world.folder / "ours", world.clock)
    shutil.copytree(world.layout.archive, other.layout.archive)
    (other.layout.home / "host-id").write_text("0123456789abcdef\n")
    with other.open() as home:
        assert rebuild(home) == []
        yield home


def test_another_machines_session_is_purged_only_by_force(foreign: Home) -> None:
    row = the_session(foreign)
    assert row.host != foreign.host
    with pytest.raises(RefusedError, match="another machine"):
        purge.purge(foreign, row, "asked for", live=False)
    assert purge.purge(foreign, row, "asked for", live=False, force=True).found_in == ()


def test_what_another_machine_removed_keeps_none_of_our_files_from_being_captured(foreign: Home, world: World) -> None:
    row = the_session(foreign)
    purge.purge(foreign, row, "asked for", live=False, force=True)
    ours = World(world.folder / "ours", world.clock)
    shutil.copytree(world.root, ours.root, dirs_exist_ok=True)
    assert ours.scan().new_bytes > 0, "the tombstone is the other machine's"
    ours.forget_catalog()
    with ours.open() as home:
        assert rebuild(home) == []
        assert [each.host for each in home.catalog.sessions()] == [home.host]
        assert home.catalog.graves() == []


# ---- disks ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("left", ["nothing", "an empty folder"])
def test_while_the_archive_is_away_nothing_is_marked_removed_or_written_in_its_place(world: World, lines: Lines, left: str) -> None:
    kept(world, lines)
    marked(world)
    shutil.move(world.layout.archive, world.folder / "unmounted")
    if left == "an empty folder":
        world.layout.archive.mkdir()
    with world.open() as home:
        row = the_session(home)
        for work in (
            lambda: expire.mark(home, row, "rule 1"),
            lambda: expire.remove(home, row, Act.EXPIRED, "rule 1"),
            lambda: purge.purge(home, row, "asked for", live=True),
            lambda: wish.set_pin(home, row, pinned=True),
        ):
            with pytest.raises(RefusedError, match="not there"):
                work()
    assert not list(world.layout.archive.rglob("*"))
    shutil.rmtree(world.layout.archive, ignore_errors=True)
    shutil.move(world.folder / "unmounted", world.layout.archive)
    with world.open() as home:
        assert verify(home).word == "ok"
        assert the_session(home).state == "expiring"
    assert world.main().exists()


@pytest.mark.parametrize("act", list(Act))
def test_where_the_journal_cannot_be_written_nothing_is_removed(world: World, lines: Lines, act: Act) -> None:
    kept(world, lines)
    marked(world)
    world.layout.journal.unlink()
    world.layout.journal.mkdir()
    before = files(world)
    with world.open() as home:
        with pytest.raises(IsADirectoryError):
            expire.remove(home, the_session(home), act, "rule 1")
        with pytest.raises(IsADirectoryError):
            expire.mark(home, the_session(home), "rule 2")
        assert files(world) == before
        assert read_manifest(home, "claude-code", the_session(home).key).tombstone is None


def test_a_full_disk_at_any_write_leaves_it_whole_or_a_second_try_ends_it(world: World, lines: Lines, tmp_path: Path) -> None:
    kept(world, lines)
    marked(world)
    saved = tmp_path / "saved"
    shutil.copytree(world.folder / "trail", saved)
    for step in range(1, 30):
        left = step
        with world.open() as home:

            def full(_name: str, path: Path) -> None:
                nonlocal left
                left -= 1
                if left == 0:
                    raise StoreFullError(path)

            durable.fault_hook = full
            try:
                expire.remove(home, the_session(home), Act.EXPIRED, "rule 1")
            except StoreFullError:
                pass
            else:
                break
            finally:
                durable.fault_hook = None
            assert verify(home).word == "ok", f"step {step}"
            expire.finish(home)
            for row in home.catalog.sessions():
                assert expire.remove(home, row, Act.EXPIRED, "rule 1") is not None, f"step {step}"
            assert len([name for name in files(world) if ".tmp-" not in name]) == 1, f"step {step}"
        shutil.rmtree(world.folder / "trail")
        shutil.copytree(saved, world.folder / "trail")
    assert step > 8


def test_by_a_damaged_manifest_nothing_expires_but_a_purge_goes_through(world: World, lines: Lines) -> None:
    kept(world, lines)
    marked(world)
    (manifest,) = world.layout.archive.glob("*/*/*.json")
    manifest.write_bytes(manifest.read_bytes().replace(b"rule 1", b"rule 2"))
    with world.open() as home:
        row = the_session(home)
        with pytest.raises(ColdtrailError, match="checksum"):
            expire.remove(home, row, Act.EXPIRED, "rule 1")
        assert [entry.act.value for entry in home.journal.read()] == ["marked"], "what was not done is not told"
        assert purge.purge(home, row, "asked for", live=False).found_in == ()
    assert files(world) == {str(manifest.relative_to(world.layout.home))}


def test_a_tombstone_in_a_damaged_manifest_proves_nothing(world: World, lines: Lines) -> None:
    kept(world, lines)
    marked(world)
    with world.open() as home, pytest.MonkeyPatch.context() as patch:
        patch.setattr(expire, "_drop", lambda *_: None)
        expire.remove(home, the_session(home), Act.EXPIRED, "rule 1")
    (manifest,) = world.layout.archive.glob("*/*/*.json")
    manifest.write_bytes(manifest.read_bytes().replace(b"rule 1", b"rule 2"))
    world.forget_catalog()
    with world.open() as home:
        assert rebuild(home) == []
        assert the_session(home).state == "live"
        assert verify(home).word == "ok"
