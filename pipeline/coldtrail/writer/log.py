"""One session's log, open for its writer: events go in one by one, each once, in an order that can be relied upon."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Self, TypeVar

from coldtrail.errors import ConflictError, UsageError
from coldtrail.model import EventType
from coldtrail.state import State
from coldtrail.writer.draft import Draft
from coldtrail.writer.file import LogFile

_T = TypeVar("_T")
INTERVAL_MS = 1000  # between two fsyncs, at least
_NAME_MAX_BYTES = 200


class Fsync(StrEnum):
    """When what was appended is made durable, other than by `flush` and `close`."""

    ALWAYS = "always"  # before `append` returns
    INTERVAL = "interval"  # by whoever appends, once a second at most
    NEVER = "never"  # when the system pleases


@dataclass(frozen=True, slots=True)
class Appended:
    """Where an event stands in its log."""

    event_id: str
    offset: int  # of its record, in bytes from the start of the file
    is_new: bool  # False: the log had an event of that id, and nothing was written


class Writer:
    r"""Appends events to the log of one session; see `Trail.writer`. Threads may share it, and processes may share the log.

    An event is acknowledged when `append` returns: it is in the file then, whole, and a crash of this process cannot take it;
    `fsync` says when a power cut cannot either.

    >>> import coldtrail, tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> with coldtrail.open(home=folder.name + "/home") as trail, trail.writer(root=folder.name + "/logs") as log:
    ...     first = log.append("message_added", role="user", content="Hello", event_id="m-1")
    ...     again = log.append("message_added", role="user", content="Hello", event_id="m-1")
    ...     _ = log.append("tool_invoked", tool_name="mail", input={"to": "ann"}, invocation_id="call-7")
    ...     list(log.pending_tools())
    ['call-7']
    >>> again.is_new, again.offset == first.offset
    (False, True)
    >>> folder.cleanup()
    """

    def __init__(
        self,
        path: Path,
        now_ms: Callable[[], int],
        *,
        state_of: Callable[[Path], State],
        fsync: str = Fsync.INTERVAL,
        start: Mapping[str, object] | None = None,
        checkpoint_every: int | None = None,
    ) -> None:
        try:
            self._fsync = Fsync(fsync)
        except ValueError as error:
            raise UsageError(f"fsync={fsync!r}: one of {', '.join(Fsync)}") from error
        opening = Draft.of(EventType.SESSION_START, None, {"session_id": path.stem, **(start or {})})
        self.path, self.session = path, path.stem
        self._now_ms, self._state_of = now_ms, state_of
        self._synced_ms = now_ms()
        self._mutex = threading.Lock()
        self._is_closed = False
        self._file = LogFile(path, checkpoint_every)
        _OPEN.add(self)
        self._begin(opening)

    def append(self, kind: str, /, *, event_id: str | None = None, expected_last: str | None = None, **fields: object) -> Appended:
        """Append one event: one write, whole or not there, whatever else happens.

        `kind` is a word of EventType, `fields` are its own (see `coldtrail.agents.event_log`). With an `event_id` of yours the
        event is written once, however often and by whichever process it is appended: the second time tells where the first one
        stands. `expected_last` is the id that the log must end with, or ConflictError: somebody else was faster.
        UsageError, before anything is written, for what cannot be an event; StoreFullError and SourceError where the file cannot
        be written: nothing of the event is in the log then.

            log.append("tool_invoked", tool_name="mail", input={"to": "ann"}, invocation_id="call-7")
        """
        return self._write([Draft.of(kind, event_id, fields)], expected_last)[0]

    def append_many(self, events: Iterable[Mapping[str, object]], *, expected_last: str | None = None) -> list[Appended]:
        """Append several events in one write: nobody's come between, and if one of them cannot be written none is.

        Each is a mapping of `type`, perhaps `event_id`, and its fields, as it will stand in the log. Errors are as in `append`;
        after a crash the first few of them may be there.

            log.append_many([{"type": "message_added", "role": "user", "content": "Hello"}, {"type": "session_end"}])
        """
        return self._write([_draft(event) for event in events], expected_last)

    async def aappend(self, kind: str, /, *, event_id: str | None = None, expected_last: str | None = None, **fields: object) -> Appended:
        """`append` for asyncio, in a thread: whoever awaits several one after the other has them in that order.

        Cancelled while it is awaited, it goes on: the event may be in the log. With an `event_id` it can be appended again.
        """
        return await _in_thread(lambda: self.append(kind, event_id=event_id, expected_last=expected_last, **fields))

    async def aappend_many(self, events: Iterable[Mapping[str, object]], *, expected_last: str | None = None) -> list[Appended]:
        """`append_many` for asyncio, likewise."""
        listed = list(events)
        return await _in_thread(lambda: self.append_many(listed, expected_last=expected_last))

    async def aflush(self) -> None:
        """`flush` for asyncio."""
        await _in_thread(self.flush)

    @property
    def last_event_id(self) -> str | None:
        """The id that the log ends with now, whoever appended it: what `expected_last` is compared with."""
        with self._mutex:
            self._check_open()
            try:
                self._file.lock()
                return self._file.last_id
            finally:
                self._file.unlock()

    def pending_tools(self) -> dict[str, dict[str, object]]:
        """The tools that were invoked and have not been heard of since, by invocation: after a crash, what may have happened.

        Each has `tool_name`, `input` and `started_at`. The log is read for it, from the nearest checkpoint where there is one.
        """
        return {invocation: tool.to_json() for invocation, tool in self._state_of(self.path).pending.items()}

    def flush(self) -> None:
        """Make everything durable that was appended; gives back when it is. StoreFullError, SourceError."""
        with self._mutex:
            self._sync()

    def close(self) -> None:
        """Flush, and let the file go; closed already is done."""
        with self._mutex:
            try:
                self._sync()
            finally:
                self._is_closed = True
                self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await _in_thread(self.close)

    def forked(self) -> None:
        """In a child process: nothing is shared with the parent, neither the lock of a thread that is not here nor the file's."""
        self._mutex = threading.Lock()
        self._file.forked()

    def _begin(self, opening: Draft) -> None:
        """A log's first record is `session_start`, also where a crash left nothing but a torn one."""
        try:
            self._file.lock()
            if self._file.is_blank:
                self._put([opening], [], None)
            self._file.unlock()
            self._sync()
        except BaseException:
            self._file.close()
            raise

    def _write(self, drafts: list[Draft], expected_last: str | None) -> list[Appended]:
        given = [draft.event_id for draft in drafts if draft.event_id is not None]
        with self._mutex:
            self._check_open()
            if given:
                self._file.learn_ids()
            try:
                self._file.lock()
                appended = self._put(drafts, given, expected_last)
            finally:
                self._file.unlock()
            self._settle()
        return appended

    def _check_open(self) -> None:
        if self._is_closed:
            raise UsageError(f"{self.path}: this writer is closed", hint="open another one")

    def _put(self, drafts: list[Draft], given: list[str], expected_last: str | None) -> list[Appended]:
        """Write those of the events that the log does not have."""
        file = self._file
        there = {event_id: at for event_id in given if (at := file.find(event_id)) is not None}
        if all(draft.event_id in there for draft in drafts):
            return [Appended(each, there[each], is_new=False) for each in given]
        if expected_last not in (None, file.last_id):
            raise ConflictError(f"{self.path}: it ends with {file.last_id}, not with {expected_last}", file.last_id)
        named = [file.whole.draft()] if file.whole is not None and file.whole.is_due else []
        answers, new, data = self._laid_out([*named, *drafts], there)
        begin = file.append(data, new)
        told = [Appended(each, there[each] if each in there else begin + new[each], is_new) for each, is_new in answers]
        return told[len(named) :]

    def _laid_out(self, drafts: list[Draft], there: Mapping[str, int]) -> tuple[list[tuple[str, bool]], dict[str, int], bytes]:
        """Each event's id, and whether it is to be written; where those begin in the bytes to append; the bytes."""
        ids, now_ms, length = self._file.ids, self._now_ms(), 0
        answers: list[tuple[str, bool]] = []
        new: dict[str, int] = {}
        lines: list[bytes] = []
        for draft in drafts:
            event_id = draft.event_id or ids.next(now_ms)
            is_new = event_id not in there and event_id not in new
            answers.append((event_id, is_new))
            if is_new:
                ids.see(draft.event_id)
                lines.append(draft.line(now_ms, event_id))
                new[event_id], length = length, length + len(lines[-1])
        return answers, new, b"".join(lines)

    def _settle(self) -> None:
        """Make durable what this writer's policy says must be."""
        waited_ms = self._now_ms() - self._synced_ms
        if self._fsync is Fsync.ALWAYS or (self._fsync is Fsync.INTERVAL and not 0 <= waited_ms < INTERVAL_MS):
            self._sync()

    def _sync(self) -> None:
        self._file.sync()
        self._synced_ms = self._now_ms()


async def _in_thread(work: Callable[[], _T]) -> _T:
    from asyncio import to_thread  # noqa: PLC0415 - most who import the library do without

    return await to_thread(work)


def log_path(folder: Path, session: str) -> Path:
    """Where a session's log lies; UsageError for what cannot be the name of a file that is found again."""
    if not session or session.startswith(".") or "/" in session or not session.isprintable():
        raise UsageError(f"session={session!r} cannot name a file", hint="a name without slashes, that does not begin with a dot")
    if len(os.fsencode(session)) > _NAME_MAX_BYTES:
        raise UsageError(f"session={session!r} is too long", hint=f"at most {_NAME_MAX_BYTES} bytes")
    return folder / f"{session}.jsonl"


def _draft(event: Mapping[str, object]) -> Draft:
    """An event as it will stand in the log, taken apart."""
    fields = dict(event)
    kind, event_id = fields.pop("type", None), fields.pop("event_id", None)
    return Draft.of(kind, event_id, fields)


_OPEN: weakref.WeakSet[Writer] = weakref.WeakSet()


def _forked() -> None:
    for writer in list(_OPEN):
        writer.forked()


os.register_at_fork(after_in_child=_forked)
