"""Putting a file into an agent's folder: whole at once, nobody's overwritten unasked, and never a trace of an attempt."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from coldtrail import durable
from coldtrail.errors import RefusedError, StoreFullError
from coldtrail.layout import TEMP_PREFIX
from coldtrail.stage.placing import Unnamed, unnamed
from pipeline.stage.places import MTIME_NS, Place


def without_tmpfile(monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    """A system, or a file system, on which a file cannot be without a name."""
    if how == "no such flag":
        monkeypatch.delattr(os, "O_TMPFILE", raising=False)
    else:
        open_ = os.open
        flag = getattr(os, "O_TMPFILE", 0)

        def refusing(path: object, flags: int, mode: int = 0o777, **more: int) -> int:
            if flag and flags & flag == flag:
                raise OSError(getattr(errno, how), os.strerror(getattr(errno, how)))
            return open_(path, flags, mode, **more)  # type: ignore[arg-type]

        monkeypatch.setattr(os, "open", refusing)


HAS_TMPFILE = hasattr(os, "O_TMPFILE") and os.path.exists("/proc/self/fd")


@pytest.fixture(params=["nameless", "named"])
def _way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ways of doing it."""
    if request.param == "named":
        without_tmpfile(monkeypatch, "no such flag")
    elif not HAS_TMPFILE:
        pytest.skip("this system has no O_TMPFILE")


both_ways = pytest.mark.usefixtures("_way")


@both_ways
def test_a_file_appears_whole_with_its_mode_and_time(place: Place) -> None:
    place.put(b"bytes\0\r\n\xff")
    assert place.files() == {"agent/projects/-p/log.jsonl": b"bytes\0\r\n\xff"}
    found = place.target.stat()
    assert (found.st_mode & 0o7777, found.st_mtime_ns, found.st_nlink) == (0o640, MTIME_NS, 1)


@both_ways
def test_nothing_is_in_the_agents_folder_before_it_is_whole(place: Place) -> None:
    with unnamed(place.target, place.root, place.home) as file:
        for at in range(3):
            file.write(b"x" * 100)
            assert list(place.root.rglob("*.*")) == [], at
        file.finish(0o600, MTIME_NS)
        assert [path for path in place.root.rglob("*") if path.is_file()] == []
        file.place(overwrite=False)
        assert place.target.read_bytes() == b"x" * 300


@both_ways
def test_the_folders_on_the_way_are_made_for_the_user_alone(place: Place) -> None:
    place.target.parent.rmdir()
    place.put()
    assert place.target.parent.stat().st_mode & 0o7777 == 0o700
    assert place.target.read_bytes() == b"ours"


@both_ways
@pytest.mark.parametrize("there", ["file", "folder", "dangling link"])
def test_a_name_that_something_has_is_never_taken(place: Place, there: str) -> None:
    if there == "file":
        place.target.write_bytes(b"theirs")
    elif there == "folder":
        place.target.mkdir()
    else:
        place.target.symlink_to("nowhere")
    before = (place.files(), os.path.islink(place.target))
    with pytest.raises(FileExistsError):
        place.put()
    assert (place.files(), os.path.islink(place.target)) == before


@both_ways
def test_a_file_is_overwritten_in_one_step_when_that_is_asked_for(place: Place) -> None:
    place.target.write_bytes(b"theirs")
    with place.target.open("rb") as reading:
        place.put(overwrite=True)
        assert reading.read() == b"theirs", "who has it open goes on reading what it was"
    assert place.files() == {"agent/projects/-p/log.jsonl": b"ours"}
    assert place.target.stat().st_mtime_ns == MTIME_NS


@both_ways
def test_a_file_to_overwrite_with_is_named_in_our_home_until_then(place: Place) -> None:
    place.target.write_bytes(b"theirs")
    with unnamed(place.target, place.root, place.home, overwrite=True) as file:
        file.write(b"ours")
        (temp,) = place.home.iterdir()
        assert temp.name.startswith(f"{TEMP_PREFIX}restore-")
        assert temp.stat().st_mode & 0o7777 == 0o600
        assert place.target.read_bytes() == b"theirs"
    assert place.files() == {"agent/projects/-p/log.jsonl": b"theirs"}


@both_ways
def test_folders_made_for_a_file_that_is_not_placed_go_with_it_and_no_other(place: Place) -> None:
    place.target.parent.rmdir()
    place.target.parent.parent.rmdir()
    with pytest.raises(Stopped), unnamed(place.target, place.root, place.home):
        raise Stopped
    assert list(place.root.iterdir()) == []
    with pytest.raises(Stopped), unnamed(place.target, place.root, place.home):
        stop_at("in use", place.target.parent.parent)
    assert [path.name for path in place.root.rglob("*")] == ["projects", "somebody's"], "what is in use stays"
    with pytest.raises(Stopped), unnamed(place.target.parent.parent / "log", place.root, place.home):
        raise Stopped
    assert place.target.parent.parent.is_dir(), "it was there before"


