"""The contract of an archive: what a folder or an object store must do for sealed segments."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from coldtrail.format.frames import ReadAt


class Opened(ReadAt, Protocol):
    """An archived file, open for reading by place; stays readable until closed, even when removed meanwhile."""

    @property
    def label(self) -> str:
        """What to call it in a message."""

    def close(self) -> None:
        """Let it go."""


class Archive(Protocol):
    """Files under keys: `/`-separated names that Layout makes and nothing else.

    A file appears whole or not at all, and is never changed once there, but for `replace`.
    """

    def names(self, key: str) -> list[str]:
        """The names right under a folder's key, sorted; none where there is no such folder."""

    def size(self, key: str) -> int:
        """A file's length in bytes; FileNotFoundError where there is none."""

    def open(self, key: str) -> Opened:
        """A file for reading by place; FileNotFoundError where there is none."""

    def staging(self, key: str) -> Path:
        """A local folder in which a file for `key` may be made before `publish`."""

    def publish(self, temp: Path, key: str) -> None:
        """Give a finished, synced file of `staging` its key; FileExistsError where the key is taken."""

    def supersede(self, temp: Path, key: str) -> None:
        """Put a finished, synced file in the place of the one at `key`, in one step; both must hold the same plain bytes."""

    def replace(self, key: str, data: bytes) -> None:
        """Give a small file new content: old or new, whatever happens."""

    def remove(self, key: str) -> None:
        """Remove a file; already gone is done."""

    def remove_folder(self, key: str) -> None:
        """Remove a folder in which no file is left but unfinished ones, those below it too, durably; already gone is done."""

    def walk(self) -> Iterator[str]:
        """The key of every file there is, for `rebuild` and `verify`."""
