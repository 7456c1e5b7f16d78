"""What the service manager is told, as it hears it."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from coldtraild.notify import Manager


@pytest.fixture
def heard(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(str(tmp_path / "notify"))
        listening.settimeout(5)
        yield listening


def manager(heard: socket.socket, **env: str) -> Manager:
    return Manager.of({"NOTIFY_SOCKET": heard.getsockname(), **env}, os.getpid())


def test_each_word_arrives_as_one_datagram(heard: socket.socket) -> None:
    ours = manager(heard)
    ours.ready("captured 3 files\nand more")
    assert heard.recv(999) == b"READY=1\nSTATUS=captured 3 files and more\n"
    ours.alive()
    assert heard.recv(999) == b"WATCHDOG=1\n"
    ours.reloading()
    word, moment = heard.recv(999).split()
    assert word == b"RELOADING=1"
    assert int(moment.removeprefix(b"MONOTONIC_USEC=")) > 0
    ours.stopping()
    assert heard.recv(999).startswith(b"STOPPING=1\n")


@pytest.mark.skipif(not hasattr(socket, "SOCK_CLOEXEC"), reason="abstract names are Linux's")
def test_an_abstract_name_is_understood() -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(f"\0coldtrail-test-{os.getpid()}")
        listening.settimeout(5)
        Manager(f"@coldtrail-test-{os.getpid()}").alive()
        assert listening.recv(99) == b"WATCHDOG=1\n"


def test_how_often_it_wants_a_sign_of_life_is_read_if_it_is_for_this_process(heard: socket.socket) -> None:
    assert manager(heard).watchdog_s == 0
    assert manager(heard, WATCHDOG_USEC="30000000").watchdog_s == 30
    assert manager(heard, WATCHDOG_USEC="30000000", WATCHDOG_PID=str(os.getpid())).watchdog_s == 30
    assert manager(heard, WATCHDOG_USEC="30000000", WATCHDOG_PID="1").watchdog_s == 0
    assert manager(heard, WATCHDOG_USEC="soon").watchdog_s == 0


def test_without_a_manager_and_with_one_that_is_gone_nothing_happens(tmp_path: Path) -> None:
    Manager.of({}, 1).ready("x")
    Manager(str(tmp_path / "gone")).ready("x")
