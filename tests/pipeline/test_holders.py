"""Who has a file open is known for certain or not at all: tried with every way to hold one, and on the file systems there are here."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from coldtrail import holders
from coldtrail.errors import SourceError
from coldtrail.holders import NOBODY, Known, Unknown, alone
from holding import WAYS, by_a_process, opened

pytestmark = pytest.mark.skipif(not hasattr(fcntl, "F_SETLEASE"), reason="this system has no leases")

DEADLINE_S = 30.0
SHM = Path("/dev/shm")
NOBODYS_UID = 65_534

only_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user, or mount")


@pytest.fixture(params=["the disk", "memory"])
def file(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """A file on each of the file systems of this machine."""
    if request.param == "the disk":
        folder = tmp_path
    elif os.access(SHM, os.W_OK):
        folder = SHM / f"coldtrail-{os.getpid()}"
        folder.mkdir()
    else:
        pytest.skip(f"{SHM} is missing")
    path = folder / "log"
    path.write_bytes(b"a line\n" * 1000)
    with path.open("rb") as opened:
        kind = holders.file_system(opened.fileno())
    if kind not in holders.LOCAL:
        pytest.skip(f"{folder} lies on {kind}")
    yield path
    if folder != tmp_path:
        shutil.rmtree(folder)


def test_a_file_that_nobody_has_open_is_known_to_be_free(file: Path) -> None:
    assert holders.holders(file) == NOBODY


@pytest.mark.parametrize("way", WAYS.values(), ids=list(WAYS))
def test_whoever_holds_it_is_known(file: Path, way: Callable[[Path], contextlib.AbstractContextManager[object]]) -> None:
    with way(file):
        found = holders.holders(file)
        assert isinstance(found, Known)
        assert found.who
    assert holders.holders(file) == NOBODY


def test_a_holder_that_may_be_looked_at_is_named(file: Path) -> None:
    with opened(file, os.O_RDONLY):
        assert holders.holders(file) == Known((f"pid {os.getpid()}{holders._name(os.getpid())}",))


@only_root
def test_a_writer_of_another_user_is_known(file: Path) -> None:
    for path in (file, *file.parents):
        if path.stat().st_mode & 0o005 != 0o005:
            path.chmod(0o777)
    with by_a_process(file, "setpriv", f"--reuid={NOBODYS_UID}", "--clear-groups"):
        assert isinstance(holders.holders(file), Known)
        assert holders.holders(file) != NOBODY


@only_root
def test_of_another_users_file_it_is_not_known(file: Path) -> None:
    """Not being root, nor its owner."""
    file.chmod(0o666)
    for path in file.parents:
        if path.stat().st_mode & 0o005 != 0o005:
            path.chmod(0o777)
    code = f"from pathlib import Path; from coldtrail import holders; print(type(holders.holders(Path({str(file)!r}))).__name__)"
    asked = ["setpriv", f"--reuid={NOBODYS_UID}", "--clear-groups", sys.executable, "-c", code]
    done = subprocess.run(asked, capture_output=True, text=True, check=False)
    if "ModuleNotFoundError" in done.stderr or done.returncode in (126, 127) or "Permission denied" in done.stderr:
        pytest.skip("another user may not read the packages here")
    assert done.stdout == "Unknown\n", done.stderr


def test_a_link_or_nothing_cannot_be_opened(file: Path) -> None:
    link = file.with_name("link")
    link.symlink_to(file)
    for path in (link, file.with_name("nothing")):
        assert isinstance(holders.holders(path), Unknown)
        with pytest.raises(SourceError), alone(path):
            pass


# ---- while it is held -------------------------------------------------------------------------------------------------------


class Opener(threading.Thread):
    """Opens a file to append to it, as agents do, and waits where it must."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path, self.inode = path, path.stat().st_ino
        self.start()

    def run(self) -> None:
        with self.path.open("ab") as file:
            file.write(b"another line\n")

    def is_waiting(self) -> bool:
        """Whether the kernel says that somebody waits for the file."""
        waiting = [line.split() for line in Path("/proc/locks").read_text().splitlines()]
        return any(words[1:3] == ["LEASE", "BREAKING"] and words[5].endswith(f":{self.inode}") for words in waiting)

    def until_waiting(self) -> None:
        deadline_s, pause = time.monotonic() + DEADLINE_S, threading.Event()
        while not self.is_waiting():
            assert time.monotonic() < deadline_s
            pause.wait(0.001)


def test_who_opens_it_meanwhile_waits_until_the_block_ends_and_is_seen(file: Path) -> None:
    before = file.read_bytes()
    with alone(file) as held:
        assert held.nobody
        assert held.intact()
        opener = Opener(file)
        opener.until_waiting()
        assert not held.intact()
        assert os.fstat(held.fd).st_size == len(before)
    opener.join(DEADLINE_S)
    assert file.read_bytes() == before + b"another line\n"


def test_a_file_that_was_renamed_meanwhile_is_what_the_one_who_waited_gets(file: Path) -> None:
    """So what it writes is in the file, wherever that is now."""
    other = file.with_name("aside")
    with alone(file):
        opener = Opener(file)
        opener.until_waiting()
        file.rename(other)
    opener.join(DEADLINE_S)
    assert other.read_bytes().endswith(b"another line\n")
    assert not file.exists()


def test_it_can_be_let_go_before_the_block_ends(file: Path) -> None:
    with alone(file) as held:
        held.let_go()
        with file.open("ab") as writer:
            writer.write(b"x")
        assert held.nobody  # when it was looked at


def test_one_that_the_kernel_has_taken_back_is_no_longer_intact(file: Path) -> None:
    """As it does after a while, whoever waits."""
    with alone(file) as held:
        fcntl.fcntl(held.fd, fcntl.F_SETLEASE, fcntl.F_UNLCK)
        assert not held.intact()


def test_no_signal_disturbs_the_program(file: Path) -> None:
    """The usual one of a lease that is broken kills; and the one chosen in its stead comes to nobody."""
    assert signal.getsignal(signal.SIGIO) is signal.SIG_DFL
    seen: list[int] = []
    before = signal.signal(signal.SIGURG, lambda number, _frame: seen.append(number))
    try:
        with alone(file):
            opener = Opener(file)
            opener.until_waiting()
        opener.join(DEADLINE_S)
    finally:
        signal.signal(signal.SIGURG, before)
    assert seen == []
