"""Durable writes: old or new and never between, nobody's file overwritten, nobody else's to read, and a full disk said so."""

from __future__ import annotations

import errno
import os
import resource
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from coldtrail import durable
from coldtrail.errors import ColdtrailError, LockedError, StoreFullError
from coldtrail.layout import TEMP_PREFIX


class Killed(BaseException):
    """The process ends here, as far as the test can tell."""


@pytest.fixture
def steps() -> Iterator[list[str]]:
    """The names of the durable steps, as they come."""
    seen: list[str] = []
    durable.fault_hook = lambda name, path: seen.append(name)
    yield seen
    durable.fault_hook = None


@pytest.fixture(params=[0o022, 0o077, 0o000], ids=["umask 022", "umask 077", "umask 000"])
def _umask(request: pytest.FixtureRequest) -> Iterator[None]:
    before = os.umask(request.param)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o7777


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def fails_with(number: int) -> Callable[..., int]:
    def fail(*_: object) -> int:
        raise OSError(number, os.strerror(number))

    return fail


# ---- modes ------------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("_umask")
def test_whatever_is_made_is_for_its_user_alone_whatever_the_umask(tmp_path: Path) -> None:
    target = tmp_path / "a" / "b" / "file"
    durable.replace(target, b"new")
    with durable.unfinished(tmp_path / "c" / "file") as (fd, temp):
        durable.write_all(fd, b"data", temp)
        assert mode(temp) == 0o600
        durable.publish(temp, tmp_path / "c" / "file")
    with durable.locked(tmp_path / "d" / "lock", note=b"1"), open(tmp_path / "e", "wb", opener=durable.private_opener):
        pass
    made = sorted(path for path in tmp_path.rglob("*"))
    assert {str(path.relative_to(tmp_path)): mode(path) for path in made} == {
        "a": 0o700, "a/b": 0o700, "a/b/file": 0o600, "c": 0o700, "c/file": 0o600, "d": 0o700, "d/lock": 0o600, "e": 0o600,
    }  # fmt: skip


def test_a_replaced_file_is_for_its_user_alone_though_the_old_one_was_not(tmp_path: Path) -> None:
    target = tmp_path / "file"
    target.write_bytes(b"old")
    target.chmod(0o644)
    durable.replace(target, b"new")
    assert (mode(target), target.read_bytes()) == (0o600, b"new")


# ---- folders ----------------------------------------------------------------------------------------------------------


def test_a_folder_is_made_with_its_parents_from_the_top_each_durable_before_the_next(tmp_path: Path, steps: list[str]) -> None:
    durable.make_folder(tmp_path / "a" / "b" / "c")
    assert steps == ["make-folder", "sync-folder"] * 3
    durable.make_folder(tmp_path / "a" / "b" / "c")
    assert len(steps) == 6


def test_a_folder_that_another_process_makes_meanwhile_is_taken(tmp_path: Path) -> None:
    durable.fault_hook = lambda name, path: path.mkdir(exist_ok=True) if name == "make-folder" else None
    try:
        durable.make_folder(tmp_path / "a" / "b")
    finally:
        durable.fault_hook = None
    assert (tmp_path / "a" / "b").is_dir()


# ---- append -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def log(tmp_path: Path) -> Iterator[tuple[Path, int]]:
    """A file that holds `held`, open for appending."""
    path = tmp_path / "log"
    path.write_bytes(b"held")
    fd = os.open(path, os.O_RDWR | os.O_APPEND)
    yield path, fd
    os.close(fd)


def test_an_append_is_on_disk_when_it_returns(log: tuple[Path, int], steps: list[str]) -> None:
    path, fd = log
    durable.append(fd, b" and more", path, 4)
    assert path.read_bytes() == b"held and more"
    assert steps == ["append", "sync", "synced"]


