"""The journal: one line for each thing that was done to a session, with its reason; ids, never text."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path

from coldtrail import durable
from coldtrail.format import lines
from coldtrail.format.fields import integer, json_object, text
from coldtrail.model import instant_text


class Act(StrEnum):
    """What can be done to a session."""

    MARKED = "marked"  # it is to expire
    LIFTED = "lifted"  # it is not, after all
    EXPIRED = "expired"  # its grace is over: what we held is gone
    PURGED = "purged"  # the user had it removed everywhere
    SET_ASIDE = "set-aside"  # the agent's own file is out of its folder, to be looked at again
    PUT_BACK = "put-back"  # it is where it was
    RECLAIMED = "reclaimed"  # it is gone; the archive has it
    RESTORED = "restored"
    PINNED = "pinned"
    UNPINNED = "unpinned"
    TAGGED = "tagged"
    THINNED = "thinned"  # older versions of a companion are gone
    REPAIRED = "repaired"  # a damaged segment of ours was made again
    SUSPENDED = "suspended"  # a pass removed nothing, and why


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of the journal."""

    at_ms: int
    act: Act
    session: str  # coldtrail's key; empty: of none alone
    id: str  # the agent's
    reason: str
    freed: int = 0  # bytes that are gone by it

    def to_json(self) -> dict[str, object]:
        """As a JSON object, the time as RFC 3339."""
        return {"at": instant_text(self.at_ms), **asdict(self), "act": self.act.value}

    @classmethod
    def decode(cls, line: bytes) -> Entry:
        """Back from a line; ValueError for anything else."""
        value = json_object(lines.loads(line), "a line of the journal")
        session, agent_id, reason = (text(value, name) for name in ("session", "id", "reason"))
        return cls(integer(value, "at_ms"), Act(text(value, "act")), session, agent_id, reason, integer(value, "freed"))


class Journal:
    """The file of one home, appended to by whoever acts, before the act; each line is durable when `note` returns.

    So a crash may leave a line of what was not done, and the next try writes it again; never an act without a line.

    >>> import tempfile
    >>> journal = Journal(Path(tempfile.mkdtemp()) / "journal.jsonl", lambda: 0)
    >>> journal.note(Act.PINNED, "5d0c6a1f3b2e4987", "ae3d54a6", "asked for")
    >>> [entry.act.value for entry in journal.read()]
    ['pinned']
    """

    def __init__(self, path: Path, now_ms: Callable[[], int]) -> None:
        self._path, self._now_ms = path, now_ms
        self.damaged = 0  # lines that the last `read` could not read

    def note(self, act: Act, session: str, agent_id: str, reason: str, *, size: int = 0) -> None:
        """Add a line; StoreFullError where the disk is full, and then nothing torn is left."""
        entry = Entry(self._now_ms(), act, session, agent_id, reason, size)
        line = lines.dumps(entry.to_json(), sort=True) + b"\n"
        durable.make_folder(self._path.parent)
        with durable.full_disk_told(self._path):
            fd = os.open(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, durable.FILE_MODE)
        try:
            with durable.locked_fd(fd):
                end = os.fstat(fd).st_size
                torn = end and os.pread(fd, 1, end - 1) != b"\n"  # a crash cut the last line short: it stands alone
                durable.append(fd, b"\n" * bool(torn) + line, self._path, end)
        finally:
            os.close(fd)
        if not end:
            durable.sync_folder(self._path.parent)

    def read(self) -> Iterator[Entry]:
        """Every line, the oldest first; those that are torn or of another version are counted in `damaged`."""
        self.damaged = 0
        with suppress(FileNotFoundError), self._path.open("rb") as file:
            for line in file:
                try:
                    yield Entry.decode(line)
                except ValueError:
                    self.damaged += bool(line.strip())
