"""Find the files under a root that may belong to sessions: links to folders once, by real path; links to files only outward."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from coldtrail.agents.base import Agent


@dataclass(frozen=True, slots=True)
class Source:
    """An agent's root folder."""

    name: str
    agent: Agent
    root: Path  # absolute, links resolved


@dataclass(frozen=True, slots=True)
class Candidate:
    """A file that is there: whether it is a session's is for the agent to say."""

    source: Source
    path: Path  # absolute, as the agent names it; the plain twin's path where the file is compressed
    rel: PurePosixPath  # below the root
    file: Path  # what is read: `path` itself, or its compressed twin
    stat: os.stat_result

    @property
    def is_twin(self) -> bool:
        """Whether only the compressed form is there."""
        return self.file != self.path


Problem = Callable[[Path, OSError], None]


def walk(source: Source, problem: Problem, *, below: PurePosixPath | None = None) -> Iterator[Candidate]:
    """Every candidate of a source, or those below one of its folders; folders that cannot be read go to `problem`."""
    seen: set[tuple[int, int]] = set()
    known = [Path(os.path.realpath(source.root / folder)) for folder in source.agent.folders]
    tops = [below] if below is not None else [PurePosixPath(folder) for folder in source.agent.folders]
    for top in tops:
        files = dict(_files(source.root / top, top, known, seen, problem))
        for rel in sorted(files):
            if (found := candidate(source, rel, files, problem)) is not None:
                yield found


def candidate(source: Source, rel: PurePosixPath, files: dict[PurePosixPath, Path], problem: Problem) -> Candidate | None:
    """The candidate at `rel`; None for a compressed file whose plain twin is there too: the plain one wins."""
    plain = source.agent.plain_path(rel)
    if plain is not None and plain in files:
        return None
    file = files[rel]
    named = source.root / (plain or rel)
    try:
        found = file.stat()
    except FileNotFoundError:
        return None
    except OSError as error:
        problem(file, error)
        return None
    if not stat.S_ISREG(found.st_mode) or (file.is_symlink() and _is_within(file.resolve(), source.root)):
        return None
    return Candidate(source, named, plain or rel, file, found)


def at_path(source: Source, path: Path, problem: Problem) -> Candidate | None:
    """The candidate at one path; None where there is no file, or none of this source."""
    try:
        rel = PurePosixPath(path.relative_to(source.root).as_posix())
    except ValueError:
        return None
    if not any(top in ("", ".") or rel.is_relative_to(top) for top in source.agent.folders):
        return None
    plain = source.agent.plain_path(rel)
    both = [each for each in (plain, rel) if each is not None and os.path.exists(source.root / each)]  # what may not be entered is no error
    files = {each: source.root / each for each in both}
    return candidate(source, both[0], files, problem) if both else None


def _files(
    folder: Path, rel: PurePosixPath, known: list[Path], seen: set[tuple[int, int]], problem: Problem
) -> Iterator[tuple[PurePosixPath, Path]]:
    """Depth first. A folder met again is passed over, and so is a link into `known` folders: what is there has a name of its own."""
    try:
        here = folder.stat()
        if (here.st_dev, here.st_ino) in seen or not stat.S_ISDIR(here.st_mode):
            return
        seen.add((here.st_dev, here.st_ino))
        with os.scandir(folder) as entries:
            listed = sorted(entries, key=lambda entry: (entry.is_symlink(), entry.name))
    except FileNotFoundError:
        return
    except OSError as error:
        problem(folder, error)
        return
    for entry in listed:
        try:
            is_folder, is_file = entry.is_dir(), entry.is_file()
        except OSError as error:  # a loop of links
            problem(folder / entry.name, error)
            continue
        if is_folder:
            if not (entry.is_symlink() and any(_is_within(Path(os.path.realpath(entry.path)), each) for each in known)):
                yield from _files(folder / entry.name, rel / entry.name, known, seen, problem)
        elif is_file:
            yield rel / entry.name, folder / entry.name


def _is_within(path: Path, root: Path) -> bool:
    return path == root or root in path.parents