def test_a_write_that_takes_only_some_bytes_is_gone_on_with(log: tuple[Path, int], monkeypatch: pytest.MonkeyPatch) -> None:
    path, fd = log
    write = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: write(fd, bytes(data)[:3]))
    durable.append(fd, b" and more", path, 4)
    assert path.read_bytes() == b"held and more"


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EIO])
def test_a_write_that_fails_halfway_is_cut_off_again(log: tuple[Path, int], monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    path, fd = log
    write, fail = os.write, fails_with(number)
    monkeypatch.setattr(os, "write", lambda fd, data: write(fd, bytes(data)[:3]) if path.stat().st_size == 4 else fail())
    with pytest.raises(OSError if number == errno.EIO else StoreFullError):
        durable.append(fd, b" and more", path, 4)
    assert path.read_bytes() == b"held"


def test_a_sync_that_fails_leaves_nothing_that_might_be_taken_for_durable(log: tuple[Path, int], monkeypatch: pytest.MonkeyPatch) -> None:
    path, fd = log
    monkeypatch.setattr(os, "fsync", fails_with(errno.EIO))
    with pytest.raises(OSError, match=os.strerror(errno.EIO)):
        durable.append(fd, b" and more", path, 4)
    assert path.read_bytes() == b"held"


def test_an_interrupted_append_is_cut_off_again(log: tuple[Path, int], monkeypatch: pytest.MonkeyPatch) -> None:
    path, fd = log

    def interrupt(_: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        durable.append(fd, b" and more", path, 4)
    assert path.read_bytes() == b"held"


# ---- replace ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("old", [{}, {"file": b"old"}], ids=["made", "replaced"])
def test_a_file_is_replaced_whole_or_not_at_all_wherever_it_fails(tmp_path: Path, old: dict[str, bytes], steps: list[str]) -> None:
    for name, data in old.items():
        (tmp_path / name).write_bytes(data)
    durable.replace(tmp_path / "file", b"new")
    assert steps == ["temp", "sync", "synced", "rename", "sync-folder"]
    for at in range(len(steps)):
        for path in tmp_path.iterdir():
            path.unlink()
        for name, data in old.items():
            (tmp_path / name).write_bytes(data)
        left = at

        def hook(name: str, path: Path) -> None:
            nonlocal left
            left -= 1
            if left < 0:
                raise Killed

        durable.fault_hook = hook
        with pytest.raises(Killed):
            durable.replace(tmp_path / "file", b"new")
        assert files(tmp_path) == (old if at < 4 else {"file": b"new"}), steps[at]


def test_a_full_disk_while_replacing_is_said_and_the_old_file_and_no_temp_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_bytes(b"old")
    monkeypatch.setattr(os, "write", fails_with(errno.ENOSPC))
    with pytest.raises(StoreFullError, match="no space left") as raised:
        durable.replace(tmp_path / "file", b"new")
    assert files(tmp_path) == {"file": b"old"}
    assert raised.value.hint


# ---- publish ----------------------------------------------------------------------------------------------------------


def finished(target: Path, data: bytes) -> Path:
    """A finished temp beside `target`."""
    temp = durable.temp_beside(target)
    fd = durable.open_temp(temp)
    durable.write_all(fd, data, temp)
    os.close(fd)
    return temp


def test_a_published_file_has_its_name_and_its_temp_is_gone(tmp_path: Path, steps: list[str]) -> None:
    durable.publish(finished(tmp_path / "file", b"data"), tmp_path / "file")
    assert files(tmp_path) == {"file": b"data"}
    assert steps == ["temp", "publish", "published", "sync-folder"]


@pytest.mark.parametrize("there", ["file", "folder", "link", "dangling link"])
def test_publishing_never_takes_a_name_that_something_has(tmp_path: Path, there: str) -> None:
    target = tmp_path / "target"
    (tmp_path / "other").write_bytes(b"other")
    if there == "file":
        target.write_bytes(b"theirs")
    elif there == "folder":
        target.mkdir()
    else:
        target.symlink_to("other" if there == "link" else "nowhere")
    before = (os.path.islink(target), files(tmp_path))
    temp = finished(target, b"ours")
    with pytest.raises(FileExistsError):
        durable.publish(temp, target)
    assert temp.read_bytes() == b"ours"
    temp.unlink()
    assert (os.path.islink(target), files(tmp_path)) == before


def test_unfinished_files_have_names_of_their_own_beside_their_target(tmp_path: Path) -> None:
    temps = {durable.temp_beside(tmp_path / "file") for _ in range(100)}
    assert len(temps) == 100
    assert all(temp.parent == tmp_path and temp.name.startswith(TEMP_PREFIX) for temp in temps)


def test_an_unfinished_file_is_gone_when_its_block_fails_and_stays_when_it_does_not(tmp_path: Path) -> None:
    with pytest.raises(Killed), durable.unfinished(tmp_path / "file"):
        raise Killed
    assert files(tmp_path) == {}
    with durable.unfinished(tmp_path / "file") as (fd, temp):
        durable.write_all(fd, b"data", temp)
    assert files(tmp_path) == {temp.name: b"data"}


def test_a_file_is_removed_and_already_gone_is_done(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    durable.remove(tmp_path / "file")
    durable.remove(tmp_path / "file")
    assert files(tmp_path) == {}


# ---- a full disk ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
@pytest.mark.parametrize("call", ["open", "mkdir", "fsync"])
def test_no_space_is_an_error_of_ours_wherever_the_system_says_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, number: int
) -> None:
    monkeypatch.setattr(os, call, fails_with(number))
    with pytest.raises(StoreFullError):
        durable.replace(tmp_path / "new" / "file", b"data") if call == "mkdir" else durable.replace(tmp_path / "file", b"data")
    monkeypatch.undo()
    assert files(tmp_path) == {}


def test_any_other_trouble_of_the_system_passes_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "write", fails_with(errno.EROFS))
    with pytest.raises(OSError, match=os.strerror(errno.EROFS)) as raised:
        durable.replace(tmp_path / "file", b"data")
    assert not isinstance(raised.value, ColdtrailError)


def test_a_file_beyond_the_allowed_size_is_cut_back_too(tmp_path: Path) -> None:
    """The system's own limit, met by a real write: the process lives, the file is as it was."""
    path = tmp_path / "log"
    path.write_bytes(bytes(1_000))
    code = f"""
import os, resource, signal
from pathlib import Path
from coldtrail import durable
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (5_000, {resource.getrlimit(resource.RLIMIT_FSIZE)[1]}))
fd = os.open({str(path)!r}, os.O_RDWR | os.O_APPEND)
try:
    durable.append(fd, bytes(10_000), Path({str(path)!r}), 1_000)
except OSError as error:
    print(error.errno)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == str(errno.EFBIG)
    assert path.read_bytes() == bytes(1_000)


# ---- locks ------------------------------------------------------------------------------------------------------------


def test_a_lock_that_is_held_is_refused_at_once_where_nobody_waits(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    with durable.locked(lock), pytest.raises(LockedError, match="held by another") as raised, durable.locked(lock, wait=False):
        raise AssertionError("two hold it")
    assert raised.value.exit_code == 4
    with durable.locked(tmp_path / "lock", wait=False):
        pass


def test_a_lock_waits_for_the_process_that_holds_it_and_that_may_die(tmp_path: Path) -> None:
    code = f"""
import sys
from pathlib import Path
from coldtrail import durable
with durable.locked(Path({str(tmp_path / "lock")!r}), note=b"1234567 the first"):
    print("held", flush=True)
    sys.stdin.read()
"""
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"held\n"
        with pytest.raises(LockedError), durable.locked(tmp_path / "lock", wait=False):
            raise AssertionError("two hold it")
        other.kill()
        with durable.locked(tmp_path / "lock", note=b"us"):
            assert (tmp_path / "lock").read_bytes() == b"us"


def test_a_note_left_in_a_lock_file_means_nothing(tmp_path: Path) -> None:
    (tmp_path / "lock").write_bytes(b"%d" % os.getpid())
    with durable.locked(tmp_path / "lock", wait=False):
        assert (tmp_path / "lock").read_bytes() == b"%d" % os.getpid()


def test_a_lock_is_let_go_when_its_block_fails(tmp_path: Path) -> None:
    with pytest.raises(Killed), durable.locked(tmp_path / "lock"):
        raise Killed
    with durable.locked(tmp_path / "lock", wait=False):
        pass
