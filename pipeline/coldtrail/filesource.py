"""A file of ours, read by place: no position is shared, nothing is mapped."""

from __future__ import annotations

import os
from pathlib import Path
from types import TracebackType
from typing import Self

from coldtrail.format.frames import Work


class FileSource:
    """An open file of which every read names its place; its size is that of the moment it was opened."""

    def __init__(self, path: Path, work: Work | None = None) -> None:
        self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self.label = str(path)
        self.size = os.fstat(self._fd).st_size
        self._work = work or Work()
        self._work.files_opened += 1

    def read_at(self, offset: int, length: int) -> bytes:
        """Bytes from `offset` on, fewer than `length` only at the end."""
        parts, left = [], min(length, self.size - offset)
        while left > 0 and (part := os.pread(self._fd, left, offset)):
            parts.append(part)
            offset, left = offset + len(part), left - len(part)
        data = parts[0] if len(parts) == 1 else b"".join(parts)
        self._work.bytes_read += len(data)
        return data

    def forget_cached(self) -> None:
        """Let what is read next come from the disk itself, where the system can do that."""
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(self._fd, 0, 0, os.POSIX_FADV_DONTNEED)

    def close(self) -> None:
        """Let the file go."""
        os.close(self._fd)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        self.close()
