"""Surroundings: the agents' folders and the disks, as far as it depends on them whether everything is seen and kept."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from coldtrail.agents.walk import Source
from coldtrail.holders import file_system
from coldtrail.layout import Layout
from coldtrail.stage.doctor import Finding, Severity

# Of what others change on these the kernel tells nobody here.
NETWORK = frozenset(
    {"nfs", "nfs4", "cifs", "smb2", "smb3", "smbfs", "ncpfs", "9p", "afs", "ceph", "glusterfs", "fuse.sshfs", "fuse.glusterfs"}
)
LITTLE_BYTES, TOO_LITTLE_BYTES = 5 << 30, 512 << 20
LITTLE_SHARE = 0.05
FEW_INODES = 10_000
INOTIFY = Path("/proc/sys/fs/inotify")

KindOf = Callable[[Path], str | None]


def kind_of(path: Path) -> str | None:
    """The kind of file system that a folder, or the nearest one above it that is there, lies on; None where that is not told."""
    while not path.is_dir() and path != path.parent:
        path = path.parent
    try:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        return file_system(fd)
    finally:
        os.close(fd)


@dataclass(slots=True)
class Seen:
    """What a walk over a source's folders has met."""

    folders: int = 0
    unreadable: list[str] = field(default_factory=list)
    links_out: list[str] = field(default_factory=list)  # links to folders outside of the root


def of_sources(sources: Iterable[Source], named: Iterable[str], kind: KindOf = kind_of, limits: Path = INOTIFY) -> Iterator[Finding]:
    """What keeps the agents' files from being seen; `named` are the sources that the config names."""
    there, watched = list[Source](), 0
    wanted = set(named)
    for source in sources:
        if not source.root.is_dir():
            yield _absent(source, is_named=source.name in wanted)
            continue
        there.append(source)
        if not os.access(source.root, os.R_OK | os.X_OK):
            fix = "give the user that runs coldtrail the right to it"
            yield Finding(Severity.ERROR, str(source.root), "may not be looked into", f"nothing of {source.agent.name} is captured", fix)
            continue
        seen = look(source)
        watched += seen.folders + len(seen.links_out)
        yield from _of_walk(source, seen)
        yield from _of_network(source, kind(source.root))
    if not there:
        means = "there is nothing to capture"
        yield Finding(
            Severity.WARNING, "agents", "none was found on this machine", means, "run one, or name a folder with [[source]] in the config"
        )
    yield from _of_limits(watched, len(there), limits)


def _absent(source: Source, *, is_named: bool) -> Finding:
    if is_named:
        what = f"the source {source.name} is not there: is its disk mounted?"
        return Finding(
            Severity.WARNING, str(source.root), what, "it is looked out for; what was captured stays", "mount it, or see to the config"
        )
    return Finding(Severity.NOTE, str(source.root), f"{source.agent.name} is not on this machine", "it is looked out for")


def look(source: Source) -> Seen:
    """Walk over a source's folders; links are noted and not followed."""
    seen = Seen()

    def fails(error: OSError) -> None:
        if not isinstance(error, FileNotFoundError):
            seen.unreadable.append(f"{os.fsdecode(error.filename)}: {error.strerror}")

    for top in source.agent.folders:
        for folder, folders, _ in os.walk(source.root / top, onerror=fails):
            seen.folders += 1
            for name in folders:
                path = os.path.join(folder, name)
                if os.path.islink(path) and not Path(os.path.realpath(path)).is_relative_to(os.path.realpath(source.root)):
                    seen.links_out.append(path)
    return seen


def _of_walk(source: Source, seen: Seen) -> Iterator[Finding]:
    if seen.unreadable:
        what = f"{len(seen.unreadable)} folders cannot be looked into: {seen.unreadable[0]}"
        fix = "give the user that runs coldtrail the right to it"
        yield Finding(Severity.ERROR, str(source.root), what, "what is in them is not captured", fix)
    if seen.links_out:
        what = f"{len(seen.links_out)} links lead to folders outside: {seen.links_out[0]}"
        yield Finding(Severity.NOTE, str(source.root), what, "they are followed, once each, and watched")


def _of_network(source: Source, kind: str | None) -> Iterator[Finding]:
    if kind in NETWORK:
        what = f"lies on a network file system ({kind})"
        means = "no events come of what other machines write: only a scan sees it, and who has a file open cannot be known"
        yield Finding(Severity.WARNING, str(source.root), what, means, 'capture.scan_every = "30s" in the config')


def _of_limits(folders: int, roots: int, limits: Path) -> Iterator[Finding]:
    watches, instances = (_number(limits / name) for name in ("max_user_watches", "max_user_instances"))
    if watches is not None and folders > watches * 0.9:
        what = f"{folders} folders are to be watched, and this user may watch {watches}"
        fix = f"sudo sysctl fs.inotify.max_user_watches={max(folders * 4, 524_288)}"
        yield Finding(Severity.WARNING, "fs.inotify.max_user_watches", what, "polling takes over: changes are seen later", fix)
    if instances is not None and roots >= instances:
        what = f"{roots} agents' folders are to be watched, and this user may have {instances} watchers"
        fix = f"sudo sysctl fs.inotify.max_user_instances={max(roots * 4, 512)}"
        yield Finding(Severity.WARNING, "fs.inotify.max_user_instances", what, "polling takes over: changes are seen later", fix)


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text("ascii"))
    except (OSError, ValueError):
        return None


def of_disks(layout: Layout, statvfs: Callable[[Path], os.statvfs_result] = os.statvfs, kind: KindOf = kind_of) -> Iterator[Finding]:
    """Whether there is room, and whether a catalog can live there."""
    for folder in dict.fromkeys((layout.home, layout.archive)):
        try:
            found = statvfs(folder)
        except OSError:
            continue  # told elsewhere, or not made yet
        yield from _of_room(folder, found)
        if layout.archive.is_relative_to(layout.home):
            break
    if kind(layout.home) in NETWORK:
        means = "SQLite's WAL does not work between machines: the catalog may be damaged (it can be made again)"
        yield Finding(
            Severity.WARNING, str(layout.home), f"lies on a network file system ({kind(layout.home)})", means, "have `home` on a local disk"
        )


def _of_room(folder: Path, found: os.statvfs_result) -> Iterator[Finding]:
    free, total = found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize
    if free < TOO_LITTLE_BYTES:
        what = f"only {free >> 20} MiB are free on its disk"
        yield Finding(
            Severity.ERROR, str(folder), what, "soon nothing is captured any more", "free some space, or set `retention.max_total`"
        )
    elif free < LITTLE_BYTES and free < total * LITTLE_SHARE:
        what = f"{free >> 20} MiB are free on its disk, of {total >> 30} GiB"
        yield Finding(Severity.WARNING, str(folder), what, "", "free some space, or have `archive.url` on another disk")
    if found.f_files and found.f_favail < FEW_INODES:
        what = f"only {found.f_favail} more files can be made on its disk"
        yield Finding(Severity.WARNING, str(folder), what, "each session takes several", "remove what is small and many")
