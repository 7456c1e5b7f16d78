"""How a command ends: here, and only here, what went wrong becomes a message, a hint and an exit code."""

from __future__ import annotations

import errno
import os
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType

from coldtrail.errors import ColdtrailError
from coldtraild.cli.say import message

DEBUG = "COLDTRAIL_DEBUG"
INTERRUPTED = 130  # as a shell says of a process that SIGINT ended
PIPE_CLOSED = 141  # and SIGPIPE
_HINTS = {
    errno.EACCES: "give the user that runs coldtrail the right to it",
    errno.EPERM: "give the user that runs coldtrail the right to it",
    errno.EROFS: "it is mounted read-only; mount it for writing, or work with another folder",
    errno.ENOSPC: "free some space on that disk",
    errno.EDQUOT: "free some space, or have the quota raised",
    errno.EMFILE: "too many files are open: raise the limit (ulimit -n)",
}
_BAD_TO_WORST = (0, 5, 3, 4, 2, 1)


def ended(act: Callable[[], object]) -> int:
    """Run a command to its end; gives its exit code, after what went wrong has been told."""
    try:
        code = _acted(act)
        sys.stdout.flush()
    except BrokenPipeError:
        _drop_output()
        return PIPE_CLOSED
    except KeyboardInterrupt:
        return INTERRUPTED
    return code


def _acted(act: Callable[[], object]) -> int:
    try:
        code = act()
    except BrokenPipeError:
        raise
    except (ColdtrailError, OSError) as error:
        return tell(error)
    return code if isinstance(code, int) else 0


def _drop_output() -> None:
    """Nobody reads any more: what is still in the buffers must not make the interpreter complain."""
    nothing = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        os.dup2(nothing, stream.fileno())


def tell(error: ColdtrailError | OSError) -> int:
    """Say what went wrong and what to do about it; gives the exit code."""
    if os.environ.get(DEBUG) == "1":
        traceback.print_exception(error)
    message(_what(error), hint=_hint(error))
    return error.exit_code if isinstance(error, ColdtrailError) else 1


def _what(error: ColdtrailError | OSError) -> str:
    if isinstance(error, OSError) and error.filename is not None:
        return f"{os.fsdecode(error.filename)}: {error.strerror}"
    return str(error)


def _hint(error: ColdtrailError | OSError) -> str:
    return error.hint if isinstance(error, ColdtrailError) else _HINTS.get(error.errno or 0, "")


def tell_bug(kind: type[BaseException], error: BaseException, _trace: TracebackType | None) -> None:
    """For sys.excepthook: what nobody foresaw is a fault of ours; its own words may quote a session, so they are not told."""
    if issubclass(kind, KeyboardInterrupt):
        return
    from coldtraild.log import error_text

    message(f"a fault of coldtrail's own: {error_text(error)}", hint=f"with {DEBUG}=1 it tells where it comes from")


class Ending:
    """What became of several things done one after the other: the worst exit code, and what failed."""

    def __init__(self) -> None:
        self.code = 0
        self.errors: list[dict[str, object]] = []

    def note(self, code: int) -> None:
        """Take a code into account."""
        self.code = max(self.code, code, key=_BAD_TO_WORST.index)

    @contextmanager
    def go_on(self, name: str) -> Iterator[None]:
        """Do the block for one ID; what goes wrong is told, and the next one has its turn."""
        try:
            yield
        except BrokenPipeError:
            raise
        except (ColdtrailError, OSError) as error:
            self.fail(name, error)

    def fail(self, name: str | None, error: ColdtrailError | OSError) -> None:
        """Tell what went wrong with one of them."""
        code = tell(error)
        self.note(code)
        self.errors.append({"id": name, "what": _what(error), "hint": _hint(error), "exit_code": code})