@pytest.mark.parametrize("fails", [1, 2, 3])
def test_folders_go_too_where_not_all_could_be_made(place: Place, monkeypatch: pytest.MonkeyPatch, fails: int) -> None:
    mkdir, count = os.mkdir, 0

    def full(path: Path, mode: int) -> None:
        nonlocal count
        count += 1
        if count == fails:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
        mkdir(path, mode)

    monkeypatch.setattr(os, "mkdir", full)
    with pytest.raises(StoreFullError), unnamed(place.root / "a" / "b" / "c" / "log", place.root, place.home):
        raise AssertionError("it began")
    assert [path.name for path in place.root.iterdir()] == ["projects"]


class Stopped(BaseException):
    """Whatever may end the work."""


@both_ways
@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("after", ["opened", "written", "finished"])
def test_a_file_that_is_not_placed_is_gone_without_a_trace(place: Place, after: str, overwrite: bool) -> None:
    before = open_files()
    with pytest.raises(Stopped), unnamed(place.target, place.root, place.home, overwrite=overwrite) as file:
        stop_at(after, file)
    assert place.files() == {}
    assert open_files() == before


def stop_at(after: str, file: Unnamed | Path) -> None:
    if isinstance(file, Path):
        (file / "somebody's").mkdir()
    elif after != "opened":
        file.write(b"ours")
    if after == "finished" and isinstance(file, Unnamed):
        file.finish(0o600, MTIME_NS)
    raise Stopped


def open_files() -> int:
    return len(os.listdir("/proc/self/fd")) if os.path.exists("/proc/self/fd") else 0


@both_ways
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_leaves_nothing_behind(place: Place, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    def full(_fd: int, _data: object) -> int:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(StoreFullError):
        place.put()
    monkeypatch.undo()
    assert place.files() == {}


@pytest.mark.skipif(not HAS_TMPFILE, reason="this system has no O_TMPFILE")
def test_a_nameless_file_of_a_killed_process_is_gone(place: Place) -> None:
    code = f"""
import os, signal
from pathlib import Path
from coldtrail.stage.placing import unnamed
with unnamed(Path({str(place.target)!r}), Path({str(place.root)!r}), Path({str(place.home)!r})) as file:
    file.write(b"x" * 100_000)
    os.kill(os.getpid(), signal.SIGKILL)
"""
    done = subprocess.run([sys.executable, "-c", code], timeout=60, check=False)
    assert done.returncode == -9
    assert place.files() == {}


# ---- where there is no file without a name ----------------------------------------------------------------------------


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Path]]:
    """The temps that are made."""
    seen: list[Path] = []
    durable.fault_hook = lambda name, path: seen.append(path) if name == "temp" else None
    yield seen
    durable.fault_hook = None


@pytest.mark.parametrize("how", ["no such flag", "EOPNOTSUPP", "EISDIR", "EINVAL"])
def test_where_the_system_makes_no_nameless_file_the_temp_lies_in_our_home(
    place: Place, monkeypatch: pytest.MonkeyPatch, opened: list[Path], how: str
) -> None:
    without_tmpfile(monkeypatch, how)
    place.put()
    (temp,) = opened
    assert temp.parent == place.home
    assert place.files() == {"agent/projects/-p/log.jsonl": b"ours"}


def test_where_our_home_is_on_another_device_it_lies_in_the_nearest_folder_above_the_root(
    place: Place, monkeypatch: pytest.MonkeyPatch, opened: list[Path]
) -> None:
    without_tmpfile(monkeypatch, "no such flag")
    on_another_device(place.home, monkeypatch)
    place.put()
    (temp,) = opened
    assert temp.parent == place.folder
    assert place.files() == {"agent/projects/-p/log.jsonl": b"ours"}


def on_another_device(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stat = Path.stat

    def elsewhere(path: Path, **options: bool) -> os.stat_result:
        found = stat(path, **options)
        return os.stat_result([*found[:2], found.st_dev + 1, *found[3:]]) if path == folder else found

    monkeypatch.setattr(Path, "stat", elsewhere)


def test_a_folder_that_may_not_be_written_to_is_passed_over(place: Place, monkeypatch: pytest.MonkeyPatch, opened: list[Path]) -> None:
    without_tmpfile(monkeypatch, "no such flag")
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != place.home)
    place.put()
    (temp,) = opened
    assert temp.parent == place.folder


def test_where_no_folder_outside_the_root_can_hold_it_it_is_refused_with_a_way_out(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    without_tmpfile(monkeypatch, "no such flag")
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(RefusedError, match="no folder outside") as raised:
        place.put()
    assert "COLDTRAIL_HOME" in raised.value.hint
    assert place.files() == {}


def test_a_home_inside_the_agents_root_is_no_place_for_a_temp(place: Place, monkeypatch: pytest.MonkeyPatch, opened: list[Path]) -> None:
    inside = place.root / "trail"
    inside.mkdir()
    without_tmpfile(monkeypatch, "no such flag")
    with unnamed(place.target, place.root, inside) as file:
        file.finish(0o600, MTIME_NS)
        file.place(overwrite=False)
    (temp,) = opened
    assert place.root not in temp.parents


@pytest.mark.skipif(not HAS_TMPFILE, reason="this system has no O_TMPFILE")
def test_any_other_trouble_with_a_nameless_file_is_told(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    without_tmpfile(monkeypatch, "EROFS")
    with pytest.raises(OSError, match=os.strerror(errno.EROFS)):
        place.put()
    monkeypatch.undo()
    without_tmpfile(monkeypatch, "ENOSPC")
    with pytest.raises(StoreFullError):
        place.put()
