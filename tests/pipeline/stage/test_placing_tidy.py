"""Temps of killed restores: recognised by name and lock, removed by whoever comes next, and nothing else ever is."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from coldtrail import durable
from coldtrail.layout import TEMP_PREFIX
from coldtrail.stage.placing import tidy, unnamed
from pipeline.stage.places import Place


def killed_in(place: Place, *, placed: bool = False) -> Path:
    """A restore that was to overwrite a file and was killed; gives its temp."""
    code = f"""
import os, signal
from pathlib import Path
from coldtrail.stage.placing import unnamed
with unnamed(Path({str(place.target)!r}), Path({str(place.root)!r}), Path({str(place.home)!r}), overwrite=True) as file:
    file.write(b"ours")
    file.finish(0o640, 1_000_000_000)
    if {placed}:
        os.link(file._temp, {str(place.target)!r})
    os.kill(os.getpid(), signal.SIGKILL)
"""
    assert subprocess.run([sys.executable, "-c", code], timeout=60, check=False).returncode == -9
    (temp,) = (path for folder in (place.home, place.folder) for path in folder.glob(f"{TEMP_PREFIX}restore-*"))
    return temp


@pytest.mark.parametrize("placed", [False, True])
@pytest.mark.parametrize("where", ["home", "above the root"])
def test_the_temp_of_a_killed_restore_is_removed_and_what_it_has_placed_stays(place: Place, where: str, placed: bool) -> None:
    temp = killed_in(place, placed=placed)
    if where == "above the root":
        temp = temp.rename(place.folder / temp.name)
    assert tidy([place.root], place.home) == 1
    assert place.files() == ({"agent/projects/-p/log.jsonl": b"ours"} if placed else {})
    assert not temp.exists()


def test_the_temp_of_a_restore_that_goes_on_is_left_alone(place: Place) -> None:
    """Its mtime may be that of a log of years ago."""
    place.target.write_bytes(b"theirs")
    with unnamed(place.target, place.root, place.home, overwrite=True) as file:
        file.write(b"ours")
        file.finish(0o600, 1_000_000_000)
        assert tidy([place.root], place.home) == 0
        file.place(overwrite=True)
    assert place.target.read_bytes() == b"ours"


@pytest.mark.parametrize(
    "name",
    [
        "restore-0123456789ab", ".tmp-restore-", ".tmp-restore-0123456789a", ".tmp-restore-0123456789abc", ".tmp-restore-0123456789aB",
        ".tmp-restore-0123456789ab.jsonl", "x.tmp-restore-0123456789ab", ".tmp-0123456789ab",
    ],
)  # fmt: skip
def test_a_file_of_any_other_name_is_nobody_elses_business(place: Place, name: str) -> None:
    for folder in (place.home, place.folder):
        (folder / name).write_bytes(b"theirs")
    before = place.files()
    assert tidy([place.root], place.home) == 0
    assert place.files() == before


@pytest.mark.parametrize("what", ["folder", "link", "pipe", "in the root", "beside the root"])
def test_what_only_has_the_name_of_a_temp_stays(place: Place, what: str) -> None:
    folder = {"in the root": place.root, "beside the root": place.folder / "other"}.get(what, place.folder)
    folder.mkdir(exist_ok=True)
    temp = folder / f"{TEMP_PREFIX}restore-0123456789ab"
    if what == "folder":
        temp.mkdir()
    elif what == "link":
        (place.folder / "theirs").write_bytes(b"theirs")
        temp.symlink_to(place.folder / "theirs")
    elif what == "pipe":
        os.mkfifo(temp)
    else:
        temp.write_bytes(b"theirs")
    assert tidy([place.root], place.home) == 0
    assert os.path.lexists(temp)


def test_who_tidies_between_the_making_of_a_temp_and_its_lock_takes_nothing_away(place: Place) -> None:
    place.target.write_bytes(b"theirs")
    made: list[Path] = []
    open_temp = durable.open_temp

    def tidied_at_once(temp: Path) -> int:
        fd = open_temp(temp)
        made.append(temp)
        if len(made) == 1:
            assert tidy([place.root], place.home) == 1
        return fd

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(durable, "open_temp", tidied_at_once)
        place.put(overwrite=True)
    assert len(made) == 2
    assert place.files() == {"agent/projects/-p/log.jsonl": b"ours"}
