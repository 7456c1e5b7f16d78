"""Fixtures of the end-to-end tests: each gets a world of its own, or is skipped by the name of what is missing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.programs import Program
from e2e.world import World, what_is_missing


@pytest.fixture
def world(program: Program, tmp_path: Path) -> Iterator[World]:
    """A fresh world of the test's `program`."""
    if missing := what_is_missing(program):
        pytest.skip(missing)
    world = World(tmp_path, program)
    try:
        world.open()
        yield world
    finally:
        world.close()
