"""What the strictest disk has after a power cut: nothing that was not synced has happened, an unlink or a rename no more than a write."""

from __future__ import annotations

import os
import random
import shutil
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

Names = dict[str, int]  # of a folder: each name and the inode that it leads to
CATALOG = "catalog.db"


class Image:
    """Stands in for fsync from now on, and keeps what it would have made durable; what is there when it begins is.

    `chance`: None, and nothing else has happened; else the names of some folders, and the bytes of some files, came to the disk in
    time by themselves. The catalog's files stay as they are: SQLite looks after them.
    """

    def __init__(self, folder: Path, chance: random.Random | None = None) -> None:
        self._chance = chance
        self._folder, self._grave = folder, folder.with_name(f"{folder.name}.unlinked")
        self._names: dict[int, Names] = {}  # by the folder's inode
        self._bytes: dict[int, bytes] = {}  # by the file's
        self._links: dict[int, str] = {}  # where a link leads
        self._held: dict[int, int] = {}  # descriptors of folders, so that no other one gets their inode
        self._count = 0
        shutil.rmtree(self._grave, ignore_errors=True)  # of an earlier work, which came to its end
        self._grave.mkdir()
        self.sync_all(folder)
        self._keep_inodes()

    def sync_all(self, folder: Path) -> None:
        """In place of a sync of everything below a folder."""
        for path, _, files in os.walk(folder):
            self._sync_names(path)
            for each in map(Path(path).joinpath, files):
                if not each.is_symlink() and each.is_file() and not each.name.startswith(CATALOG):
                    self._bytes[each.stat().st_ino] = each.read_bytes()

    def sync(self, fd: int) -> None:
        """In place of os.fsync."""
        found, path = os.fstat(fd), f"/proc/self/fd/{fd}"
        if stat.S_ISDIR(found.st_mode):
            self._sync_names(path)
        elif stat.S_ISREG(found.st_mode):
            self._bytes[found.st_ino] = Path(path).read_bytes()

    def _sync_names(self, path: str) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        inode = os.fstat(fd).st_ino
        self._names[inode] = self._now(fd)
        os.close(fd) if inode in self._held else self._held.setdefault(inode, fd)

    def _now(self, folder: int | str) -> Names:
        names: Names = {}
        with os.scandir(folder) as entries:
            for entry in entries:
                names[entry.name] = entry.inode()
                if entry.is_symlink():
                    self._links[entry.inode()] = os.readlink(entry.name, dir_fd=folder) if isinstance(folder, int) else os.readlink(entry)
        return names

    def _keep_inodes(self) -> None:
        """From now on the last name of a file is taken away by giving it another one, elsewhere: its bytes may be asked for again."""
        unlink, rename, replace = self._real = os.unlink, os.rename, os.replace

        def put_away(path: Any, dir_fd: int | None) -> bool:
            found = os.stat(path, dir_fd=dir_fd, follow_symlinks=False)
            if stat.S_ISDIR(found.st_mode) or found.st_nlink > 1 or os.path.basename(os.fsdecode(path)).startswith(CATALOG):
                return False
            self._count += 1
            rename(path, self._grave / str(self._count), src_dir_fd=dir_fd)
            return True

        def unlinked(path: Any, *, dir_fd: int | None = None) -> None:
            if not put_away(path, dir_fd):
                unlink(path, dir_fd=dir_fd)

        def moved(do: Callable[..., None]) -> Callable[..., None]:
            def move(old: Any, new: Any, **more: Any) -> None:
                if os.path.isfile(new) and not os.path.samefile(old, new):
                    put_away(new, None)
                do(old, new, **more)

            return move

        os.unlink = os.remove = unlinked
        os.rename, os.replace = moved(rename), moved(replace)

    # ---- the cut --------------------------------------------------------------------------------------------------------

    def cut(self) -> None:
        """The power is gone: the folder is made anew as the disk has it."""
        os.unlink, os.rename, os.replace = self._real
        os.remove = os.unlink
        os.closerange(3, os.sysconf("SC_OPEN_MAX"))  # with the process its leases go: else it would wait for itself
        now = {os.stat(path).st_ino: self._now(path) for path, _, _ in os.walk(self._folder)}
        there = self._where()
        fresh = self._folder.with_name(f"{self._folder.name}.fresh")
        self._make(fresh, self._folder.stat().st_ino, now, there)
        for path in self._folder.rglob(f"{CATALOG}*"):
            (fresh / path.relative_to(self._folder)).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(path, fresh / path.relative_to(self._folder))
        shutil.rmtree(self._grave)
        shutil.rmtree(self._folder)
        os.rename(fresh, self._folder)

    def _where(self) -> dict[int, Path]:
        """Some name of each file that there is."""
        found: dict[int, Path] = {}
        for top in (self._folder, self._grave):
            for path, _, files in os.walk(top):
                for each in map(Path(path).joinpath, files):
                    if not each.is_symlink():
                        found.setdefault(each.lstat().st_ino, each)
        return found

    def _make(self, target: Path, inode: int, now: dict[int, Names], there: dict[int, Path]) -> None:
        target.mkdir(mode=0o700)
        names = self._names.get(inode, {})
        if self._lucky():
            names = now.get(inode, names)
        for name, each in names.items():
            if name.startswith(CATALOG):
                continue
            if each in self._names or each in now:
                self._make(target / name, each, now, there)
            elif each in self._links:
                os.symlink(self._links[each], target / name)
            elif each in there:
                self._make_file(target / name, each, there)

    def _make_file(self, target: Path, inode: int, there: dict[int, Path]) -> None:
        found, durable = there[inode].stat(), self._bytes.get(inode, b"")
        os.link(there[inode], target)
        if target.read_bytes() != durable and not self._lucky():
            target.write_bytes(durable)
            os.utime(target, ns=(found.st_atime_ns, found.st_mtime_ns))

    def _lucky(self) -> bool:
        return self._chance is not None and self._chance.random() < 0.5
