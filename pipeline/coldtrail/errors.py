"""Every way to fail, drawn as one tree.

ColdtrailError                  exit 1: it failed
├── UsageError                  exit 2: the caller asked for something that does not exist
│   └── ConfigError             exit 2: a config file is wrong (file, line, key)
├── NotFoundError               exit 3: no such session
│   └── AmbiguousError          exit 3: several; it lists them
├── RefusedError                exit 4: it would overwrite or lose bytes
│   ├── LockedError             exit 4: somebody else holds the lock
│   └── ConflictError           exit 4: somebody else has appended meanwhile
├── UnverifiableError           exit 5: neither proven right nor wrong
├── CorruptionError             exit 1: our copy is damaged (file, offset)
├── SourceError                 exit 1: a file of the agent cannot be read now
└── StoreFullError              exit 1: no space for our files
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path


class ColdtrailError(Exception):
    """It failed; `hint` says what to do about it."""

    exit_code = 1

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


class UsageError(ColdtrailError):
    """The caller asked for something that does not exist."""

    exit_code = 2


class ConfigError(UsageError):
    """A config file is wrong: names the file, the line and the key."""

    def __init__(self, message: str, *, file: str = "", line: int | None = None, key: str = "", hint: str = "") -> None:
        place = ":".join(str(part) for part in (file, line) if part)
        named = f"{key}: {message}" if key else message
        super().__init__(f"{place}: {named}" if place else named, hint=hint)
        self.file, self.line, self.key = file, line, key


class NotFoundError(ColdtrailError):
    """No such session, stream, position or moment."""

    exit_code = 3


class AmbiguousError(NotFoundError):
    """Several answers to a question for one; `candidates` lists them."""

    def __init__(self, message: str, candidates: Sequence[str], *, hint: str = "") -> None:
        super().__init__(f"{message}: {', '.join(candidates)}", hint=hint)
        self.candidates = tuple(candidates)


class RefusedError(ColdtrailError):
    """It would overwrite or lose bytes, so nothing was done."""

    exit_code = 4


class LockedError(RefusedError):
    """Somebody else holds the lock."""


class ConflictError(RefusedError):
    """A log does not end with the event that its writer expected; `last` is the id that it ends with."""

    def __init__(self, message: str, last: str | None, *, hint: str = "read what was appended, and decide again") -> None:
        super().__init__(message, hint=hint)
        self.last = last


class UnverifiableError(ColdtrailError):
    """Neither proven right nor proven wrong."""

    exit_code = 5


class CorruptionError(ColdtrailError):
    """Our copy is damaged: `path` and `offset` (bytes into that file) say where."""

    def __init__(self, path: Path | str, offset: int, what: str, *, hint: str = "run `coldtrail verify`") -> None:
        super().__init__(f"{path}: at byte {offset}: {what}", hint=hint)
        self.path, self.offset, self.what = Path(path), offset, what


class SourceError(ColdtrailError):
    """A file of the agent cannot be read now; it is tried again later."""

    def __init__(self, path: Path | str, what: str, *, hint: str = "") -> None:
        super().__init__(f"{path}: {what}", hint=hint)
        self.path, self.what = Path(path), what


class StoreFullError(ColdtrailError):
    """No space is left for our files; nothing of the agent's was touched."""

    def __init__(self, path: Path | str, *, hint: str = "free some space on that disk; capture goes on by itself") -> None:
        super().__init__(f"{path}: no space left on device", hint=hint)
        self.path = Path(path)
