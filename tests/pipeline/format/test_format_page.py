"""FORMAT.md tells the truth: its examples are what the code makes and reads, and every field and size stands on it."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import struct
import subprocess
import zlib
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path

import pytest

from coldtrail import durable
from coldtrail.catalog import VERSION as CATALOG_VERSION
from coldtrail.checkpoints import FILE_NAME as CHECKPOINTS_NAME
from coldtrail.facts import Facts
from coldtrail.filesource import FileSource
from coldtrail.format import checkpoint, frames, ids, index, lines, manifest, segment
from coldtrail.format.checkpoint import Checkpoint
from coldtrail.format.frames import Compressor, Frame
from coldtrail.format.growing import read_growing
from coldtrail.format.index import RecordIndex, Row, id_hash, pack_header, pack_row, read_file
from coldtrail.format.manifest import Aside, Generation, Manifest, PathSeen, RestoredMark, Sealed, Stamp, StreamMeta, path_in, path_out
from coldtrail.format.segment import BlockHashes, SegmentMeta, prefix_hash
from coldtrail.indexes import INDEX_NAME
from coldtrail.layout import TEMP_PREFIX, Layout, SegmentName, safe_name
from coldtrail.model import EVENT_BIT, RecordKind, Relation, Role
from coldtrail.stage import append, capture, seal
from coldtrail.state import State
from coldtrail.state.fold import VERSION as FOLD_VERSION
from coldtrail.state.frozen import freeze
from coldtrail.store import DAMAGED_SUFFIX, ROLL_FRAMES, OpenSegment

PAGE = (Path(__file__).resolve().parents[3] / "pipeline" / "FORMAT.md").read_text(encoding="utf-8")
MIB = 1 << 20
PLAIN = b'{"n":1}\n'
STAMP = Stamp(8, 0o600, 1_767_225_599_000_000_000, 1_767_225_600_000)
ROW = Row(0, 8, RecordKind.DATA, EVENT_BIT[next(kind for kind in EVENT_BIT if kind == "unknown")], 1_767_225_599_000, id_hash("a1"))
STREAM, SESSION, HOST = "1b7e0d2c9a4f5e60", "5d0c6a1f3b2e4987", "9f86d081884c7d65"
META = StreamMeta(
    stream=STREAM,
    session=SESSION,
    host=HOST,
    source="claude-code",
    agent="claude-code",
    root="/ann/.claude",
    session_id="ae3d54a6",
    scope="-ann-demo",
    role=Role.MAIN,
    is_log=True,
    paths=(PathSeen("/ann/.claude/projects/-ann-demo/ae3d54a6.jsonl", 1_767_225_600_000),),
    generations=(Generation(0, 1_767_225_600_000, STAMP),),
)
BLOCK = hashlib.sha256(PLAIN).hexdigest()
PREFIX = hashlib.sha256(bytes.fromhex(BLOCK)).hexdigest()


def example(name: str) -> str:
    """The text of the one fenced block of that name."""
    (text,) = re.findall(rf"^```{name}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    return str(text)


def hexed(name: str) -> bytes:
    """The bytes of a dump: on each line what stands before its comment."""
    return bytes.fromhex("".join(line[:52] for line in example(f"hex {name}").splitlines()))


def pairs(name: str) -> list[tuple[str, str]]:
    """A block of two columns."""
    return [(left.strip(), right.strip()) for left, right in (re.split(r"\s{2,}", line, maxsplit=1) for line in example(name).splitlines())]


def record_index() -> RecordIndex:
    made = RecordIndex()
    made.add(ROW)
    return made


def segment_meta() -> SegmentMeta:
    facts = Facts(records=1, first_ms=ROW.time_ms, last_ms=ROW.time_ms)
    return SegmentMeta("claude-code", STREAM, 0, 0, 8, BLOCK, (BLOCK,), True, 0, facts.to_json())


# ---- the examples -----------------------------------------------------------------------------------------------------


def test_every_example_is_looked_at_here() -> None:
    named = set(re.findall(r"^```(\S.*)$", PAGE, re.MULTILINE))
    assert named == {
        "names", "paths", "hashes", "json meta", "json segment", "json manifest", "json checkpoint",
        "hex open-segment", "hex index", "hex record-index", "hex ids", "hex seek-table",
    }  # fmt: skip


def test_the_open_segment_is_what_an_append_makes(tmp_path: Path) -> None:
    with OpenSegment.create(tmp_path, 0) as made:
        made.append([(Compressor(append.LEVEL).frame(PLAIN), len(PLAIN))], STAMP)
    assert made.path.read_bytes() == hexed("open-segment")
    assert made.path.stat().st_mode & 0o7777 == 0o600


def test_the_open_segment_is_read(tmp_path: Path) -> None:
    path = tmp_path / str(SegmentName(0))
    path.write_bytes(hexed("open-segment"))
    with FileSource(path) as source:
        found = read_growing(source, 0)
        assert (found.stamp, found.error) == (STAMP, None)
        assert frames.decode(source.read_at(found.frames[0].offset, found.frames[0].length)) == PLAIN


@pytest.mark.skipif(shutil.which("zstd") is None, reason="zstd is not on this machine")
def test_the_open_segment_is_printed_by_stock_zstd() -> None:
    printed = subprocess.run(["zstd", "-dcq"], input=hexed("open-segment"), capture_output=True, check=True, timeout=60).stdout
    assert printed == PLAIN


def test_the_index_file_is_what_is_written_and_read() -> None:
    assert hexed("index") == pack_header(0, None) + pack_row(ROW)
    found, size = read_file(hexed("index"))
    assert (list(found.rows()), size) == ([ROW], index.HEADER_BYTES + index.ROW_BYTES)


def test_the_record_index_is_what_is_written_and_read() -> None:
    assert hexed("record-index") == record_index().encode()
    assert list(RecordIndex.decode(hexed("record-index")).rows()) == [ROW]


def test_the_table_of_ids_is_what_is_written_and_read() -> None:
    assert hexed("ids") == ids.pack(record_index().id_hashes)
    assert ids.count(ids.unpack(hexed("ids")), index.id_hash("a1"))


def test_the_seek_table_is_what_is_written() -> None:
    listed = [Frame(0, 21, 8), Frame(21, 120, 0, skippable=True), Frame(141, 260, 0, skippable=True)]
    assert hexed("seek-table") == frames.seek_table(listed)


def test_meta_json_is_what_is_written_and_read() -> None:
    assert example("json meta").encode() == META.encode()
    assert StreamMeta.decode(example("json meta").encode()) == META


def test_the_manifest_is_what_is_written_and_read() -> None:
    made = Manifest(SESSION, (), ((STREAM, Sealed(0, 8, PREFIX)),), pinned=True)
    assert example("json manifest").encode() == made.encode()
    assert Manifest.decode(example("json manifest").encode()) == made


def test_the_metadata_is_what_is_written_and_read() -> None:
    text = example("json segment").replace("\n", "")
    assert text.encode() == lines.dumps(segment_meta().to_json(), sort=True)
    assert SegmentMeta.from_json(json.loads(text)) == segment_meta()


def test_a_checkpoint_is_what_is_written_and_read() -> None:
    text = example("json checkpoint").replace("\n", "")
    made = Checkpoint.decode(Compressor(3).frame(text.encode()))
    assert frames.decode(made.encode()) == text.encode()


def test_checkpoints_lie_in_their_file_and_in_a_segment_as_the_page_says() -> None:
    entries = [(8, b"packed"), (900, b"more")]
    heads = [struct.pack("<QII", offset, len(packed), zlib.crc32(packed)) for offset, packed in entries]
    assert checkpoint.pack(entries) == heads[0] + b"packed" + heads[1] + b"more"
    table = struct.pack("<I", 2) + heads[0] + heads[1]
    assert checkpoint.directory(entries) == table + struct.pack("<I", zlib.crc32(table)) + b"packedmore"
    sealed = segment.close([], segment_meta(), record_index(), b"table")
    tags = re.findall(rb"\x50\x2a\x4d\x18....(CT..)", sealed, re.DOTALL)
    assert tags == [b"CTix", b"CTid", b"CTcp", b"CTmd"]
    rows = [PAGE.index(f"payload: `{tag.decode()}`") for tag in tags]
    assert rows == sorted(rows), "the page has them in this order"


def test_the_hashes_are_those_of_the_code() -> None:
    blocks = BlockHashes()
    blocks.feed(PLAIN)
    assert [value for _, value in pairs("hashes")] == [blocks.digests()[0], prefix_hash(blocks.digests())] == [BLOCK, PREFIX]


def test_names_and_paths_are_written_so() -> None:
    for name, written in pairs("names"):
        assert safe_name(name) == written
    for path, written in pairs("paths"):
        real = os.fsdecode(path.encode().replace(b"<FF>", b"\xff"))
        assert (path_out(real), path_in(written)) == (written, real)


# ---- fields and words -------------------------------------------------------------------------------------------------


def tables() -> str:
    """What stands in the page's tables."""
    return "\n".join(line for line in PAGE.splitlines() if line.startswith("|"))


