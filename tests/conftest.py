"""What holds for all tests, and the fixtures of those that need no more of a machine than one agent's folders."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from coldtrail.home import Home
from world_of import Lines, World, small_sizes

# Who was started in the background of a script ignores Ctrl-C, and so would every command that these tests start, and interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def small() -> Iterator[None]:
    """Segments, frames and batches are small, so that a short log has many."""
    with small_sizes():
        yield


@pytest.fixture
def world(tmp_path: Path) -> World:
    """Claude Code has been here."""
    return World(tmp_path)


@pytest.fixture
def lines(world: World) -> Lines:
    """The lines of its main log."""
    return Lines(world.clock)


@pytest.fixture
def home(world: World) -> Iterator[Home]:
    """Coldtrail's, open."""
    with world.open() as home:
        yield home


@pytest.fixture
def unreadable(monkeypatch: pytest.MonkeyPatch) -> Callable[[Path], None]:
    """Lets a file be one that we may not open: for root, every mode is readable."""
    opened = os.open
    closed: set[str] = set()

    def refusing(path: os.PathLike[str] | str | bytes, *args: int, **kwargs: int) -> int:
        if os.fsdecode(path) in closed:
            raise PermissionError(13, "Permission denied", os.fsdecode(path))
        return opened(path, *args, **kwargs)

    monkeypatch.setattr(os, "open", refusing)
    return lambda path: closed.add(str(path))
