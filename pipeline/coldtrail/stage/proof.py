"""The full proof: every byte of a stream is read back from the archive, and the agent's own file is equal to it."""

from __future__ import annotations

import os
from contextlib import closing

from coldtrail import indexes
from coldtrail.errors import CorruptionError
from coldtrail.filesource import FileSource
from coldtrail.format import segment as sealed
from coldtrail.format.manifest import Manifest, Sealed, StreamMeta
from coldtrail.format.segment import BlockHashes, prefix_hash
from coldtrail.home import Home
from coldtrail.plain import Piece, Plain
from coldtrail.stage.verify import Verdict, promise, segment_bytes


def unproven(home: Home, meta: StreamMeta, manifest: Manifest, generation: int, fd: int) -> str | None:
    """Why the archive alone may not do for the file `fd`, which is said to be `generation`; None: it holds it, whole and readable.

    Every segment of the chain is decoded and held against all that it says of itself, and the manifest names it.
    """
    if meta.stream not in {each.stream for each in manifest.streams}:
        return "the manifest does not name it yet"
    for each in meta.chain(generation):
        promised = promise(manifest, meta.stream, each.number)
        try:
            why = _unproven(home.plain(meta, each.number), promised, fd if each.number == generation else None)
        except CorruptionError as error:
            why = f"our copy is damaged: {error}"
        except FileNotFoundError:
            why = "its segments were compacted while they were read"
        if why is not None:
            return why
    return None


def _unproven(plain: Plain, promised: Sealed | None, fd: int | None) -> str | None:
    blocks, said, at = BlockHashes(), list[str](), 0
    for piece in indexes.cover(plain):
        if piece.name.is_open and _holds(plain, piece):
            return "it is not fully archived"
        if piece.name.is_open:
            continue
        if piece.name.start != at:
            return f"its segments do not follow each other at byte {at}"
        said[at // sealed.BLOCK_BYTES :] = _blocks(plain, piece)
        for data in segment_bytes(plain, piece, Verdict()):
            if fd is not None and os.pread(fd, len(data), at) != data:
                return "the agent's file is not what is held"
            blocks.feed(data)
            at += len(data)
    if fd is not None and os.fstat(fd).st_size != at:
        return "the agent's file is not as long as what is held"
    return None if at == 0 else _unnamed(blocks.digests(), tuple(said), at, promised)


def _unnamed(blocks: tuple[str, ...], said: tuple[str, ...], end: int, promised: Sealed | None) -> str | None:
    if blocks != said:
        return "the hashes of its blocks are not those that its segments name"
    if promised is None or (promised.end, promised.prefix_sha256) != (end, prefix_hash(blocks)):
        return "the manifest does not name all of it yet"
    return None


def _holds(plain: Plain, piece: Piece) -> bool:
    with closing(plain.segment(piece)) as segment:
        return segment.plain_end > piece.name.start


def _blocks(plain: Plain, piece: Piece) -> tuple[str, ...]:
    with closing(plain.segment(piece)) as segment:
        if isinstance(segment.source, FileSource):
            segment.source.forget_cached()  # memory may be right where the disk is wrong
        return segment.footer().meta.blocks
