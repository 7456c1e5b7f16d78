"""Reserve: disk space that is held back on each disk of ours, so that on a full one sessions can still be found, and removed."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from coldtrail import durable
from coldtrail.errors import StoreFullError
from coldtrail.layout import Layout

FILES = 16  # inodes may be short, too
FILE_BYTES = 256 << 10  # all of them: what the removal of a session of 2,000 files writes before the first of its bytes goes
_NAMES = tuple(f"{number:02d}" for number in range(FILES))
_AMPLE = 4  # it is held back at first where there is so many times as much
_Made = TypeVar("_Made")


def keep(layout: Layout, host: str) -> None:
    """Hold space back where there is plenty. Of another disk than the home's only if that has the archive of `host`: else it is away."""
    _keep(layout.reserve)
    archive = layout.archive / host
    if archive.is_dir() and archive.stat().st_dev != layout.home.stat().st_dev:
        _keep(layout.archive_reserve)


def spend(layout: Layout, work: Callable[[], _Made]) -> _Made:
    """Do some work; on a full disk once more with the reserve let go, of which afterwards as much as fits is held back again.

    The work may be done twice: the second time ends what the first has begun. StoreFullError where that does not suffice either.
    """
    try:
        return work()
    except StoreFullError:
        if not _let_go(layout):
            raise
    try:
        return work()
    finally:
        refill(layout)


def refill(layout: Layout) -> None:
    """Hold as much back as fits, where space is held back at all."""
    for folder in (layout.reserve, layout.archive_reserve):
        if folder.is_dir():
            _fill(folder)


def _let_go(layout: Layout) -> bool:
    """Whether there was anything to let go."""
    count = 0
    for folder in (layout.reserve, layout.archive_reserve):
        for path in map(folder.joinpath, _NAMES):
            with contextlib.suppress(OSError):  # one that is not there, mostly
                path.unlink()
                count += 1
    return count > 0


def _keep(folder: Path) -> None:
    with contextlib.suppress(OSError, StoreFullError):  # it is no fault to have none
        found = os.statvfs(folder.parent)
        if folder.is_dir() or found.f_bavail * found.f_frsize >= _AMPLE * FILES * FILE_BYTES:
            durable.make_folder(folder)
            _fill(folder)


def _fill(folder: Path) -> None:
    """Add the files that are missing, each of them whole. No sync: what a crash loses of them is made again."""
    for path in map(folder.joinpath, _NAMES):
        try:
            fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, durable.FILE_MODE)
        except FileExistsError:
            continue
        except OSError:
            return
        try:
            durable.write_all(fd, os.urandom(FILE_BYTES), path)  # zeros take no space where the file system compresses
        except (OSError, StoreFullError):
            path.unlink(missing_ok=True)
            return
        finally:
            os.close(fd)
