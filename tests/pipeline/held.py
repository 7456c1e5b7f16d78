"""The segments of one generation, put there by hand, for tests of how they are read."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from coldtrail import indexes
from coldtrail.archive.local import LocalArchive
from coldtrail.filesource import FileSource
from coldtrail.format import frames, segment
from coldtrail.format.frames import Compressor, Frame, Work
from coldtrail.format.index import RecordIndex
from coldtrail.format.manifest import Stamp
from coldtrail.format.segment import SegmentMeta
from coldtrail.layout import Layout, SegmentName
from coldtrail.model import Gap
from coldtrail.plain import Plain
from coldtrail.store import OpenSegment

HOST = STREAM = "00112233445566aa"
KEY = Layout.generation_key(HOST, "mine", STREAM, 0)
TEXT = b"".join(b'{"n":%d,"x":"%s"}\n' % (n, hashlib.sha1(b"%d" % n).hexdigest().encode()) for n in range(60))
FRAME_BYTES = 300
COMPRESSOR = Compressor(3)


@dataclass
class Held:
    """The segments of one generation of TEXT, put there by hand."""

    folder: Path

    def __post_init__(self) -> None:
        self.work = Work()
        self.layout = Layout.at(self.folder)
        self.archive = LocalArchive(self.layout.archive, self.work)
        self.plain = Plain(self.layout, self.archive, KEY, STREAM, 0, self.work)

    @property
    def store(self) -> Path:
        return self.layout.generation(STREAM, 0)

    def open(self, start: int, end: int) -> Path:
        """An open segment with these bytes, appended a frame at a time."""
        with OpenSegment.create(self.store, start) as opened:
            for at in range(start, end, FRAME_BYTES):
                part = TEXT[at : min(at + FRAME_BYTES, end)]
                opened.append([(COMPRESSOR.frame(part), len(part))], Stamp(at + len(part), 0o600, at, at))
        return opened.path

    def sealed(self, start: int, end: int) -> Path:
        """A sealed segment with these bytes."""
        data, listed = b"", list[Frame]()
        for at in range(start, end, FRAME_BYTES):
            part = TEXT[at : min(at + FRAME_BYTES, end)]
            listed.append(Frame(len(data), len(COMPRESSOR.frame(part)), len(part)))
            data += COMPRESSOR.frame(part)
        about = SegmentMeta("jsonl", STREAM, 0, start, end, hashlib.sha256(TEXT[start:end]).hexdigest(), (), False, 0, {})
        key = f"{KEY}/{SegmentName(start, end)}"
        path = self.archive.staging(key) / str(SegmentName(start, end))
        path.write_bytes(data + segment.close(listed, about, RecordIndex()))
        return path

    def read(self, start: int = 0, end: int | None = None, gaps: list[Gap] | None = None) -> list[tuple[int, bytes]]:
        return list(self.plain.read(start, end, gaps))

    def assert_reads(self, start: int = 0, end: int | None = None) -> None:
        """Exactly these bytes of TEXT, in order, in their places."""
        at = start
        for offset, data in self.plain.read(start, end):
            assert offset == at
            assert data == TEXT[offset : offset + len(data)]
            at += len(data)
        assert at == (self.plain.end() if end is None else end)

    def names(self) -> list[str]:
        return [str(piece.name) for piece in self.plain.pieces()]


def covered(held: Held) -> list[tuple[int, int | None]]:
    return [(piece.name.start, piece.name.end) for piece in indexes.cover(held.plain)]


def frames_of(path: Path) -> list[Frame]:
    with FileSource(path) as source:
        return list(frames.walk(source))


def spoil(path: Path, offset: int, count: int = 1) -> None:
    """Flip bits at some bytes of a file."""
    data = bytearray(path.read_bytes())
    for at in range(offset, offset + count):
        data[at] ^= 0x55
    path.write_bytes(data)
