"""Mend: a damaged meta.json or manifest is made again from what else is known of it."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from coldtrail import indexes
from coldtrail.catalog import StreamRow
from coldtrail.errors import ColdtrailError
from coldtrail.format.manifest import Generation, Manifest, OtherVersionError, PathSeen, Sealed, Stamp, StreamMeta
from coldtrail.format.segment import BLOCK_BYTES, prefix_hash
from coldtrail.home import Home
from coldtrail.model import Relation, Role
from coldtrail.sessions import find_manifest, manifest_has_checksum, read_unproven_manifest, tags_of, write_manifest

_GENERATION = re.compile("[0-9]{6,}")


# ---- meta.json ----------------------------------------------------------------------------------------------------------


def meta_of(home: Home, stream: str, copies: Mapping[str, StreamMeta]) -> StreamMeta | None:
    """What a damaged meta.json said: by the `copies` in manifests, else by itself and the catalog; None where nobody knows.

    With every generation that is in store or archive, for a copy may be older than the last ones.
    """
    meta = copies.get(stream) or _as_it_reads(home, stream) or _as_the_catalog_has_it(home, stream)
    return None if meta is None else _with_all_generations(home, meta)


def _as_it_reads(home: Home, stream: str) -> StreamMeta | None:
    """The damaged file itself, where it can be read, but for all that the catalog knows too."""
    try:
        meta = StreamMeta.decode(home.layout.meta(stream).read_bytes(), unproven=True)
    except (OSError, ValueError):
        return None
    row = home.catalog.stream(stream)
    if row is None:
        return meta if meta.stream == stream else None
    return _borne_out(meta, row)


def _borne_out(meta: StreamMeta, row: StreamRow) -> StreamMeta:
    return replace(
        meta,
        stream=row.stream,
        session=row.session,
        source=row.source,
        agent=row.agent,
        session_id=row.session_id,
        scope=row.scope,
        role=Role(row.role),
        is_log=bool(row.is_log),
        paths=(*meta.paths[:-1], replace(meta.paths[-1], path=os.fsdecode(row.path))),
        gone_ms=row.gone_ms,
    )


def _as_the_catalog_has_it(home: Home, stream: str) -> StreamMeta | None:
    row = home.catalog.stream(stream)
    if row is None:
        return None
    now_ms, path = home.now_ms(), os.fsdecode(row.path)
    first = Generation(0, now_ms, Stamp(0, 0o600, row.mtime_ns, now_ms))
    root = _root_of_source(home, row) or str(Path(path).parent)
    meta = StreamMeta(
        stream, row.session, home.host, row.source, row.agent, root, row.session_id, row.scope, Role(row.role), bool(row.is_log),
        (PathSeen(path, now_ms),), (first,),
    )  # fmt: skip
    return replace(meta, gone_ms=row.gone_ms)


def _root_of_source(home: Home, row: StreamRow) -> str | None:
    """The source's folder, as another of its streams has it."""
    for other in home.catalog.all_streams():
        with contextlib.suppress(ColdtrailError):
            meta = home.store.meta(other.stream) if other.source == row.source else None
            if meta is not None and Path(os.fsdecode(row.path)).is_relative_to(meta.root):
                return meta.root
    return None


def _with_all_generations(home: Home, meta: StreamMeta) -> StreamMeta:
    """The same with the generations whose bytes are there, though this copy does not know them."""
    known = {each.number for each in meta.generations}
    for number in sorted(set(numbers(home, meta)) - known):
        stamp = replace(meta.newest.stamp, end=0)
        meta = meta.with_generation(Generation(number, home.now_ms(), stamp, Relation.REPLACES if number else None))
    return meta


def numbers(home: Home, meta: StreamMeta) -> Iterator[int]:
    """The generations of which store or archive have a folder."""
    names = list(home.archive.names(f"{home.layout.source_key(meta.host, meta.source)}/{meta.stream}"))
    names += home.store.names(meta.stream)
    yield from (int(name) for name in names if _GENERATION.fullmatch(name))


def is_newer(error: ColdtrailError) -> bool:
    """Whether it is about a file that is not damaged, but a newer coldtrail's."""
    return isinstance(error.__cause__, OtherVersionError)


def rewrite_meta(home: Home, meta: StreamMeta) -> StreamMeta:
    """Write a stream's meta.json anew, unless somebody else has done so meanwhile, or it was removed; gives what it says then."""
    with home.changing(meta.session):
        if home.catalog.graves(stream=meta.stream):
            return meta
        with contextlib.suppress(ColdtrailError):
            meta = home.store.meta(meta.stream) or meta
        home.store.write_meta(meta)
    return meta


# ---- the manifest -------------------------------------------------------------------------------------------------------


def put_manifest(home: Home, source: str, session: str, streams: list[StreamMeta]) -> Manifest:
    """Make a session's manifest say what the archive holds of these streams now; the wishes in it stay. The caller holds the lock.

    Where it is damaged the wishes are what can still be read of them, and what the catalog knows.
    """
    host = streams[0].host if streams else home.host
    try:
        old = find_manifest(home, source, session, host)
    except ColdtrailError as error:
        if is_newer(error):
            raise
        old = None
        base = _with_saved_wishes(home, source, session, host)
    else:
        base = old or Manifest(session)
    streams = sorted(streams, key=lambda each: each.stream)
    sealed = tuple(held for stream in streams for held in _sealed(home, stream))
    fresh = replace(base, streams=tuple(streams), sealed=sealed)
    if fresh != old or not manifest_has_checksum(home, source, session, host):
        write_manifest(home, source, fresh, host)
    return fresh


def _with_saved_wishes(home: Home, source: str, session: str, host: str) -> Manifest:
    row, read = home.catalog.session(session), read_unproven_manifest(home, source, session, host)
    pinned, tags = bool(row and row.pinned) or read.pinned, (tags_of(row) if row else ()) or read.tags
    return replace(read, session=session, pinned=pinned, tags=tags, mark=None, tombstone=None)  # nothing is deleted by what is not proven


def _sealed(home: Home, meta: StreamMeta) -> Iterator[tuple[str, Sealed]]:
    for generation in meta.generations:
        plain = home.plain(meta, generation.number)
        blocks: list[str] = []
        end = 0
        for piece in indexes.cover(plain):
            if piece.name.is_open or piece.name.start != end:
                break
            with closing(plain.segment(piece)) as segment:
                about = segment.footer().meta
            blocks[about.start // BLOCK_BYTES :] = about.blocks
            end = about.end
        if end:
            yield meta.stream, Sealed(generation.number, end, prefix_hash(tuple(blocks)))


def rewrite_manifest(home: Home, streams: list[StreamMeta]) -> Manifest:
    """Write the manifest of the session that these streams make anew."""
    with home.changing(streams[0].session):
        if home.catalog.graves(session=streams[0].session):  # removed meanwhile: its tombstone stands there
            return Manifest(streams[0].session)
        return put_manifest(home, streams[0].source, streams[0].session, streams)
