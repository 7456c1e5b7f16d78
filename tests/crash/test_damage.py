"""What a crash or a bad disk leaves behind: it is found, told, and mended from whatever still has the bytes."""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest

from coldtrail.errors import CorruptionError
from coldtrail.filesource import FileSource
from coldtrail.format import frames
from coldtrail.format.frames import FrameError
from coldtrail.format.growing import read_growing
from coldtrail.format.manifest import StreamMeta
from coldtrail.home import Home
from coldtrail.layout import TEMP_PREFIX, SegmentName
from coldtrail.model import Gap
from coldtrail.stage.adopt import adopt, tidy
from coldtrail.stage.rebuild import differences, rebuild
from coldtrail.stage.wish import set_pin
from coldtrail.store import DAMAGED_SUFFIX, OpenSegment
from world_of import Lines, World, assert_sound, chain_bytes, events, listed, metas

pytestmark = pytest.mark.usefixtures("small")


def captured(world: World, *parts: bytes) -> None:
    """A main log, captured part by part."""
    with world.kept_open():
        for part in parts:
            world.append(world.main(), part)
            world.scan()
            world.clock.tick(10_000)


def the_stream(home: Home) -> StreamMeta:
    (meta,) = metas(home)
    return meta


def open_segment(world: World) -> Path:
    """The file of the segment that grows."""
    with world.open() as home:
        meta = the_stream(home)
        folder = world.layout.generation(meta.stream, meta.newest.number)
        names = home.store.open_names(meta.stream, meta.newest.number)
    return folder / str(names[-1])


def start(world: World) -> None:
    """What a starting daemon does first."""
    with world.open() as home:
        assert adopt(home) == []


def assert_equals_live(world: World) -> None:
    """What would be restored is the file that is there."""
    with world.open() as home:
        for meta in metas(home):
            assert chain_bytes(home, meta) == Path(meta.path).read_bytes(), meta.path


# ---- the catalog ------------------------------------------------------------------------------------------------------


def put_back(world: World, old: Path) -> None:
    """The catalog as it was when `old` was copied: the store has gone on since."""
    world.forget_catalog()
    for path in old.iterdir():
        shutil.copy2(path, world.layout.home / path.name)


def copied(world: World) -> Path:
    """A copy of the catalog as it is now."""
    old = world.folder / "old-catalog"
    old.mkdir()
    for path in world.layout.home.glob("catalog.db*"):
        shutil.copy2(path, old / path.name)
    return old


@pytest.mark.parametrize("what", ["grown", "rolled", "rewritten", "sealed", "moved"])
def test_a_catalog_behind_the_store_is_right_again_after_the_next_scan(world: World, lines: Lines, what: str) -> None:
    captured(world, lines.some(5))
    old = copied(world)
    if what == "rewritten":
        world.write(world.main(), lines.line(root=True) + lines.some(7))
        world.scan()
    elif what == "moved":
        world.main().parent.rename(world.root / "projects" / "-q")
        world.scan()
    else:
        captured(world, lines.some(3 if what == "grown" else 60))
    if what == "sealed":
        world.compact(cold=True)
    put_back(world, old)
    start(world)
    world.scan()
    assert_equals_live(world)
    with world.open() as home:
        assert_sound(home)
        found = listed(home, world.folder)
        assert rebuild(home) == []
        assert listed(home, world.folder) == found


def test_a_catalog_behind_the_store_is_right_after_a_start_though_the_file_is_gone(world: World, lines: Lines) -> None:
    captured(world, lines.some(5))
    old = copied(world)
    captured(world, lines.some(3))
    put_back(world, old)
    world.main().unlink()
    start(world)
    world.scan()
    with world.open() as home:
        (session,) = home.catalog.sessions()
        assert (session.records, session.bytes) == (8, len(chain_bytes(home, the_stream(home))))


def test_a_removed_catalog_is_made_again_with_the_wishes_of_the_user(world: World, lines: Lines) -> None:
    captured(world, lines.some(40))
    with world.open() as home:
        set_pin(home, home.catalog.sessions()[0], pinned=True)
        before = listed(home, world.folder)
    world.forget_catalog()
    start(world)
    with world.open() as home:
        assert listed(home, world.folder) == before
    assert before[0]["pinned"] == 1


# ---- the index file ---------------------------------------------------------------------------------------------------


