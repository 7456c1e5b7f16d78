"""The toy model: what an agent's files were, and what must therefore be held of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path


@dataclass(slots=True)
class Life:
    """One append-only life of a file: the writer's bytes from byte 0 on, and what coldtrail has had the chance to see of them."""

    data: bytes = b""
    floor: bytes = b""  # all of this must be held
    ceiling: bytes = b""  # more than this cannot be
    head: bytes = b""  # what stood before it in the chain: the file was made again without its head
    was_seen: bool = False

    def fits(self, held: bytes) -> bool:
        """Whether a chain of generations may be this life."""
        return held.startswith(self.head + self.floor) and (self.head + self.ceiling).startswith(held)


@dataclass(slots=True)
class File:
    """A file of the agent's, all its lives, the present one last."""

    path: Path
    is_log: bool
    lives: list[Life] = field(default_factory=lambda: [Life()])
    exists: bool = True

    @property
    def life(self) -> Life:
        """The present life."""
        return self.lives[-1]

    @property
    def torn(self) -> bytes:
        """The unfinished last line."""
        return self.life.data[self.life.data.rfind(b"\n") + 1 :] if self.is_log else b""

    def append(self, data: bytes) -> None:
        """The writer adds to it."""
        self.life.data += data

    def begin(self, data: bytes, *, head: bytes = b"") -> None:
        """Other bytes are there now. A life that nobody saw has left nothing; one whose seen bytes are all there goes on."""
        if self.life.was_seen and not self.life.ceiling and self.is_log:  # seen while it was empty: it may become anything
            self.life.data, self.life.head = data, head
            return
        if self.life.was_seen and head in (b"", self.life.head) and self.is_log and data.startswith(self.life.ceiling):
            self.life.data = data
            return
        if not self.life.was_seen:
            self.lives.pop()
        self.lives.append(Life(data, head=head))

    def is_clear(self, data: bytes) -> bool:
        """Whether it is certain that these bytes would go on with the present life, or would not."""
        return data.startswith(self.life.ceiling) or not data.startswith(self.life.floor)

    def seen(self, *, with_tail: bool) -> None:
        """Coldtrail has looked: whole lines are held, the tail where it has been quiet; of a document everything."""
        life = self.life
        certain = life.data if with_tail else life.data[: len(life.data) - len(self.torn)]
        life.floor = max(life.floor, certain, key=len)
        life.ceiling = life.data
        life.was_seen = True

    def union(self) -> bytes:
        """What a restore of the newest chain writes at least."""
        return self.life.head + self.life.floor
