"""A world for one test: a fresh home, a network with no way out, stand-in models, a real agent and coldtrail."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from e2e.processes import TURN_S, Process, Run, listens, wait_until
from e2e.programs import PORT, Program

REPO = Path(__file__).resolve().parents[2]
MOCK_MODELS = REPO.parent / "shared" / "agents" / "mock_models.py"
MODELS = Path(__file__).with_name("delegating_models.py")
AGENTS = Path(os.environ.get("COLDTRAIL_TEST_AGENTS") or Path.home() / ".cache" / "coldtrail-agents")

WORD = "PERSIMMON"  # stands in the first prompt only; a later request that has it was made from the log
TOOL_WORD = "QUINCE"  # what the tool prints
CAPTURE_S = 30.0  # the promise is 3 seconds; a busy machine gets ten times that
COLDTRAIL = "import sys; from coldtraild.cli import main; sys.exit(main())"  # what the installed command does
READY = re.compile(r"\bready\b", re.IGNORECASE)


def what_is_missing(program: Program) -> str | None:
    """What this machine lacks for the end-to-end tests of a program; None: nothing."""
    if not _binary(program).exists():
        return f"{program.binary} is not installed in {AGENTS}"
    if not MOCK_MODELS.exists():
        return f"{MOCK_MODELS.name} is not in ../shared/agents"
    for tool in ("unshare", "nsenter", "ip"):
        if shutil.which(tool) is None:
            return f"the program {tool} is missing"
    if os.geteuid() != 0:
        return "only root can make a network namespace"
    return None


def _binary(program: Program) -> Path:
    return AGENTS / "node_modules" / ".bin" / program.binary


@dataclass(frozen=True, slots=True)
class File:
    """One file of a session as it was at some moment."""

    data: bytes = field(repr=False)
    mode: int
    mtime_ns: int

    @classmethod
    def of(cls, path: Path) -> File:
        """Read it."""
        stat = path.stat()
        return cls(path.read_bytes(), stat.st_mode, stat.st_mtime_ns)


Bundle = dict[Path, File]  # every file of one session


def total_bytes(bundle: Bundle) -> int:
    """How many bytes the files of a session have together."""
    return sum(len(file.data) for file in bundle.values())


@dataclass(slots=True)
class World:
    """Everything one test needs. The network namespace lives as long as the stand-in models, its first process."""

    root: Path  # of this test alone
    program: Program
    processes: list[Process] = field(default_factory=list)
    running_daemon: Process | None = None

    # -- places -----------------------------------------------------------
    @property
    def home(self) -> Path:
        """HOME of the agent and of coldtrail."""
        return self.root / "home"

    @property
    def project(self) -> Path:
        """The folder the agent works in."""
        return self.root / "project"

    def only_log(self) -> Path:
        """The one main log there is."""
        logs = sorted(self.home.glob(self.program.logs))
        assert len(logs) == 1, f"one log was expected: {logs}"
        return logs[0]

    def bundle(self, session_id: str) -> Bundle:
        """Every file of a session as it is now."""
        return {path: File.of(path) for path in self.program.bundle(self.home, session_id)}

    def delete(self, session_id: str) -> None:
        """Remove every file of a session and the folders that this empties, as an agent's sweep does."""
        for path in list(self.program.bundle(self.home, session_id)):
            path.unlink()
            with contextlib.suppress(OSError):  # a folder that still holds something stays
                for folder in path.parents:
                    folder.rmdir()

    # -- processes --------------------------------------------------------
    def open(self) -> None:
        """Make the folders, the network and the stand-in models."""
        for folder in (self.home, self.project, self._output, self._temp):
            folder.mkdir()
        self.program.prepare(self.home)
        self.run_tool_at_once()
        serve = [sys.executable, str(MODELS), str(MOCK_MODELS), "--port", str(PORT), "--log", str(self._requests)]
        own_network = ["unshare", "--net", "sh", "-c", 'ip link set lo up && exec "$@"', "sh"]
        process = self._start("models", [*own_network, *serve, "--command", f"sh {self._tool}"])
        wait_until("the stand-in models listen", lambda: process.popen.poll() is not None or listens(process.popen.pid, PORT), TURN_S)
        assert process.popen.poll() is None, process.wait()

    def close(self) -> None:
        """End whatever still runs, the network last."""
        self.release_tool()
        for process in reversed(self.processes):
            process.kill_group()

    @property
    def _output(self) -> Path:
        return self.root / "output"

    @property
    def _temp(self) -> Path:
        return self.root / "temp"

    def _env(self) -> dict[str, str]:
        return {
            "HOME": str(self.home),
            "PATH": os.environ["PATH"],
            "TMPDIR": str(self._temp),
            "LANG": "C.UTF-8",
            "TZ": "UTC",
            "PYTHONPATH": os.environ.get("PYTHONPATH", ""),  # coldtrail is run as it is installed here
            **self.program.env(),
        }

    def _start(self, name: str, argv: Sequence[str], *, talks: bool = False) -> Process:
        numbered = self._output / f"{len(self.processes):03d}-{name}"
        stdout, stderr = numbered.with_suffix(".out"), numbered.with_suffix(".err")
        with stdout.open("wb") as out, stderr.open("wb") as err:
            told = subprocess.PIPE if talks else subprocess.DEVNULL
            popen = subprocess.Popen(argv, stdin=told, stdout=out, stderr=err, cwd=self.project, env=self._env(), start_new_session=True)
        process = Process(popen, stdout, stderr)
        self.processes.append(process)
        return process

    def _start_inside(self, name: str, argv: Sequence[str], *, talks: bool = False) -> Process:
        network = f"--net=/proc/{self.processes[0].popen.pid}/ns/net"
        return self._start(name, ["nsenter", network, "--", *argv], talks=talks)

    # -- the agent --------------------------------------------------------
    def start_agent(self, *arguments: str, talks: bool = False) -> Process:
        """Start the agent with any command line; `talks`: its standard input is a pipe of the test's."""
        return self._start_inside(self.program.binary, [str(_binary(self.program)), *arguments], talks=talks)

    def start_agent_at(self, terminal: int, *arguments: str) -> Process:
        """Start the agent at a terminal, which is both its keyboard and its screen."""
        network = f"--net=/proc/{self.processes[0].popen.pid}/ns/net"
        argv = ["nsenter", network, "--", str(_binary(self.program)), *arguments]
        env = {**self._env(), "TERM": "xterm-256color"}
        popen = subprocess.Popen(argv, stdin=terminal, stdout=terminal, stderr=terminal, cwd=self.project, env=env, start_new_session=True)
        process = Process(popen, Path(os.devnull), Path(os.devnull))
        self.processes.append(process)
        return process

    def start_turn(self, prompt: str, resume: str | None = None) -> Process:
        """Start the agent for one turn, in which it calls its tool once."""
        return self.start_agent(*self.program.arguments(prompt, resume))

    def turn(self, prompt: str, resume: str | None = None) -> None:
        """One whole turn, which must go well."""
        run = self.start_turn(prompt, resume).wait()
        assert run.code == 0, f"{self.program.binary}: {run}"

    def first_turn(self) -> tuple[str, Path]:
        """The turn that has the word in its prompt; gives the new session's id and log."""
        self.turn(f"remember {WORD}")
        log = self.only_log()
        return self.program.session_id(log), log

    def resume(self, session_id: str) -> list[str]:
        """A further turn of a session, which must go well; gives the requests that it made."""
        before = len(self.requests())
        self.turn("go on", session_id)
        requests = self.requests()[before:]
        assert requests, f"{self.program.binary} asked the models nothing"
        return requests

    def cannot_resume(self, session_id: str) -> bool:
        """Whether the agent refuses to go on with a session, and asks the models nothing."""
        before = len(self.requests())
        return self.start_turn("go on", session_id).wait().code != 0 and len(self.requests()) == before

    @property
    def _tool(self) -> Path:
        return self.root / "tool.sh"

    @property
    def _tool_started(self) -> Path:
        return self.root / "tool-has-started"

    @property
    def _tool_may_end(self) -> Path:
        return self.root / "tool-may-end"

    def set_tool(self, script: str) -> None:
        """What the agent's next tool calls run."""
        self._tool.write_text(script)

    def run_tool_at_once(self) -> None:
        """From now on the tool prints its word and ends."""
        self.set_tool(f"echo {TOOL_WORD}\n")

    def hold_tool(self) -> None:
        """The next call of the tool waits for `release_tool` (a minute at most, so that none outlives a broken test for long)."""
        for mark in (self._tool_may_end, self._tool_started):
            mark.unlink(missing_ok=True)
        patience = f"n=0; while [ ! -e '{self._tool_may_end}' ] && [ $n -lt 600 ]; do sleep 0.1; n=$((n+1)); done"
        self.set_tool(f"touch '{self._tool_started}'; {patience}; echo {TOOL_WORD}\n")

    def wait_for_tool(self) -> None:
        """Come back when a held tool runs: the agent now waits for it."""
        wait_until("the agent calls its tool", self._tool_started.exists, TURN_S)

    def release_tool(self) -> None:
        """Let a held tool end, and let later calls run at once."""
        self._tool_may_end.touch()

    @contextlib.contextmanager
    def held_turn(self, prompt: str) -> Iterator[None]:
        """A turn of a new session that is in the middle of its tool call during the block, and must go well after it."""
        self.hold_tool()
        process = self.start_turn(prompt)
        self.wait_for_tool()
        yield
        self.release_tool()
        run = process.wait()
        assert run.code == 0, f"{self.program.binary}: {run}"

    @property
    def _requests(self) -> Path:
        return self.root / "requests.jsonl"

    def requests(self) -> list[str]:
        """Every request the models got so far, oldest first, each as JSON text."""
        return self._requests.read_text().split("\n")[:-1] if self._requests.exists() else []

    # -- coldtrail --------------------------------------------------------
    @property
    def _config(self) -> Path:
        return self.root / "config.toml"

    def configure(self, text: str) -> None:
        """Give coldtrail a config file; without this call it has none."""
        self._config.write_text(text)

    def _coldtrail_argv(self, *arguments: str) -> list[str]:
        config = ("--config", str(self._config)) if self._config.exists() else ()
        return [sys.executable, "-c", COLDTRAIL, "--home", str(self.root / "trail"), *config, *arguments]

    def coldtrail(self, *arguments: str, code: int = 0) -> Run:
        """Run one command of coldtrail to its end, which must be with this exit code."""
        run = self._start_inside("coldtrail", self._coldtrail_argv(*arguments)).wait()
        assert run.code == code, f"coldtrail {' '.join(arguments)}: {run}"
        return run

    def start_coldtrail(self, *arguments: str) -> Process:
        """Start a command of coldtrail that does not end by itself."""
        return self._start_inside("coldtrail", self._coldtrail_argv(*arguments))

    def coldtrail_json(self, *arguments: str) -> Any:
        """The one document that a command prints with `--json`."""
        return json.loads(self.coldtrail(*arguments, "--json").stdout)

    @contextlib.contextmanager
    def daemon(self) -> Iterator[None]:
        """`coldtrail run` in the background; after the block it is asked to stop and must do so cleanly."""
        process = self.running_daemon = self._start_inside("daemon", self._coldtrail_argv("run"))

        def ready() -> bool:
            self._check_daemon()
            return bool(READY.search(process.stdout.read_text() + process.stderr.read_text()))

        wait_until("the daemon says that it is ready", ready, CAPTURE_S)
        yield
        self._check_daemon()
        self.running_daemon = None
        run = process.terminate()
        assert run.code == 0, f"the daemon did not stop cleanly: {run}"

    def _check_daemon(self) -> None:
        if self.running_daemon is not None and self.running_daemon.popen.poll() is not None:
            raise AssertionError(f"the daemon ended by itself: {self.running_daemon.wait()}")

    def listed(self) -> list[dict[str, Any]]:
        """What `ls` says of every session."""
        self._check_daemon()
        sessions: list[dict[str, Any]] = self.coldtrail_json("ls")["sessions"]
        return sessions

    def session(self, session_id: str) -> dict[str, Any]:
        """What `ls` says of the session with this id of the agent's; empty while it says nothing."""
        found = [each for each in self.listed() if each["id"] == session_id]
        assert len(found) <= 1, f"one session is listed several times: {found}"
        return found[0] if found else {}

    def events(self, session_id: str) -> list[dict[str, Any]]:
        """The events of a session's main log; nothing of it may be unreadable."""
        document = self.coldtrail_json("events", session_id)
        assert document["gaps"] == [], document["gaps"]
        events: list[dict[str, Any]] = document["events"]
        return events

    def generation(self, session_id: str) -> int:
        """The generation of a session's main log in which its last event stands."""
        return int(self.events(session_id)[-1]["position"].split(":")[0])

    def wait_for_state(self, session_id: str, state: str) -> None:
        """Come back when `ls` calls the session so."""
        wait_until(f"`ls` calls {session_id} {state}", lambda: self.session(session_id).get("state") == state, CAPTURE_S)

    def wait_for_bytes(self, session_id: str, count: int) -> None:
        """Come back when `ls` counts so many bytes of the session."""
        wait_until(f"{count} bytes of {session_id} are captured", lambda: self.session(session_id).get("bytes") == count, CAPTURE_S)

    def wait_for_capture(self, session_id: str) -> Bundle:
        """Come back when `ls` counts as many bytes as the session's files have now; gives those files."""
        seen: Bundle = {}

        def captured() -> bool:
            counted = self.session(session_id).get("bytes")
            seen.clear()
            seen.update(self.bundle(session_id))
            return bool(counted == total_bytes(seen))

        wait_until(f"all of {session_id} is captured", captured, CAPTURE_S)
        return seen
