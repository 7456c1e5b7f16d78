"""Repair: a damaged segment is made again from whatever is proven to have its bytes, and from nothing else."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from coldtrail.filesource import FileSource
from coldtrail.format.frames import Compressor
from coldtrail.format.manifest import Stamp
from coldtrail.format.segment import read_footer
from coldtrail.home import Home
from coldtrail.journal import Act
from coldtrail.stage.repair import Lost, Repaired, repair
from coldtrail.stage.verify import verify
from coldtrail.store import DAMAGED_SUFFIX, OpenSegment
from pipeline.stage.places import CodexWorld, flip_bit, sealed_files, the_stream, twin_of
from pipeline.stage.test_verify import DAMAGES, bit_flipped, halved
from world_of import Lines, World, generation_bytes, small_sizes

each_damage = pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
FIRST, SECOND = 150, 40  # so unlike that they are not merged


@pytest.fixture
def sealed(world: World, lines: Lines) -> Iterator[World]:
    """A log in two sealed segments, and a few lines that are not sealed yet; the agent's file is there."""
    with small_sizes():
        for count in (FIRST, SECOND):
            world.append(world.main(), lines.some(count, size=300))
            world.scan()
            world.compact(cold=True)
            world.clock.tick(1_000)
        world.append(world.main(), lines.some(3))
        world.scan()
        assert len(sealed_files(world)) == 2
        yield world


def mended(home: Home) -> list[Repaired | Lost]:
    return list(repair(home, verify(home).damaged))


def assert_whole(world: World, data: bytes) -> None:
    """Everything is held again, and nothing is left beside it."""
    with world.open() as home:
        assert verify(home).word == "ok"
        assert generation_bytes(home, the_stream(home), 0) == data
    assert not list(world.layout.home.rglob(f"*{DAMAGED_SUFFIX}"))
    assert not list(world.layout.home.rglob(".tmp-*"))


@each_damage
@pytest.mark.parametrize("which", [0, 1])
def test_a_damaged_segment_is_whole_again_while_the_agents_file_is_there(sealed: World, damage: Callable[[Path], None], which: int) -> None:
    whole = sealed.main().read_bytes()
    damaged = sealed_files(sealed)[which]
    before = read_footer(FileSource(damaged)).meta
    damage(damaged)
    with sealed.open() as home:
        (done,) = mended(home)
        assert isinstance(done, Repaired)
    assert_whole(sealed, whole)
    after = read_footer(FileSource(damaged)).meta
    assert (after.sha256, after.blocks, after.facts) == (before.sha256, before.blocks, before.facts)


@each_damage
def test_both_segments_are_whole_again(sealed: World, damage: Callable[[Path], None]) -> None:
    whole = sealed.main().read_bytes()
    for path in sealed_files(sealed):
        damage(path)
    with sealed.open() as home:
        assert [type(each) for each in mended(home)] == [Repaired, Repaired]
    assert_whole(sealed, whole)


@pytest.mark.parametrize("which", [0, 1])
def test_a_missing_segment_is_made_again(sealed: World, which: int) -> None:
    whole = sealed.main().read_bytes()
    sealed_files(sealed)[which].unlink()
    with sealed.open() as home:
        assert [type(each) for each in mended(home)] == [Repaired]
    assert_whole(sealed, whole)


def test_what_stands_behind_the_data_is_made_again_without_the_agents_file(sealed: World) -> None:
    whole = sealed.main().read_bytes()
    sealed.main().unlink()
    DAMAGES["cut by 4 bytes"](sealed_files(sealed)[0])
    with sealed.open() as home:
        (done,) = mended(home)
        assert isinstance(done, Repaired)
        assert done.origins == ("what is whole of our own segments",)
    assert_whole(sealed, whole)


def test_another_generation_that_begins_with_the_same_bytes_will_do(sealed: World, lines: Lines) -> None:
    whole = sealed.main().read_bytes()
    rewritten = whole[:-400] + lines.some(9, size=300)
    sealed.write(sealed.main(), rewritten)
    sealed.scan()
    sealed.main().unlink()
    sealed.scan()
    bit_flipped(sealed_files(sealed)[0])
    with sealed.open() as home:
        assert len(the_stream(home).generations) == 2
        (done,) = mended(home)
        assert isinstance(done, Repaired)
        assert "generation 1" in done.origins
    assert_whole(sealed, whole)


@each_damage
def test_a_file_that_differs_by_one_bit_is_not_taken_for_the_original(sealed: World, damage: Callable[[Path], None]) -> None:
    whole = sealed.main().read_bytes()
    damaged = sealed_files(sealed)[0]
    damage(damaged)
    broken = damaged.read_bytes()
    sealed.write(sealed.main(), bytes(byte ^ 0x10 if at % 512 == 0 else byte for at, byte in enumerate(whole)))
    with sealed.open() as home:
        (done,) = mended(home)
        if isinstance(done, Repaired):  # the data was whole
            assert done.origins == ("what is whole of our own segments",)
            assert generation_bytes(home, the_stream(home), 0) == whole
            return
    assert damaged.read_bytes() == broken, "a segment that cannot be repaired stays as it is"


