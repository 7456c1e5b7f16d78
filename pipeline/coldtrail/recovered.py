"""A session's state at a moment, as the API gives it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from coldtrail.model import Gap, Position
from coldtrail.recovery import Recovery
from coldtrail.state import State


@dataclass(frozen=True, slots=True)
class Recovered:
    """A session's state at a moment, and how it came about."""

    key: str  # of the session
    id: str
    recovery: Recovery
    read: Callable[[Recovery], Mapping[str, object]]

    @property
    def state(self) -> State:
        """The state: `messages()`, `pending`, `environment`, `metadata()` and the rest.

        What a checkpoint stands for of the messages is read from the log when they are asked for, also when the trail is closed.
        Where the log is damaged there, the state is recovered anew without that checkpoint, and `gaps` and `notes` tell.
        """
        return self.recovery.state

    @property
    def state_hash(self) -> str:
        """SHA-256, 64 hex digits."""
        return self.recovery.state.hash()

    @property
    def position(self) -> Position | None:
        """The last record that it includes."""
        return self.recovery.position

    @property
    def checkpoint(self) -> Position | None:
        """The checkpoint that it began with; None: the start of the log."""
        return self.recovery.checkpoint

    @property
    def replayed(self) -> int:
        """Records read behind the checkpoint."""
        return self.recovery.replayed

    @property
    def gaps(self) -> list[Gap]:
        """Damaged or missing ranges that it had to do without."""
        return self.recovery.gaps

    def document(self) -> Mapping[str, object]:
        """The whole state as JSON; what only grows (completed tools, decisions) is in it too, so the log is read from its start."""
        return self.read(self.recovery)

    def to_json(self) -> dict[str, object]:
        """As `state --json` shows it, with the whole document."""
        state = dict(self.document())  # first: what is said besides may change when the conversation is read
        return {
            "key": self.key,
            "id": self.id,
            "position": _text(self.position),
            "state_hash": self.state_hash,
            "state_hash_short": self.state_hash[:16],
            "checkpoint": _text(self.checkpoint),
            "replayed": self.replayed,
            "verified": self.recovery.verified,
            "differing": [str(position) for position in self.recovery.differing],
            "notes": list(self.recovery.notes),
            "gaps": [{"generation": gap.generation, "start": gap.start, "end": gap.end, "what": gap.what} for gap in self.gaps],
            "state": state,
        }


def _text(position: Position | None) -> str | None:
    return None if position is None else str(position)
