"""The plain bytes of one generation, from whatever segments hold them now."""

from __future__ import annotations

import bisect
import contextlib
from array import array
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass

from coldtrail.archive.base import Archive, Opened
from coldtrail.errors import CorruptionError
from coldtrail.filesource import FileSource
from coldtrail.format import frames
from coldtrail.format.frames import Frame, FrameError, TornFrameError, Work
from coldtrail.format.growing import read_growing
from coldtrail.format.index import RecordIndex
from coldtrail.format.segment import Footer, read_footer
from coldtrail.layout import Layout, SegmentName
from coldtrail.model import Gap

_RESOLVE_MAX = 50  # how often a segment may vanish under a reader before it gives up
_LISTINGS = 3  # one listing of a folder may miss a name that came while it ran


class SegmentFile:
    """One segment, open: its data frames and where their content stands in the generation."""

    def __init__(self, source: Opened, name: SegmentName, work: Work) -> None:
        self._source, self.name, self._work = source, name, work
        self.damage: FrameError | None = None  # what is wrong with the list of frames, if something is
        self.frames = [frame for frame in (self._growing() if name.end is None else self._listed(name.end)) if not frame.skippable]
        self.starts = [name.start]
        for frame in self.frames:
            self.starts.append(self.starts[-1] + frame.plain_length)

    @property
    def plain_end(self) -> int:
        """Behind the last byte that a whole frame holds."""
        return self.starts[-1]

    def _growing(self) -> Iterable[Frame]:
        found = read_growing(self._source, self.name.start)
        self.damage = None if isinstance(found.error, TornFrameError) else found.error
        return found.frames

    def _listed(self, end: int) -> Iterable[Frame]:
        """The frames that the seek table lists; those that a walk finds where it is damaged."""
        try:
            found = frames.read_seek_table(self._source)
            if sum(frame.plain_length for frame in found) == end - self.name.start:
                return found
            raise FrameError(self._source.size, "the seek table and the name differ about the segment's length")
        except FrameError as error:
            self.damage = error
        return self._walked()

    def _walked(self) -> Iterator[Frame]:
        with contextlib.suppress(FrameError):
            yield from frames.walk(self._source)

    def chunks(self, start: int, end: int) -> Iterator[tuple[int, bytes]]:
        """The plain bytes in [start, end) as far as there are whole frames; CorruptionError at a damaged one."""
        first = max(bisect.bisect_right(self.starts, start) - 1, 0)
        for at in range(first, len(self.frames)):
            plain_start = self.starts[at]
            if plain_start >= end:
                return
            plain = self.decode(self.frames[at])
            low, high = max(start - plain_start, 0), min(end - plain_start, len(plain))
            yield plain_start + low, plain if (low, high) == (0, len(plain)) else plain[low:high]

    def decode(self, frame: Frame) -> bytes:
        """One frame's content; CorruptionError names the place."""
        self._work.frames_decoded += 1
        try:
            plain = frames.decode(self._source.read_at(frame.offset, frame.length), frame.offset)
        except FrameError as error:
            raise CorruptionError(self._source.label, frame.offset, error.what) from error
        if len(plain) != frame.plain_length:
            raise CorruptionError(self._source.label, frame.offset, f"{len(plain)} bytes where {frame.plain_length} were promised")
        return plain

    def footer(self) -> Footer:
        """A sealed segment's account of itself; CorruptionError where it is damaged."""
        try:
            return read_footer(self._source)
        except FrameError as error:
            raise CorruptionError(self._source.label, error.offset, error.what) from error

    def index(self, footer: Footer) -> RecordIndex:
        """A sealed segment's record index; CorruptionError where it is damaged."""
        try:
            return footer.index(self._source)
        except FrameError as error:
            raise CorruptionError(self._source.label, error.offset, error.what) from error

    def ids(self) -> array[int] | None:
        """A sealed segment's table of ids; None where it has none, or that is damaged: then the index tells."""
        with contextlib.suppress(CorruptionError, FrameError):
            return self.footer().ids(self._source)
        return None

    @property
    def source(self) -> Opened:
        """The file itself."""
        return self._source

    def close(self) -> None:
        """Let the file go."""
        self._source.close()


@dataclass(frozen=True, slots=True)
class Piece:
    """A segment that is there, not yet opened."""

    name: SegmentName
    end: int | None  # None: as far as its frames go
    open: Callable[[], Opened]
    stored_bytes: Callable[[], int]


