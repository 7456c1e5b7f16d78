"""Fixtures of the library's tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pipeline.recovering import EventWorld
from world_of import small_sizes


@pytest.fixture
def mine(tmp_path: Path) -> Iterator[EventWorld]:
    """An agent of the user's own has been here."""
    with small_sizes():
        yield EventWorld(tmp_path)
