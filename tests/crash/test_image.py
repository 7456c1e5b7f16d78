"""The strictest disk: what it keeps of each kind of change that nobody has synced."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from coldtrail import durable
from crash.image import Image
from crash.killing import dies_at, then_step

pytestmark = pytest.mark.skipif(not os.path.exists("/proc/self/fd"), reason="what is synced is read by /proc")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """With a file, a link, and a folder that has a file."""
    (tmp_path / "a" / "sub").mkdir(parents=True)
    (tmp_path / "a" / "file").write_bytes(b"old")
    (tmp_path / "a" / "sub" / "below").write_bytes(b"below")
    (tmp_path / "a" / "link").symlink_to("file")
    return tmp_path / "a"


def tree(folder: Path) -> dict[str, bytes | str | None]:
    return {
        str(path.relative_to(folder)): os.readlink(path) if path.is_symlink() else path.read_bytes() if path.is_file() else None
        for path in folder.rglob("*")
    }


def cut_after(folder: Path, work: Callable[[], object]) -> None:
    assert dies_at(1, then_step(work, folder), power=folder, disk=Image)
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]


def replaced(folder: Path) -> None:
    (folder / "new").write_bytes(b"new")
    os.replace(folder / "new", folder / "file")


def made(folder: Path) -> None:
    (folder / "made").mkdir()
    (folder / "made" / "file").write_bytes(b"new")


def made_again(folder: Path) -> None:
    (folder / "file").unlink()
    (folder / "file").write_bytes(b"new")


def appended(folder: Path) -> None:
    with (folder / "file").open("ab") as file:
        file.write(b" and new")


CHANGES: dict[str, Callable[[Path], object]] = {
    "an unlink": lambda folder: os.unlink(folder / "file"),
    "a link that is unlinked": lambda folder: os.unlink(folder / "link"),
    "a tree that is removed": lambda folder: shutil.rmtree(folder / "sub"),
    "a rename": lambda folder: (folder / "file").rename(folder / "other"),
    "a rename into another folder": lambda folder: (folder / "file").rename(folder / "sub" / "file"),
    "a replace": replaced,
    "an append": appended,
    "a new folder with a file": made,
    "a second name": lambda folder: os.link(folder / "file", folder / "second"),
    "a file made again under its name": made_again,
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_what_nobody_synced_has_not_happened(folder: Path, change: Callable[[Path], object]) -> None:
    before, inode = tree(folder), (folder / "file").stat().st_ino
    cut_after(folder, lambda: change(folder))
    assert tree(folder) == before
    assert (folder / "file").stat().st_ino == inode


@pytest.mark.parametrize("name", ["an unlink", "a link that is unlinked", "a tree that is removed", "a rename", "a second name"])
def test_what_its_folder_was_synced_behind_has(folder: Path, name: str) -> None:
    other = folder.with_name("b")
    shutil.copytree(folder, other, symlinks=True)
    CHANGES[name](other)
    expected = tree(other)
    shutil.rmtree(other)

    def work() -> None:
        CHANGES[name](folder)
        durable.sync_folder(folder)

    killed = cut_after_last(folder, work)
    assert killed
    assert tree(folder) == expected


def cut_after_last(folder: Path, work: Callable[[], object]) -> bool:
    """`sync_folder` is a step of its own."""
    return dies_at(2, then_step(work, folder), power=folder, disk=Image)


def test_a_replaced_file_is_the_old_one_or_the_new_one(folder: Path) -> None:
    seen = set()
    for step in range(1, 20):
        (folder / "file").write_bytes(b"old")
        if not dies_at(step, lambda: durable.replace(folder / "file", b"new"), power=folder, disk=Image):
            break
        seen.add((folder / "file").read_bytes())
    assert seen == {b"old"}, "the last step is the sync itself"
    assert (folder / "file").read_bytes() == b"new"
