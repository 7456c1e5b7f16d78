"""A sealed segment: data frames, then what is known of them in skippable frames, then a seek table."""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Mapping
from dataclasses import dataclass, replace

from coldtrail.format import frames, ids, lines
from coldtrail.format.frames import Frame, FrameError, ReadAt
from coldtrail.format.index import RecordIndex

VERSION = 1
BLOCK_BYTES = 1 << 20  # a SHA-256 is kept for each of these, counted from the generation's first byte
_SKIPPABLE_HEAD_BYTES = 8
_INDEX_TAG = b"CTix"
_CHECKPOINTS_TAG = b"CTcp"
_IDS_TAG = b"CTid"
_META_TAG = b"CTmd"
_TAGS = frozenset({_INDEX_TAG, _CHECKPOINTS_TAG, _IDS_TAG, _META_TAG})
_DESCRIPTOR_AT = 5  # from the file's end: the seek table's flags


@dataclass(frozen=True, slots=True)
class SegmentMeta:
    """What a sealed segment says of itself; FORMAT.md has the fields."""

    agent: str
    stream: str
    generation: int
    start: int  # first plain byte
    end: int  # behind the last plain byte
    sha256: str  # of the segment's own plain bytes
    blocks: tuple[str, ...]  # SHA-256 of each block that ends in the segment, and of the unfinished one at its end
    dense: bool  # compressed for keeping, not for speed
    tail_bytes: int  # plain bytes at the end that belong to a record that goes on
    facts: Mapping[str, object]
    version: int = VERSION

    def to_json(self) -> dict[str, object]:
        """As a JSON object."""
        return {name: getattr(self, name) for name in self.__slots__}

    @classmethod
    def from_json(cls, value: Mapping[str, object]) -> SegmentMeta:
        """Back from `to_json`; ValueError for another version or a missing field."""
        if value.get("version") != VERSION:
            raise ValueError(f"a segment of version {value.get('version')}; this coldtrail reads version {VERSION}")
        try:
            meta = cls(**{name: value[name] for name in cls.__slots__})  # type: ignore[arg-type]
        except KeyError as error:
            raise ValueError(f"the segment's metadata lacks {error}") from error
        return replace(meta, blocks=tuple(meta.blocks))


@dataclass(frozen=True, slots=True)
class Footer:
    """A sealed segment's own account: its data frames and where the rest lies."""

    data: tuple[Frame, ...]
    meta: SegmentMeta
    index_frame: Frame
    checkpoints_frame: Frame | None
    ids_frame: Frame | None

    @property
    def checkpoints_at(self) -> tuple[int, int] | None:
        """From where to where in the file the table of checkpoints and they themselves lie; None: there are none."""
        frame = self.checkpoints_frame
        return None if frame is None else (frame.offset + _SKIPPABLE_HEAD_BYTES + len(_CHECKPOINTS_TAG), frame.end)

    def index(self, source: ReadAt) -> RecordIndex:
        """The record index; read only when asked for. FrameError where it is damaged."""
        payload = _unwrap(source, self.index_frame, _INDEX_TAG)
        try:
            return RecordIndex.decode(payload)
        except ValueError as error:
            raise FrameError(self.index_frame.offset, f"the segment's index is wrong ({error})") from error

    def ids(self, source: ReadAt) -> array[int] | None:
        """The table of its ids, see `ids.count`; None where it has none. FrameError where it is damaged."""
        if self.ids_frame is None:
            return None
        payload = _unwrap(source, self.ids_frame, _IDS_TAG)
        try:
            return ids.unpack(payload)
        except ValueError as error:
            raise FrameError(self.ids_frame.offset, str(error)) from error

    def check_frames(self, source: ReadAt) -> None:
        """FrameError where what we pass over ourselves is not as it was written: a stock reader may stumble over it."""
        met: set[bytes] = set()
        for frame in (each for each in frames.read_seek_table(source) if each.skippable):
            head = source.read_at(frame.offset, _SKIPPABLE_HEAD_BYTES + len(_META_TAG))
            tag = head[_SKIPPABLE_HEAD_BYTES:]
            if head != frames.skippable_head(frame.length - _SKIPPABLE_HEAD_BYTES) + tag:
                raise FrameError(frame.offset, "the head of a skippable frame is wrong")
            is_later = tag.startswith(_META_TAG[:2]) and self.ids_frame is not None  # a newer coldtrail may add what this one passes over
            if tag in met or (tag not in _TAGS and not is_later):
                raise FrameError(frame.offset, "a part of the segment bears no name that is known, or another's")
            met.add(tag)
        if source.read_at(source.size - _DESCRIPTOR_AT, 1) != b"\0":
            raise FrameError(source.size - _DESCRIPTOR_AT, "the seek table claims what is not written")


