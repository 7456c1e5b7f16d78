"""A generation's checkpoints: in the footers of its sealed segments, and in a file beside the open ones."""

from __future__ import annotations

import contextlib
import heapq
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path

from coldtrail import durable, indexes
from coldtrail.errors import CorruptionError
from coldtrail.filesource import FileSource
from coldtrail.format import checkpoint
from coldtrail.format.checkpoint import Checkpoint, Listed
from coldtrail.format.frames import FrameError, ReadAt
from coldtrail.plain import Piece, Plain
from coldtrail.state import VERSION

FILE_NAME = "checkpoints"
_RESOLVE_MAX = 50  # how often a segment may vanish under a reader before it gives up

Entry = tuple[int, bytes]  # where a checkpoint stands in the log, and its packed form


class Notes(list[str]):
    """What was passed over and why; one line for many of one kind."""

    def __init__(self) -> None:
        super().__init__()
        self._last, self._times = "", 0

    def passed(self, place: object, why: str) -> None:
        """A checkpoint is of no use."""
        self._times = self._times + 1 if why == self._last and self else 0
        self._last = why
        if self._times:
            first = self[-1].partition("; so ")[0]
            self[-1] = f"{first}; so are {self._times} before it"
        else:
            self.append(f"the checkpoint at {place} is passed over ({why})")


def nearest(plain: Plain, folder: Path, limit: int, notes: Notes) -> Iterator[Checkpoint]:
    """The checkpoints at or before the plain offset `limit`, the nearest first; one that is of no use is passed over and noted."""
    for offset, packed in heapq.merge(_beside(plain, folder, limit, notes), _sealed(plain, limit, notes), key=lambda entry: -entry[0]):
        try:
            found = Checkpoint.decode(packed)
        except ValueError as error:
            notes.passed(f"{plain.generation}:{offset}", str(error))
            continue
        if found.version != VERSION:
            notes.passed(f"{plain.generation}:{offset}", f"made by version {found.version} of the fold; this one is version {VERSION}")
        elif (found.stream, found.generation) != (plain.stream, plain.generation):
            notes.passed(f"{plain.generation}:{offset}", f"it is that of stream {found.stream}, generation {found.generation}")
        elif found.offset != offset:
            notes.passed(f"{plain.generation}:{offset}", "it is that of another place")
        else:
            yield found


def _beside(plain: Plain, folder: Path, limit: int, notes: Notes) -> Iterator[Entry]:
    """Those up to `limit` in the file beside the open segments, the last first; read one by one, for it may hold many."""
    try:
        source = FileSource(folder / FILE_NAME, plain.work)
    except FileNotFoundError:
        return
    with source:
        found = [each for each in checkpoint.listed(source.read_at(0, source.size)) if each.offset <= limit]
        yield from _read(plain, source, sorted(found, key=lambda each: -each.offset), notes)


def _read(plain: Plain, source: ReadAt, listed: Iterable[Listed], notes: Notes) -> Iterator[Entry]:
    """These checkpoints, one by one; a damaged one is passed over and noted."""
    for each in listed:
        try:
            packed = each.read(source)
        except FrameError as error:
            notes.passed(f"{plain.generation}:{each.offset}", error.what)
            continue
        yield each.offset, packed


def _sealed(plain: Plain, limit: int, notes: Notes) -> Iterator[Entry]:
    """Those up to `limit` in sealed segments, the last first, each once though segments be merged meanwhile."""
    below = limit + 1
    for _ in range(_RESOLVE_MAX):
        with contextlib.suppress(FileNotFoundError):  # compacted since it was listed: what has taken its place has them too
            for piece in reversed(indexes.cover(plain)):
                if not piece.name.is_open and piece.name.start < below:
                    for entry in _listed(plain, piece, below, notes):
                        below = entry[0]
                        yield entry
            return


def _listed(plain: Plain, piece: Piece, below: int, notes: Notes) -> Iterator[Entry]:
    """A sealed segment's checkpoints before `below`, the last first; read one by one."""
    with closing(plain.segment(piece)) as segment:
        try:
            place = segment.footer().checkpoints_at
            listed = checkpoint.read_directory(segment.source, *place) if place else iter(())
        except (CorruptionError, FrameError) as error:
            notes.append(f"{piece.name}: its checkpoints are passed over ({error})")
            return
        yield from _read(plain, segment.source, (each for each in listed if each.offset < below), notes)


def sealed_entries(plain: Plain, piece: Piece) -> list[Entry]:
    """All of a sealed segment's checkpoints, packed, in order; without those that are damaged, for they can be made again."""
    return list(_listed(plain, piece, (piece.end or 0) + 1, Notes()))[::-1]


def is_missing(folder: Path) -> bool:
    """Whether there is no file beside open segments, though there are such."""
    return folder.is_dir() and not (folder / FILE_NAME).exists()


def read_file(folder: Path) -> list[Entry]:
    """The packed checkpoints in the file beside the open segments, in order."""
    try:
        return checkpoint.unpack((folder / FILE_NAME).read_bytes())
    except FileNotFoundError:
        return []


def add_to_file(folder: Path, entries: list[Entry], *, after: int) -> None:
    """Put checkpoints behind the last one that held, at `after`: those beyond it were of no use.

    Replaced by rename, for readers come at any time. With none to add the file is there all the same: they were looked for.
    """
    known = read_file(folder)
    fresh = [*(entry for entry in known if entry[0] <= after), *entries]
    if fresh != known or not (folder / FILE_NAME).exists():
        durable.replace(folder / FILE_NAME, checkpoint.pack(fresh))


def trim_file(plain: Plain, folder: Path) -> bool:
    """Drop the checkpoints that sealed segments have; gives whether any is left."""
    entries = read_file(folder)
    sealed: set[Entry] = set()
    for piece in indexes.cover(plain):
        if not piece.name.is_open and any(piece.name.start < offset <= (piece.end or 0) for offset, _ in entries):
            sealed.update(sealed_entries(plain, piece))
    kept = [entry for entry in entries if entry not in sealed]
    if len(kept) < len(entries):
        durable.replace(folder / FILE_NAME, checkpoint.pack(kept))
    return bool(kept)


def drop_file(folder: Path) -> None:
    """Remove the file: what it held is in the sealed segments, or is made again."""
    durable.remove(folder / FILE_NAME)
