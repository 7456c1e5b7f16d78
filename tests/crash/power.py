"""What a power cut leaves of a folder: only what was synced, names by their folder, bytes by their file."""

from __future__ import annotations

import os
import shutil
import stat
from pathlib import Path


class Ledger:
    """Stands in for fsync from now on, and knows what it would have made durable; what is there when it begins is."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._sizes: dict[int, int] = {}  # by inode
        self._names: dict[int, set[str]] = {}  # by the folder's inode, for a folder may get another name
        self.sync_all(folder)

    def sync_all(self, folder: Path) -> None:
        """In place of a sync of everything below a folder."""
        for path, folders, files in os.walk(folder):
            self._names[os.stat(path).st_ino] = {*folders, *files}
            for name in files:
                found = os.lstat(os.path.join(path, name))
                self._sizes[found.st_ino] = found.st_size

    def sync(self, fd: int) -> None:
        """In place of os.fsync."""
        found = os.fstat(fd)
        if stat.S_ISDIR(found.st_mode):
            self._names[found.st_ino] = set(os.listdir(fd))
        else:
            self._sizes[found.st_ino] = found.st_size

    def cut(self) -> None:
        """The power is gone: names and bytes that nobody synced are lost, but for the catalog's, which SQLite looks after."""
        for path, folders, files in os.walk(self._folder):
            durable = self._names.get(os.stat(path).st_ino, set())
            for name in [name for name in folders if name not in durable]:
                shutil.rmtree(os.path.join(path, name))
                folders.remove(name)
            for name in files:
                if not name.startswith("catalog.db"):
                    self._cut_file(os.path.join(path, name), has_name=name in durable)

    def _cut_file(self, path: str, *, has_name: bool) -> None:
        found = os.lstat(path)
        if not has_name:
            os.unlink(path)
        elif stat.S_ISREG(found.st_mode) and found.st_size > self._sizes.get(found.st_ino, 0):
            os.truncate(path, self._sizes.get(found.st_ino, 0))
