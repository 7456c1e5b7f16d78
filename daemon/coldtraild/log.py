"""Says what the service does: plain lines for people, JSON lines for machines, and no floods.

A log line holds no text of any session: paths, ids, counts, times and sizes only. So an exception's own words are written only
where they are known to be of that kind (`error_text`). Write `log.warning("%(path)s: gone", {"path": path})`: the template is the
kind that the rate limit counts by, and the named values become the `fields` of a JSON line.
"""

from __future__ import annotations

import logging
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from json import dumps
from pathlib import Path
from typing import TextIO

from coldtrail.errors import ColdtrailError
from coldtrail.model import instant_text

NAME = "coldtraild"  # the logger that every room of the service writes to
BURST = 5  # records of one kind that are written in one window
WINDOW_S = 60.0
_FRAMES_MAX = 5


def setup(stream: TextIO, *, json: bool, verbose: bool, clock: Callable[[], float] = time.monotonic) -> logging.Logger:
    """Send the service's log to `stream` and give its logger; called again, it replaces what it set up before.

    `verbose` adds the debug lines. Other packages are heard from their warnings on. `clock` counts seconds for the rate limit.
    """
    everything = logging.getLogger()
    for old in [handler for handler in everything.handlers if isinstance(handler, _CalmHandler)]:
        everything.removeHandler(old)
        old.close()
    handler = _CalmHandler(stream, RateLimit(clock))
    handler.setFormatter(_JsonLine() if json else _PlainLine())
    everything.addHandler(handler)
    everything.setLevel(logging.WARNING)
    log = logging.getLogger(NAME)
    log.setLevel(logging.DEBUG if verbose else logging.INFO)
    return log


def error_text(error: BaseException) -> str:
    """What may be said of an exception: our own errors and the system's speak of paths, of any other only type and place are told.

    >>> error_text(FileNotFoundError(2, "No such file or directory", "a.jsonl"))
    "FileNotFoundError: [Errno 2] No such file or directory: 'a.jsonl'"
    """
    if isinstance(error, ColdtrailError):
        return f"{error} ({error.hint})" if error.hint else str(error)
    if isinstance(error, OSError):
        return f"{type(error).__name__}: {error}"
    frames = [(frame.f_code, line) for frame, line in traceback.walk_tb(error.__traceback__)]
    places = [f"{Path(code.co_filename).name}:{line} in {code.co_name}" for code, line in reversed(frames[-_FRAMES_MAX:])]
    return f"{type(error).__name__} at {', '.join(places)}" if places else type(error).__name__


@dataclass(slots=True)
class _Window:
    """The minute of one kind of record, from the first of them on."""

    ends_s: float
    level: int
    count: int = 0
    last: str = ""  # what the latest of those that were held back would have said


class RateLimit:
    """At most `BURST` records of one kind in a window pass; what is held back is counted, and told when the window is over."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._windows: dict[tuple[str, int, str], _Window] = {}

    def admits(self, record: logging.LogRecord) -> bool:
        """Whether this record is written."""
        kind = (record.name, record.levelno, str(record.msg))
        window = self._windows.setdefault(kind, _Window(self._clock() + WINDOW_S, record.levelno))
        window.count += 1
        if window.count <= BURST:
            return True
        window.last = _words(record)
        return False

    def told(self, *, at_once: bool = False) -> Iterator[logging.LogRecord]:
        """One record for each kind that had some held back and whose window is over (`at_once`: whether or not it is)."""
        now_s = self._clock()
        for key, window in list(self._windows.items()):
            if at_once or now_s >= window.ends_s:
                del self._windows[key]
                if window.count > BURST:
                    yield _held_back(window)


def _held_back(window: _Window) -> logging.LogRecord:
    values = {"count": window.count - BURST, "last": window.last}
    template = "%(count)d more of these were held back, the last of them: %(last)s"
    return logging.LogRecord(NAME, window.level, "", 0, template, (values,), None)


class _CalmHandler(logging.StreamHandler[TextIO]):
    """Writes to a stream through a rate limit; `emit` runs under the handler's lock, so the limit needs none."""

    def __init__(self, stream: TextIO, limit: RateLimit) -> None:
        super().__init__(stream)
        self._limit = limit

    def emit(self, record: logging.LogRecord) -> None:
        for told in self._limit.told():
            super().emit(told)
        if self._limit.admits(record):
            super().emit(record)

    def close(self) -> None:
        self.acquire()
        try:
            for told in self._limit.told(at_once=True):
                super().emit(told)
        finally:
            self.release()
        super().close()


def _message(record: logging.LogRecord) -> str:
    error = record.exc_info[1] if record.exc_info else None
    return f"{record.getMessage()}: {error_text(error)}" if error else record.getMessage()


def _words(record: logging.LogRecord) -> str:
    """The message of a record that is not written; where its values do not fit, which a handler would tell, the template."""
    try:
        return _message(record)
    except (TypeError, ValueError, KeyError):
        return str(record.msg)


def _time(record: logging.LogRecord) -> str | None:
    return instant_text(round(record.created * 1000))


def _printable(text: str) -> str:
    """Text as one line that no terminal obeys: a path may hold a newline, an escape sequence or half a character."""
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


class _PlainLine(logging.Formatter):
    """Time, level and message."""

    def format(self, record: logging.LogRecord) -> str:
        return f"{_time(record)} {record.levelname.lower():<8} {_printable(_message(record))}"


class _JsonLine(logging.Formatter):
    """One object: `time`, `level`, `message`, and `fields` where the record names its values."""

    def format(self, record: logging.LogRecord) -> str:
        line = {"time": _time(record), "level": record.levelname.lower(), "message": _message(record)}
        return dumps(line | {"fields": record.args} if isinstance(record.args, Mapping) else line, default=str)
