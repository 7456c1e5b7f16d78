"""What a folder really is: its identity on the disk, and where the links inside it lead."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

Identity = tuple[int, int]  # device and inode


def identity_of(folder: Path) -> Identity | None:
    """Which folder lies at a path now, links followed; None where none can be reached."""
    try:
        found = os.stat(folder)
    except OSError:
        return None
    return (found.st_dev, found.st_ino) if stat.S_ISDIR(found.st_mode) else None


def real_folders(root: Path) -> set[Path]:
    """The folders to watch for a root: its real path, and those of `linked_folders`. The root need not exist."""
    return {Path(os.path.realpath(root)), *linked_folders(root)}


def linked_folders(root: Path) -> dict[Path, Path]:
    """The real folders outside a root that links inside it lead to, each with its name under the root.

    Links in those count too; loops end. None of the folders lies in another: where links lead to both, the outer one is named.
    A link to a folder that holds the root is left out, for it would stand for half the disk.
    """
    real = Path(os.path.realpath(root))
    found: dict[Path, Path] = {}
    ahead = [(real, root)]
    while ahead:
        top, name = ahead.pop()
        for link, target in _links_to_folders(top):
            if real.is_relative_to(target) or any(target.is_relative_to(known) for known in (real, *found)):
                continue
            found = {known: its_name for known, its_name in found.items() if not known.is_relative_to(target)}
            found[target] = name / link.relative_to(top)
            ahead.append((target, found[target]))
    return found


def _links_to_folders(top: Path) -> Iterator[tuple[Path, Path]]:
    for folder, names, _ in os.walk(top):
        for name in names:
            path = os.path.join(folder, name)
            if os.path.islink(path):
                yield Path(path), Path(os.path.realpath(path))
