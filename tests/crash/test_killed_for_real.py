"""kill -9 of a process that captures and compacts while a log is written: afterwards everything is there, exactly once."""

from __future__ import annotations

import os
import random
import threading
from pathlib import Path

import pytest

from coldtrail.stage.adopt import adopt
from coldtrail.stage.rebuild import differences
from crash.workers import captured, until, working
from crash.working import CAPTURED, RealClock, truth
from world_of import World, assert_sound, chain_bytes, metas

pytestmark = pytest.mark.usefixtures("small")

KILLS = int(os.environ.get("COLDTRAIL_KILLS") or 8)


def test_killed_again_and_again_it_holds_every_byte_once(tmp_path: Path) -> None:
    world, whole, chance = World(tmp_path, RealClock()), truth(), random.Random(1)
    world.main().parent.mkdir()
    at, pause = 0, threading.Event()
    with world.main().open("ab", buffering=0) as log:
        for number in range(KILLS):
            (world.folder / CAPTURED).unlink(missing_ok=True)
            with working(world, writes=False) as process:
                if number:
                    until(lambda: captured(world) > 0, process)
                for _ in range(chance.randrange(5, 40)):
                    length = chance.randrange(1, 3_000)  # as often as not in the middle of a line
                    at += log.write(whole[at : at + length])
                    pause.wait(0.004)
            with world.open() as home:
                assert adopt(home) == []
                assert_sound(home)
                for meta in metas(home):
                    assert whole.startswith(chain_bytes(home, meta))
    assert_all_is_there(world, whole[:at])


def assert_all_is_there(world: World, written: bytes) -> None:
    world.scan()
    world.scan()
    world.compact(cold=True)
    with world.open() as home:
        (meta,) = metas(home)
        assert chain_bytes(home, meta) == written
        assert len(meta.generations) == 1
        assert_sound(home)
        assert differences(home) == ([], [])