def index_file(world: World) -> Path:
    return open_segment(world).with_name("index")


def events_now(world: World) -> list[tuple[str, str, str | None]]:
    with world.open() as home:
        return events(home, the_stream(home))


def test_an_index_file_that_is_gone_is_not_missed(world: World, lines: Lines) -> None:
    captured(world, lines.some(5), lines.some(5))
    before = events_now(world)
    index_file(world).unlink()
    assert events_now(world) == before
    captured(world, lines.some(2))
    assert len(events_now(world)) == len(before) + 4


def test_an_index_file_cut_anywhere_loses_no_event_now_nor_after_more_is_captured(world: World, lines: Lines) -> None:
    captured(world, lines.some(3), lines.some(2))
    before, path = events_now(world), index_file(world)
    whole = path.read_bytes()
    for length in range(0, len(whole), 7):
        path.write_bytes(whole[:length])
        assert events_now(world) == before
        captured(world, lines.line())
        before = [*events_now(world)]
        with world.open() as home:
            assert_sound(home)
        whole = path.read_bytes()


def test_an_index_file_that_lacks_rows_in_its_middle_hides_no_event(world: World, lines: Lines) -> None:
    """As a crash leaves it that comes between a frame and its rows."""
    captured(world, lines.some(3))
    path = index_file(world)
    behind = path.read_bytes()
    captured(world, lines.some(2))
    path.write_bytes(behind)
    world.forget_catalog()
    start(world)
    captured(world, lines.some(4))
    seen = dict.fromkeys(record_id for _, _, record_id in events_now(world))
    assert list(seen) == [lines.id_of(number) for number in range(9)]


# ---- the open segment -------------------------------------------------------------------------------------------------


