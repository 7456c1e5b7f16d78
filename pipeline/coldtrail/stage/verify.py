"""Verify: hold everything that is kept against what it says of itself; its structure always, its data as far as is wished."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, field, replace

from coldtrail import indexes
from coldtrail.catalog import changed
from coldtrail.errors import ColdtrailError, CorruptionError
from coldtrail.format import segment as sealed
from coldtrail.format.frames import Frame, FrameError
from coldtrail.format.manifest import Manifest, Sealed, StreamMeta
from coldtrail.format.segment import BlockHashes, prefix_hash
from coldtrail.home import Home
from coldtrail.layout import TEMP_PREFIX, SegmentName
from coldtrail.plain import Piece, Plain, SegmentFile
from coldtrail.sessions import manifest_has_checksum, manifest_label, read_manifest
from coldtrail.stage.sample import is_chosen
from coldtrail.store import DAMAGED_SUFFIX

_REPAIR = (
    "`coldtrail verify --repair` makes it again where another copy has its bytes; while the agent's file is there, "
    "`coldtrail run --once` captures it anew; else `coldtrail events` reads what is intact"
)
_OTHER_BYTES = "its segments are whole and not those that were sealed: put the archive's folder back from a backup"
_KEPT_ASIDE = "`coldtrail verify --repair` ends the repair that was cut short"

_NO_CHECKSUM = "has no checksum, so that nobody can tell whether it is damaged"
_WRITE_ANEW = "run `coldtrail rebuild`: it writes it anew with one"


@dataclass(frozen=True, slots=True, order=True)
class Spot:
    """A segment, by its place; the order is that in which they are read."""

    session: str
    stream: str
    generation: int
    offset: int  # of its first plain byte


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is wrong with our copy."""

    path: str
    offset: int  # bytes into that file
    what: str
    hint: str = _REPAIR
    spot: Spot | None = None  # of the segment, or the hole, where it is about one

    @property
    def is_left_by_repair(self) -> bool:
        """Whether it is only what a repair that was cut short has not cleared away."""
        return self.hint == _KEPT_ASIDE


def _in_time() -> bool:
    return False


@dataclass(frozen=True, slots=True)
class Effort:
    """Which of the data is read; that is asked segment by segment."""

    percent: float | None = None  # of the frames, chosen by chance; None: all of them
    seed: int = 0  # which decides that chance
    is_over: Callable[[], bool] = _in_time  # whether the time is up: what is left of the data is for another time
    begin: Spot | None = None  # what comes before was read another time
    again: frozenset[Spot] = frozenset()  # but for these, which were damaged then


ALL = Effort()


@dataclass(slots=True)
class Verdict:
    """What verify found, and how much it looked at."""

    sessions: int = 0
    streams: int = 0
    segments: int = 0
    frames: int = 0  # that were decoded
    frames_there: int = 0
    plain_bytes: int = 0
    stored_bytes: int = 0
    findings: list[Finding] = field(default_factory=list)
    unverifiable: list[Finding] = field(default_factory=list)
    next: Spot | None = None  # where the data goes on that there was no time for

    @property
    def word(self) -> str:
        """ok, bad or unverifiable."""
        return "bad" if self.findings else "unverifiable" if self.unverifiable else "ok"

    @property
    def damaged(self) -> frozenset[Spot]:
        """The segments that are."""
        return frozenset(each.spot for each in self.findings if each.spot is not None)


def verify(
    home: Home, sessions: Iterable[str] | None = None, progress: Callable[[Verdict], None] = lambda _: None, effort: Effort = ALL
) -> Verdict:
    """Check names, footers, indexes, manifests, order and completeness of these sessions (all where None), and decode their data.

    Of that the `effort` says how much. Changes nothing but a mark in the catalog, by which the next pass compares what is
    damaged with the agent's file.
    """
    verdict = Verdict()
    streams: dict[str, list[StreamMeta]] = {}
    removed = {row.stream for row in home.catalog.graves()}  # of these a removal that was cut short may have left something
    for stream in sorted(set(home.store.streams()) - removed):
        meta = _meta(home, stream, verdict)
        if meta is not None:
            streams.setdefault(meta.session, []).append(meta)
    chosen = streams if sessions is None else {key: streams.get(key, []) for key in sessions}
    for key, metas in sorted(chosen.items()):
        verdict.sessions += 1
        told = len(verdict.findings), len(verdict.unverifiable)
        if not metas:
            verdict.unverifiable.append(
                Finding(str(home.layout.store), 0, f"session {key} has no stream in the store", "run `coldtrail rebuild`")
            )
            continue
        manifest = _manifest(home, metas[0], verdict)
        for meta in metas:
            _verify_stream(home, meta, manifest, verdict, effort)
            progress(verdict)
        if any(home.catalog.graves(stream=meta.stream) for meta in metas):  # it was removed while it was read
            del verdict.findings[told[0] :], verdict.unverifiable[told[1] :]
    if sessions is None:
        verdict.findings += _leftovers(home)
    return verdict


