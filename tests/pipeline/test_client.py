"""The API's surroundings: they are looked at once, when the settings are found, and handed down."""

from __future__ import annotations

from pathlib import Path

import pytest

import coldtrail
from coldtrail import Trail
from coldtrail.settings import find_sources, settings


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user who is not the one that the settings are of; an agent of theirs is there too."""
    other = tmp_path / "other"
    (other / "claude").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(other))
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(other / "claude"))
    return other


def test_an_agent_is_looked_for_where_the_given_surroundings_say_now_and_later(tmp_path: Path, elsewhere: Path) -> None:
    user = tmp_path / "user"
    moved = tmp_path / "moved"
    for folder in (user / ".codex", moved):
        folder.mkdir(parents=True)
    found = settings(env={"HOME": str(user), "CLAUDE_CONFIG_DIR": str(moved)})
    for sources in (found.sources, find_sources(found)):
        roots = {source.root for source in sources}
        assert {user / ".codex", moved} <= roots
        assert not [root for root in roots if root.is_relative_to(elsewhere)]


def test_an_agent_installed_later_is_found_there(tmp_path: Path, elsewhere: Path) -> None:
    user = tmp_path / "user"
    user.mkdir()
    found = settings(env={"HOME": str(user)})
    (user / ".claude").mkdir()
    assert user / ".claude" in [source.root for source in find_sources(found)]


def test_what_is_not_to_be_discovered_is_not_found_later_either(tmp_path: Path, elsewhere: Path) -> None:
    config = tmp_path / "config.toml"
    config.write_text("discover = false\n")
    assert find_sources(settings(tmp_path / "home", config)) == []


def test_the_surroundings_are_those_of_the_moment_and_are_shown_to_nobody(
    tmp_path: Path, elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOME_TOKEN", "not for logs")
    with coldtrail.open(tmp_path / "home") as trail:
        assert isinstance(trail, Trail)
        monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path))
        assert elsewhere / "claude" in [source.root for source in find_sources(trail.settings)]
        assert tmp_path not in [source.root for source in find_sources(trail.settings)]
        assert "not for logs" not in repr(trail.settings)
