"""What the tests of reclaiming share: a cold session, agents that come back at any step, and the sum of all that is kept."""

from __future__ import annotations

import ctypes
import json
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from coldtrail import durable
from coldtrail.home import Home
from coldtrail.layout import is_id
from coldtrail.sessions import read_manifest, write_manifest
from coldtrail.stage import aside
from coldtrail.stage.adopt import adopt_wishes
from coldtrail.stage.reclaim import WAIT_MS, Act, Outcome, Terms, pending, reclaim
from coldtrail.stage.restore import Wish, carry_out, plan_restore
from coldtrail.stage.scan import Scanner
from world_of import SESSION, Lines, World, chain_bytes, metas

AFTER_MS = 30 * 86_400_000
TERMS = Terms(AFTER_MS)
DEADLINE_S = 30.0
_LIBC = ctypes.CDLL(None, use_errno=True)
_LIBC.mmap.restype = ctypes.c_void_p
_LIBC.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
_LIBC.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]


@dataclass(slots=True)
class Cold:
    """A world with one session in it, archived and cold, and every line that was ever written to its main log."""

    world: World
    lines: Lines
    written: list[bytes] = field(default_factory=list)

    @classmethod
    def made(cls, folder: Path, *, companion: bool = True) -> Cold:
        """A main log, a sub-agent's log and a tool's output, captured, sealed, and old."""
        world = World(folder)
        cold = cls(world, Lines(world.clock))
        cold.written = [cold.lines.line(root=number == 0) for number in range(12)]
        world.write(world.main(), b"".join(cold.written))
        world.write(world.child(), Lines(world.clock, session="child123-0000").some(3))
        if companion:
            world.write(world.companion(), b"a tool's output\n" * 20)
        with world.kept_open():
            world.scan()
            world.compact(cold=True)
        world.clock.tick(AFTER_MS)
        return cold

    def key(self, home: Home) -> str:
        """The session's."""
        return next(row.key for row in home.catalog.sessions() if row.id == SESSION)

    def line(self) -> bytes:
        """A line that its agent will take for written."""
        line = self.lines.line()
        self.written.append(line)
        return line

    def step(self, terms: Terms = TERMS) -> Outcome:
        """One step of reclaiming the session, by a process that has just started."""
        with self.world.open() as home:
            return reclaim(home, self.key(home), terms)

    def reclaim(self) -> Outcome:
        """Both steps, and the wait between them."""
        assert self.step().act is Act.SET_ASIDE
        self.world.clock.tick(WAIT_MS)
        return self.step()

    def scan(self) -> None:
        """One pass, unfinished lines too."""
        self.world.clock.tick(6_000)
        with self.world.open() as home:
            Scanner(home).scan(self.world.sources, whole=True)


def settle(cold: Cold) -> list[Outcome]:
    """Go on as a daemon does until nothing is set aside any more."""
    done = []
    for _ in range(4):
        cold.scan()
        with cold.world.open() as home:
            if not pending(home):
                break
            done += [reclaim(home, key, TERMS) for key in pending(home)]
        cold.world.clock.tick(WAIT_MS)
    cold.scan()
    return done


def kept(home: Home, world: World) -> bytes:
    """All that there is of the main log, wherever: archive and store, the live file, what is set aside."""
    parts = [chain_bytes(home, meta) for meta in metas(home) if meta.path == str(world.main())]
    parts += [path.read_bytes() for path in (world.main(), *_aside(world)) if path.is_file()]
    return b"".join(parts)


def _aside(world: World) -> list[Path]:
    return list(world.layout.aside.glob("files/*"))


def lost(cold: Cold) -> list[bytes]:
    """The lines that were written and are nowhere."""
    with cold.world.open() as home:
        there = kept(home, cold.world)
    return [line for line in cold.written if line not in there]


def assert_in_order_and_held(cold: Cold) -> None:
    """Everything that was written is held, once and in order, and nothing is set aside or wrong."""
    with cold.world.open() as home:
        (meta,) = (each for each in metas(home) if each.path == str(cold.world.main()))
        assert chain_bytes(home, meta) == b"".join(cold.written)
        assert aside.listed(home) == []
        assert home.catalog.faults() == []


# ---- what may come in between ------------------------------------------------------------------------------------------------


def restore(home: Home) -> None:
    (row,) = home.catalog.sessions()
    list(carry_out(home, plan_restore(home, row, Wish())))


def grow(cold: Cold) -> None:
    cold.world.append(cold.world.main(), cold.line())


def grow_and_capture(cold: Cold) -> None:
    grow(cold)
    cold.scan()


