"""Every way to have a file open, for the tests of who has."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.mmap.restype = ctypes.c_void_p
LIBC.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
LIBC.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]


@contextlib.contextmanager
def opened(path: Path, flags: int) -> Iterator[int]:
    fd = os.open(path, flags)
    try:
        yield fd
    finally:
        os.close(fd)


@contextlib.contextmanager
def mapped(path: Path, flags: int, protection: int) -> Iterator[None]:
    """Mapped, and no descriptor left; Python's own mmap keeps one."""
    with opened(path, flags) as fd:
        place = LIBC.mmap(None, 4096, protection, 1, fd, 0)
    assert place not in (None, ctypes.c_void_p(-1).value)
    yield
    LIBC.munmap(place, 4096)


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    with opened(path, os.O_RDONLY) as fd:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield


@contextlib.contextmanager
def sent(path: Path) -> Iterator[None]:
    """Open in a message that nobody has received."""
    here, there = socket.socketpair()
    with here, there:
        with opened(path, os.O_WRONLY) as fd:
            socket.send_fds(here, [b"x"], [fd])
        yield


@contextlib.contextmanager
def by_another_name(path: Path) -> Iterator[None]:
    other = path.with_name("other")
    os.link(path, other)
    with opened(other, os.O_WRONLY | os.O_APPEND):
        yield


@contextlib.contextmanager
def by_a_process(path: Path, *prefix: str) -> Iterator[None]:
    command = [*prefix, "sh", "-c", 'exec 3>>"$1" && echo open && read -r end', "sh", str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"open\n"
        yield
        process.communicate()


WAYS: dict[str, Callable[[Path], contextlib.AbstractContextManager[object]]] = {
    "a writer that appends": lambda path: opened(path, os.O_WRONLY | os.O_APPEND),
    "a reader": lambda path: opened(path, os.O_RDONLY),
    "a map that may be written to": lambda path: mapped(path, os.O_RDWR, 3),
    "a map to read": lambda path: mapped(path, os.O_RDONLY, 1),
    "a lock": locked,
    "a message in a socket": sent,
    "a writer by another name": by_another_name,
    "another process": by_a_process,
}