def test_what_is_lost_is_named_with_what_of_it_is_left(sealed: World) -> None:
    sealed.main().unlink()
    bit_flipped(sealed_files(sealed)[0])
    with sealed.open() as home:
        (done,) = mended(home)
        assert isinstance(done, Lost)
        assert "nothing has the bytes" in done.why
        assert 0 < sum(gap.end - gap.start for gap in done.unread) < done.end - done.start
        assert verify(home).word == "bad"
    assert not list(sealed.layout.archive.rglob(f"*{DAMAGED_SUFFIX}"))


def test_without_account_and_manifest_nothing_is_proven(sealed: World) -> None:
    halved(sealed_files(sealed)[0])
    for path in sealed.layout.archive.glob("*/*/*.json"):
        path.unlink()
    with sealed.open() as home:
        (done,) = (each for each in mended(home) if each.spot.offset == 0)
        assert isinstance(done, Lost)
        assert "neither its own account nor the manifest" in done.why


def test_an_open_segment_is_left_to_capture(world: World, lines: Lines) -> None:
    with small_sizes():
        world.write(world.main(), lines.some(20))
        world.scan()
        (path,) = world.layout.store.rglob("*.open.jsonl.zst")
        flip_bit(path, 200)
        with world.open() as home:
            (done,) = mended(home)
            assert isinstance(done, Lost)
            assert "run --once" in done.why


def test_a_repair_with_nothing_to_do_does_nothing(sealed: World) -> None:
    before = {path: path.read_bytes() for path in sealed.layout.archive.rglob("*") if path.is_file()}
    with sealed.open() as home:
        assert mended(home) == []
    assert {path: path.read_bytes() for path in sealed.layout.archive.rglob("*") if path.is_file()} == before


def test_what_a_repair_that_was_cut_short_has_kept_is_told_and_goes_once_the_segment_is_whole(sealed: World) -> None:
    segment = sealed_files(sealed)[0]
    kept = segment.with_name(segment.name + DAMAGED_SUFFIX)
    kept.write_bytes(b"damaged")
    with sealed.open() as home:
        assert verify(home).word == "bad"
        whole = segment.read_bytes()
        shutil.copy(segment, sealed.folder / "whole")
        bit_flipped(segment)
        sealed.main().rename(sealed.folder / "away")
        mended(home)
        assert kept.exists(), "while the segment is not whole its other copy stays"
        segment.write_bytes(whole)
        mended(home)
        assert not kept.exists()
        assert verify(home).word == "ok"


def test_a_log_that_its_agent_has_compressed_will_do(codex: CodexWorld) -> None:
    with small_sizes():
        codex.write(codex.rollout(), codex.some(60))
        whole = codex.rollout().read_bytes()
        codex.scan()
        codex.compact(cold=True)
        twin = twin_of(codex.rollout())
        codex.rollout().unlink()
        codex.scan()
        bit_flipped(sealed_files(codex)[0])
        with codex.open() as home:
            (done,) = mended(home)
            assert isinstance(done, Repaired)
            assert f"the agent's file {twin}" in done.origins
        assert_whole(codex, whole)


def test_a_file_that_waits_to_be_removed_will_do(sealed: World) -> None:
    whole = sealed.main().read_bytes()
    bit_flipped(sealed_files(sealed)[0])
    with sealed.open() as home:
        link = sealed.layout.aside / the_stream(home).stream
        (sealed.layout.aside / "files").mkdir(parents=True)
        link.symlink_to(sealed.main().rename(sealed.layout.aside / "files" / link.name))
        (done,) = mended(home)
        assert isinstance(done, Repaired)
    assert_whole(sealed, whole)


def test_what_an_open_segment_that_was_set_aside_still_has_will_do(sealed: World) -> None:
    """Its later frames may be whole, though one before them is not."""
    whole = sealed.main().read_bytes()
    with sealed.open() as home:
        meta = the_stream(home)
        folder = sealed.layout.generation(meta.stream, 0)
    with OpenSegment.create(sealed.folder / "made", 0) as segment:
        segment.append([(Compressor(3).frame(whole), len(whole))], Stamp(len(whole), 0o600, 0, 0))
        segment.path.rename(folder / f"{segment.path.name}{DAMAGED_SUFFIX}")
    sealed.main().unlink()
    bit_flipped(sealed_files(sealed)[0])
    with sealed.open() as home:
        (done,) = mended(home)
        assert isinstance(done, Repaired)
        assert generation_bytes(home, meta, 0) == whole


def test_the_journal_tells_of_a_repair(sealed: World) -> None:
    bit_flipped(sealed_files(sealed)[0])
    with sealed.open() as home:
        (done,) = mended(home)
        (entry,) = home.journal.read()
        assert (entry.act, entry.session) == (Act.REPAIRED, done.spot.session)
        assert "0000000000000000-" in entry.reason
