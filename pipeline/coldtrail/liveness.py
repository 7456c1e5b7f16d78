"""Is a program still running that says it is at a session? Asked without disturbing it."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path


def is_alive(pid: int) -> bool:
    """Whether there is a process of that number, whosever; another program's that was given it again counts too."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return True


def is_locked(path: Path) -> bool:
    """Whether somebody has a flock on a file; no lock is waited for, and none is kept. True too where that cannot be told."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(fd)
    return False
