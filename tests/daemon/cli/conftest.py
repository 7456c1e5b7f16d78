"""What the tests of the command line share."""

from __future__ import annotations

from pathlib import Path

import pytest

from daemon.cli.desk import Desk


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    """A desk with nothing on it yet."""
    made = Desk(tmp_path)
    made.user.mkdir()
    monkeypatch.chdir(made.user)
    return made
