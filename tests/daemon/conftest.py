"""What the tests of the daemon share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from daemon.watching import World


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    yield made
    made.watcher.stop()
