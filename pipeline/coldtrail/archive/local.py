"""An archive in a folder."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from coldtrail import durable
from coldtrail.filesource import FileSource
from coldtrail.format.frames import Work
from coldtrail.layout import TEMP_PREFIX


class LocalArchive:
    """Keys are paths under one folder; see Archive for what each call does."""

    def __init__(self, folder: Path, work: Work | None = None) -> None:
        self._folder, self._work = folder, work or Work()

    def names(self, key: str) -> list[str]:
        try:
            return sorted(name for name in os.listdir(self._path(key)) if not name.startswith(TEMP_PREFIX))
        except FileNotFoundError:
            return []

    def size(self, key: str) -> int:
        return self._path(key).stat().st_size

    def open(self, key: str) -> FileSource:
        return FileSource(self._path(key), self._work)

    def staging(self, key: str) -> Path:
        folder = self._path(key).parent
        durable.make_folder(folder)
        return folder

    def publish(self, temp: Path, key: str) -> None:
        durable.publish(temp, self._path(key))

    def supersede(self, temp: Path, key: str) -> None:
        durable.supersede(temp, self._path(key))

    def replace(self, key: str, data: bytes) -> None:
        durable.replace(self._path(key), data)

    def remove(self, key: str) -> None:
        durable.remove(self._path(key))

    def remove_folder(self, key: str) -> None:
        top = self._path(key)
        for folder, _, files in os.walk(top, topdown=False):
            for name in files:
                if name.startswith(TEMP_PREFIX):  # an interrupted write has left it
                    durable.remove(Path(folder) / name)
            durable.step("remove", Path(folder))
            os.rmdir(folder)
        if top.parent.is_dir():
            durable.sync_folder(top.parent)

    def walk(self) -> Iterator[str]:
        for folder, folders, files in os.walk(self._folder):
            folders[:] = sorted(name for name in folders if not name.startswith("."))  # no key's: see Layout.archive_reserve
            for name in sorted(files):
                if not name.startswith(TEMP_PREFIX):
                    yield (Path(folder) / name).relative_to(self._folder).as_posix()

    def _path(self, key: str) -> Path:
        parts = key.split("/")
        if any(part in ("", ".", "..") for part in parts):
            raise ValueError(f"not a key: {key!r}")
        return self._folder.joinpath(*parts)
