"""An agent that does to its logs what real ones do: `python -m soak.agents KIND HOME LEDGER SEED REST_S`, until LEDGER/stop is there."""

from __future__ import annotations

import json
import os
import random
import sys
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from soak.ledger import Writing

FILES_MAX = 24  # that one agent has at a time
SPENT = "/soak/spent"  # the project whose sessions retention removes


@dataclass(slots=True)
class File:
    """One file of the agent's."""

    path: Path
    role: str  # "main", "child", "companion"
    life: str = ""  # in the ledger; empty: there is no file now
    last_id: str | None = None  # of its last whole record
    lost: str = ""  # the life that was removed, and which the next one goes on from
    torn: bytes = b""  # what is missing of its last line
    torn_id: str | None = None
    fd: int | None = None  # where the agent holds it open
    wakes_s: float = 0.0  # it is left alone until then
    then: Callable[[File], None] | None = None  # what happens to it then
    below: list[File] = field(default_factory=list)


class Agent:
    """Acts on one file after the other, by chance."""

    def __init__(self, kind: str, home: Path, ledger: Path, seed: int, rest_s: float) -> None:
        self.kind, self.home, self.chance, self.rest_s = kind, home, random.Random(f"{seed} {kind}"), rest_s
        self.stop, self.ledger = ledger / "stop", Writing(ledger, kind.replace("/", "-"))
        self.source = {"holder": "codex", "mine": "mine", "guest": "guest"}.get(kind.rstrip("0123456789"), "claude-code")
        self.files: list[File] = []

    def run(self) -> None:
        """Until it is told to stop."""
        for _ in range(FILES_MAX // 4):
            self.new_session()
        while not self.stop.exists():
            self.act()
            time.sleep(self.chance.uniform(0, self.rest_s / 150))  # the load itself

    def act(self) -> None:
        """One thing, on a file that is not left alone now."""
        now_s = time.monotonic()
        if len(self.files) < FILES_MAX and self.chance.random() < 0.03:
            self.new_session()
        free = [file for file in self.files if file.wakes_s <= now_s]
        if not free:
            return
        file = self.chance.choice(free)
        if file.then is not None:
            act, file.then = file.then, None
            act(file)
        elif file.role == "companion" or self.chance.random() < self._end_share():
            self.end_soon(file)
        elif file.role == "main" and self.source == "claude-code" and self.chance.random() < 0.05 and len(self.files) < FILES_MAX:
            self.new_beside(file)
        else:
            self.grow(file)

    def _end_share(self) -> float:
        return {"claude-code": 0.12, "mine": 0.1}.get(self.source, 0.01)

    # ---- files ----

    def new_session(self) -> None:
        session, home = str(uuid.UUID(int=self.chance.getrandbits(128), version=4)), self.home
        project = "-spent" if self.kind == "spent" else f"-p{self.chance.randrange(4)}"
        path = {
            "claude-code": home / ".claude" / "projects" / project / f"{session}.jsonl",
            "codex": home / ".codex" / "sessions" / "2026" / "01" / "01" / f"rollout-2026-01-01T00-00-00-{session}.jsonl",
            "mine": home / "mine" / f"{session}.jsonl",
            "guest": home / "guest" / f"{session}.jsonl",
        }[self.source]
        self.begin(self._added(File(path, "main")), b"".join(self.lines_of_new(path)))

    def lines_of_new(self, path: Path) -> list[bytes]:
        if self.source in ("mine", "guest"):
            return [json.dumps({"type": "session_start", "event_id": f"{path.stem}-0", "session_id": path.stem}).encode() + b"\n"]
        return []

    def new_beside(self, main: File) -> None:
        """A sub-agent's log, or a tool's output."""
        folder, name = main.path.with_suffix(""), f"{self.chance.getrandbits(40):010x}"
        if self.chance.random() < 0.6:
            file = File(folder / "subagents" / f"agent-a{name}.jsonl", "child")
            self.begin(self._added(file), b"")
        else:
            self.begin(self._added(File(folder / "tool-results" / f"{name}.txt", "companion")), self.noise())

    def _added(self, file: File) -> File:
        self.files.append(file)
        return file

    def begin(self, file: File, data: bytes, *, head: str | None = None) -> None:
        """The file is made, or made again."""
        file.path.parent.mkdir(parents=True, exist_ok=True)
        if file.role != "companion" and not data:
            data = self.line(file)
        fd = os.open(file.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.write(fd, data)
        file.life = self.ledger.begin(file.path, data, source=self.source, is_log=file.role != "companion", head=head)
        if self.source == "codex":
            file.fd = fd
        else:
            os.close(fd)

    # ---- growing ----

    def line(self, file: File) -> bytes:
        """A whole record that hangs on the last one."""
        new_id = f"{self.chance.getrandbits(64):016x}"
        size = self.chance.choice((100, 300, 1_000, 3_000)) if self.chance.random() > 0.005 else 200_000
        text, when = self.chance.randbytes(size // 2).hex(), datetime.now(UTC).isoformat(timespec="milliseconds")
        if self.source in ("mine", "guest"):
            record: dict[str, object] = {"type": "message_added", "event_id": new_id, "timestamp": when, "role": "user", "content": text}
        elif self.source == "codex":
            item = {"type": "message", "role": "user", "id": new_id, "content": [{"type": "input_text", "text": text}]}
            record = {"timestamp": when, "type": "response_item", "payload": item}
        else:
            cwd = SPENT if self.kind == "spent" else "/soak/kept"
            record = {"type": "user", "uuid": new_id, "parentUuid": file.last_id, "timestamp": when, "cwd": cwd}
            record["message"] = {"role": "user", "content": text}
        file.last_id = new_id
        return json.dumps(record).encode() + b"\n"

    def noise(self) -> bytes:
        return self.chance.randbytes(self.chance.randrange(50, 4_000)).hex().encode()

    def grow(self, file: File) -> None:
        """Whole lines, a torn one, the rest of a torn one, or a record glued behind it."""
        if file.torn and self.chance.random() < 0.7:
            self.write(file, file.torn)
        elif file.torn:
            self.write(file, self.line(file))  # glued
        elif self.chance.random() < 0.1:
            line = self.line(file)
            cut = self.chance.randrange(1, len(line))
            self.write(file, line[:cut])
            file.torn = line[cut:]
            return
        else:
            self.write(file, b"".join(self.line(file) for _ in range(self.chance.randrange(1, 6))))
        file.torn = b""

    def write(self, file: File, data: bytes) -> None:
        """Append as this agent does, in one or two pieces."""
        fd = os.open(file.path, os.O_WRONLY | os.O_APPEND) if file.fd is None else file.fd
        for part in (data,) if self.chance.random() < 0.7 else (data[: len(data) // 2], data[len(data) // 2 :]):
            os.write(fd, part)
            self.ledger.wrote(file.life, part)
        if file.fd is None:
            os.close(fd)

    # ---- ends ----

    def end_soon(self, file: File) -> None:
        """Choose how this life ends; more often than not it stands still before."""
        acts = [self.rewrite, self.exchange, self.remove]
        if file.role != "companion":
            acts += [self.rewrite_alike, self.truncate]
        if self.source == "codex":
            acts = [self.leave]
        elif self.source == "guest":
            acts = [self.grow]
        elif file.role == "main" and self.source == "claude-code" and not file.lost:
            acts.append(self.remove_for_a_moment)
        file.then = self.chance.choice(acts)
        if file.then == self.remove_for_a_moment and file.torn:
            self.write(file, file.torn)
            file.torn = b""
        if file.then == self.remove_for_a_moment:
            self.write(file, self.line(file))
        if self.chance.random() < 0.6:
            file.wakes_s = time.monotonic() + self.chance.uniform(0.2, 1.6) * self.rest_s

    def _other(self, file: File) -> bytes:
        """The content of a life that has nothing to do with the one before."""
        file.torn, file.last_id, file.lost = b"", None, ""
        if file.role == "companion":
            return self.noise()
        return b"".join([*self.lines_of_new(file.path), *(self.line(file) for _ in range(self.chance.randrange(1, 8)))])

    def _begun(self, file: File, data: bytes) -> None:
        head = file.lost or None
        file.life = self.ledger.begin(file.path, data, source=self.source, is_log=file.role != "companion", head=head)

    def rewrite(self, file: File) -> None:
        """In place, cut to nothing first."""
        self.ledger.ends(file.life, "rewritten")
        data = self._other(file)
        with open(file.path, "wb", buffering=0) as out:
            out.write(data)
        self._begun(file, data)

    def rewrite_alike(self, file: File) -> None:
        """In place, with the same size and the same mtime, as a migration does."""
        before = os.stat(file.path)
        data = self._fitting(file, before.st_size)
        if not data:
            return
        self.ledger.ends(file.life, "rewritten alike")
        fd = os.open(file.path, os.O_WRONLY)
        os.pwrite(fd, data, 0)
        os.utime(fd, ns=(before.st_atime_ns, before.st_mtime_ns))
        os.close(fd)
        self._begun(file, data)

    def _fitting(self, file: File, size: int) -> bytes:
        """Other whole lines, and a blank one that fills them up; nothing where not even the first would fit."""
        fresh = File(file.path, file.role)
        data, last_id = b"".join(self.lines_of_new(file.path)), None
        while len(line := self.line(fresh)) + len(data) < size:
            data, last_id = data + line, fresh.last_id
        if last_id is None:
            return b""
        file.torn, file.last_id, file.lost = b"", last_id, ""
        return data + b" " * (size - 1 - len(data)) + b"\n"

    def exchange(self, file: File) -> None:
        """By a rename, as documents are written; the temp lies outside of every folder that is watched."""
        data, temp = self._other(file), self.home / f"temp-{self.chance.getrandbits(64):016x}"
        temp.write_bytes(data)
        self.ledger.ends(file.life, "exchanged")
        os.rename(temp, file.path)
        self._begun(file, data)

    def truncate(self, file: File) -> None:
        """To some of its first lines; then it grows, often past its old size."""
        data = file.path.read_bytes()
        cut = data.find(b"\n", self.chance.randrange(len(data))) + 1
        if not cut:
            return
        self.ledger.ends(file.life, "truncated")
        os.truncate(file.path, cut)
        file.torn = b""
        self._begun(file, data[:cut])

    def remove(self, file: File) -> None:
        """For good, or until it comes again as another one."""
        self.ledger.ends(file.life, "removed")
        os.unlink(file.path)
        if len(self.files) > FILES_MAX // 2 or self.chance.random() < 0.5:
            self.files.remove(file)
            return
        file.wakes_s = time.monotonic() + self.chance.uniform(0, self.rest_s / 2)
        file.then = lambda file: self.begin(file, self._other(file))

    def remove_for_a_moment(self, file: File) -> None:
        """It is swept while its agent goes on: made again without its head."""
        self.ledger.ends(file.life, "swept")
        file.lost = file.life
        os.unlink(file.path)
        file.wakes_s = time.monotonic() + self.chance.uniform(0, self.rest_s / 4)
        file.then = lambda file: self.begin(file, b"", head=file.lost)

    def leave(self, file: File) -> None:
        """It is closed, and stays as it is."""
        if file.fd is not None:
            os.close(file.fd)
        self.files.remove(file)


def main() -> None:
    kind, home, ledger, seed, rest_s = sys.argv[1:]
    Agent(kind, Path(home), Path(ledger), int(seed), float(rest_s)).run()


if __name__ == "__main__":
    main()
