"""What earlier crashes have left of a session goes with it when it is purged; what may be another's stays."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from coldtrail.layout import RESTORE_TEMP_PREFIX, TEMP_PREFIX
from coldtrail.stage import purge
from crash.removals import OTHER, begin, holding
from world_of import SESSION, Lines, World, metas

pytestmark = pytest.mark.usefixtures("small")


def test_a_purge_takes_what_unfinished_work_has_left_of_the_session(tmp_path: Path) -> None:
    world = begin(tmp_path)
    for path in leftovers(world):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x" * 100 + world.main().read_bytes() + os.fsencode(world.main()))
    staged = world.layout.store / f"{TEMP_PREFIX}first"
    with world.open() as home:
        (meta,) = [meta for meta in metas(home) if meta.path == str(world.main())]
        shutil.copytree(world.layout.stream(meta.stream), staged / meta.stream)
        done = purge.purge(home, home.catalog.sessions_with_id(SESSION)[0], "asked for", live=False)
    assert done.found_in == ()
    assert holding(world) == []
    assert not staged.exists()
    assert [path for path in leftovers(world) if path.exists()] == []


def leftovers(world: World) -> list[Path]:
    """Where a crash may have left unfinished files."""
    (source,) = world.layout.archive.glob("*/*")
    name = f"{TEMP_PREFIX}0123456789ab"
    temps = [source / name, world.layout.home / name, world.layout.store / name, next(iter(sorted(source.glob("*/*")))) / name]
    restored = f"{RESTORE_TEMP_PREFIX}0123456789ab"
    return [*temps, world.layout.home / restored, world.root.parent / restored]


def test_an_unfinished_file_of_another_session_stays(tmp_path: Path) -> None:
    world = begin(tmp_path)
    other = leftovers(world)[1]
    other.write_bytes(world.main(session=OTHER).read_bytes())
    with world.open() as home:
        purge.purge(home, home.catalog.sessions_with_id(SESSION)[0], "asked for", live=False)
    assert other.exists(), "somebody may be at it"


def test_a_run_of_one_byte_in_a_log_is_no_text_to_be_looked_for(tmp_path: Path) -> None:
    """Torn logs have thousands of NULs in a row, and so has any database."""
    world = World(tmp_path)
    world.write(world.main(), bytes(900) + b"\n" + Lines(world.clock).some(3))
    world.scan()
    with world.open() as home:
        assert purge.purge(home, home.catalog.sessions()[0], "asked for", live=False).found_in == ()
