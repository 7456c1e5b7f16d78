"""Who has a file open? The kernel tells, by a lease, wherever it can; else every process is looked at; else nobody can know."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from coldtrail.errors import SourceError

# Of these the kernel knows every opener, and a rename is one step come what may. Not overlay: what is mapped through it is counted below.
LOCAL = frozenset({"bcachefs", "btrfs", "ext3", "ext4", "f2fs", "jfs", "nilfs2", "ramfs", "reiserfs", "tmpfs", "xfs", "zfs"})
_HELD_BY_OTHERS = (errno.EAGAIN, errno.EBUSY)
_INITIAL_PID_NAMESPACE = 0xEFFFFFFC  # the kernel's own number for it
_LSOF_S = 60.0


@dataclass(frozen=True, slots=True)
class Known:
    """Every holder is known; of those that may not be looked at, that there are some."""

    who: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"open: {', '.join(self.who)}" if self.who else "open nowhere"


@dataclass(frozen=True, slots=True)
class Unknown:
    """It cannot be known who has it open."""

    why: str

    def __str__(self) -> str:
        return f"who has it open cannot be known: {self.why}"


Holders = Known | Unknown
NOBODY = Known()


class Alone:
    """A file that is open here; `found` says who else had it open when it was looked at."""

    def __init__(self, fd: int, path: Path) -> None:
        self.fd, self.path = fd, path
        self._leased = False
        self.found: Holders = self._look()

    @property
    def nobody(self) -> bool:
        """Whether for certain nobody else had it open."""
        return self.found == NOBODY

    def intact(self) -> bool:
        """Whether still nobody has it open, or waits to.

        With a lease the answer holds until the block ends; without one it is of the moment in which it is asked for.
        """
        if self._leased:
            return fcntl.fcntl(self.fd, fcntl.F_GETLEASE) == fcntl.F_WRLCK
        return self._look() == NOBODY

    def let_go(self) -> None:
        """Let those in who wait."""
        if self._leased:
            self._leased = False
            with contextlib.suppress(BlockingIOError):  # it was broken too long ago: the kernel has taken it back
                fcntl.fcntl(self.fd, fcntl.F_SETLEASE, fcntl.F_UNLCK)

    def _look(self) -> Holders:
        if not hasattr(fcntl, "F_SETLEASE"):
            return by_lsof(self.fd, self.path)
        kind = file_system(self.fd)
        if kind not in LOCAL:
            return Unknown(f"it lies on {kind or 'a file system that /proc does not tell of'}")
        refused = self._lease()
        if refused in _HELD_BY_OTHERS:
            return Known(tuple(by_processes(self.fd)[0]) or ("somebody",))
        return NOBODY if refused is None else _by_every_process(self.fd, refused)

    def _lease(self) -> int | None:
        """Take a write lease, which is to be had only by who is alone; gives the errno where it is refused.

        Who opens the file then waits until it is let go. The kernel would tell us by a signal, of which the usual one kills:
        ours is one that is ignored, and once the lease is held nobody is named to get it.
        """
        try:
            fcntl.fcntl(self.fd, fcntl.F_SETSIG, signal.SIGURG)
            fcntl.fcntl(self.fd, fcntl.F_SETLEASE, fcntl.F_WRLCK)
            self._leased = True
            fcntl.fcntl(self.fd, fcntl.F_SETOWN, 0)
        except OSError as error:
            return error.errno
        return None


@contextlib.contextmanager
def alone(path: Path) -> Iterator[Alone]:
    """Open a file for reading and, where nobody else has it open, keep it so for the block; SourceError where it cannot be opened.

    The kernel breaks a lease after some 45 seconds, so the block is to be short; who breaks it is seen by `intact`.

        with alone(path) as held:
            if held.nobody and held.intact():
                os.rename(path, elsewhere)
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW)
    except OSError as error:
        raise SourceError(path, error.strerror or str(error), hint="it is tried again later") from error
    held = None
    try:
        held = Alone(fd, path)
        yield held
    finally:
        if held is not None:
            held.let_go()
        os.close(fd)


def holders(path: Path) -> Holders:
    """Who has a file open now, besides this call; Unknown too where it cannot be opened."""
    try:
        with alone(path) as held:
            return held.found
    except SourceError as error:
        return Unknown(error.what)


