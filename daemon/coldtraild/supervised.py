"""What we owe to a supervisor that starts us again whatever we say: no loop of errors that a restart cannot mend, no endless log file."""

from __future__ import annotations

import fcntl
import os
import stat
import time
from collections.abc import Callable

from coldtrail.errors import ColdtrailError, RefusedError, UsageError

LASTING: tuple[type[ColdtrailError], ...] = (UsageError, RefusedError)  # they end with 2 and 4, and somebody has to do something
WAIT_S = 600.0
LOG_MAX_BYTES = 10 << 20


def wait_out(sleep: Callable[[float], None] = time.sleep) -> None:
    """Stay for a while before ending with a lasting error: whoever starts us again does so at once, and for ever."""
    sleep(WAIT_S)


def cut_log(fd: int, max_bytes: int = LOG_MAX_BYTES) -> bool:
    """Empty the log file behind a descriptor where it has grown beyond `max_bytes`: nobody else does. Gives whether it was.

    A terminal, a pipe or a file that is not appended to is left alone.
    """
    found = os.fstat(fd)
    appends = bool(fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_APPEND)
    if not stat.S_ISREG(found.st_mode) or not appends or found.st_size <= max_bytes:
        return False
    os.ftruncate(fd, 0)
    return True
