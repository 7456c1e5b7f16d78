"""Fixtures of the stages' tests."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pipeline.stage.places import CodexWorld, FolderWorld, Place


@pytest.fixture
def codex(tmp_path: Path) -> CodexWorld:
    """Codex has been here."""
    return CodexWorld(tmp_path)


@pytest.fixture
def mine(tmp_path: Path) -> FolderWorld:
    """An agent of the user's own has been here."""
    return FolderWorld(tmp_path)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """An agent has been here, and coldtrail."""
    made = Place(tmp_path)
    made.target.parent.mkdir(parents=True)
    made.home.mkdir()
    return made


@pytest.fixture(autouse=True)
def _nothing_waits_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """No power fails here, and syncing would be most of the time these tests take."""
    monkeypatch.setattr(os, "fsync", lambda _fd: None)
