"""A user's small home, captured with the library, and the command line over it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result

from coldtrail.model import instant_text
from coldtrail.settings import Settings, open_home, settings
from coldtrail.stage.compact import Compactor, due
from coldtrail.stage.scan import Scanner
from coldtraild.cli import coldtrail

FIRST = "ae3d54a6-6f1d-4c5e-9d0b-5b7f3f0a1c2d"
SECOND = "b7c01122-0000-4000-8000-000000000002"
DAY_MS = 86_400_000
JANUARY_MS = 1_767_225_600_000  # 2026-01-01
IMPORTS = {
    "PYTHONPATH": os.pathsep.join(os.path.abspath(each) for each in sys.path if each)
}  # a process of its own runs what is tested here
SURROUNDINGS = ("XDG_", "COLDTRAIL_", "CLAUDE_", "CODEX_", "GEMINI_", "NO_COLOR", "COLUMNS")


@dataclass
class Desk:
    """A folder with a user's home in it; Claude Code and an agent of the user's own have been at work there."""

    folder: Path
    runner: CliRunner = field(default_factory=CliRunner)

    @property
    def user(self) -> Path:
        """HOME."""
        return self.folder / "user"

    @property
    def trail(self) -> Path:
        """Where coldtrail keeps its own."""
        return self.user / ".local" / "share" / "coldtrail"

    @property
    def config(self) -> Path:
        """The config file, which is not there until somebody writes it."""
        return self.user / ".config" / "coldtrail" / "config.toml"

    def env(self) -> dict[str, str | None]:
        """The surroundings, none of the tester's own."""
        clean: dict[str, str | None] = {name: None for name in os.environ if name.startswith(SURROUNDINGS)}
        return {**clean, "HOME": str(self.user)}

    def configure(self, text: str) -> None:
        """Write the config file."""
        self.config.parent.mkdir(parents=True, exist_ok=True)
        self.config.write_text(text)

    # --- what agents write ---

    def log(self, session_id: str = FIRST, project: str = "-somebody-demo") -> Path:
        """Where Claude Code has a session."""
        return self.user / ".claude" / "projects" / project / f"{session_id}.jsonl"

    def write(self, path: Path, *records: object) -> Path:
        """Append records to a log, bytes as they are."""
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab") as file:
            for record in records:
                file.write(record if isinstance(record, bytes) else json.dumps(record).encode() + b"\n")
        return path

    def converse(
        self, session_id: str = FIRST, *, project: str = "/somebody/demo", said: str = "list the files", at_ms: int = JANUARY_MS
    ) -> Path:
        """One turn with a tool, as Claude Code writes it."""
        used = [{"type": "tool_use", "id": "toolu_1", "name": "Bash", "input": {"command": "ls"}}]
        got = [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "a.txt"}]
        talk = [("user", said), ("assistant", used), ("user", got), ("assistant", [{"type": "text", "text": "one file"}])]
        records = [
            {
                "type": role,
                "uuid": f"{number}-{session_id}",
                "parentUuid": f"{number - 1}-{session_id}" if number else None,
                "sessionId": session_id,
                "cwd": project,
                "timestamp": instant_text(at_ms + number * 1000),
                "message": {"role": role, "content": content},
            }
            for number, (role, content) in enumerate(talk)
        ]
        return self.write(self.log(session_id, project.replace("/", "-")), *records)

    # --- what coldtrail does ---

    def settings(self) -> Settings:
        """As the command line finds them."""
        return settings(env={name: value for name, value in self.env().items() if value is not None})

    def capture(self) -> None:
        """One pass over every source."""
        found = self.settings()
        with open_home(found) as home:
            Scanner(home).scan(found.sources, whole=True)

    def seal(self) -> None:
        """Everything that is captured goes to the archive."""
        with open_home(self.settings()) as home:
            for row, _ in list(due(home, 0)):
                Compactor(home, 9).compact(row, cold=True)

    def captured(self) -> Path:
        """One session, captured and sealed; gives its log."""
        log = self.converse()
        self.capture()
        self.seal()
        return log

    def sealed_segment(self) -> Path:
        """The one sealed segment there is."""
        (found,) = self.trail.glob("archive/*/*/*/*/*.jsonl.zst")
        return found

    def damage(self) -> Path:
        """Flip one bit in the middle of the one sealed segment's first frame."""
        segment = self.sealed_segment()
        data = bytearray(segment.read_bytes())
        data[40] ^= 1
        segment.chmod(0o600)
        segment.write_bytes(data)
        return segment

    # --- the command line ---

    def run(self, *arguments: str | Path, code: int | None = 0) -> Result:
        """Run a command in this process; it must end with `code` (None: with any)."""
        result = self.runner.invoke(
            coldtrail, [str(each) for each in arguments], env=self.env(), prog_name="coldtrail", catch_exceptions=False
        )
        assert code is None or result.exit_code == code, result.output
        return result

    def json(self, *arguments: str | Path, code: int = 0) -> Any:
        """The one document that a command prints with `--json`."""
        return json.loads(self.run(*arguments, "--json", code=code).stdout)

    def status(self) -> Any:
        """What `status --json` tells; where no daemon runs it ends with 1."""
        return json.loads(self.run("status", "--json", code=None).stdout)

    def start(self, *arguments: str | Path, before: str = "", **env: str) -> subprocess.CompletedProcess[str]:
        """Run a command as a process of its own; `before` is Python to run first."""
        return subprocess.run(
            self.argv(*arguments, before=before), env=self.process_env(**env), capture_output=True, text=True, timeout=60, check=False
        )

    def argv(self, *arguments: str | Path, before: str = "") -> Sequence[str]:
        """What starts a process of the command."""
        return [sys.executable, "-c", f"{before}\nfrom coldtraild.cli import main\nmain()", *map(str, arguments)]

    def process_env(self, **more: str) -> dict[str, str]:
        """The surroundings of a process of its own."""
        env = {name: value for name, value in {**os.environ, **self.env()}.items() if value is not None}
        return env | IMPORTS | more
