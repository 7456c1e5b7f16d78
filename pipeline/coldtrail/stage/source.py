"""Open an agent's file for reading only, and say clearly when that fails."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from coldtrail.errors import SourceError
from coldtrail.format.frames import FrameError, decode_foreign

_STEP_BYTES = 1 << 20
_HINTS = {
    PermissionError: "give the user that runs coldtrail the right to read it",
    FileNotFoundError: "it has just gone; what was captured of it is kept",
}


@contextlib.contextmanager
def opened(path: Path) -> Iterator[int]:
    """A descriptor of a regular file; SourceError where there is none to be had."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # a pipe must not make us wait
    except OSError as error:
        raise SourceError(path, error.strerror or str(error), hint=_HINTS.get(type(error), "it is tried again later")) from error
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise SourceError(path, "not a regular file")
        yield fd
    finally:
        os.close(fd)


def head(path: Path, length: int) -> bytes:
    """The first bytes of a file; SourceError where it cannot be read."""
    with opened(path) as fd:
        return os.pread(fd, length, 0)


def decoded(path: Path, fd: int) -> Iterator[bytes]:
    """The content of a file that its agent has compressed; SourceError where it does not decode to its end."""
    try:
        yield from decode_foreign(chunks(fd, _STEP_BYTES))
    except FrameError as error:
        raise SourceError(path, str(error), hint="perhaps it is still being written; it is tried again later") from error


def chunks(fd: int, size: int) -> Iterator[bytes]:
    """A file's bytes from the start, `size` at a time."""
    at = 0
    while data := os.pread(fd, size, at):
        yield data
        at += len(data)
