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
        self._names: dict[str, set[str]] = {}  # by folder
        for path, folders, files in os.walk(folder):
            self._names[path] = {*folders, *files}
            for name in files:
                found = os.stat(os.path.join(path, name))
                self._sizes[found.st_ino] = found.st_size

    def sync(self, fd: int) -> None:
        """In place of os.fsync."""
        found = os.fstat(fd)
        if stat.S_ISDIR(found.st_mode):
            path = os.readlink(f"/proc/self/fd/{fd}")
            self._names[path] = set(os.listdir(path))
        else:
            self._sizes[found.st_ino] = found.st_size

    def cut(self) -> None:
        """The power is gone: names and bytes that nobody synced are lost, but for the catalog's, which SQLite looks after."""
        for path, folders, files in os.walk(self._folder):
            durable = self._names.get(path, set())
            for name in [name for name in folders if name not in durable]:
                shutil.rmtree(os.path.join(path, name))
                folders.remove(name)
            for name in files:
                if not name.startswith("catalog.db"):
                    self._cut_file(os.path.join(path, name), has_name=name in durable)

    def _cut_file(self, path: str, *, has_name: bool) -> None:
        found = os.stat(path)
        if not has_name:
            os.unlink(path)
        elif found.st_size > self._sizes.get(found.st_ino, 0):
            os.truncate(path, self._sizes.get(found.st_ino, 0))
