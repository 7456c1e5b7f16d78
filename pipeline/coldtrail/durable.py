"""Writes that survive a crash: every step that can be the last one goes through here."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import os
import secrets
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from coldtrail.errors import LockedError, StoreFullError
from coldtrail.layout import TEMP_PREFIX

DIR_MODE = 0o700
FILE_MODE = 0o600

# Called before and after each durable step with its name and path; tests kill the process in it.
fault_hook: Callable[[str, Path], None] | None = None


def step(name: str, path: Path) -> None:
    """Tell the fault hook, if there is one, that a durable step is about to happen or just has."""
    if fault_hook is not None:
        fault_hook(name, path)


_local = threading.local()


@contextlib.contextmanager
def unsynced() -> Iterator[None]:
    """In the block this thread syncs nothing: it writes what has no final name yet, and calls `sync_all` before it gives it one."""
    _local.unsynced = True
    try:
        yield
    finally:
        _local.unsynced = False


def sync_all(folder: Path) -> None:
    """Make everything below a folder durable at once, names and bytes."""
    step("sync-all", folder)
    with full_disk_told(folder):
        _sync_below(folder)
    step("synced-all", folder)


def move_folder(folder: Path, target: Path) -> None:
    """Give a folder its final name, which must be free; durable once the folders that hold both names are synced."""
    step("rename", target)
    os.rename(folder, target)


def _sync_below(folder: Path) -> None:
    """By one call for the whole file system where there is one (Linux), else file by file."""
    syncfs = getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        if syncfs is not None:
            if syncfs(fd) != 0:
                number = ctypes.get_errno()
                raise OSError(number, os.strerror(number), str(folder))
            return
    finally:
        os.close(fd)
    for below, _, names in os.walk(folder, topdown=False):
        for path in (*(Path(below) / name for name in names), Path(below)):
            _sync_path(path)


def _sync_path(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        sync_fd(fd, path)
    finally:
        os.close(fd)


@contextlib.contextmanager
def full_disk_told(path: Path) -> Iterator[None]:
    """Turn ENOSPC and EDQUOT into StoreFullError; every other OSError passes."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise StoreFullError(path) from error
        raise


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable."""
    if getattr(_local, "unsynced", False):
        return
    step("sync-folder", folder)
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def sync_fd(fd: int, path: Path) -> None:
    """Make a file's bytes durable (on macOS through the drive's own cache too)."""
    if getattr(_local, "unsynced", False):
        return
    step("sync", path)
    with full_disk_told(path):
        if hasattr(fcntl, "F_FULLFSYNC"):
            try:
                fcntl.fcntl(fd, fcntl.F_FULLFSYNC)
            except OSError:  # some file systems have none
                os.fsync(fd)
        else:
            os.fsync(fd)
    step("synced", path)


def make_folder(folder: Path, made: list[Path] | None = None) -> None:
    """Make a folder of ours and its missing parents, 0700 and durable; each that did not exist is added to `made`."""
    missing = []
    while not folder.is_dir():
        missing.append(folder)
        folder = folder.parent
    for each in reversed(missing):
        step("make-folder", each)
        with full_disk_told(each), contextlib.suppress(FileExistsError):
            os.mkdir(each, DIR_MODE)
            if made is not None:
                made.append(each)
        sync_folder(each.parent)


def write_all(fd: int, data: bytes | memoryview, path: Path) -> None:
    """Write every byte; a write may take only some of them."""
    view = memoryview(data)
    with full_disk_told(path):
        while view:
            view = view[os.write(fd, view) :]


def append(fd: int, data: bytes, path: Path, end: int) -> None:
    """Append and sync; where that fails the file is cut back to `end`, so that nothing torn is left."""
    step("append", path)
    try:
        write_all(fd, data, path)
        sync_fd(fd, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.ftruncate(fd, end)
        raise


def temp_beside(target: Path) -> Path:
    """A name for an unfinished file in the target's folder."""
    return target.with_name(f"{TEMP_PREFIX}{secrets.token_hex(6)}")


def open_temp(temp: Path) -> int:
    """Make an unfinished file, 0600; gives its descriptor."""
    step("temp", temp)
    with full_disk_told(temp):
        return os.open(temp, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE)


@contextlib.contextmanager
def unfinished(target: Path) -> Iterator[tuple[int, Path]]:
    """A temp file beside `target`, open for writing; removed if the block fails."""
    make_folder(target.parent)
    temp = temp_beside(target)
    fd = open_temp(temp)
    try:
        yield fd, temp
    except BaseException:
        temp.unlink(missing_ok=True)
        raise
    finally:
        os.close(fd)


def replace(target: Path, data: bytes) -> None:
    """Give a file new content: it has the old or the new one, whatever happens."""
    with unfinished(target) as (fd, temp):
        write_all(fd, data, temp)
        sync_fd(fd, temp)
        step("rename", target)
        os.replace(temp, target)
    sync_folder(target.parent)


def replace_unsynced(target: Path, data: bytes, mode: int = FILE_MODE) -> None:
    """The same at once and whole for what is not worth a sync, and in a folder that is there. OSError."""
    temp = temp_beside(target)
    fd = os.open(temp, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    try:
        write_all(fd, data, temp)
        os.fchmod(fd, mode)
    except BaseException:
        temp.unlink(missing_ok=True)
        raise
    finally:
        os.close(fd)
    os.replace(temp, target)


def publish(temp: Path, target: Path) -> None:
    """Give a finished, synced temp its final name; FileExistsError where that name is taken."""
    step("publish", target)
    os.link(temp, target)
    step("published", target)
    temp.unlink()
    sync_folder(target.parent)


def supersede(temp: Path, target: Path) -> None:
    """Put a finished, synced temp in the place of a file; who has that open goes on reading it."""
    step("supersede", target)
    os.replace(temp, target)
    step("superseded", target)
    sync_folder(target.parent)


def remove(path: Path) -> None:
    """Remove a file; already gone is done."""
    step("remove", path)
    path.unlink(missing_ok=True)
    step("removed", path)


def files_below(folder: Path, prefix: str = "") -> Iterator[Path]:
    """Every file below a folder whose name begins with `prefix`; what others remove meanwhile is passed over."""
    for place, _, names in os.walk(folder):
        yield from (Path(place, name) for name in names if name.startswith(prefix))


@contextlib.contextmanager
def locked(path: Path, *, wait: bool = True, note: bytes = b"") -> Iterator[None]:
    """Hold a flock on `path` for the block; LockedError where it is taken and `wait` is False.

    The kernel drops the lock with the process, so a stale file means nothing. `note` is written into it for people.
    """
    make_folder(path.parent)
    with full_disk_told(path):
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise LockedError(f"{path}: held by another process", hint="wait for it, or stop it") from error
        if note:
            os.ftruncate(fd, 0)
            os.pwrite(fd, note, 0)
        yield
    finally:
        os.close(fd)


@contextlib.contextmanager
def locked_fd(fd: int) -> Iterator[None]:
    """Hold a flock on an open file for the block, waiting for it."""
    fcntl.flock(fd, fcntl.LOCK_EX)
    try:
        yield
    finally:
        fcntl.flock(fd, fcntl.LOCK_UN)


def private_opener(path: str, flags: int) -> int:
    """For `open(..., opener=)`: a file that is made is 0600."""
    return os.open(path, flags | os.O_CLOEXEC, FILE_MODE)
