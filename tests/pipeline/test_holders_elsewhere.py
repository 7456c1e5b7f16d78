"""Where the kernel gives no leases, who has a file open is known by looking at every process, by asking lsof, or not at all."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from coldtrail import holders
from coldtrail.holders import NOBODY, Known, Unknown, alone
from holding import WAYS, by_a_process, mapped, opened

pytestmark = pytest.mark.skipif(not hasattr(fcntl, "F_SETLEASE"), reason="this system has no leases to do without")

only_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount")


@pytest.fixture
def _no_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where they are switched off."""
    real = fcntl.fcntl

    def refused(fd: int, command: int, argument: int = 0) -> int:
        if command == fcntl.F_SETLEASE:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        return real(fd, command, argument)

    monkeypatch.setattr(fcntl, "fcntl", refused)


@pytest.mark.usefixtures("_no_lease")
@pytest.mark.parametrize("way", ["a writer that appends", "a map that may be written to", "another process"])
def test_without_leases_root_looks_at_every_process(tmp_path: Path, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"x" * 8192)
    monkeypatch.setattr(holders, "LOCAL", {*holders.LOCAL, _kind(path)})
    if isinstance(holders.holders(path), Unknown):
        pytest.skip("not every process can be looked at here")
    assert holders.holders(path) == NOBODY
    with WAYS[way](path):
        found = holders.holders(path)
        assert isinstance(found, Known)
        assert len(found.who) == 1
    with alone(path) as held:
        assert held.intact()
        with opened(path, os.O_WRONLY):
            assert not held.intact()


@pytest.mark.parametrize("way", ["a writer that appends", "a map that may be written to", "another process"])
def test_processes_that_have_it_are_found_and_our_own_descriptor_is_none(tmp_path: Path, way: str) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"x" * 8192)
    with opened(path, os.O_RDONLY) as fd:
        assert holders.by_processes(fd)[0] == []
        with WAYS[way](path):
            assert len(holders.by_processes(fd)[0]) == 1


@pytest.mark.usefixtures("_no_lease")
def test_what_may_not_be_looked_at_makes_it_unknown_but_for_a_holder_that_was_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"x")
    monkeypatch.setattr(holders, "LOCAL", {*holders.LOCAL, _kind(path)})
    monkeypatch.setattr(holders, "_INITIAL_PID_NAMESPACE", os.stat("/proc/self/ns/pid").st_ino)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(holders, "by_processes", lambda _fd: ([], False))
    assert isinstance(holders.holders(path), Unknown)
    monkeypatch.setattr(holders, "by_processes", lambda _fd: ([], True))
    assert holders.holders(path) == NOBODY
    monkeypatch.setattr(holders, "by_processes", lambda _fd: (["pid 7"], False))
    assert holders.holders(path) == Known(("pid 7",))


@pytest.mark.usefixtures("_no_lease")
def test_without_leases_nobody_but_root_can_know(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"x")
    monkeypatch.setattr(holders, "LOCAL", {*holders.LOCAL, _kind(path)})
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert isinstance(holders.holders(path), Unknown)


def _kind(path: Path) -> str:
    with path.open("rb") as file:
        return holders.file_system(file.fileno()) or ""


@pytest.mark.parametrize("kind", ["nfs4", "cifs", "9p", "fuse.sshfs", "virtiofs", "overlay", None])
def test_where_others_may_open_it_unseen_it_is_not_known(tmp_path: Path, kind: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"x")
    monkeypatch.setattr(holders, "file_system", lambda _fd: kind)
    found = holders.holders(path)
    assert isinstance(found, Unknown)
    assert kind is None or kind in found.why


OVERLAY = """
set -e
mount -t tmpfs none "$1"
mkdir "$1/low" "$1/up" "$1/work" "$1/all"
mount -t overlay overlay -o "lowerdir=$1/low,upperdir=$1/up,workdir=$1/work" "$1/all"
echo x > "$1/all/log"
exec "$2" -c "$3" "$1/all/log"
"""
ASK = "import sys; from pathlib import Path; from coldtrail import holders; print(repr(holders.holders(Path(sys.argv[1]))))"


@only_root
@pytest.mark.skipif(shutil.which("unshare") is None, reason="the program unshare is missing")
def test_of_a_real_overlay_it_is_not_known(tmp_path: Path) -> None:
    """What is mapped through it and then closed is counted on the file below: a lease would be given all the same."""
    command = ["unshare", "--mount", "sh", "-c", OVERLAY, "sh", str(tmp_path), sys.executable, ASK]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if "mount:" in done.stderr:
        pytest.skip("no overlay can be mounted here")
    assert "Unknown" in done.stdout, done.stderr
    assert "overlay" in done.stdout


# ---- by lsof ----------------------------------------------------------------------------------------------------------------


@pytest.fixture
def private(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file of one user's, on a system that has no leases and calls its disk local."""
    if shutil.which("lsof") is None:
        pytest.skip("lsof is missing")
    monkeypatch.delattr(fcntl, "F_SETLEASE")
    monkeypatch.setattr(holders, "_is_local", lambda _mounts, _path: True)
    path = tmp_path / "log"
    path.write_bytes(b"x" * 8192)
    path.chmod(0o600)
    return path


def test_lsof_is_asked_where_there_are_no_leases(private: Path) -> None:
    assert holders.holders(private) == NOBODY
    with by_a_process(private):
        found = holders.holders(private)
        assert isinstance(found, Known)
        assert len(found.who) == 1
    with opened(private, os.O_WRONLY):
        assert holders.holders(private) == Known((f"pid {os.getpid()}",))


def test_lsof_sees_what_is_mapped(private: Path) -> None:
    with mapped(private, os.O_RDWR, 3):
        assert holders.holders(private) == Known((f"pid {os.getpid()}",))


def test_a_file_that_others_may_open_is_not_known_by_lsof(private: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    private.chmod(0o644)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert isinstance(holders.holders(private), Unknown)


def test_without_lsof_it_is_not_known(private: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert isinstance(holders.holders(private), Unknown)


MOUNTS = """/dev/disk3s1s1 on / (apfs, sealed, local, read-only, journaled)
map auto_home on / (autofs, automounted, nobrowse)
/dev/disk3s5 on / (apfs, local, journaled)
"""


@pytest.mark.parametrize(
    ("mounts", "local"),
    [(MOUNTS, True), (MOUNTS + "host:/export on / (nfs, nodev)\n", False), ("", False)],
    ids=["disk", "network", "none"],
)
def test_local_is_what_mount_calls_so(mounts: str, local: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os.path, "ismount", lambda path: str(path) == "/")
    assert holders._is_local(mounts, Path("/there/is/a/log")) is local