def file_system(fd: int) -> str | None:
    """The kind of file system that an open file lies on, by the kernel's word (`ext4`); None where it does not say."""
    try:
        with open(f"/proc/self/fdinfo/{fd}", encoding="ascii", errors="replace") as about:
            mount = next((line.split()[1] for line in about if line.startswith("mnt_id:")), None)
        with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as mounts:
            found = next((line for line in mounts if line.split()[0] == mount), None)
    except OSError:
        return None
    return None if found is None else found.rpartition(" - ")[2].split()[0]


def _by_every_process(fd: int, refused: int) -> Holders:
    """Without a lease only root can see everybody, and not from within a container."""
    no_lease = f"no lease is to be had ({os.strerror(refused)})"
    try:
        everybody = os.geteuid() == 0 and os.stat("/proc/self/ns/pid").st_ino == _INITIAL_PID_NAMESPACE
    except OSError:
        everybody = False
    if not everybody:
        return Unknown(f"{no_lease}, and not every process can be looked at")
    who, complete = by_processes(fd)
    return Known(tuple(who)) if who or complete else Unknown(f"{no_lease}, and some processes may not be looked at")


def by_processes(fd: int) -> tuple[list[str], bool]:
    """The processes that have the same file open or mapped, this descriptor left out; and whether all could be looked at."""
    wanted, who, complete = os.fstat(fd), list[str](), True
    for pid in sorted(int(name) for name in os.listdir("/proc") if name.isdigit()):
        has, seen = _has(pid, wanted, fd if pid == os.getpid() else None)
        who += [f"pid {pid}{_name(pid)}"] if has else []
        complete = complete and seen
    return who, complete


def _has(pid: int, wanted: os.stat_result, but: int | None) -> tuple[bool, bool]:
    """Whether a process holds the file, and whether that could be seen; one that has ended holds nothing."""
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except (FileNotFoundError, ProcessLookupError):
        return False, True
    seen = True
    for folder in (f"/proc/{pid}/map_files", *(f"/proc/{pid}/task/{thread}/fd" for thread in threads)):
        try:
            names = os.listdir(folder)
        except (FileNotFoundError, ProcessLookupError):
            continue
        except PermissionError:
            seen = False
            continue
        if any(_is(f"{folder}/{name}", wanted) for name in names if name != str(but)):
            return True, True
    return False, seen


def _is(link: str, wanted: os.stat_result) -> bool:
    try:
        return os.path.samestat(os.stat(link), wanted)
    except OSError:
        return False


def _name(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as comm:
            return f" ({comm.read().strip()})"
    except OSError:
        return ""


def by_lsof(fd: int, path: Path) -> Holders:
    """Ask lsof, where the system has no leases: it sees all processes of its user, which is all that can open a private file."""
    if os.geteuid() != 0 and os.fstat(fd).st_mode & 0o077:
        return Unknown("other users may open it, whose processes cannot be looked at")
    try:
        mounts = subprocess.run(["mount"], capture_output=True, timeout=_LSOF_S, check=False).stdout
        if not _is_local(mounts.decode("utf-8", "replace"), path):
            return Unknown("it does not lie on a local disk")
        asked = subprocess.run(["lsof", "-F", "pf", "--", str(path)], capture_output=True, timeout=_LSOF_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return Unknown(f"lsof cannot be asked ({error})")
    if asked.returncode not in (0, 1):
        return Unknown(f"lsof failed (exit {asked.returncode})")
    return Known(tuple(_told_by_lsof(asked.stdout.decode("ascii", "replace"), os.getpid(), fd)))


def _told_by_lsof(text: str, own_pid: int, own_fd: int) -> Iterator[str]:
    """The processes in lsof's answer, of ours only where it is by another descriptor."""
    pid, told = "", set[str]()
    for line in text.split("\n"):
        if line.startswith("p"):
            pid = line[1:]
        elif line.startswith("f") and (pid, line[1:]) != (str(own_pid), str(own_fd)) and pid not in told:
            told.add(pid)
            yield f"pid {pid}"


def _is_local(mounts: str, path: Path) -> bool:
    """Whether `mount` lists the place that a path lies on as local: `/dev/disk3s5 on /there (apfs, local, journaled)`."""
    place = Path(os.path.realpath(path)).parent
    while not os.path.ismount(place):
        place = place.parent
    options = [line.rpartition(" (")[2].rstrip(")").split(", ") for line in mounts.split("\n") if f" on {place} (" in line]
    return bool(options) and "local" in options[-1]
