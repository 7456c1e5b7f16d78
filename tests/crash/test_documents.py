"""A file that is rewritten whole: whenever coldtrail is killed, what it holds of it are contents that the file had."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from coldtrail.home import Home
from coldtrail.stage.adopt import adopt
from coldtrail.stage.rebuild import differences
from coldtrail.stage.restore import Passed, Wish, carry_out, plan_restore
from coldtrail.stage.verify import verify
from crash.killing import dies_at, steps_of
from crash.scenarios import LONG_OUTPUT
from pipeline.stage.places import flip_bit
from world_of import Lines, World, assert_sound, generation_bytes, metas

pytestmark = pytest.mark.usefixtures("small")

OLD = LONG_OUTPUT[:20_000]
NEW = bytes(reversed(LONG_OUTPUT))


def world_before(folder: Path, *, held: bytes | None) -> World:
    """A session of which everything is captured, and then its companion has other content: `held`, then NEW."""
    world = World(folder)
    world.write(world.main(), Lines(world.clock).some(3))
    if held is not None:
        world.write(world.companion(), held)
    world.scan()
    world.clock.tick(60_000)
    world.write(world.companion(), NEW)
    return world


def contents(home: Home) -> list[bytes]:
    """What is held of each generation of the companion."""
    return [generation_bytes(home, meta, each.number) for meta in metas(home) if not meta.is_log for each in meta.generations]


def restored(home: Home, to: Path) -> bytes | None:
    """What a restore writes of the companion."""
    for session in home.catalog.sessions():
        done = list(carry_out(home, plan_restore(home, session, Wish(to=to))))
        assert not [each for each in done if isinstance(each, Passed) and each.failed]
    return next((path.read_bytes() for path in to.rglob("t1.txt")), None)


@pytest.mark.parametrize("held", [None, OLD], ids=["met for the first time", "rewritten"])
def test_killed_at_any_step_only_whole_contents_are_held_and_restored(tmp_path: Path, held: bytes | None) -> None:
    steps = steps_of(world_before(tmp_path / "reference", held=held).scan)
    assert len(steps) > 10
    whole = {held, NEW} - {None}
    for step in range(1, len(steps) + 1):
        world = world_before(tmp_path / str(step), held=held)
        assert dies_at(step, world.scan), steps[step - 1]
        with world.open() as home:
            assert set(contents(home)) <= whole | {b""}, steps[step - 1]
            assert restored(home, tmp_path / f"{step}-before") in whole | {None, b""}, steps[step - 1]
            assert adopt(home) == []
            assert set(contents(home)) <= whole | {b""}, steps[step - 1]
            assert_sound(home)
        kept = world.companion().read_bytes()
        shutil.rmtree(world.companion().parent)
        world.scan()
        with world.open() as home:
            assert set(contents(home)) <= whole | {b""}, steps[step - 1]
            assert restored(home, tmp_path / f"{step}-gone") in whole | {None, b""}, steps[step - 1]
        world.write(world.companion(), kept)
        world.scan()
        with world.open() as home:
            assert contents(home)[-1] == NEW
            assert restored(home, tmp_path / f"{step}-after") == NEW
            assert differences(home) == ([], [])


def test_killed_while_a_damaged_copy_is_captured_anew_only_whole_contents_are_held(tmp_path: Path) -> None:
    def damaged(folder: Path) -> World:
        world = world_before(folder, held=None)
        world.scan()
        (segment,) = [path for path in world.layout.store.rglob("*.open.jsonl.zst") if path.stat().st_size > 2_000]
        flip_bit(segment, 300)
        with world.open() as home:
            (row,) = [row for row in home.catalog.all_streams() if not row.is_log]
            assert verify(home).word == "bad"
            assert home.catalog.stream(row.stream).check_due  # type: ignore[union-attr]
        return world

    steps = steps_of(damaged(tmp_path / "reference").scan)
    for step in range(1, len(steps) + 1):
        world = damaged(tmp_path / str(step))
        assert dies_at(step, world.scan), steps[step - 1]
        with world.open() as home:
            held = [
                b"".join(data for _, data in home.plain(meta, each.number).read(gaps=[]))
                for meta in metas(home)
                if not meta.is_log
                for each in meta.generations[1:]
            ]
            assert set(held) <= {b"", NEW}, steps[step - 1]
        world.scan()
        with world.open() as home:
            assert restored(home, tmp_path / f"{step}-after") == NEW


def test_a_long_content_is_one_segment_that_a_stock_reader_takes(tmp_path: Path) -> None:
    world = world_before(tmp_path, held=OLD)
    world.scan()
    with world.open() as home:
        (meta,) = [meta for meta in metas(home) if not meta.is_log]
        assert [str(name) for name in home.store.open_names(meta.stream, 1)] == ["0000000000000000.open.jsonl.zst"]
        assert home.store.last_stamp(meta, 1).end == len(NEW)
    for _ in range(2):
        world.compact(cold=True)
        with world.open() as home:
            assert contents(home) == [OLD, NEW]
            assert_sound(home)