RECORDED = (StreamMeta, Generation, PathSeen, RestoredMark, Aside, Stamp, SegmentMeta, Facts, Sealed, Manifest, Row, Checkpoint)


@pytest.mark.parametrize("kind", RECORDED, ids=lambda kind: kind.__name__)
def test_every_field_stands_in_a_table(kind: type) -> None:
    assert [each.name for each in fields(kind) if f"`{each.name}`" not in tables()] == []


def test_every_part_of_a_state_that_a_checkpoint_keeps_stands_in_a_table() -> None:
    kept = freeze(State(), STREAM, 0, 8, PREFIX, BLOCK).small
    assert [name for name in kept if f"`{name}`" not in tables()] == []


def test_every_field_of_the_json_stands_in_a_table() -> None:
    """Also those that no dataclass has."""
    documents = [json.loads(META.encode()), json.loads(example("json manifest")), segment_meta().to_json()]
    named = {key for document in documents for key in document}
    assert sorted(name for name in named if f"`{name}`" not in tables()) == []


def test_every_word_and_bit_stands_on_the_page() -> None:
    for word in (*Role, *Relation):
        assert f"`{word.value}`" in PAGE
    bits = {name: int(bit) for bit, name in re.findall(r"\| (\d+) \| `(\w+)` ", PAGE)}
    assert bits == {kind.value: bit for kind, bit in EVENT_BIT.items()}
    kinds = {name: int(number) for number, name in re.findall(r"^\| (\d) \| (\w+)[:,]? ", PAGE, re.MULTILINE)}
    assert kinds == {kind.name.lower(): int(kind) for kind in RecordKind}


