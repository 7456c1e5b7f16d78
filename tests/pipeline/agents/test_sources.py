"""Which folders are watched: the named ones first, each real folder once, each source under a name of its own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from coldtrail.agents import agent, agents
from coldtrail.agents.sources import sources
from coldtrail.agents.walk import Source
from coldtrail.errors import UsageError
from coldtrail.layout import safe_name


@dataclass
class Named:
    """A source as the config names it."""

    name: str
    agent: str
    root: Path


@pytest.fixture
def user(tmp_path: Path) -> Path:
    """A user's home, in which Claude Code and Codex have been."""
    home = tmp_path / "user"
    for folder in (".claude", ".codex"):
        (home / folder).mkdir(parents=True)
    return home


def told(found: list[Source]) -> list[tuple[str, str, Path]]:
    return [(each.name, each.agent.name, each.root) for each in found]


def of(found: list[Source], name: str) -> Iterator[Source]:
    return (each for each in found if each.agent.name == name)


def test_every_agent_on_this_machine_is_found_under_its_own_name(user: Path) -> None:
    found = told(sources([], {}, user))
    assert ("claude-code", "claude-code", user / ".claude") in found
    assert ("codex", "codex", user / ".codex") in found


def test_an_agent_that_can_be_found_has_a_folder_that_is_looked_out_for_though_it_is_not_there(user: Path) -> None:
    (gemini,) = of(sources([], {}, user), "gemini-cli")
    assert not gemini.root.exists()
    assert {each.agent.name for each in sources([], {}, user)} == {each.name for each in agents().values() if each.roots({}, user)}


def test_nothing_is_discovered_where_that_is_not_wanted(user: Path) -> None:
    assert sources([], None, user) == []
    mine = Named("mine", "jsonl", user / "logs")
    assert told(sources([mine], None, user)) == [("mine", "jsonl", user / "logs")]


def test_a_named_folder_comes_first_and_keeps_its_name_where_the_agent_would_be_found_there_too(user: Path) -> None:
    found = told(sources([Named("work", "claude-code", user / ".claude")], {}, user))
    assert found[0] == ("work", "claude-code", user / ".claude")
    assert [each for each in found if each[2] == user / ".claude"] == found[:1]


def test_a_folder_that_links_lead_to_is_one_source(user: Path) -> None:
    (user / "link").symlink_to(user / ".claude")
    found = sources([Named("one", "claude-code", user / "link"), Named("two", "claude-code", user / ".claude")], {}, user)
    assert told(list(of(found, "claude-code"))) == [("one", "claude-code", user / ".claude")]


def test_a_root_that_the_environment_moves_is_found_there_under_a_name_of_its_own(user: Path, tmp_path: Path) -> None:
    moved = tmp_path / "elsewhere"
    moved.mkdir()
    found = sources([], {"CLAUDE_CONFIG_DIR": str(moved)}, user)
    (one,) = [each for each in of(found, "claude-code") if each.root == moved]
    assert one.name != "claude-code"
    assert one.name == safe_name(one.name)
    assert one in sources([], {"CLAUDE_CONFIG_DIR": str(moved)}, user), "the same at every start"


def test_two_sources_never_share_a_name(user: Path, tmp_path: Path) -> None:
    """The archive keeps each source in a folder of its name, and sessions are told apart by it."""
    found = sources([Named("claude-code", "claude-code", tmp_path / "other"), Named("codex", "jsonl", tmp_path / "third")], {}, user)
    names = [each.name for each in found]
    assert len(set(names)) == len(names)
    assert names[:2] == ["claude-code", "codex"]
    assert user / ".claude" in [each.root for each in found]


def test_an_agent_that_nobody_knows_is_an_error_that_lists_those_there_are(user: Path) -> None:
    with pytest.raises(UsageError, match="claude-code, codex"):
        sources([Named("mine", "nobody", user)], None, user)


def test_a_named_folder_need_not_be_there_yet(user: Path) -> None:
    (only,) = sources([Named("mine", "jsonl", user / "not" / "yet")], None, user)
    assert only == Source("mine", agent("jsonl"), user / "not" / "yet")
