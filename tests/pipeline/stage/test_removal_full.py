"""A disk that is really full: what is kept can still be listed, and removed, so that there is space again; nothing is lost by trying."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.stage.places import run_with_mounts

_SCENE = """
import os, shutil, subprocess, sys
from pathlib import Path
from coldtrail import reserve
from coldtrail.config import Retention, Rule
from coldtrail.errors import StoreFullError
from coldtrail.format.wishes import Act
from coldtrail.layout import Layout
from coldtrail.stage import expire, prune, purge, reclaim, thin, wish
from coldtrail.stage.verify import verify
from pipeline.stage import places
from world_of import SESSION, Lines, World, compact, metas

folder, where = Path(sys.argv[1]), sys.argv[2]
OTHER = "22222222-2222-4333-8444-555555555555"
DAY = 86_400_000

class Away(World):
    @property
    def layout(self):
        return Layout.at(self.folder / "trail", None if where == "one disk" else self.folder / "archive")

world = Away(folder)
disks = [world.layout.home] if where == "one disk" else [world.layout.home, world.layout.archive]
for disk in disks:
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=32m", "none", disk], check=True)
for session in (SESSION, OTHER):
    lines = Lines(world.clock, session)
    world.append(world.main(session=session), lines.some(40))
    world.write(world.companion(session=session), os.urandom(30_000))
    world.scan()
    world.write(world.companion(session=session), os.urandom(30_000))
    world.scan()
world.clock.tick(10_000)
world.compact(cold=True)
with world.open() as home:
    reserve.keep(world.layout, home.host)

def row_of(home, session=SESSION):
    return home.catalog.sessions_with_id(session)[0]

def fill():
    for disk in disks:
        places.fill(disk)
        assert os.statvfs(disk).f_bavail == 0

def left(session):
    with world.open() as home:
        return [meta for meta in metas(home) if meta.session_id == session]
"""

_PLACES = pytest.mark.parametrize("where", ["one disk", "the archive's disk"])


def run(tmp_path: Path, where: str, code: str) -> str:
    done = run_with_mounts(_SCENE + code, str(tmp_path), where)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@_PLACES
def test_a_home_on_a_full_disk_can_be_opened_and_read_again_and_again(where: str, tmp_path: Path) -> None:
    code = """
fill()
for _ in range(40):
    with world.open() as home:
        assert len(home.catalog.sessions()) == 2
    fill()
"""
    run(tmp_path, where, code)


@_PLACES
def test_what_is_marked_is_removed_and_there_is_space_again(where: str, tmp_path: Path) -> None:
    code = """
policy = Retention(rules=(Rule(keep_within_ms=1),), grace_ms=DAY, most_per_pass_percent=100)
def retain(home):
    found = prune.plan(home, policy, {"claude-code"}, force=True)
    return [(each.decision.verdict.value, each.passed, each.freed > 0) for each in prune.carry_out(home, found)]
fill()
world.clock.tick(DAY)
with world.open() as home:
    print(retain(home))
fill()
world.clock.tick(2 * DAY)
with world.open() as home:
    print(retain(home))
    assert verify(home).word == "ok"
    assert home.catalog.sessions() == []
assert left(SESSION) == left(OTHER) == []
assert [path for disk in disks for path in disk.rglob("*.jsonl.zst")] == []
print(sum(os.statvfs(disk).f_bavail for disk in disks) > 0)
world.scan()
with world.open() as home:
    assert [row.state for row in home.catalog.sessions()] == []
    assert [entry.act.value for entry in home.journal.read()] == ["marked"] * 2 + ["expired"] * 2
"""
    assert run(tmp_path, where, code).split("\n") == [
        "[('expire', '', False), ('expire', '', False)]",
        "[('remove', '', True), ('remove', '', True)]",
        "True",
    ]


@_PLACES
def test_a_purge_goes_through_and_nothing_of_it_is_found(where: str, tmp_path: Path) -> None:
    code = """
fill()
with world.open() as home:
    done = purge.purge(home, row_of(home), "asked for", live=False)
    print(done.freed > 0, done.found_in, done.scrubbed)
    assert [row.id for row in home.catalog.sessions()] == [OTHER]
    assert verify(home).word == "ok"
"""
    assert run(tmp_path, where, code) == "True () True"


@_PLACES
def test_older_versions_go_and_wishes_are_kept(where: str, tmp_path: Path) -> None:
    code = """
fill()
with world.open() as home:
    wish.set_pin(home, row_of(home), pinned=True)
    wish.set_tags(home, row_of(home), add=["mine"])
fill()
with world.open() as home:
    told = []
    print(thin.thin(home, 1, told.append) > 0, [each.passed for each in told])
    assert [row.pinned for row in home.catalog.sessions()].count(1) == 1
    assert verify(home).word == "ok"
"""
    assert run(tmp_path, where, code) == "True ['']"


def test_a_reclaim_sets_aside_and_removes(tmp_path: Path) -> None:
    code = """
for path in world.live():
    assert path.stat().st_nlink == 1
world.clock.tick(90 * DAY)
world.scan()
fill()
with world.open() as home:
    terms = reclaim.Terms(30 * DAY, 0)
    print([reclaim.reclaim(home, row.key, terms).act.value for row in home.catalog.sessions()])
assert world.live() == {}
with world.open() as home:
    assert verify(home).word == "ok"
    assert all(row.gone_ms is not None for row in home.catalog.all_streams())
"""
    assert run(tmp_path, "one disk", code) == "['reclaimed', 'reclaimed']"


def test_the_reserve_comes_back_with_the_space(tmp_path: Path) -> None:
    code = """
def kept():
    return sum(path.stat().st_size for path in (world.layout.reserve).iterdir())
whole = kept()
fill()
with world.open() as home:
    purge.purge(home, row_of(home), "asked for", live=False)
(world.layout.home / "filler").unlink()
world.open().close()
print(whole == reserve.FILES * reserve.FILE_BYTES == kept())
"""
    assert run(tmp_path, "one disk", code) == "True"


def test_without_a_reserve_it_is_said_and_nothing_is_lost(tmp_path: Path) -> None:
    code = """
with world.open() as home:
    shutil.rmtree(world.layout.reserve)
    row = row_of(home)
    held = {path: path.read_bytes() for path in world.layout.home.rglob("*.zst")}
    fill()
    try:
        purge.purge(home, row, "asked for", live=False)
    except StoreFullError as error:
        print(error)
    assert {path: path.read_bytes() for path in world.layout.home.rglob("*.zst")} == held
(world.layout.home / "filler").unlink()
with world.open() as home:
    assert verify(home).word == "ok"
    assert purge.purge(home, row_of(home), "asked for", live=False).found_in == ()
"""
    assert "no space left on device" in run(tmp_path, "one disk", code)


def test_no_reserve_is_made_where_space_is_short_or_the_archive_is_not_mounted(tmp_path: Path) -> None:
    code = """
for path in disks:
    shutil.rmtree(path / "reserve", ignore_errors=True)
    shutil.rmtree(path / ".reserve", ignore_errors=True)
with world.open() as home:
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=32m", "none", world.layout.archive], check=True)
    reserve.keep(world.layout, home.host)
    print(list(world.layout.archive.iterdir()), len(list(world.layout.reserve.iterdir())) == reserve.FILES)
    subprocess.run(["umount", world.layout.archive], check=True)
    shutil.rmtree(world.layout.reserve)
    fill()
    reserve.keep(world.layout, home.host)
    print(world.layout.reserve.exists())
"""
    assert run(tmp_path, "the archive's disk", code) == "[] True\nFalse"
