"""What the tests of logs that go on from each other share: a world of Codex threads, and what is recovered of them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from coldtrail import Recovered
from coldtrail.home import Home
from coldtrail.model import instant_text
from pipeline.stage.forks import session_of
from pipeline.stage.places import CodexWorld

A, B, C = (f"019dc0d3-6b22-7052-b168-00000000000{letter}" for letter in "abc")
LATER = "019dc0d4-0000-7052-b168-0000000000ff"  # the id of a rollout that a revert made


@dataclass(slots=True)
class Threads(CodexWorld):
    """Codex has been here, and its threads go on from parts of each other."""

    def begin(self, thread: str, *, base: tuple[str, int] | None = None, path: Path | None = None, **fields: object) -> Path:
        """A new rollout: its first line."""
        said = {} if base is None else {"history_base": {"thread_id": base[0], "end_ordinal_exclusive": 9, "end_byte_offset": base[1]}}
        path = path or self.rollout(thread)
        self.write(path, self.line("session_meta", {"id": thread, "cwd": f"/{thread[-1]}", "cli_version": thread[-1], **said, **fields}))
        return path

    def say(self, path: Path, *words: str) -> int:
        """Messages of the user; gives how long the file is then."""
        for each in words:
            content = [{"type": "input_text", "text": each}]
            self.append(path, self.line("response_item", {"type": "message", "role": "user", "content": content}))
        return path.stat().st_size

    def line(self, kind: str, payload: dict[str, object]) -> bytes:
        """The next line."""
        self.clock.tick(1000)
        return json.dumps({"timestamp": instant_text(self.clock.now_ms), "type": kind, "payload": payload}).encode() + b"\n"

    def reverted(self, thread: str = A) -> Path:
        """The file of a thread after a revert."""
        return self.rollout(thread).with_name(self.rollout(f"{thread}_{LATER}").name)


def words(found: Recovered) -> list[str]:
    """What the user said."""
    return [message.content[0]["text"] for message in found.state.messages()]  # type: ignore[index]


def state(home: Home, thread: str, **how: object) -> Recovered:
    return session_of(home, thread).recover(**how)  # type: ignore[arg-type]


def forked(threads: Threads) -> Path:
    """B goes on from the first part of A; gives its log."""
    parent = threads.begin(A)
    end = threads.say(parent, "one", "two")
    threads.say(parent, "not for the fork")
    child = threads.begin(B, base=(A, end), forked_from_id=A)
    threads.say(child, "three")
    return child


def long(threads: Threads, path: Path, count: int = 150) -> int:
    return threads.say(path, *(f"{n} " + "x" * 100 for n in range(count)))