def test_the_versions_are_those_on_the_page() -> None:
    assert {manifest.VERSION, segment.VERSION, index.VERSION} == {1}
    assert f"All formats are version 1, but for checkpoints, which are version {FOLD_VERSION}." in PAGE
    assert f"`user_version` {CATALOG_VERSION}." in PAGE


# ---- places and sizes -------------------------------------------------------------------------------------------------


def test_every_file_of_the_layout_stands_in_the_tree() -> None:
    layout, key = Layout.at(Path("/h")), Layout.generation_key(HOST, "s", STREAM, 0)
    growing = layout.generation(STREAM, 0)
    made = [
        *(
            layout.host_id,
            layout.daemon_lock,
            layout.session_lock(SESSION),
            layout.compact_lock(SESSION),
            layout.meta(STREAM),
            layout.catalog,
        ),
        *(
            growing / str(SegmentName(0)),
            growing / (str(SegmentName(0)) + DAMAGED_SUFFIX),
            growing / INDEX_NAME,
            growing / CHECKPOINTS_NAME,
        ),
        *(layout.archive / key / str(SegmentName(0, 8)), layout.archive / Layout.manifest_key(HOST, "s", SESSION)),
    ]
    tree = PAGE.split("```")[1]
    for path in made:
        rel = str(path.relative_to("/h")).replace("/s/", "/<source>/")
        for part, word in ((STREAM, "<stream>"), (SESSION, "<session>"), (HOST, "<host>"), ("000000/", "<generation>/")):
            rel = rel.replace(part, word)
        rel = rel.replace(str(SegmentName(0, 8)), "<start>-<end>.jsonl.zst").replace(str(SegmentName(0)), "<start>.open.jsonl.zst")
        assert re.search(rf"^  {re.escape(rel)}(?:,|\s|$)", tree, re.MULTILINE), rel


SIZES: dict[str, Callable[[], int]] = {
    "from 1 byte to 32 MiB": lambda: frames.PLAIN_MAX_BYTES // MIB - 32,
    "window at most 2^25": lambda: frames.WINDOW_LOG_MAX - 25,
    "data frames of at most 1 MiB of plain bytes each, level 3": lambda: append.FRAME_BYTES - MIB or append.LEVEL - 3,
    "holds 64 MiB of plain bytes or 4096 data frames, or `index` 24 MiB": lambda: (
        append.ROLL_BYTES - 64 * MIB or ROLL_FRAMES - 4096 or append.ROLL_INDEX_BYTES - 24 * MIB
    ),
    "128 MiB anywhere": lambda: 2 * append.ROLL_BYTES - 128 * MIB,
    "Fast: level 3, at most 1 MiB each": lambda: seal.FAST_FRAME_BYTES - MIB or seal.FAST_LEVEL - 3,
    "at most 4 MiB, window at most 2^22": lambda: seal.DENSE_FRAME_BYTES - 4 * MIB or seal.DENSE_WINDOW_LOG - 22,
    "blocks of 1 MiB": lambda: segment.BLOCK_BYTES - MIB,
    "a line of more than 16 MiB": lambda: lines.MAX_LINE_BYTES - 16 * MIB,
    "28 bytes of header, then 41 for each record": lambda: index.HEADER_BYTES - 28 or index.ROW_BYTES - 41,
    "0700, like every folder of ours; every file is 0600": lambda: durable.DIR_MODE - 0o700 or durable.FILE_MODE - 0o600,
    "`.tmp-` and 12 hex digits": lambda: len(durable.temp_beside(Path("x")).name) - len(TEMP_PREFIX) - 12,
    "`0x184D2A50`": lambda: frames.SKIPPABLE_MAGIC - 0x184D2A50,
    "`0x184D2A5E`": lambda: frames.SEEK_TABLE_MAGIC - 0x184D2A5E,
    "`0x8F92EAB1`": lambda: frames.SEEK_FOOTER_MAGIC - 0x8F92EAB1,
}


@pytest.mark.parametrize(("said", "difference"), SIZES.items(), ids=SIZES)
def test_a_size_on_the_page_is_that_of_the_code(said: str, difference: Callable[[], int]) -> None:
    assert said in PAGE.replace("\n", " ")
    assert difference() == 0


def test_an_append_is_no_larger_than_memory_allows() -> None:
    assert capture.BATCH_BYTES <= 8 * MIB
