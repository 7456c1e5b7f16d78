"""Without power at any step of a removal: a session is there, whole, or it is gone and stays so; and what was purged is in no file."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from coldtrail import durable
from coldtrail.stage import expire, purge, thin
from coldtrail.stage.rebuild import differences
from coldtrail.stage.verify import verify
from crash.image import Image
from crash.killing import chosen, dies_at, noted, steps_of, then_step
from crash.removals import (
    EXPIRE,
    PRUNE,
    PURGE,
    PURGE_LIVE,
    SECRET,
    Removal,
    begin,
    held,
    holding,
    is_gone,
    lose,
    put_back,
    removed,
    start,
    unpacked,
)
from world_of import SESSION, World, chain_bytes, metas

pytestmark = [
    pytest.mark.usefixtures("small"),
    pytest.mark.skipif(not os.path.exists("/proc/self/fd"), reason="what is synced is read by /proc"),
]


each_disk = pytest.mark.parametrize("some", [False, True], ids=["nothing unsynced", "some of it"])


def disk_of(step: int, *, some: bool) -> Callable[[Path], Image]:
    """One on which nothing has happened that was not synced, or only some of it."""
    return lambda folder: Image(folder, random.Random(step) if some else None)


@each_disk
@pytest.mark.parametrize("catalog", ["kept", "behind", "lost"])
@pytest.mark.parametrize("removal", [EXPIRE, PRUNE, PURGE, PURGE_LIVE], ids=str)
def test_without_power_at_any_step_it_is_there_whole_or_gone_for_good(removal: Removal, catalog: str, some: bool, tmp_path: Path) -> None:
    world = begin(tmp_path / "world")
    with world.open() as home:
        before = held(home)
    saved = tmp_path / "saved"
    shutil.copytree(world.folder, saved, symlinks=True)
    steps, gone = steps_of(lambda: removed(world, removal)), 0
    for step in chosen(len(steps)):
        put_back(world, saved)
        with noted(f"no power at step {step} of {len(steps)}, {steps[step - 1]}"):
            assert dies_at(step, lambda: removed(world, removal), power=world.folder, disk=disk_of(step, some=some))
            lose(world, catalog, saved)
            start(world, scan=removal.live)
            gone += is_gone(world, before)
            removed(world, removal)
            start(world, scan=removal.live)
            assert is_gone(world, before)
            if removal in (PURGE, PURGE_LIVE):
                assert holding(world) == []
    assert gone


# ---- twice, and what else is left ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("catalog", ["kept", "lost"])
@pytest.mark.parametrize("removal", [EXPIRE, PURGE], ids=str)
def test_killed_first_and_then_without_power_it_is_gone_for_good_all_the_same(removal: Removal, catalog: str, tmp_path: Path) -> None:
    """What the killed run has not synced, the next one has to; and no catalog says of a file that it is gone before that is durable."""
    world = begin(tmp_path / "world")
    with world.open() as home:
        before = held(home)
    saved = tmp_path / "saved"
    shutil.copytree(world.folder, saved, symlinks=True)
    steps = steps_of(lambda: removed(world, removal))
    for step in chosen(len(steps), 2):
        for second in (1, 4, 8, 16, 1_000):
            put_back(world, saved)
            with noted(f"no power at step {step} of {len(steps)}, {steps[step - 1]}, then at step {second}"):
                assert dies_at(second, lambda step=step: killed(world, removal, step, catalog), power=world.folder, disk=Image)  # type: ignore[misc]
                start(world)
                removed(world, removal)
                start(world)
                assert is_gone(world, before)
                if removal is PURGE:
                    assert holding(world) == []


class KilledError(Exception):
    """Stands for the end of a process, which syncs nothing."""


def killed(world: World, removal: Removal, step: int, catalog: str) -> None:
    """A removal that is killed, and the start behind it."""
    left, hook = step, durable.fault_hook

    def kill(_name: str, _path: Path) -> None:
        nonlocal left
        left -= 1
        if not left:
            raise KilledError

    durable.fault_hook = kill
    with contextlib.suppress(KilledError):
        removed(world, removal)
    durable.fault_hook = hook
    lose(world, catalog, world.folder)
    start(world, scan=False)
    for _ in range(1_000):
        durable.step("it is over", world.folder)


# ---- older versions -------------------------------------------------------------------------------------------------------


@each_disk
def test_without_power_at_any_step_of_thinning_what_stays_is_whole(some: bool, tmp_path: Path) -> None:
    def thinned() -> None:
        with world.open() as home:
            thin.thin(home, 1)

    def versions() -> list[bytes]:
        with world.open() as home:
            assert verify(home).word == "ok"
            assert differences(home) == ([], [])
            return held(home)[world.companion()]

    world = begin(tmp_path / "world")
    with world.open() as home:
        expire.lift(home, home.catalog.sessions_with_id(SESSION)[0])
        before = held(home)
    saved = tmp_path / "saved"
    shutil.copytree(world.folder, saved, symlinks=True)
    steps = steps_of(thinned)
    for step in chosen(len(steps)):
        for catalog in ("kept", "behind", "lost"):
            put_back(world, saved)
            with noted(f"no power at step {step} of {len(steps)}, {steps[step - 1]}, the catalog {catalog}"):
                assert dies_at(step, thinned, power=world.folder, disk=disk_of(step, some=some))
                lose(world, catalog, saved)
                start(world)
                assert versions() in (before[world.companion()], before[world.companion()][1:])
                thinned()
                start(world)
                assert versions() == before[world.companion()][1:]
                with world.open() as home:
                    assert {path: each[-1:] for path, each in held(home).items()} == {path: each[-1:] for path, each in before.items()}
                assert [path for path in world.layout.home.rglob("*.zst") if SECRET + b", says" in unpacked(path)] == []


# ---- let it be captured again ---------------------------------------------------------------------------------------------


def test_without_power_at_any_step_what_was_purged_may_be_captured_again_or_not_and_then_it_may(tmp_path: Path) -> None:
    def forgotten() -> None:
        with world.open() as home:
            for grave in home.catalog.graves()[:1]:
                purge.forget(home, grave.session)

    world = begin(tmp_path / "world")
    live = world.live()
    removed(world, PURGE)
    saved = tmp_path / "saved"
    shutil.copytree(world.folder, saved, symlinks=True)
    steps = [*steps_of(forgotten), "the end"]
    for step in range(1, len(steps) + 1):
        for catalog in ("kept", "behind", "lost"):
            put_back(world, saved)
            with noted(f"no power at step {step} of {len(steps)}, {steps[step - 1]}, the catalog {catalog}"):
                assert dies_at(step, then_step(forgotten, world.folder), power=world.folder, disk=Image)
                lose(world, catalog, saved)
                start(world)
                with world.open() as home:
                    assert verify(home).word == "ok"
                    again = bool(home.catalog.sessions_with_id(SESSION))
                if steps[step - 1] == "the end" and catalog != "behind":  # what SQLite has lost of it is asked for again
                    assert again, "it was said to be done"
                forgotten()
                start(world)
                with world.open() as home:
                    assert {Path(meta.path): chain_bytes(home, meta) for meta in metas(home)} == live
