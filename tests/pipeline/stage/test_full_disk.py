"""A full disk: the agent's files are untouched, nothing half made is left, and everything goes on when there is space again."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from coldtrail.catalog import Catalog
from coldtrail.errors import StoreFullError
from coldtrail.layout import TEMP_PREFIX
from coldtrail.stage.restore import Passed
from coldtrail.stage.scan import Scanner
from pipeline.stage.places import put_back, run_with_mounts, the_session, the_stream
from world_of import Lines, World, assert_sound, chain_bytes, compact, generation_bytes, metas

Fill = Callable[[int], None]


@pytest.fixture
def full(monkeypatch: pytest.MonkeyPatch) -> Fill:
    """Lets the disk be full from the n-th write on, half of which still fits."""
    write = os.write

    def fill(number: int) -> None:
        left = number

        def writing(fd: int, data: bytes | memoryview) -> int:
            nonlocal left
            left -= 1
            if left < 0:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return write(fd, data if left else memoryview(data)[: (len(data) + 1) // 2])

        monkeypatch.setattr(os, "write", writing)

    return fill


def ours(world: World) -> list[str]:
    """The unfinished files that lie anywhere."""
    return [path.name for path in world.folder.rglob(TEMP_PREFIX + "*")]


@pytest.mark.parametrize("number", range(5))
def test_capture_says_so_and_goes_on_when_there_is_space(
    world: World, lines: Lines, full: Fill, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    world.write(world.main(), lines.some(5))
    world.write(world.companion(), b"output")
    live = world.live()
    with world.open() as home:
        scanner = Scanner(home)
        full(number)
        with pytest.raises(StoreFullError):
            scanner.scan(world.sources)
        monkeypatch.undo()
        assert world.live() == live
        assert ours(world) == []
        scanner.scan(world.sources)
        assert {Path(meta.path): chain_bytes(home, meta) for meta in metas(home)} == live
        assert [len(meta.generations) for meta in metas(home)] == [1, 1]
        assert_sound(home)


@pytest.mark.parametrize(("change", "number"), [("grown", 0), ("grown", 1), ("rewritten", 0), ("rewritten", 1), ("rewritten", 2)])
def test_what_a_log_got_meanwhile_is_captured_once_there_is_space(
    world: World, lines: Lines, full: Fill, monkeypatch: pytest.MonkeyPatch, change: str, number: int
) -> None:
    world.write(world.main(), lines.some(5))
    world.scan()
    before = world.main().read_bytes()
    with world.open() as home:
        scanner = Scanner(home)
        for attempt in range(3):
            world.clock.tick(60_000)
            (world.append if change == "grown" else world.write)(world.main(), lines.line(root=True) + lines.some(3))
            full(number if attempt == 0 else 0)
            with pytest.raises(StoreFullError):
                scanner.scan(world.sources)
            monkeypatch.undo()
        scanner.scan(world.sources)
        meta = the_stream(home)
        assert [each.number for each in meta.generations] == ([0] if change == "grown" else [0, 1]), "tries leave no lives behind"
        if change == "rewritten":
            assert b"".join(data for _, data in home.plain(meta, 0).read()) == before
        assert chain_bytes(home, meta) == world.main().read_bytes()
        assert_sound(home)


@pytest.mark.parametrize("number", range(5))
def test_compaction_leaves_everything_as_it_was(
    world: World, lines: Lines, full: Fill, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    world.write(world.main(), lines.some(50))
    world.scan()
    with world.open() as home:
        full(number)
        with pytest.raises(StoreFullError):
            compact(home, cold=True)
        monkeypatch.undo()
        assert ours(world) == []
        assert_sound(home)
        assert chain_bytes(home, the_stream(home)) == world.main().read_bytes()
        compact(home, cold=True)
        assert_sound(home)
        assert chain_bytes(home, the_stream(home)) == world.main().read_bytes()


@pytest.mark.parametrize("number", range(2))
def test_a_restore_puts_nothing_half_there(world: World, lines: Lines, full: Fill, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    world.write(world.main(), lines.some(50))
    world.scan()
    data = world.main().read_bytes()
    shutil.rmtree(world.main().parent)
    world.scan()
    with world.open() as home:
        full(number)
        failed = put_back(home)
        monkeypatch.undo()
        assert world.main() in [done.path for done in failed]
        for done in failed:
            assert isinstance(done, Passed)
            assert done.failed
            assert "no space" in done.why
        assert not list((world.root / "projects").rglob("*.*"))
        put_back(home)
    assert world.main().read_bytes() == data


def test_a_catalog_that_cannot_grow_is_a_full_disk_too(world: World, lines: Lines) -> None:
    world.write(world.main(), lines.some(3))
    world.scan()
    with world.open() as home:
        (pages,) = home.catalog._db.execute("PRAGMA page_count").fetchone()
        home.catalog._db.execute(f"PRAGMA max_page_count = {pages}")
        for number in range(100):
            world.write(world.main("-p", f"s{number}"), Lines(world.clock, f"s{number}").some(2))
        scanner = Scanner(home)
        with pytest.raises(StoreFullError, match=r"catalog\.db"):
            scanner.scan(world.sources)
        home.catalog._db.execute(f"PRAGMA max_page_count = {1 << 20}")
        scanner.scan(world.sources)
        assert len(home.catalog.sessions()) == 101
        assert len(list(home.store.streams())) == 101, "no file is two streams"
        assert_sound(home)


def test_a_log_that_the_catalog_had_no_space_for_is_not_two_streams_later(
    world: World, lines: Lines, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(catalog: Catalog, row: object) -> None:
        raise StoreFullError(world.layout.catalog)

    world.write(world.main(), lines.some(3))
    with monkeypatch.context() as patched:
        patched.setattr(Catalog, "put", full)
        with pytest.raises(StoreFullError):
            world.scan()
    world.scan()
    with world.open() as home:
        assert [generation_bytes(home, meta, 0) for meta in metas(home)] == [world.main().read_bytes()]


_ON_A_SMALL_DISK = """
import os, subprocess, sys
from pathlib import Path
from coldtrail.catalog import Catalog
from coldtrail.errors import StoreFullError
from world_of import Lines, World, assert_sound, chain_bytes, metas
world = World(Path(sys.argv[1]))
disk = world.layout.home
disk.mkdir()
subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", disk], check=True)
filler = os.urandom(5000).hex().encode()
for number in range(200):
    line = Lines(world.clock, f"s{number}").line()
    world.write(world.main("-p", f"s{number}"), line + b'{"filler":"' + filler[number:] + b'"}\\n')
