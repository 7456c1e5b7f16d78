"""Repair: a damaged segment is made again from whatever has its bytes, once they are proven to be the ones that were sealed."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from hashlib import sha256

from coldtrail import durable, indexes
from coldtrail.catalog import changed
from coldtrail.errors import ColdtrailError, CorruptionError
from coldtrail.filesource import FileSource
from coldtrail.format import segment as sealed
from coldtrail.format.manifest import Manifest, StreamMeta
from coldtrail.format.segment import BlockHashes, prefix_hash
from coldtrail.home import Home
from coldtrail.journal import Act
from coldtrail.layout import SegmentName
from coldtrail.model import Gap
from coldtrail.plain import Piece, Plain
from coldtrail.sessions import find_manifest, refresh
from coldtrail.stage.compact import SEGMENT_MAX_BYTES
from coldtrail.stage.origins import Origin, origins_of
from coldtrail.stage.rebuild import stored_bytes
from coldtrail.stage.seal import Order, seal
from coldtrail.stage.verify import Spot, Verdict, promise, segment_bytes
from coldtrail.store import DAMAGED_SUFFIX

_STEP_BYTES = 1 << 20
_LEVEL = 9
_NO_HASHES = "neither its own account nor the manifest can be read so as to tell which bytes were in it"
_NO_SOURCE = "nothing has the bytes that were sealed: not the agent's file, no other segment, no other generation"
_NO_META = "its meta.json is missing: run `coldtrail rebuild` first"
_GROWS = "an open segment, of which no hash is known: the next `coldtrail run --once` captures it anew from the agent's file"


@dataclass(frozen=True, slots=True)
class Repaired:
    """A segment that is whole again."""

    spot: Spot
    name: str  # archive/<key>
    bytes: int  # plain ones in it
    origins: tuple[str, ...]  # what they were taken from


@dataclass(frozen=True, slots=True)
class Lost:
    """A segment that stays as it is."""

    spot: Spot
    name: str
    why: str
    start: int
    end: int
    unread: tuple[Gap, ...] = ()  # what of it cannot be read; the rest can


def repair(home: Home, spots: Iterable[Spot]) -> Iterator[Repaired | Lost]:
    """Make damaged or missing segments again, one after the other; each is whole, or as it was, whenever this is cut short.

    Only bytes are written whose SHA-256, block by block, are those that the segment's footer or the session's manifest names. The
    damaged file stays beside the new one, as `.damaged`, until that is proven.
    """
    for spot in sorted(spots):
        with durable.locked(home.layout.compact_lock(spot.session)):
            meta = home.store.meta(spot.stream)
            if meta is None:
                yield Lost(
                    spot, f"stream {spot.stream}", "its meta.json is missing: run `coldtrail rebuild` first", spot.offset, spot.offset
                )
                continue
            manifest = _manifest(home, meta)
            for name in _names(home, meta, spot, manifest):
                yield _Work(home, meta, spot, name, manifest).done()
    _drop_leftovers(home)


def _manifest(home: Home, meta: StreamMeta) -> Manifest | None:
    with contextlib.suppress(ColdtrailError):
        return find_manifest(home, meta.source, meta.session, meta.host)
    return None


def _names(home: Home, meta: StreamMeta, spot: Spot, manifest: Manifest | None) -> list[SegmentName]:
    """The segment there; where there is none, those that fill the hole."""
    pieces = indexes.cover(home.plain(meta, spot.generation))
    here = [piece.name for piece in pieces if piece.name.start == spot.offset]
    if here:
        return here
    promised = promise(manifest, meta.stream, spot.generation)
    ahead = [piece.name.start for piece in pieces if piece.name.start > spot.offset] + [promised.end if promised else 0]
    end = min((at for at in ahead if at > spot.offset), default=spot.offset)
    return [SegmentName(at, min(at + SEGMENT_MAX_BYTES, end)) for at in range(spot.offset, end, SEGMENT_MAX_BYTES)]


@dataclass(frozen=True, slots=True)
class _Block:
    """Of a block of a generation: where the bytes end that were hashed, and their SHA-256."""

    end: int
    sha256: str


class _Proven(Plain):
    """A generation in which one segment's bytes come from origins, each block proven as it is read."""

    def __init__(self, home: Home, meta: StreamMeta, generation: int, name: SegmentName) -> None:
        key = home.layout.generation_key(meta.host, meta.source, meta.stream, generation)
        super().__init__(home.layout, home.archive, key, meta.stream, generation, home.work)
        self._name = name
        self.blocks: Mapping[int, _Block] = {}
        self.origins: Sequence[Origin] = ()
        self.used: dict[str, None] = {}  # the names of the origins, in order

    def pieces(self) -> list[Piece]:
        return [piece for piece in super().pieces() if piece.name != self._name]

    def read(self, start: int = 0, end: int | None = None, gaps: list[Gap] | None = None) -> Iterator[tuple[int, bytes]]:
        goal = self.end() if end is None else end
        first, last = self._name.start, self._name.end or 0
        if start < first:
            yield from super().read(start, min(goal, first), gaps)
        size = sealed.BLOCK_BYTES
        for at in range(max(start, first) // size * size, min(goal, last), size):
            low, high = max(at, start, first), min(at + size, goal, last)
            if low < high:
                yield low, self._block(at // size)[low - at : high - at]
        if goal > last:
            yield from super().read(max(start, last), goal, gaps)

    def _block(self, number: int) -> bytes:
        start, wanted = number * sealed.BLOCK_BYTES, self.blocks[number]
        for origin in self.origins:
            data = origin.read(start, wanted.end)
            if len(data) == wanted.end - start and sha256(data).hexdigest() == wanted.sha256:
                self.used[origin.name] = None
                return data
        raise CorruptionError(f"stream {self.stream}, generation {self.generation}", 0, _NO_SOURCE)


class _Work:
    """The repair of one segment. The caller holds the lock of the session's compaction."""

    def __init__(self, home: Home, meta: StreamMeta, spot: Spot, name: SegmentName, manifest: Manifest | None) -> None:
        self._home, self._meta, self._spot, self._name, self._manifest = home, meta, spot, name, manifest
        self._plain = home.plain(meta, spot.generation)
        folder = home.layout.generation_key(meta.host, meta.source, meta.stream, spot.generation)
        self._key = f"{folder}/{name}"

    def done(self) -> Repaired | Lost:
        """Repair it, or say why it cannot be."""
        if self._name.is_open:
            return self._lost(_GROWS)
        with origins_of(self._home, self._meta, self._spot.generation) as origins:
            proven = _Proven(self._home, self._meta, self._spot.generation, self._name)
            proven.origins = origins
            proven.blocks = self._by_footer() or self._by_manifest(origins)
            if not proven.blocks:
                return self._lost(_NO_HASHES if self._promised_end() < self._end else _NO_SOURCE)
            try:
                for _ in proven.read(self._name.start, self._end):  # before anything is touched
                    pass
                self._write(proven)
            except CorruptionError as error:
                return self._lost(error.what)
        return Repaired(self._spot, f"archive/{self._key}", self._end - self._name.start, tuple(proven.used))

    @property
    def _end(self) -> int:
        return self._name.end or self._name.start

    def _lost(self, why: str) -> Lost:
        unread: list[Gap] = []
        end = self._name.end or self._plain.end()
        with contextlib.suppress(OSError):
            for _ in self._plain.read(self._name.start, end, unread):
                pass
        return Lost(self._spot, f"archive/{self._key}" if self._name.end else str(self._name), why, self._name.start, end, tuple(unread))

    # ---- which bytes were sealed ----

    def _by_footer(self) -> Mapping[int, _Block]:
        """The hashes that the damaged segment names, where that part of it is whole."""
        try:
            with closing(self._home.archive.open(self._key)) as source:
                about = sealed.read_footer(source).meta
        except (FileNotFoundError, ValueError):
            return {}
        if (about.start, about.end) != (self._name.start, self._name.end):
            return {}
        return _numbered(about.blocks, about.start // sealed.BLOCK_BYTES, about.end)

    def _by_manifest(self, origins: Sequence[Origin]) -> Mapping[int, _Block]:
        """The hashes of the blocks of an origin that has all that the manifest names, from the first byte on."""
        promised = promise(self._manifest, self._meta.stream, self._spot.generation)
        if promised is None or promised.end < self._end:
            return {}
        for origin in origins:
            blocks = BlockHashes()
            for start in range(0, promised.end, sealed.BLOCK_BYTES):
                blocks.feed(origin.read(start, min(start + sealed.BLOCK_BYTES, promised.end)))
            if prefix_hash(blocks.digests()) == promised.prefix_sha256:
                return _numbered(blocks.digests(), 0, promised.end)
        return {}

    def _promised_end(self) -> int:
        promised = promise(self._manifest, self._meta.stream, self._spot.generation)
        return 0 if promised is None else promised.end

    # ---- writing it ----

    def _write(self, proven: _Proven) -> None:
        """Keep the damaged file, put the new one in its place, prove that, let the damaged one go."""
        missing = str(self._name) not in self._home.archive.names(self._key.rpartition("/")[0])
        if not missing:
            _keep(self._home, self._key)
        try:
            seal(self._home, self._meta, proven, Order(self._name.start, self._end, dense=True, level=_LEVEL), None)
        except (ColdtrailError, OSError):  # the damaged one is in its place still
            self._home.archive.remove(self._key + DAMAGED_SUFFIX)
            raise
        if not _is_sound(self._plain, self._name):
            raise CorruptionError(f"archive/{self._key}", 0, "what was written in its place cannot be read back: is the disk failing?")
        self._home.archive.remove(self._key + DAMAGED_SUFFIX)
        self._note(", ".join(proven.used))

    def _note(self, origins: str) -> None:
        """The journal tells of it; the catalog knows how much is stored."""
        reason = f"{self._name} of stream {self._meta.stream}, generation {self._spot.generation}, from {origins}"
        self._home.journal.note(Act.REPAIRED, self._meta.session, self._meta.session_id, reason)
        with self._home.changing(self._meta.session):
            row = self._home.catalog.stream(self._meta.stream)
            if row is not None:
                with self._home.catalog.transaction():
                    self._home.catalog.put(changed(row, stored_bytes=stored_bytes(self._home, self._meta)))
                    refresh(self._home, self._meta.session)


def _numbered(hashes: Sequence[str], first: int, end: int) -> Mapping[int, _Block]:
    size = sealed.BLOCK_BYTES
    return {number: _Block(min((number + 1) * size, end), each) for number, each in enumerate(hashes, first)}


def _keep(home: Home, key: str) -> None:
    """Have a second copy of a damaged segment, as far as the disk gives it, under a name that no reader takes for a segment."""
    kept = key + DAMAGED_SUFFIX
    with durable.unfinished(home.archive.staging(kept) / kept.rpartition("/")[2]) as (fd, temp):
        with closing(home.archive.open(key)) as source, contextlib.suppress(OSError):
            for at in range(0, source.size, _STEP_BYTES):
                durable.write_all(fd, source.read_at(at, _STEP_BYTES), temp)
        durable.sync_fd(fd, temp)
        with contextlib.suppress(FileExistsError):  # a repair that was cut short has kept it
            home.archive.publish(temp, kept)
    temp.unlink(missing_ok=True)


def _is_sound(plain: Plain, name: SegmentName) -> bool:
    """Whether a segment is whole, as the disk has it."""
    piece = next((each for each in plain.pieces() if each.name == name), None)
    if piece is None:
        return False
    with contextlib.closing(piece.open()) as source:
        if isinstance(source, FileSource):
            source.forget_cached()
    try:
        for _ in segment_bytes(plain, piece, Verdict()):
            pass
    except (CorruptionError, OSError):
        return False
    return True


def _drop_leftovers(home: Home) -> None:
    """Let go what earlier repairs have kept and not let go, where the segment in its place is whole."""
    for kept in [key for key in home.archive.walk() if key.endswith(DAMAGED_SUFFIX)]:
        *_, stream, generation, file = kept.removesuffix(DAMAGED_SUFFIX).split("/")
        name, meta = SegmentName.parse(file), None
        with contextlib.suppress(ColdtrailError, ValueError):
            meta = home.store.meta(stream)
        if name is not None and meta is not None and _is_sound(home.plain(meta, int(generation)), name):
            home.archive.remove(kept)
