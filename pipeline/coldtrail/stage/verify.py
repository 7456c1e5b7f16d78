"""Verify: read everything that is kept, and hold it against what it says of itself."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from coldtrail import indexes
from coldtrail.catalog import changed
from coldtrail.errors import ColdtrailError, CorruptionError
from coldtrail.format.manifest import Manifest, Sealed, StreamMeta
from coldtrail.format.segment import BlockHashes, prefix_hash
from coldtrail.home import Home
from coldtrail.layout import TEMP_PREFIX, SegmentName
from coldtrail.plain import Piece, Plain
from coldtrail.sessions import read_manifest
from coldtrail.store import DAMAGED_SUFFIX

_REPAIR = "while the agent's file is there, `coldtrail run --once` captures it anew; else `coldtrail events` reads what is intact"


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is wrong with our copy."""

    path: str
    offset: int  # bytes into that file
    what: str
    hint: str = _REPAIR


@dataclass(slots=True)
class Verdict:
    """What verify found, and how much it looked at."""

    sessions: int = 0
    streams: int = 0
    segments: int = 0
    plain_bytes: int = 0
    stored_bytes: int = 0
    findings: list[Finding] = field(default_factory=list)
    unverifiable: list[Finding] = field(default_factory=list)

    @property
    def word(self) -> str:
        """ok, bad or unverifiable."""
        return "bad" if self.findings else "unverifiable" if self.unverifiable else "ok"


def verify(home: Home, sessions: Iterable[str] | None = None, progress: Callable[[Verdict], None] = lambda _: None) -> Verdict:
    """Decode every segment of these sessions (all where None), check hashes, order and completeness.

    Changes nothing but a mark in the catalog, by which the next pass compares what is damaged with the agent's file.
    """
    verdict = Verdict()
    streams: dict[str, list[StreamMeta]] = {}
    for stream in sorted(home.store.streams()):
        meta = _meta(home, stream, verdict)
        if meta is not None:
            streams.setdefault(meta.session, []).append(meta)
    chosen = streams if sessions is None else {key: streams.get(key, []) for key in sessions}
    for key, metas in sorted(chosen.items()):
        verdict.sessions += 1
        if not metas:
            verdict.unverifiable.append(
                Finding(str(home.layout.store), 0, f"session {key} has no stream in the store", "run `coldtrail rebuild`")
            )
            continue
        manifest = _manifest(home, metas[0], verdict)
        for meta in metas:
            _verify_stream(home, meta, manifest, verdict)
            progress(verdict)
    if sessions is None:
        verdict.findings += _leftovers(home)
    return verdict


def _meta(home: Home, stream: str, verdict: Verdict) -> StreamMeta | None:
    try:
        meta = home.store.meta(stream)
    except ColdtrailError as error:
        verdict.findings.append(Finding(str(home.layout.meta(stream)), 0, str(error), error.hint))
        return None
    if meta is None and any(not path.name.startswith(TEMP_PREFIX) for path in home.layout.stream(stream).iterdir()):
        verdict.findings.append(
            Finding(str(home.layout.meta(stream)), 0, "missing", "run `coldtrail rebuild`: the archive may still have it")
        )
    return meta


def _manifest(home: Home, meta: StreamMeta, verdict: Verdict) -> Manifest | None:
    try:
        return read_manifest(home, meta.source, meta.session, meta.host)
    except ColdtrailError as error:
        key = home.layout.manifest_key(meta.host, meta.source, meta.session)
        verdict.findings.append(Finding(f"archive/{key}", 0, str(error), "the next compaction writes it anew"))
        return None


def _verify_stream(home: Home, meta: StreamMeta, manifest: Manifest | None, verdict: Verdict) -> None:
    verdict.streams += 1
    promised = {held.generation: held for stream, held in (manifest.sealed if manifest else ()) if stream == meta.stream}
    before = len(verdict.findings)
    for generation in meta.generations:
        verdict.findings += _verify_generation(home.plain(meta, generation.number), promised.get(generation.number), verdict)
    if len(verdict.findings) > before:
        _ask_for_check(home, meta)


def _ask_for_check(home: Home, meta: StreamMeta) -> None:
    """Let the next pass compare the agent's file whole: where our copy of it is damaged it is captured anew."""
    with home.changing(meta.session):
        row = home.catalog.stream(meta.stream)
        if row is not None:
            home.catalog.put(changed(row, check_due=1))


def _verify_generation(plain: Plain, promised: Sealed | None, verdict: Verdict) -> Iterator[Finding]:
    """Each segment by itself, then that they follow each other and reach as far as the manifest says."""
    blocks, at, whole = BlockHashes(), 0, True
    reached: str | None = None
    for piece in indexes.cover(plain):
        if piece.name.start > at:
            yield Finding(_label(plain, piece), 0, f"plain bytes {at} to {piece.name.start} are held by no segment")
            whole = False
        at = piece.name.start
        try:
            for data in _segment_bytes(plain, piece, verdict):
                if promised is not None and at < promised.end <= at + len(data):  # a merge may have gone beyond it since
                    blocks.feed(data[: promised.end - at])
                    reached = prefix_hash(blocks.digests())
                    blocks.feed(data[promised.end - at :])
                else:
                    blocks.feed(data)
                at += len(data)
        except CorruptionError as error:
            yield Finding(str(error.path), error.offset, error.what)
            whole = False
        except FileNotFoundError:
            verdict.unverifiable.append(Finding(_label(plain, piece), 0, "compacted while it was read", "run verify again"))
            return
        at = max(at, piece.end or 0)
    if promised is not None and whole and reached != promised.prefix_sha256:
        what = (
            f"the bytes up to {promised.end} are not those that the manifest names"
            if at >= promised.end
            else f"ends at {at}; {promised.end} bytes were sealed"
        )
        yield Finding(f"stream {plain.stream}, generation {plain.generation}", 0, what)


def _segment_bytes(plain: Plain, piece: Piece, verdict: Verdict) -> Iterator[bytes]:
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
        if segment.damage is not None:
            raise CorruptionError(segment.source.label, segment.damage.offset, segment.damage.what)
        if piece.name.is_open:
            return
        about = segment.footer()
        segment.index(about)
        if (about.meta.start, about.meta.end, at) != (piece.name.start, piece.name.end, piece.name.end):
            raise CorruptionError(segment.source.label, 0, f"holds plain bytes {about.meta.start} to {at}, which is not what its name says")
        if about.meta.sha256 != digest.hexdigest():
            raise CorruptionError(segment.source.label, 0, "the SHA-256 of its plain bytes is not the one it names")


def _label(plain: Plain, piece: Piece) -> str:
    return f"stream {plain.stream}, generation {plain.generation}, {piece.name}"


def _leftovers(home: Home) -> Iterator[Finding]:
    """Segments of streams that no metadata knows, and segments that were set aside as damaged."""
    known = set(home.store.streams())
    for key in home.archive.walk():
        *folders, name = key.split("/")
        if SegmentName.parse(name) and len(folders) == 4 and folders[2] not in known:
            yield Finding(f"archive/{key}", 0, "the store does not know its stream", "run `coldtrail rebuild`")
    for path in sorted(Path(home.layout.store).glob(f"*/*/*{DAMAGED_SUFFIX}")):
        yield Finding(str(path), 0, "an open segment that was set aside as damaged; its later frames may hold bytes that nothing else does")
