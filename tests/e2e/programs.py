"""The three real agent programs: how each is set up and started, and which files are one of its sessions."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

PORT = 8765  # of the stand-in models; always free, for every world has a network of its own
MODELS_URL = f"http://127.0.0.1:{PORT}"
_UUID_AT_END = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$")


class Program(Protocol):
    """One agent program, offline: no account, no updates, no telemetry, only the stand-in models."""

    @property
    def agent(self) -> str:
        """The word coldtrail has for it."""

    @property
    def binary(self) -> str:
        """Its name under `node_modules/.bin`."""

    @property
    def logs(self) -> str:
        """Where its main logs lie: a glob relative to the home folder."""

    def env(self) -> Mapping[str, str]:
        """What it needs in the environment besides HOME and PATH."""

    def prepare(self, home: Path) -> None:
        """Write its settings into a fresh home folder."""

    def arguments(self, prompt: str, resume: str | None) -> list[str]:
        """The command line for one turn: of a new session, or of the one with this id."""

    def session_id(self, log: Path) -> str:
        """The program's own id of the session in this log."""

    def bundle(self, home: Path, session_id: str) -> Iterator[Path]:
        """Every file of one session."""


def _files_under(folder: Path) -> Iterator[Path]:
    return (path for path in folder.rglob("*") if path.is_file())


@dataclass(frozen=True, slots=True)
class ClaudeCode:
    """Claude Code: opens its log for each append; sweeps old ones some seconds after it starts."""

    agent: str = "claude-code"
    binary: str = "claude"
    logs: str = ".claude/projects/*/*.jsonl"

    def env(self) -> Mapping[str, str]:
        """Root may run it without questions only in a sandbox, so it is told that this is one."""
        return {
            "ANTHROPIC_BASE_URL": MODELS_URL,
            "ANTHROPIC_API_KEY": "not-a-key",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_AUTOUPDATER": "1",
            "DISABLE_ERROR_REPORTING": "1",
            "DISABLE_TELEMETRY": "1",
            "IS_SANDBOX": "1",
        }

    def prepare(self, home: Path) -> None:
        """An empty root, as if it had run before."""
        (home / ".claude").mkdir()

    def arguments(self, prompt: str, resume: str | None) -> list[str]:
        """Print mode, with the shell tool allowed."""
        return ["-p", prompt, "--allowedTools", "Bash", "--output-format", "json", *(("--resume", resume) if resume else ())]

    def session_id(self, log: Path) -> str:
        """The file's name."""
        return log.stem

    def bundle(self, home: Path, session_id: str) -> Iterator[Path]:
        """The log, and the folder beside it: sub-agents' logs and long tool outputs."""
        for project in (home / ".claude" / "projects").glob("*"):
            yield from project.glob(f"{session_id}.jsonl")
            yield from _files_under(project / session_id)


@dataclass(frozen=True, slots=True)
class Codex:
    """Codex CLI: holds its log open for the whole session; deletes none by itself."""

    agent: str = "codex"
    binary: str = "codex"
    logs: str = ".codex/sessions/*/*/*/rollout-*.jsonl"

    def env(self) -> Mapping[str, str]:
        """Nothing: all is in its config file."""
        return {}

    def prepare(self, home: Path) -> None:
        """Point it at the stand-in models; without a network its analytics would hold up each exit for five seconds."""
        config = home / ".codex" / "config.toml"
        config.parent.mkdir(parents=True)
        config.write_text(
            'model = "mock-model"\n'
            'model_provider = "mock"\n'
            "check_for_update_on_startup = false\n"
            "[analytics]\n"
            "enabled = false\n"
            "[model_providers.mock]\n"
            'name = "mock"\n'
            f'base_url = "{MODELS_URL}/v1"\n'
            'wire_api = "responses"\n'
        )

    def arguments(self, prompt: str, resume: str | None) -> list[str]:
        """One `exec`, outside any repository, without approvals."""
        options = ["exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox"]
        return [*options, *(("resume", resume) if resume else ()), prompt]

    def session_id(self, log: Path) -> str:
        """The end of the file's name."""
        match = _UUID_AT_END.search(log.stem)
        assert match, f"no id in the name {log.name}"
        return match[0]

    def bundle(self, home: Path, session_id: str) -> Iterator[Path]:
        """The log, in whichever place and form."""
        for folder in ("sessions/*/*/*", "archived_sessions"):
            yield from (home / ".codex").glob(f"{folder}/rollout-*-{session_id}.jsonl*")


@dataclass(frozen=True, slots=True)
class GeminiCli:
    """Gemini CLI: opens its log for each append; deletes by the newest time inside a log, and what it cannot read."""

    agent: str = "gemini-cli"
    binary: str = "gemini"
    logs: str = ".gemini/tmp/*/chats/session-*.jsonl"

    def env(self) -> Mapping[str, str]:
        """Where the stand-in models are, and trust in the project folder, without which `--yolo` is ignored."""
        return {"GOOGLE_GEMINI_BASE_URL": MODELS_URL, "GEMINI_API_KEY": "not-a-key", "GEMINI_CLI_TRUST_WORKSPACE": "true"}

    def prepare(self, home: Path) -> None:
        """Choose the key as the way to log in, or it would ask."""
        settings = home / ".gemini" / "settings.json"
        settings.parent.mkdir(parents=True)
        choice = {"security": {"auth": {"selectedType": "gemini-api-key"}}, "general": {"disableAutoUpdate": True}}
        settings.write_text(json.dumps(choice))

    def arguments(self, prompt: str, resume: str | None) -> list[str]:
        """Prompt mode, with every tool allowed."""
        return ["-m", "gemini-2.5-flash", "-p", prompt, "--yolo", *(("--resume", resume) if resume else ())]

    def session_id(self, log: Path) -> str:
        """In the first line; the file's name has only the first eight digits."""
        with log.open("rb") as lines:
            first = json.loads(lines.readline())
        return str(first["sessionId"])

    def bundle(self, home: Path, session_id: str) -> Iterator[Path]:
        """The log, the stubs that resumes in other minutes leave beside it, and long tool outputs."""
        for project in (home / ".gemini" / "tmp").glob("*"):
            yield from project.glob(f"chats/session-*-{session_id[:8]}.jsonl")
            yield from _files_under(project / "tool-outputs" / f"session-{session_id}")