def _meta(home: Home, stream: str, verdict: Verdict) -> StreamMeta | None:
    try:
        meta = home.store.meta(stream)
    except ColdtrailError as error:
        path = str(home.layout.meta(stream))
        verdict.findings.append(Finding(path, 0, str(error).removeprefix(f"{path}: "), error.hint))
        return None
    if meta is not None and not home.store.meta_has_checksum(stream):
        verdict.unverifiable.append(Finding(str(home.layout.meta(stream)), 0, _NO_CHECKSUM, _WRITE_ANEW))
    if meta is None and any(not name.startswith(TEMP_PREFIX) for name in home.store.names(stream)):
        verdict.findings.append(
            Finding(str(home.layout.meta(stream)), 0, "missing", "run `coldtrail rebuild`: the archive may still have it")
        )
    return meta


def _manifest(home: Home, meta: StreamMeta, verdict: Verdict) -> Manifest | None:
    whose = (home, meta.source, meta.session, meta.host)
    label = manifest_label(*whose)
    try:
        found = read_manifest(*whose)
    except ColdtrailError as error:
        verdict.findings.append(Finding(label, 0, str(error).removeprefix(f"{label}: "), error.hint))
        return None
    if not manifest_has_checksum(*whose):
        verdict.unverifiable.append(Finding(label, 0, _NO_CHECKSUM, _WRITE_ANEW))
    return found


def _verify_stream(home: Home, meta: StreamMeta, manifest: Manifest | None, verdict: Verdict, effort: Effort) -> None:
    verdict.streams += 1
    before = len(verdict.findings)
    for generation in meta.generations:
        found = verify_generation(home, meta, generation.number, manifest, verdict, effort)
        if not found or _is_kept(home, meta, generation.number):
            verdict.findings += found
    if len(verdict.findings) > before:
        _ask_for_check(home, meta)


def verify_generation(
    home: Home, meta: StreamMeta, number: int, manifest: Manifest | None, verdict: Verdict, effort: Effort = ALL
) -> list[Finding]:
    """What is wrong with one generation; `verdict` gets the counts, and what cannot be told."""
    promised = promise(manifest, meta.stream, number)
    check = _Check(home.plain(meta, number), Spot(meta.session, meta.stream, number, 0), promised, verdict, effort)
    return list(check.findings())


def promise(manifest: Manifest | None, stream: str, generation: int) -> Sealed | None:
    """What a manifest says of the sealed bytes of a generation."""
    told = manifest.sealed if manifest is not None else ()
    return next((held for owner, held in told if (owner, held.generation) == (stream, generation)), None)


def _is_kept(home: Home, meta: StreamMeta, number: int) -> bool:
    """Whether a generation is still one of the stream's: it may have been thinned out while it was read."""
    with contextlib.suppress(ColdtrailError):
        fresh = home.store.meta(meta.stream)
        return fresh is None or any(each.number == number for each in fresh.generations)
    return True


def _ask_for_check(home: Home, meta: StreamMeta) -> None:
    """Let the next pass compare the agent's file whole: where our copy of it is damaged it is captured anew."""
    with home.changing(meta.session):
        row = home.catalog.stream(meta.stream)
        if row is not None:
            home.catalog.put(changed(row, check_due=1))


