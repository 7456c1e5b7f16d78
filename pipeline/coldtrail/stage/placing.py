"""Put one file into an agent's folder: nobody sees it before it is whole, and its name appears in one step."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import secrets
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

from coldtrail import durable
from coldtrail.errors import RefusedError
from coldtrail.layout import RESTORE_TEMP_PREFIX

_TEMP = re.compile(re.escape(RESTORE_TEMP_PREFIX) + "[0-9a-f]{12}")  # nobody else names a file so


class Unnamed:
    """A file that has no name in the agent's folders yet."""

    def __init__(self, fd: int, target: Path, temp: Path | None) -> None:
        self._fd, self._target, self._temp = fd, target, temp

    def write(self, data: bytes) -> None:
        """Append bytes."""
        durable.write_all(self._fd, data, self._target)

    def finish(self, mode: int, mtime_ns: int) -> None:
        """Set mode and mtime and make it durable."""
        os.fchmod(self._fd, mode)
        os.utime(self._fd, ns=(mtime_ns, mtime_ns))
        durable.sync_fd(self._fd, self._target)

    def stat(self) -> os.stat_result:
        """How it looks."""
        return os.fstat(self._fd)

    def place(self, *, overwrite: bool) -> None:
        """Give it its name; FileExistsError where something has that name and is not to be overwritten."""
        durable.step("place", self._target)
        if overwrite:
            self._replace()
        elif self._temp is None:
            os.link(f"/proc/self/fd/{self._fd}", self._target, src_dir_fd=self._fd, follow_symlinks=True)  # a dir_fd makes it linkat
        else:
            os.link(self._temp, self._target)
        durable.step("placed", self._target)
        durable.sync_folder(self._target.parent)

    def _replace(self) -> None:
        """Take the place of the file there, in one step."""
        if self._temp is None:
            raise RuntimeError("a file to overwrite with needs a name")
        os.replace(self._temp, self._target)


@contextlib.contextmanager
def unnamed(target: Path, root: Path, home: Path, *, overwrite: bool = False) -> Iterator[Unnamed]:
    """A file to be filled and placed at `target`, on the same device; gone without a trace if the block fails.

    It has no name at all where the system can do that (O_TMPFILE). Elsewhere, and where it is to overwrite, it is named
    in coldtrail's `home`, or in the nearest folder above the agent's `root`: never inside.
    """
    with _folders_for(target):
        temp, fd = None, None if overwrite else _nameless(target.parent)
        if fd is None:
            temp, fd = _held_temp(folder_outside(target.parent, root, home))
        try:
            yield Unnamed(fd, target, temp)
        finally:
            if temp is not None:  # before its lock is dropped: nobody else is to find it stale
                temp.unlink(missing_ok=True)
            os.close(fd)


@contextlib.contextmanager
def _folders_for(target: Path) -> Iterator[None]:
    """The target's folder and its missing parents, for the agent's user alone; those it made go again if the block fails."""
    made: list[Path] = []
    try:
        durable.make_folder(target.parent, made)
        yield
    except BaseException:
        for folder in reversed(made):
            with contextlib.suppress(OSError):  # something is in it, or it has gone
                folder.rmdir()
        raise


def _held_temp(folder: Path) -> tuple[Path, int]:
    """An unfinished file that has a name, and a lock for as long as this process is at it."""
    while True:
        temp = folder / f"{RESTORE_TEMP_PREFIX}{secrets.token_hex(6)}"
        fd = durable.open_temp(temp)
        if _is_held(fd) and _is_at(temp, fd):
            return temp, fd
        os.close(fd)  # somebody who was tidying came between the two


def _is_held(fd: int) -> bool:
    """Take a lock; True too on a file system without locks, on which nothing is ever found stale."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL):
            raise
    return True


def _is_at(path: Path, fd: int) -> bool:
    with contextlib.suppress(FileNotFoundError):
        return os.path.samestat(os.lstat(path), os.fstat(fd))
    return False


def tidy(roots: Iterable[Path], home: Path) -> int:
    """Remove the temps that killed restores have left in coldtrail's `home` and in the folders above `roots`; gives how many."""
    folders = {home, *(parent for root in roots for parent in root.parents)}
    return sum(_remove_stale(path) for folder in sorted(folders) for path in _temps_in(folder))


def _temps_in(folder: Path) -> list[Path]:
    try:
        with os.scandir(folder) as entries:
            return [Path(entry.path) for entry in entries if _TEMP.fullmatch(entry.name)]
    except OSError:  # it is not there, or not for us to look into: so we put nothing there either
        return []


def _remove_stale(temp: Path) -> bool:
    """Remove a temp that nobody is at: its lock went with the process that had made it."""
    try:
        fd = os.open(temp, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:  # a link, or not ours
        return False
    try:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid():
            return False
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not _is_at(temp, fd):
            return False
        durable.remove(temp)
    except OSError:  # somebody is at it, or nobody can tell
        return False
    finally:
        os.close(fd)
    return True


def _nameless(folder: Path) -> int | None:
    flag = getattr(os, "O_TMPFILE", None)
    if flag is None or not os.path.exists("/proc/self/fd"):
        return None
    try:
        with durable.full_disk_told(folder):
            return os.open(folder, os.O_RDWR | flag | os.O_CLOEXEC, durable.FILE_MODE)
    except OSError as error:
        if error.errno in (errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL, errno.ENOENT):
            return None
        raise


def folder_outside(folder: Path, root: Path, home: Path) -> Path:
    """A folder on the same device that no agent looks into; RefusedError where there is none."""
    device = folder.stat().st_dev
    for candidate in (*root.parents, home) if root in home.parents else (home, *root.parents):
        if candidate.is_dir() and candidate.stat().st_dev == device and os.access(candidate, os.W_OK | os.X_OK):
            return candidate
    raise RefusedError(
        f"{folder}: no folder outside {root} on the same device may be written to",
        hint="put COLDTRAIL_HOME on that device, or use --to DIR",
    )