def test_an_open_segment_cut_at_any_byte_of_its_last_append_keeps_its_whole_frames_and_no_more(world: World, lines: Lines) -> None:
    captured(world, lines.some(3), lines.some(6))  # the last append has two frames
    path, data = open_segment(world), world.main().read_bytes()
    whole = path.read_bytes()
    with FileSource(path) as source:
        ends = [0, *(frame.end for frame in read_growing(source, 0).frames)]
    for length in range(len(whole) // 3, len(whole)):
        path.write_bytes(whole[:length])
        with OpenSegment.resume(path.parent, SegmentName(0)) as segment:
            assert segment.size == max(end for end in ends if end <= length) == path.stat().st_size
        with world.open() as home:
            assert data.startswith(chain_bytes(home, the_stream(home)))


@pytest.mark.parametrize("catalog", ["kept", "lost"])
@pytest.mark.parametrize("then", ["still", "grown", "rewritten"])
def test_what_was_cut_off_an_open_segment_is_captured_again(world: World, lines: Lines, catalog: str, then: str) -> None:
    captured(world, lines.some(3))
    good = open_segment(world).stat().st_size
    captured(world, lines.some(6))
    before = world.main().read_bytes()
    path = open_segment(world)
    whole = path.read_bytes()
    for length in range(good, len(whole), 29):
        path.write_bytes(whole[:length])
        if catalog == "lost":
            world.forget_catalog()
        start(world)
        if then == "grown":
            world.append(world.main(), lines.line())
        elif then == "rewritten":
            world.write(world.main(), lines.line(root=True) + lines.some(3))
        world.scan()
        world.scan()
        assert_equals_live(world)
        with world.open() as home:
            assert_sound(home)
            assert differences(home) == ([], [])
        shutil.rmtree(world.layout.home)
        world.write(world.main(), before)
        world.scan()
        path = open_segment(world)
        whole = path.read_bytes()


FLIP_EVERY = int(os.environ.get("COLDTRAIL_FLIP_EVERY") or 53)  # bytes


@pytest.mark.parametrize("catalog", ["kept", "lost"])
@pytest.mark.parametrize("then", ["grown", "touched", "made dense"])
def test_a_bit_flipped_in_an_open_segment_loses_nothing_while_the_file_is_there(tmp_path: Path, catalog: str, then: str) -> None:
    size, at = 1, 0
    while at < size:
        world = World(tmp_path / str(at))
        lines = Lines(world.clock)
        captured(world, lines.some(3), lines.some(3), lines.some(3))
        path = open_segment(world)
        size = path.stat().st_size
        flip_bit(path, at)
        if catalog == "lost":
            world.forget_catalog()
        start(world)
        if then == "grown":
            world.append(world.main(), lines.line())
            world.scan()
        elif then == "made dense":
            with contextlib.suppress(CorruptionError):
                world.compact(cold=True)
        world.stamp(world.main())
        world.scan()
        try:
            assert_equals_live(world)
        except BaseException as error:
            error.add_note(f"byte {at} of {size}")
            raise
        at += FLIP_EVERY


@pytest.mark.parametrize("catalog", ["kept", "lost"])
def test_of_an_open_segment_with_a_flipped_bit_every_other_append_is_kept_though_the_file_is_gone(tmp_path: Path, catalog: str) -> None:
    """Whatever comes by: a start, a pass, both compactions."""
    size, at = 1, 0
    while at < size:
        world = World(tmp_path / str(at))
        lines = Lines(world.clock)
        parts = [lines.some(3), lines.some(3), lines.some(3)]
        captured(world, *parts)
        path = open_segment(world)
        size = path.stat().st_size
        flip_bit(path, at)
        world.main().unlink()
        if catalog == "lost":
            world.forget_catalog()
        start(world)
        world.scan()
        for cold in (False, True, True):
            with contextlib.suppress(CorruptionError):
                world.compact(cold=cold)
        assert len(still_there(world, parts)) >= 2, f"byte {at} of {size}"
        at += FLIP_EVERY


def still_there(world: World, parts: list[bytes]) -> list[bytes]:
    """Which appends can be read: from the generation with its gaps, else from a file that was set aside."""
    with world.open() as home:
        meta = the_stream(home)
        gaps: list[Gap] = []
        read = b"".join(data for _, data in home.plain(meta, 0).read(gaps=gaps))
    aside = b"".join(plain_of(path.read_bytes()) for path in world.layout.store.rglob(f"*{DAMAGED_SUFFIX}"))
    return [part for part in parts if part in read or part in aside]


def plain_of(data: bytes) -> bytes:
    """What the whole frames in these bytes hold, wherever they begin."""
    found, place = [], data.find(FRAME_MAGIC)
    while place >= 0:
        with contextlib.suppress(FrameError):
            (frame, *_) = itertools.islice(frames.walk(Bytes(data), place), 1)
            found.append(frames.decode(data[frame.offset : frame.end]))
        place = data.find(FRAME_MAGIC, place + 1)
    return b"".join(found)


FRAME_MAGIC = frames.MAGIC.to_bytes(4, "little")


@dataclass(frozen=True, slots=True)
class Bytes:
    """Bytes, read by place."""

    data: bytes

    @property
    def size(self) -> int:
        return len(self.data)

    def read_at(self, offset: int, length: int) -> bytes:
        return self.data[offset : offset + length]


def flip_bit(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 0x10
    path.write_bytes(data)


# ---- what is in the way -----------------------------------------------------------------------------------------------


def test_unfinished_files_of_an_interrupted_run_are_harmless_and_go_once_they_are_old(world: World, lines: Lines) -> None:
    captured(world, lines.some(40))
    world.compact(cold=False)
    folders = [folder for folder in world.layout.home.rglob("*") if folder.is_dir()]
    for folder in folders:
        (folder / f"{TEMP_PREFIX}0123456789ab").write_bytes(b"half of somethi")
        world.stamp(folder / f"{TEMP_PREFIX}0123456789ab")
    captured(world, lines.some(40))
    world.compact(cold=True)
    assert_equals_live(world)
    with world.open() as home:
        assert_sound(home)
        assert rebuild(home) == []
        assert tidy(home, 3_600_000) == 0
        world.clock.tick(3_700_000)
        assert tidy(home, 3_600_000) > len(folders) // 2
    assert not list(world.folder.rglob(f"{TEMP_PREFIX}*"))


def test_one_generation_that_is_damaged_keeps_no_other_from_being_sealed(world: World, lines: Lines) -> None:
    captured(world, lines.some(30))
    path = open_segment(world)
    world.write(world.main(), lines.line(root=True) + lines.some(40))
    world.scan()
    flip_bit(path, 60)
    with pytest.raises(CorruptionError):
        world.compact(cold=True)
    assert [path.parent.name for path in world.layout.archive.rglob("*.zst")] == ["000001"]
