"""A generation's checkpoints: in the footers of its sealed segments, and in a file beside the open ones."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from coldtrail import durable, indexes
from coldtrail.errors import CorruptionError
from coldtrail.format import checkpoint
from coldtrail.format.checkpoint import Checkpoint
from coldtrail.format.frames import FrameError
from coldtrail.plain import Piece, Plain

FILE_NAME = "checkpoints"
Note = list[str]  # what was passed over, and why


def nearest(plain: Plain, folder: Path, limit: int, notes: Note) -> Iterator[Checkpoint]:
    """The checkpoints at or before the plain offset `limit`, the nearest first; a damaged one is passed over and noted."""
    yield from _decoded([each for each in reversed(read_file(folder)) if each[0] <= limit], str(folder / FILE_NAME), notes)
    for piece in reversed(indexes.cover(plain)):
        if not piece.name.is_open and piece.name.start < limit:
            yield from _decoded(_sealed(plain, piece, limit, notes), str(piece.name), notes)


def _decoded(entries: list[tuple[int, bytes]] | Iterator[tuple[int, bytes]], label: str, notes: Note) -> Iterator[Checkpoint]:
    for offset, packed in entries:
        try:
            yield Checkpoint.decode(packed)
        except ValueError as error:
            notes.append(f"{label}: the checkpoint at {offset} is passed over ({error})")


def _sealed(plain: Plain, piece: Piece, limit: int, notes: Note) -> Iterator[tuple[int, bytes]]:
    """A sealed segment's checkpoints up to `limit`, packed, the last first; read one by one."""
    try:
        with closing(plain.segment(piece)) as segment:
            place = segment.footer().checkpoints_at
            for listed in reversed(checkpoint.read_directory(segment.source, *place) if place else []):
                if listed.offset <= limit:
                    yield listed.offset, listed.read(segment.source)
    except (CorruptionError, FrameError, FileNotFoundError) as error:
        notes.append(f"{piece.name}: its checkpoints are passed over ({error})")


def sealed_entries(plain: Plain, piece: Piece) -> list[tuple[int, bytes]]:
    """All of a sealed segment's checkpoints, packed, in order; none where they are damaged, for they can be made again."""
    return list(_sealed(plain, piece, piece.end or 0, []))[::-1]


def read_file(folder: Path) -> list[tuple[int, bytes]]:
    """The packed checkpoints in the file beside the open segments, in order."""
    try:
        return checkpoint.unpack((folder / FILE_NAME).read_bytes())
    except FileNotFoundError:
        return []


def add_to_file(folder: Path, entries: list[tuple[int, bytes]]) -> None:
    """Add checkpoints behind those that are whole; replaced by rename, for readers come at any time."""
    if entries:
        durable.replace(folder / FILE_NAME, checkpoint.pack([*read_file(folder), *entries]))


def trim_file(folder: Path, start: int) -> None:
    """Drop the checkpoints at or before `start`: the segments that they speak of are sealed, and have them."""
    entries = read_file(folder)
    kept = [entry for entry in entries if entry[0] > start]
    if len(kept) < len(entries):
        durable.replace(folder / FILE_NAME, checkpoint.pack(kept))


def drop_file(folder: Path) -> None:
    """Remove the file: what it held is in the sealed segments, or is made again."""
    durable.remove(folder / FILE_NAME)