def close(data: list[Frame], meta: SegmentMeta, index: RecordIndex, checkpoints: bytes = b"") -> bytes:
    """What follows the data frames: the index, its ids if it has rows, the checkpoints if there are any, the metadata, the seek table."""
    parts = [_wrap(_INDEX_TAG, index.encode())]
    if len(index):
        parts.append(_wrap(_IDS_TAG, ids.pack(index.id_hashes)))
    if checkpoints:
        parts.append(frames.skippable(_CHECKPOINTS_TAG + checkpoints))  # packed one by one, to be read one by one
    parts.append(_wrap(_META_TAG, lines.dumps(meta.to_json(), sort=True)))
    listed = list(data)
    for part in parts:
        listed.append(Frame(listed[-1].end if listed else 0, len(part), 0, skippable=True))
    return b"".join(parts) + frames.seek_table(listed)


def read_footer(source: ReadAt) -> Footer:
    """A sealed segment's account of itself; FrameError where it is damaged."""
    listed = frames.read_seek_table(source)
    tagged = {}
    for frame in listed:
        if frame.skippable:
            tagged[source.read_at(frame.offset + 8, 4)] = frame
    if _META_TAG not in tagged or _INDEX_TAG not in tagged:
        raise FrameError(source.size, "the segment's metadata or index is missing")
    meta_frame = tagged[_META_TAG]
    try:
        value = lines.loads(bytes(_unwrap(source, meta_frame, _META_TAG)))
        meta = SegmentMeta.from_json(value if isinstance(value, dict) else {})
    except FrameError:
        raise
    except ValueError as error:
        raise FrameError(meta_frame.offset, f"the segment's metadata is wrong ({error})") from error
    data = tuple(frame for frame in listed if not frame.skippable)
    if sum(frame.plain_length for frame in data) != meta.end - meta.start:
        raise FrameError(meta_frame.offset, "the seek table and the metadata differ about the segment's length")
    return Footer(data, meta, tagged[_INDEX_TAG], tagged.get(_CHECKPOINTS_TAG), tagged.get(_IDS_TAG))


def _wrap(tag: bytes, payload: bytes) -> bytes:
    """A skippable frame around zstd frames: their checksums guard the payload."""
    compressor, size = frames.Compressor(9), frames.PLAIN_MAX_BYTES
    return frames.skippable(tag + b"".join(compressor.frame(payload[at : at + size]) for at in range(0, len(payload), size)))


def _unwrap(source: ReadAt, frame: Frame, tag: bytes) -> bytearray:
    """The payload, held once: that of an index is some 40 bytes a record."""
    head, payload = _SKIPPABLE_HEAD_BYTES + len(tag), bytearray()
    try:
        for part in frames.decode_foreign([source.read_at(frame.offset + head, frame.length - head)]):
            payload += part
    except FrameError as error:
        raise FrameError(frame.offset, f"the {tag.decode()} frame is damaged ({error.what})") from error
    return payload


class BlockHashes:
    """SHA-256 for each BLOCK_BYTES of a generation, made while its bytes pass by in order.

    `start` must be a multiple of BLOCK_BYTES; the hash of a prefix is the SHA-256 of its blocks' hashes.
    """

    def __init__(self, start: int = 0) -> None:
        if start % BLOCK_BYTES:
            raise ValueError(f"{start} is not the start of a block")
        self.start, self.end = start, start
        self._done: list[str] = []
        self._open = hashlib.sha256()

    def feed(self, plain: bytes | memoryview) -> None:
        """Take the next bytes."""
        view = memoryview(plain)
        while view:
            part = view[: BLOCK_BYTES - self.end % BLOCK_BYTES]
            self._open.update(part)
            self.end += len(part)
            view = view[len(part) :]
            if self.end % BLOCK_BYTES == 0:
                self._done.append(self._open.hexdigest())
                self._open = hashlib.sha256()

    def digests(self) -> tuple[str, ...]:
        """The hash of each block so far, the unfinished one's last."""
        return (*self._done, self._open.hexdigest()) if self.end % BLOCK_BYTES else tuple(self._done)


def prefix_hash(blocks: tuple[str, ...]) -> str:
    """The hash of a prefix, from the hashes of all its blocks."""
    return hashlib.sha256(b"".join(bytes.fromhex(block) for block in blocks)).hexdigest()
