"""The agents are found by being there: one more is one file."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import pytest

import coldtrail.agents
from coldtrail.agents import agent, agents
from coldtrail.agents.base import Agent
from coldtrail.errors import UsageError

FIFTH = """
from coldtrail.agents.jsonl import JsonlFolder

class Homemade(JsonlFolder):
    name = {name!r}

AGENT = Homemade()
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder that counts as part of the agents' one, as if its files lay in it."""
    monkeypatch.setattr(coldtrail.agents, "__path__", [*coldtrail.agents.__path__, str(tmp_path)])
    agents.cache_clear()
    yield tmp_path
    agents.cache_clear()
    for path in tmp_path.glob("*.py"):
        sys.modules.pop(f"coldtrail.agents.{path.stem}", None)


def test_the_agents_that_come_with_it_are_these() -> None:
    assert list(agents()) == ["claude-code", "codex", "event-log", "gemini-cli", "jsonl"]


def test_a_new_agent_is_one_new_file(folder: Path) -> None:
    (folder / "homemade.py").write_text(FIFTH.format(name="homemade"))
    assert agent("homemade").place(PurePosixPath("a/b.jsonl"), bytes) is not None
    assert len(agents()) == 6


def test_a_module_without_an_agent_is_none(folder: Path) -> None:
    (folder / "wordlist.py").write_text("WORDS = ()\n")
    assert len(agents()) == 5


def test_two_agents_of_one_name_are_refused(folder: Path) -> None:
    (folder / "second.py").write_text(FIFTH.format(name="codex"))
    with pytest.raises(UsageError, match=r"second\.py.*'codex'"):
        agents()


def test_an_unknown_name_is_answered_with_the_known_ones() -> None:
    with pytest.raises(UsageError, match=r"'claude'.*claude-code, codex, event-log, gemini-cli, jsonl"):
        agent("claude")


@pytest.mark.parametrize("one", agents().values(), ids=list(agents()))
def test_what_is_hidden_or_no_log_is_never_a_session(one: Agent) -> None:
    def no_head() -> bytes:
        return b""

    for folder in one.folders:
        for name in (".hidden.jsonl", ".git/a.jsonl", "settings.json", "notes.txt", "rollout-1.tmp", "x.jsonl.tmp"):
            assert one.place(PurePosixPath(folder) / name, no_head) is None
