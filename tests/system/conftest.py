"""The machine that these tests share: booted once, or the reason why it cannot be."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from system import machine as machines
from system.machine import Machine

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "coldtrail-system"


@pytest.fixture(scope="session")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    """A booted machine with the wheel and a user."""
    if why := machines.missing():
        pytest.skip(why)
    root = machines.root_folder(CACHE)
    folder = tmp_path_factory.mktemp("system")
    wheelhouse = machines.wheels(folder / "wheels")
    made = Machine(root, folder / "machine")
    try:
        made.wait_booted()
        made.furnish(wheelhouse)
        yield made
    finally:
        made.power_off()
