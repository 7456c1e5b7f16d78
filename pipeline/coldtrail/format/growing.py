"""A segment that still grows: frames, and behind those of each append a stamp that says how far the generation then reached."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from dataclasses import dataclass

from coldtrail.format import frames
from coldtrail.format.frames import Frame, FrameError, ReadAt, TornFrameError
from coldtrail.format.manifest import Stamp

_SEARCH_BYTES = 1 << 20
_STAMP_MAX_BYTES = 1 << 10  # a stamp is some 80 bytes
_STAMP_MAGIC = frames.SKIPPABLE_MAGIC.to_bytes(4, "little")


@dataclass(frozen=True, slots=True)
class Growing:
    """What an open segment's file holds."""

    frames: tuple[Frame, ...]  # the whole ones, stamps included
    stamp: Stamp | None  # the last one
    error: FrameError | None  # where it stops being whole, if it does; a TornFrameError is an append that was interrupted


def read_growing(source: ReadAt, start: int) -> Growing:
    """Walk an open segment whose first plain byte is `start`; decodes nothing, unless a stamp differs from the frames' headers."""
    found, error = _walked(source)
    last = next((at for at in reversed(range(len(found))) if found[at].skippable), None)
    stamp = None if last is None else _stamp(source, found[last])
    if stamp is not None and stamp.end != start + _plain_length(found[:last]):
        found = _placed(source, start, found)
    return Growing(tuple(found), stamp, error)


def last_stamp(source: ReadAt) -> Stamp | None:
    """The stamp that the segment ends with, told by its last bytes alone; None where it ends in something else."""
    data = source.read_at(max(0, source.size - _STAMP_MAX_BYTES), _STAMP_MAX_BYTES)
    place = data.rfind(_STAMP_MAGIC)
    return None if place < 0 else _decoded(data[place:])


def _walked(source: ReadAt) -> tuple[list[Frame], FrameError | None]:
    found: list[Frame] = []
    try:
        found.extend(frames.walk(source))  # what comes before an error stays
    except TornFrameError as torn:
        if _stamp_behind(source, torn.offset):
            return found, FrameError(torn.offset, "the frame is damaged: whole ones follow it")
        return found, torn
    except FrameError as error:
        return found, error
    return found, None


def _stamp_behind(source: ReadAt, offset: int) -> bool:
    """Whether a whole stamp follows: then the frame at `offset` was once whole too, and is no interrupted append."""
    for at in range(offset + 1, source.size, _SEARCH_BYTES):
        data = source.read_at(at, _SEARCH_BYTES + _STAMP_MAX_BYTES)
        place = data.find(_STAMP_MAGIC)
        while 0 <= place < _SEARCH_BYTES:
            length = 8 + int.from_bytes(data[place + 4 : place + 8], "little")
            if length <= _STAMP_MAX_BYTES and _decoded(data[place : place + length]) is not None:
                return True
            place = data.find(_STAMP_MAGIC, place + 1)
    return False


def _placed(source: ReadAt, start: int, found: list[Frame]) -> list[Frame]:
    """The same frames, each where the stamps say that its content stands: one header's false claim must not move what follows it."""
    placed: list[Frame] = []
    batch: list[Frame] = []
    at = start
    for frame in found:
        batch.append(frame)
        stamp = _stamp(source, frame) if frame.skippable else None
        if stamp is not None:
            if at + _plain_length(batch) != stamp.end:
                batch = _mended(source, batch, stamp.end - at)
            at += _plain_length(batch)
            placed += batch
            batch = []
    return placed + batch


def _mended(source: ReadAt, batch: list[Frame], plain_length: int) -> list[Frame]:
    """An append's frames, what does not decode among them as one frame of the length that is left for it.

    Where all decode it is the stamp that is wrong.
    """
    bad = [at for at, frame in enumerate(batch) if not frame.skippable and not _decodes(source, frame)]
    if not bad:
        return batch
    before, after = batch[: bad[0]], batch[bad[-1] + 1 :]
    left = plain_length - _plain_length(before) - _plain_length(after)
    first, last = batch[bad[0]], batch[bad[-1]]
    return [*before, Frame(first.offset, last.end - first.offset, left), *after] if left > 0 else batch


def _decodes(source: ReadAt, frame: Frame) -> bool:
    try:
        return len(frames.decode(source.read_at(frame.offset, frame.length))) == frame.plain_length
    except FrameError:
        return False


def _plain_length(some: Iterable[Frame]) -> int:
    return sum(frame.plain_length for frame in some)


def _stamp(source: ReadAt, frame: Frame) -> Stamp | None:
    return _decoded(source.read_at(frame.offset, min(frame.length, _STAMP_MAX_BYTES)))


def _decoded(frame: bytes) -> Stamp | None:
    with contextlib.suppress(ValueError):
        return Stamp.decode(frames.skippable_payload(frame))
    return None