class Plain:
    """One generation's bytes: archive and store as one, whatever is compacted meanwhile.

    A segment that vanishes under the reader has been compacted: the place is looked up again.
    """

    def __init__(self, layout: Layout, archive: Archive, key: str, stream: str, generation: int, work: Work | None = None) -> None:
        self._layout, self._archive, self._key = layout, archive, key
        self.stream, self.generation = stream, generation
        self._folder = layout.generation(stream, generation)
        self.work = work or Work()

    def pieces(self) -> list[Piece]:
        """Every segment there is, sealed ones and open ones, by start; listed store first, so nothing slips between."""
        opened = self._open_names()
        found = [self._sealed(name) for name in self.sealed_names()]
        for at, name in enumerate(opened):
            end = opened[at + 1].start if at + 1 < len(opened) else None
            found.append(self._opened(name, end))
        return sorted(found, key=lambda piece: (piece.name.start, piece.name.is_open))

    def sealed_names(self) -> list[SegmentName]:
        """The sealed segments in the archive, by start, the widest first."""
        parsed = (SegmentName.parse(name) for name in self._archive.names(self._key))
        return sorted((name for name in parsed if name and not name.is_open), key=lambda name: (name.start, -(name.end or 0)))

    def _open_names(self) -> list[SegmentName]:
        try:
            parsed = [SegmentName.parse(path.name) for path in self._folder.iterdir()]
        except FileNotFoundError:
            return []
        return sorted((name for name in parsed if name and name.is_open), key=lambda name: name.start)

    def _sealed(self, name: SegmentName) -> Piece:
        key = f"{self._key}/{name}"
        return Piece(name, name.end, lambda: self._archive.open(key), lambda: self._archive.size(key))

    def _opened(self, name: SegmentName, end: int | None) -> Piece:
        path = self._folder / str(name)
        return Piece(name, end, lambda: FileSource(path, self.work), lambda: path.stat().st_size)

    def segment(self, piece: Piece) -> SegmentFile:
        """Open a piece; FileNotFoundError where it has been compacted away."""
        return SegmentFile(piece.open(), piece.name, self.work)

    def end(self) -> int:
        """Behind the last plain byte held."""
        for _ in range(_RESOLVE_MAX):
            pieces = self.pieces()
            try:
                return max((self._piece_end(piece) for piece in pieces), default=0)
            except FileNotFoundError:
                continue
        raise CorruptionError(self._folder, 0, "its segments keep vanishing")

    def _piece_end(self, piece: Piece) -> int:
        if piece.end is not None:
            return piece.end
        with closing(self.segment(piece)) as segment:
            return segment.plain_end

    def read(self, start: int = 0, end: int | None = None, gaps: list[Gap] | None = None) -> Iterator[tuple[int, bytes]]:
        """The bytes in [start, end) as (offset, bytes), in order, every one once; `end` None: all that is held.

        A damaged or missing range raises CorruptionError; with `gaps` given it is noted there and passed over.
        """
        goal = self.end() if end is None else end
        at, vanished, bad = start, 0, set[SegmentName]()
        while at < goal:
            piece, limit = self._choose(at, goal, bad)
            if piece is None:
                self._miss(at, limit, gaps)
                at = limit
                continue
            try:
                segment = self.segment(piece)
            except FileNotFoundError:
                vanished += 1
                if vanished > _RESOLVE_MAX:
                    raise CorruptionError(self._folder, 0, "its segments keep vanishing") from None
                continue
            with closing(segment):
                try:
                    for offset, plain in segment.chunks(at, limit):
                        yield offset, plain
                        at = offset + len(plain)
                    if at < limit:
                        bad.add(piece.name)
                except CorruptionError as error:
                    bad_end = segment.starts[bisect.bisect_right(segment.starts, at)]
                    at = yield from self._around(error, piece, at, min(bad_end, limit), gaps)

    def _around(
        self, error: CorruptionError, piece: Piece, start: int, end: int, gaps: list[Gap] | None
    ) -> Generator[tuple[int, bytes], None, int]:
        """Read a damaged frame's range from another segment that holds it, else note or raise; gives where to go on."""
        for other in self.pieces():
            if other.name != piece.name and other.name.start <= start:
                copy = self._whole(other, start, end)
                if copy is not None:
                    yield from copy
                    return end
        if gaps is None:
            raise error
        gaps.append(Gap(self.generation, start, end, str(error)))
        return end

    def _whole(self, piece: Piece, start: int, end: int) -> list[tuple[int, bytes]] | None:
        """The bytes in [start, end), of a frame at most, from a segment; None where it does not hold them whole."""
        try:
            with closing(self.segment(piece)) as segment:
                return list(segment.chunks(start, end)) if segment.plain_end >= end else None
        except (FileNotFoundError, CorruptionError):
            return None

    def _choose(self, at: int, goal: int, bad: set[SegmentName]) -> tuple[Piece | None, int]:
        """The segment to read from at `at` (the widest, sealed before open) and up to where; None: nothing holds it."""
        pieces: list[Piece] = []
        for _ in range(_LISTINGS):
            pieces = [piece for piece in self.pieces() if piece.name not in bad]
            holding = [piece for piece in pieces if piece.name.start <= at and (piece.end is None or piece.end > at)]
            if holding:
                best = max(holding, key=lambda piece: (not piece.name.is_open, piece.end or goal))
                return best, min(best.end or goal, goal)
        return None, min((piece.name.start for piece in pieces if piece.name.start > at), default=goal)

    def _miss(self, start: int, end: int, gaps: list[Gap] | None) -> None:
        if gaps is None:
            raise CorruptionError(self._folder, 0, f"plain bytes {start} to {end} are held by no segment")
        gaps.append(Gap(self.generation, start, end, "held by no segment"))
