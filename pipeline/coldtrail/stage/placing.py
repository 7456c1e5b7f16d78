"""Put one file into an agent's folder: nobody sees it before it is whole, and its name appears in one step."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
from collections.abc import Iterator
from pathlib import Path

from coldtrail import durable
from coldtrail.errors import RefusedError
from coldtrail.layout import TEMP_PREFIX


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
    _make_folders(target.parent)
    fd = None if overwrite else _nameless(target.parent)
    temp = None
    if fd is None:
        temp = _folder_outside(target.parent, root, home) / f"{TEMP_PREFIX}restore-{secrets.token_hex(6)}"
        fd = durable.open_temp(temp)
    try:
        yield Unnamed(fd, target, temp)
    finally:
        os.close(fd)
        if temp is not None:
            temp.unlink(missing_ok=True)


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


def _folder_outside(folder: Path, root: Path, home: Path) -> Path:
    """A folder on the same device that no agent looks into; RefusedError where there is none."""
    device = folder.stat().st_dev
    for candidate in (*root.parents, home) if root in home.parents else (home, *root.parents):
        if candidate.is_dir() and candidate.stat().st_dev == device and os.access(candidate, os.W_OK | os.X_OK):
            return candidate
    raise RefusedError(
        f"{folder}: no folder outside {root} on the same device may be written to",
        hint="put COLDTRAIL_HOME on that device, or use --to DIR",
    )


def _make_folders(folder: Path) -> None:
    """The target's folder and its missing parents, for the agent's user alone."""
    durable.make_folder(folder)