live, stopped = world.live(), 0
for size in ("1m", "1500k", "2m", "40m"):
    subprocess.run(["mount", "-o", f"remount,size={size}", disk], check=True)
    try:
        world.scan()
    except StoreFullError:
        stopped += 1
assert world.live() == live
with world.open() as home:
    assert {Path(meta.path): chain_bytes(home, meta) for meta in metas(home)} == live
    assert len(home.catalog.sessions()) == len(list(home.store.streams())) == len(live)
    assert_sound(home)
print(stopped, [path.name for path in disk.rglob(".tmp-*")])
"""


def test_on_a_real_disk_that_is_full_capture_stops_and_goes_on_with_the_space(tmp_path: Path) -> None:
    done = run_with_mounts(_ON_A_SMALL_DISK, str(tmp_path))
    assert done.stdout.strip() == "3 []", done.stderr


_ON_A_FULL_DISK = """
import subprocess, sys
from pathlib import Path
from coldtrail.catalog import Catalog
from coldtrail.errors import StoreFullError
from world_of import Lines, World
world = World(Path(sys.argv[1]))
disk = world.layout.home
disk.mkdir()
subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", disk], check=True)
world.write(world.main(), Lines(world.clock).some(3))
world.scan()
if sys.argv[2] == "lost":
    world.forget_catalog()
with open(disk / "filler", "ab", buffering=0) as file:
    try:
        while file.write(bytes(4096)):
            pass
    except OSError:
        pass
try:
    world.open().close()
except StoreFullError as error:
    print(error)
(disk / "filler").unlink()
world.open().close()
"""


@pytest.mark.parametrize("catalog", ["there", "lost"])
def test_a_catalog_that_a_full_disk_keeps_from_being_opened_is_not_called_damaged(catalog: str, tmp_path: Path) -> None:
    done = run_with_mounts(_ON_A_FULL_DISK, str(tmp_path), catalog)
    assert "catalog.db: no space left on device" in done.stdout, done.stderr
    assert done.returncode == 0, done.stderr


def test_the_session_is_still_listed_while_the_disk_is_full(world: World, lines: Lines, full: Fill) -> None:
    world.write(world.main(), lines.some(3))
    world.scan()
    full(0)
    with world.open() as home:
        assert the_session(home).row.records == 3
        assert b"".join(the_session(home).raw()) == world.main().read_bytes()
