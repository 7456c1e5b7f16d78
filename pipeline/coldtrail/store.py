"""The store: each stream's meta.json and its open segments, appended to frame by frame."""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from coldtrail import durable
from coldtrail.errors import ColdtrailError
from coldtrail.filesource import FileSource
from coldtrail.format import frames
from coldtrail.format.frames import FrameError, TornFrameError
from coldtrail.format.growing import read_growing
from coldtrail.format.manifest import OtherVersionError, Stamp, StreamMeta, has_checksum
from coldtrail.layout import Layout, SegmentName, check_id

DAMAGED_SUFFIX = ".damaged"  # an open segment that was set aside: kept for people, read by nobody
NEWER = "a newer coldtrail has written it: update this one"
ROLL_FRAMES = 4096  # an open segment of more frames than this is slow to walk


class Store:
    """Reads and writes what lies under store/; the caller holds the session's lock for every write."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout

    def streams(self) -> Iterator[str]:
        """The id of every stream that has a folder."""
        with contextlib.suppress(FileNotFoundError), os.scandir(self._layout.store) as entries:
            for entry in entries:
                with contextlib.suppress(ValueError):
                    yield check_id(entry.name)

    def names(self, stream: str) -> list[str]:
        """What is in a stream's folder; nothing where there is none."""
        with contextlib.suppress(FileNotFoundError):
            return os.listdir(self._layout.stream(stream))
        return []

    def meta(self, stream: str) -> StreamMeta | None:
        """A stream's meta.json; None where there is none, ColdtrailError where it is damaged."""
        path = self._layout.meta(stream)
        try:
            return StreamMeta.decode(path.read_bytes())
        except FileNotFoundError:
            return None
        except OtherVersionError as error:
            raise ColdtrailError(f"{path}: {error}", hint=NEWER) from error
        except ValueError as error:
            raise ColdtrailError(f"{path}: {error}", hint="run `coldtrail rebuild`: it writes it anew from what else is known") from error

    def meta_has_checksum(self, stream: str) -> bool:
        """Whether a meta.json that can be read would be known as damaged if it were; those of an earlier coldtrail would not."""
        with contextlib.suppress(FileNotFoundError):  # removed since it was read
            return has_checksum(self._layout.meta(stream).read_bytes())
        return True

    def write_meta(self, meta: StreamMeta) -> None:
        """Give a stream's meta.json new content, durably."""
        durable.replace(self._layout.meta(meta.stream), meta.encode())

    def open_names(self, stream: str, generation: int) -> list[SegmentName]:
        """The open segments of a generation, by start; all but the last have stopped growing."""
        folder = self._layout.generation(stream, generation)
        try:
            parsed = [SegmentName.parse(name) for name in os.listdir(folder)]
        except FileNotFoundError:
            return []
        return sorted((name for name in parsed if name and name.is_open), key=lambda name: name.start)

    def last_stamp(self, meta: StreamMeta, generation: int) -> Stamp:
        """How the agent's file looked when the generation was last captured or checked."""
        stamp = meta.generation(generation).stamp
        for name in reversed(self.open_names(meta.stream, generation)):
            state, _ = survey(self._layout.generation(meta.stream, generation) / str(name), name.start)
            if state.stamp is not None:  # one that was just begun has none
                return state.stamp if state.stamp.end > stamp.end else stamp  # with none behind it, a later check has been noted here
        return stamp

    def stored_bytes(self, stream: str) -> int:
        """The length of every segment of a stream in the store."""
        total = 0
        for folder, _, files in os.walk(self._layout.stream(stream)):
            for name in files:
                if SegmentName.parse(name):
                    with contextlib.suppress(FileNotFoundError):
                        total += (Path(folder) / name).stat().st_size
        return total


@dataclass(frozen=True, slots=True)
class OpenState:
    """What an open segment's file holds."""

    start: int
    end: int  # behind the last plain byte
    size: int  # length of the file
    frame_count: int
    stamp: Stamp | None  # the last one


def survey(path: Path, start: int) -> tuple[OpenState, FrameError | None]:
    """Walk an open segment's frames; the error says where it stops being whole, if it does."""
    with FileSource(path) as source:
        found = read_growing(source, start)
    end = start + sum(frame.plain_length for frame in found.frames)
    size = found.frames[-1].end if found.frames else 0
    return OpenState(start, end, size, sum(not frame.skippable for frame in found.frames), found.stamp), found.error


class OpenSegment:
    """The one segment of a generation that grows, open for appending."""

    def __init__(self, path: Path, fd: int, state: OpenState) -> None:
        self.path, self._fd = path, fd
        self.start, self.end, self.size, self.frame_count = state.start, state.end, state.size, state.frame_count
        self.stamp = state.stamp

    @classmethod
    def resume(cls, folder: Path, name: SegmentName, left: OpenState | None = None) -> Self:
        """Open the segment that grows: an unfinished last frame is cut off, a damaged file is set aside whole.

        After a set-aside the segment holds the frames before the damage; what came behind is captured again
        while the agent's file is there, and stays in the `.damaged` file in any case. `left`: how this process left
        the file; as long as it has that size it is not walked again.
        """
        path = folder / str(name)
        if left is not None and left.start == name.start and path.stat().st_size == left.size:
            return cls(path, os.open(path, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC), left)
        state, error = survey(path, name.start)
        if error is not None and not isinstance(error, TornFrameError):
            _set_aside(path, state.size)
        fd = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC)
        if isinstance(error, TornFrameError):
            durable.step("cut", path)
            os.ftruncate(fd, state.size)
            durable.sync_fd(fd, path)
        return cls(path, fd, state)

    @classmethod
    def create(cls, folder: Path, start: int) -> Self:
        """Begin a new open segment at the plain offset `start`, durably named."""
        durable.make_folder(folder)
        path = folder / str(SegmentName(start))
        durable.step("create", path)
        with durable.full_disk_told(path):
            fd = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, durable.FILE_MODE)
        durable.sync_folder(folder)
        return cls(path, fd, OpenState(start, start, 0, 0, None))

    def append(self, data: list[tuple[bytes, int]], stamp: Stamp) -> None:
        """Append frames, given with their content's length, and the stamp behind them; on disk when it returns."""
        stamped = frames.skippable(stamp.encode())
        block = b"".join(frame for frame, _ in data) + stamped
        durable.append(self._fd, block, self.path, self.size)
        self.size += len(block)
        self.end += sum(length for _, length in data)
        self.frame_count += len(data)
        self.stamp = stamp

    def state(self) -> OpenState:
        """What the file holds now."""
        return OpenState(self.start, self.end, self.size, self.frame_count, self.stamp)

    def close(self) -> None:
        """Let the file go."""
        os.close(self._fd)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def _set_aside(path: Path, good: int) -> None:
    """Keep a damaged segment under another name and go on with its first `good` bytes."""
    _keep_damaged(path)
    with durable.unfinished(path) as (fd, temp):
        with FileSource(path) as source:
            durable.write_all(fd, source.read_at(0, good), temp)
        durable.sync_fd(fd, temp)
        os.replace(temp, path)
    durable.sync_folder(path.parent)


def _keep_damaged(path: Path) -> None:
    """A second name for the file as it is, unless it has one: an earlier damaged one keeps its own."""
    for number in itertools.count(1):
        kept = path.with_name(f"{path.name}{f'.{number}' if number > 1 else ''}{DAMAGED_SUFFIX}")
        try:
            os.link(path, kept)
        except FileExistsError:
            if not kept.samefile(path):
                continue
        durable.sync_folder(path.parent)
        return
