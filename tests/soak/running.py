"""Runs a soak: agents, a real daemon that is killed now and then, the commands that people call meanwhile, and a look at what it takes."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from soak.agents import SPENT
from soak.judging import Up

TESTS = Path(__file__).resolve().parents[1]
COLDTRAIL = [sys.executable, "-m", "coldtraild.cli"]
AGENTS = ("by path", "by path 2", "holder", "mine", "guest", "spent")
COMMANDS: tuple[tuple[tuple[str, ...], frozenset[int]], ...] = (  # and how they may end while everything is on the move
    (("verify",), frozenset({0})),
    (("verify", "--sample", "20%"), frozenset({0})),
    (("rebuild",), frozenset({0})),
    (("sync", "--wait", "--timeout", "20s"), frozenset({0})),
    (("sync",), frozenset({0})),
    (("prune", "--yes"), frozenset({0})),
    (("ls", "--json"), frozenset({0})),
    (("status", "--json"), frozenset({0, 1})),
    (("reload",), frozenset({0, 1, 2, 3})),  # it was killed before it could answer, there was a bad config, nobody was there
)
USAGE = 2
UNSAFE = 5
REFUSED = 4  # a command may have been at work when the daemon was started again
PATIENCE_S = 90.0


@dataclass(frozen=True, slots=True)
class Pace:
    """How fast everything goes."""

    lasts_s: float
    kill_s: float
    scan_s: int
    command_s: float
    config_s: float
    sample_s: float
    rest_s: float


@dataclass(frozen=True, slots=True)
class Sample:
    """What the daemon takes."""

    at_s: float
    up_s: float  # since it was ready
    rss_bytes: int
    threads: int
    fds: int


@dataclass(frozen=True, slots=True)
class Called:
    """A command that is under way."""

    words: tuple[str, ...]
    codes: frozenset[int]  # that are well
    process: subprocess.Popen[bytes]
    out: Path


@dataclass(slots=True)
class Soak:
    """One soak."""

    home: Path
    pace: Pace
    seed: int
    chance: random.Random = field(init=False)
    ups: list[Up] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)
    codes: Counter[tuple[str, int]] = field(default_factory=Counter)
    told: list[str] = field(default_factory=list)  # what was done, for whoever has to find out
    wrong: list[str] = field(default_factory=list)
    guest: bool = True
    hot: bool = True  # sealed in the pass that captured it
    bad: bool = False  # the config is none
    _daemon: subprocess.Popen[bytes] | None = None
    _called: int = 0
    _commands: list[Called] = field(default_factory=list)
    _began_s: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        self.chance = random.Random(self.seed)
        for folder in (self.ledger, self.config.parent, self.home / "mine", self.home / "guest", self.home / ".claude" / "projects"):
            folder.mkdir(parents=True)
        (self.home / ".codex" / "sessions").mkdir(parents=True)

    @property
    def ledger(self) -> Path:
        return self.home / "ledger"

    @property
    def config(self) -> Path:
        return self.home / ".config" / "coldtrail" / "config.toml"

    @property
    def trail(self) -> Path:
        return self.home / ".local" / "share" / "coldtrail"

    @property
    def env(self) -> dict[str, str]:
        said = [os.path.abspath(each) for each in os.environ.get("PYTHONPATH", "").split(os.pathsep) if each]
        return {"HOME": str(self.home), "PATH": os.environ["PATH"], "PYTHONPATH": os.pathsep.join([str(TESTS), *said])}

    @property
    def lines_s(self) -> float:
        """What has stood still for so long before a running daemon is held: a scan has come by. Its slowest start tells how slow all is."""
        return self.pace.scan_s + 5.0 + 2 * max((up.ready_s - up.spawned_s for up in self.ups if up.ready_s < float("inf")), default=0.0)

    def say(self, what: str) -> None:
        self.told.append(f"{time.monotonic():.2f} ({time.monotonic() - self._began_s:.1f} s) {what}")

    # ---- the whole of it ----

    def run(self) -> float:
        """All of it; gives when the last agent had ended, on the monotonic clock."""
        self.write_config()
        agents = [self._agent(kind) for kind in AGENTS]
        try:
            self._load(agents)
            (self.ledger / "stop").touch()
            codes = [agent.wait(PATIENCE_S) for agent in agents]
            self._check(codes == [0] * len(agents), f"agents ended with {codes}")
            end_s = time.monotonic()
            self._settle()
            return end_s
        finally:
            for process in [*agents, *(each.process for each in self._commands), *filter(None, [self._daemon])]:
                process.kill()
                process.communicate()

    def _load(self, agents: list[subprocess.Popen[bytes]]) -> None:
        pace = self.pace
        turns = {self.kill: pace.kill_s, self.command: pace.command_s, self.other_config: pace.config_s, self.sample: pace.sample_s}
        due = {act: time.monotonic() + every_s * self.chance.uniform(0.5, 1) for act, every_s in turns.items()}
        self.start()
        end_s = time.monotonic() + pace.lasts_s
        while time.monotonic() < end_s and not self.wrong:
            self.look()
            for act, at_s in due.items():
                if time.monotonic() >= at_s:
                    act()
                    regular = act == self.sample or (act == self.kill and pace.kill_s > 30)
                    due[act] = time.monotonic() + turns[act] * (1 if regular else self.chance.uniform(0.5, 1.5))
            for agent in agents:
                self._check(agent.poll() is None, f"an agent has ended with {agent.returncode}")
            time.sleep(0.02)

    def _settle(self) -> None:
        """Nobody writes any more: everything is captured, nothing is wrong, and it ends in order."""
        self.guest, self.hot, self.bad = True, False, False
        self.write_config()
        self._until(lambda: not self._commands and self.is_ready, "the last commands end, the daemon is ready")
        self.hang_up()
        self.asked("sync", "--wait", "--timeout", "60s")
        self._until(lambda: not self._faults(), "no fault is left")
        assert self._daemon is not None
        self._daemon.terminate()
        self._check(self._daemon.wait(20) == 0, f"the daemon ended with {self._daemon.returncode}")
        self.asked("verify")
        self.asked("rebuild", "--check")

    def _faults(self) -> object:
        self.look()
        return json.loads(self._done("status", "--json").stdout)["faults"]

    def _check(self, holds: bool, what: str) -> None:
        if not holds:
            self.wrong.append(what)
            self.say(f"WRONG: {what}")

    def _until(self, condition: Callable[[], object], what: str) -> None:
        end_s = time.monotonic() + PATIENCE_S
        while not condition():
            self.look()
            if time.monotonic() > end_s:
                self._check(False, f"it never came about that {what}")
                return
            time.sleep(0.1)

    # ---- processes ----

    def _agent(self, kind: str) -> subprocess.Popen[bytes]:
        words = [kind.replace(" ", ""), str(self.home), str(self.ledger), str(self.seed), str(self.pace.rest_s)]
        return subprocess.Popen([sys.executable, "-m", "soak.agents", *words], env=self.env, stdin=subprocess.DEVNULL)

    def start(self) -> None:
        """The daemon, as a service manager starts it."""
        with open(self.log, "ab") as log:
            self.ups.append(Up(time.monotonic()))
            self._seen = log.tell()
            self._daemon = subprocess.Popen([*COLDTRAIL, "run"], env=self.env, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    _seen: int = 0

    @property
    def log(self) -> Path:
        return self.home / "daemon.log"

    @property
    def is_ready(self) -> bool:
        return self.ups[-1].ready_s < float("inf")

    def look(self) -> None:
        """Whether the daemon is ready, or has ended; which commands have."""
        up, daemon = self.ups[-1], self._daemon
        assert daemon is not None
        if not self.is_ready and b"ready: " in self.log.read_bytes()[self._seen :]:
            up.ready_s = time.monotonic()
            self.say(f"ready after {up.ready_s - up.spawned_s:.2f} s")
        if daemon.poll() is not None:
            up.ended_s = min(up.ended_s, time.monotonic())
            self._check(daemon.returncode == REFUSED, f"the daemon ended by itself with {daemon.returncode}")
            self.say("refused, for a command is at work; started again")
            time.sleep(0.1)
            self.start()
        for each in list(self._commands):
            if each.process.poll() is not None:
                self._commands.remove(each)
                self._ended(each)

    def kill(self) -> None:
        """kill -9, and up again at once; a config that is none keeps nobody from starting, for it would."""
        assert self._daemon is not None
        if self.bad:
            self.bad = False
            self.write_config()
        self._daemon.kill()
        self._daemon.wait()
        self.ups[-1].ended_s = time.monotonic()
        self.say("killed")
        self.start()

    # ---- what people do ----

    def command(self) -> None:
        """One that takes as long as it takes."""
        words, codes = self.chance.choice(COMMANDS)
        if len(self._commands) < 2:
            self.say(" ".join(words))
            self._called += 1
            out = self.home / f"command-{self._called % 8}"  # its words are needed where it went wrong
            with open(out, "wb") as file:
                process = subprocess.Popen([*COLDTRAIL, *words], env=self.env, stdin=subprocess.DEVNULL, stdout=file, stderr=file)
            self._commands.append(Called(words, codes, process, out))

    def _ended(self, called: Called) -> None:
        code, said = called.process.returncode, called.out.read_bytes().decode(errors="replace")
        self.codes[called.words[0], code] += 1
        # It came upon the bad config, or told the truth: what was overwritten before anybody could look will never be safe.
        told = (code == USAGE and "not TOML" in said) or (code == UNSAFE and "taken back before they were captured" in said)
        self._check(code in called.codes or told, f"{' '.join(called.words)} ended with {code}: {said[-1_500:]}")

    def asked(self, *words: str) -> None:
        """One that must come to a good end."""
        done = self._done(*words)
        self._check(done.returncode == 0, f"{' '.join(words)} ended with {done.returncode}: {done.stdout[-3_000:]} {done.stderr[-500:]}")

    def _done(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([*COLDTRAIL, *words], env=self.env, capture_output=True, text=True, timeout=PATIENCE_S * 4, check=False)

    def other_config(self) -> None:
        """A source comes or goes, compaction changes its mind, or somebody has saved half a file."""
        what = self.chance.choice(("guest", "hot", "bad") if self.is_ready else ("guest", "hot"))  # with a bad one it does not start
        if self.bad:
            self.bad = False
        else:
            setattr(self, what, not getattr(self, what))
        self.say(f"config: guest {self.guest}, hot {self.hot}, bad {self.bad}")
        self.write_config()
        self.hang_up()

    def write_config(self) -> None:
        """As it is now, by a rename."""
        temp = self.config.with_suffix(".new")
        temp.write_text("\n".join(self._lines()) + "\n")
        os.replace(temp, self.config)

    def _lines(self) -> Iterator[str]:
        yield f'[capture]\ndebounce = "200ms"\nscan_every = "{self.pace.scan_s}s"\n'
        yield f'[compact]\nafter = "{"0s" if self.hot else "24h"}"\n'
        yield '[[source]]\nname = "mine"\nagent = "event-log"\nroot = "~/mine"\n'
        if self.guest:
            yield '[[source]]\nname = "guest"\nagent = "event-log"\nroot = "~/guest"\n'
        yield f'[retention]\ngrace = "1s"\n[[retention.rule]]\nproject = "{SPENT}"\nkeep_last = 2\n'
        if self.bad:
            yield "[capture\n"

    def hang_up(self) -> None:
        """SIGHUP; before the daemon is ready it may not listen yet, and would die of it."""
        assert self._daemon is not None
        if self.is_ready and self._daemon.poll() is None:
            self._daemon.send_signal(signal.SIGHUP)

    # ---- what it takes ----

    def sample(self) -> None:
        """Memory, threads and descriptors, of a daemon that has found its feet."""
        assert self._daemon is not None
        up_s, proc = time.monotonic() - self.ups[-1].ready_s, Path(f"/proc/{self._daemon.pid}")
        if up_s < self.pace.sample_s or not proc.exists():
            return
        status = dict(line.split(":\t", 1) for line in (proc / "status").read_text().splitlines() if ":\t" in line)
        rss = int(status["VmRSS"].split()[0]) << 10
        self.samples.append(Sample(time.monotonic(), up_s, rss, int(status["Threads"]), len(os.listdir(proc / "fd"))))