def busy(cold: Cold) -> None:
    marks = cold.world.root / "sessions"
    marks.mkdir()
    (marks / f"{os.getpid()}.json").write_text(json.dumps({"pid": os.getpid(), "sessionId": SESSION}))


def held(cold: Cold) -> None:
    with cold.world.open() as home:
        (row,) = home.catalog.sessions()
        manifest = read_manifest(home, row.source, row.key)
        write_manifest(home, row.source, replace(manifest, held_until_ms=home.now_ms() + 1))
        adopt_wishes(home)
        home.catalog.put(home.catalog.sessions()[0]._replace(held_until_ms=home.now_ms() + 1))


def damaged(cold: Cold) -> None:
    """One flipped bit in the archive."""
    for path in cold.world.layout.archive.rglob("*.jsonl.zst"):
        data = bytearray(path.read_bytes())
        data[60] ^= 1
        path.write_bytes(data)


def missing(cold: Cold) -> None:
    path = next(cold.world.layout.archive.rglob("*.jsonl.zst"))
    path.unlink()


def pending_of(cold: Cold) -> list[str]:
    with cold.world.open() as home:
        return pending(home)


# ---- agents that come back --------------------------------------------------------------------------------------------------


class Agent:
    """A program that writes a line to its log in its own way, in a thread, for opening the file may make it wait."""

    def __init__(self, cold: Cold) -> None:
        self.cold, self.path = cold, cold.world.main()
        self.threads: list[threading.Thread] = []
        self.failed: list[BaseException] = []

    def act(self) -> None:
        """Write a line, and come back when it is written, or when the kernel makes it wait."""
        line = self.cold.line()
        done = threading.Event()
        thread = threading.Thread(target=self._act, args=(line, done))
        thread.start()
        self.threads.append(thread)
        deadline_s = time.monotonic() + DEADLINE_S
        while not done.wait(0.001) and not _somebody_waits(self.cold.world.folder):
            assert time.monotonic() < deadline_s, "the agent neither writes nor waits"

    def _act(self, line: bytes, done: threading.Event) -> None:
        try:
            self.write(line)
        except OSError as error:  # no agent would take the line for written
            self.cold.written.remove(line)
            self.failed.append(error)
        finally:
            done.set()

    def write(self, line: bytes) -> None:
        """Append it."""
        raise NotImplementedError

    def end(self) -> None:
        """The program ends."""
        for thread in self.threads:
            thread.join(DEADLINE_S)
            assert not thread.is_alive()


class Reopener(Agent):
    """Opens its log by path for each line, and makes it, and its folder, where they are gone: Claude Code."""

    def write(self, line: bytes) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("ab", buffering=0) as file:
            file.write(line)


class Holder(Agent):
    """Opens its log once, if it is there, and holds it: Codex."""

    fd: int | None = None

    def write(self, line: bytes) -> None:
        if self.fd is None:
            self.fd = os.open(self.path, os.O_RDWR | os.O_APPEND)
        os.write(self.fd, line)

    def end(self) -> None:
        super().end()
        if self.fd is not None:
            os.close(self.fd)
            self.fd = None


class Mapper(Agent):
    """Makes its log longer, maps it, and has no descriptor of it; the line gets there by memory alone."""

    place: tuple[int, int] | None = None

    def write(self, line: bytes) -> None:
        fd = os.open(self.path, os.O_RDWR)
        size = os.fstat(fd).st_size
        os.ftruncate(fd, size + len(line))
        place = _LIBC.mmap(None, size + len(line), 3, 1, fd, 0)
        os.close(fd)
        ctypes.memmove(place + size, line, len(line))
        self._unmap()
        self.place = place, size + len(line)

    def _unmap(self) -> None:
        if self.place is not None:
            _LIBC.munmap(*self.place)

    def end(self) -> None:
        super().end()
        self._unmap()
        self.place = None


AGENTS: tuple[type[Agent], ...] = (Reopener, Holder, Mapper)


def _somebody_waits(folder: Path) -> bool:
    """Whether the kernel keeps somebody waiting for a file in this world."""
    inodes = {str(path.lstat().st_ino) for path in folder.rglob("*") if path.name.endswith(".jsonl") or is_id(path.name)}
    waiting = [line.split() for line in Path("/proc/locks").read_text().splitlines()]
    return any(words[1:3] == ["LEASE", "BREAKING"] and words[5].rpartition(":")[2] in inodes for words in waiting)


def at_step(number: int, act: Callable[[], None], work: Callable[[], object]) -> bool:
    """Do `work`, and `act` in its durable step of that number, counted from 1; False: it has fewer."""
    left = number

    def hook(_name: str, _path: Path) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            act()

    durable.fault_hook = hook
    try:
        work()
    finally:
        durable.fault_hook = None
    return left <= 0