class _Check:
    """Each segment of a generation by itself, then that they follow each other and are what the manifest says."""

    def __init__(self, plain: Plain, spot: Spot, promised: Sealed | None, verdict: Verdict, effort: Effort) -> None:
        self._plain, self._spot, self._promised = plain, spot, promised
        self._verdict, self._effort = verdict, effort
        self._said: list[str] = []  # the hashes of the blocks, as the segments' footers name them
        self._sealed_end = 0
        self._read = BlockHashes()  # the same from the data, from where it was last read without a break

    def findings(self) -> Iterator[Finding]:
        at, whole = 0, True
        for piece in indexes.cover(self._plain):
            if piece.name.start > at:
                what = f"plain bytes {at} to {piece.name.start} are held by no segment"
                yield Finding(_label(self._plain, piece), 0, what, spot=replace(self._spot, offset=at))
                whole = False
            at, spot = piece.name.start, replace(self._spot, offset=piece.name.start)
            try:
                with closing(self._plain.segment(piece)) as segment:
                    at = self._segment(segment)
            except CorruptionError as error:
                yield Finding(str(error.path), error.offset, error.what, spot=spot)
                whole = False
            except FileNotFoundError:
                self._verdict.unverifiable.append(Finding(_label(self._plain, piece), 0, "compacted while it was read", "run verify again"))
                return
            except OSError as error:
                self._unread(Finding(_label(self._plain, piece), 0, f"cannot be read: {error.strerror}", spot=spot), error.errno)
                whole = False
            if not whole:
                self._read = BlockHashes()  # what comes next is hashed by itself
            at = max(at, piece.end or 0)
        if self._promised is not None and whole:
            yield from self._unlike(self._promised, at)

    def _unread(self, found: Finding, why: int | None) -> None:
        """A disk that fails has damaged our copy; rights and the like prove nothing."""
        bad = why == errno.EIO
        (self._verdict.findings if bad else self._verdict.unverifiable).append(found if bad else replace(found, hint="", spot=None))

    def _segment(self, segment: SegmentFile) -> int:
        """Check one; gives where it ends. CorruptionError."""
        spot = replace(self._spot, offset=segment.name.start)
        self._verdict.segments += 1
        self._verdict.frames_there += len(segment.frames)
        if self._is_wanted(replace(spot, offset=segment.plain_end), spot):
            self._data(segment, spot)
        check_account(segment)
        if not segment.name.is_open:
            about = segment.footer().meta
            first = about.start // sealed.BLOCK_BYTES
            self._said[first:] = [*[""] * (first - len(self._said)), *about.blocks]
            self._sealed_end = about.end
            self._compare_blocks(segment)
        return segment.plain_end

    def _is_wanted(self, end: Spot, spot: Spot) -> bool:
        """Whether the data of a segment is to be read now. Of one that was merged meanwhile all is, for it may reach beyond."""
        if self._effort.begin is not None and end <= self._effort.begin and spot not in self._effort.again:
            return False
        if self._verdict.next is None and self._verdict.frames and self._effort.is_over():
            self._verdict.next = spot
        return self._verdict.next is None

    def _data(self, segment: SegmentFile, spot: Spot) -> None:
        """Decode what is chosen of it; where that is all, hold it against the hash that it names."""
        digest, counted = hashlib.sha256(), 0
        for frame, start in zip(segment.frames, segment.starts, strict=False):
            if self._is_chosen(spot, start):
                counted += 1
                data = self._decoded(segment, frame)
                digest.update(data)
                self._feed(start, data)
        if counted == len(segment.frames) and segment.damage is None and not segment.name.is_open:
            _check_digest(segment, digest.hexdigest())

    def _is_chosen(self, spot: Spot, start: int) -> bool:
        percent = self._effort.percent
        return percent is None or is_chosen(self._effort.seed, percent, spot.stream, spot.generation, start)

    def _decoded(self, segment: SegmentFile, frame: Frame) -> bytes:
        data = segment.decode(frame)
        self._verdict.frames += 1
        self._verdict.plain_bytes += len(data)
        self._verdict.stored_bytes += frame.length
        return data

    def _feed(self, start: int, data: bytes) -> None:
        """Hash the blocks of what is read without a break, from the first that begins in it."""
        if start != self._read.end:
            skipped = -start % sealed.BLOCK_BYTES
            start, data = start + min(skipped, len(data)), data[skipped:]
            self._read = BlockHashes((start + sealed.BLOCK_BYTES - 1) // sealed.BLOCK_BYTES * sealed.BLOCK_BYTES)
        if data:
            self._read.feed(data)

    def _compare_blocks(self, segment: SegmentFile) -> None:
        first, own = self._read.start // sealed.BLOCK_BYTES, self._read.digests()
        if self._read.end == self._sealed_end and own != tuple(self._said[first : first + len(own)]):
            raise CorruptionError(segment.source.label, 0, "the SHA-256 of a block of its bytes is not the one it names")

    def _unlike(self, promised: Sealed, end: int) -> Iterator[Finding]:
        where = f"stream {self._plain.stream}, generation {self._plain.generation}"
        if end < promised.end:
            yield Finding(where, 0, f"ends at {end}; {promised.end} bytes were sealed", spot=replace(self._spot, offset=end))
            return
        try:
            found = self._prefix(promised.end)
        except CorruptionError as error:
            yield Finding(str(error.path), error.offset, error.what)
            return
        if found != promised.prefix_sha256:
            yield Finding(where, 0, f"the bytes up to {promised.end} are not those that the manifest names", _OTHER_BYTES)

    def _prefix(self, end: int) -> str:
        """The hash of the first bytes as the footers have it; the end is read where no segment ends there, for one was merged since."""
        if end == self._sealed_end:
            return prefix_hash(tuple(self._said))
        known = min(end, self._sealed_end) // sealed.BLOCK_BYTES
        rest = BlockHashes(known * sealed.BLOCK_BYTES)
        for _, data in self._plain.read(rest.start, end):
            rest.feed(data)
        return prefix_hash((*self._said[:known], *rest.digests()))


def segment_bytes(plain: Plain, piece: Piece, verdict: Verdict) -> Iterator[bytes]:
    """A segment's bytes, after which everything that it says of itself has been checked; CorruptionError."""
    digest, at = hashlib.sha256(), piece.name.start
    with closing(plain.segment(piece)) as segment:
        verdict.segments += 1
        verdict.stored_bytes += segment.source.size
        for offset, data in segment.chunks(at, segment.plain_end):
            digest.update(data)
            at = offset + len(data)
            verdict.plain_bytes += len(data)
            yield data
        check_account(segment)
        if not piece.name.is_open:
            _check_digest(segment, digest.hexdigest())


def check_account(segment: SegmentFile) -> None:
    """Check all that a segment says of itself but for its data: seek table, account, index, ids; CorruptionError."""
    if segment.damage is not None:
        raise CorruptionError(segment.source.label, segment.damage.offset, segment.damage.what)
    if segment.name.is_open:
        return
    about, name = segment.footer(), segment.name
    segment.index(about)
    try:
        about.ids(segment.source)
        about.check_frames(segment.source)
    except FrameError as error:
        raise CorruptionError(segment.source.label, error.offset, error.what) from error
    if (about.meta.start, about.meta.end, segment.plain_end) != (name.start, name.end, name.end):
        what = f"holds plain bytes {about.meta.start} to {segment.plain_end}, which is not what its name says"
        raise CorruptionError(segment.source.label, 0, what)


def _check_digest(segment: SegmentFile, found: str) -> None:
    if segment.footer().meta.sha256 != found:
        raise CorruptionError(segment.source.label, 0, "the SHA-256 of its plain bytes is not the one it names")


def _label(plain: Plain, piece: Piece) -> str:
    return f"stream {plain.stream}, generation {plain.generation}, {piece.name}"


def _leftovers(home: Home) -> Iterator[Finding]:
    """Segments of streams that no metadata knows, and segments that were set aside as damaged."""
    known = {stream for stream in home.store.streams() if home.layout.meta(stream).exists()}
    for key in home.archive.walk():
        *folders, name = key.split("/")
        if SegmentName.parse(name) and len(folders) == 4 and folders[2] not in known:
            yield Finding(f"archive/{key}", 0, "the store does not know its stream", "run `coldtrail rebuild`")
        if name.endswith(DAMAGED_SUFFIX):
            yield Finding(f"archive/{key}", 0, "a damaged segment, kept aside until the one in its place was proven", _KEPT_ASIDE)
    for path in sorted(os.path.join(folder, name) for folder, _, names in os.walk(home.layout.store) for name in names):
        if path.endswith(DAMAGED_SUFFIX):
            yield Finding(path, 0, "an open segment that was set aside as damaged; its later frames may hold bytes that nothing else does")
