"""How much verify reads, and what it finds without reading everything."""

from __future__ import annotations

import errno
import os
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
import zstandard

from coldtrail.filesource import FileSource
from coldtrail.format import segment as sealed
from coldtrail.format.manifest import Manifest
from coldtrail.stage.sample import Sample, is_chosen
from coldtrail.stage.verify import Effort, verify
from pipeline.stage.places import flip_bit, sealed_files
from world_of import Lines, World, small_sizes

STRUCTURE = Effort(percent=0)


@pytest.fixture
def long(world: World, lines: Lines) -> World:
    """A log in one sealed segment of many frames."""
    with small_sizes():
        world.write(world.main(), lines.some(300, size=300))
        world.scan()
        world.compact(cold=True)
    return world


def test_a_share_reads_about_so_many_frames_whatever_the_order(long: World) -> None:
    with small_sizes(), long.open() as home:
        there = verify(home).frames
        read = [verify(home, effort=Effort(percent=40, seed=seed)).frames for seed in range(20)]
    assert there > 20
    assert 0.25 < sum(read) / 20 / there < 0.55
    assert len(set(read)) > 1


def test_a_flipped_bit_is_found_by_about_so_many_samples(long: World) -> None:
    flip_bit(sealed_files(long)[0], 60)
    with small_sizes(), long.open() as home:
        found = [verify(home, effort=Effort(percent=40, seed=seed)).word == "bad" for seed in range(40)]
        assert 5 < sum(found) < 30
        assert verify(home, effort=STRUCTURE).word == "ok"
        assert verify(home).word == "bad"


@pytest.mark.parametrize("at", [-1, -9, -40, -200], ids=["foot", "count", "table", "account"])
def test_the_structure_is_checked_though_no_data_is_read(long: World, at: int) -> None:
    flip_bit(sealed_files(long)[0], at)
    with small_sizes(), long.open() as home:
        verdict = verify(home, effort=STRUCTURE)
        assert (verdict.word, verdict.frames) == ("bad", 0)
        assert {each.offset for each in verdict.damaged} == {0}


def test_a_bit_that_verify_passes_over_is_none_that_any_reader_looks_at(world: World, lines: Lines) -> None:
    """A few bits of zstd's own say nothing; every other one is guarded."""
    with small_sizes():
        world.write(world.main(), lines.some(4, size=300))
        world.scan()
        world.compact(cold=True)
    (segment,) = sealed_files(world)
    whole, plain = segment.read_bytes(), world.main().read_bytes()
    passed = 0
    with small_sizes(), world.open() as home:
        for bit in Random(1).sample(range(len(whole) * 8), 1_500):
            damaged = bytearray(whole)
            damaged[bit // 8] ^= 1 << bit % 8
            segment.write_bytes(damaged)
            if verify(home).word == "ok":
                passed += 1
                with zstandard.ZstdDecompressor().stream_reader(bytes(damaged), read_across_frames=True) as stock:
                    assert stock.read() == plain, f"bit {bit % 8} of byte {bit // 8}"
    assert passed < 15


def test_a_manifest_that_names_other_bytes_is_found_though_no_data_is_read(long: World) -> None:
    with small_sizes(), long.open() as home:
        (manifest,) = long.layout.archive.glob("*/*/*.json")
        told = Manifest.decode(manifest.read_bytes())
        ((stream, held),) = told.sealed
        manifest.write_bytes(replace(told, sealed=((stream, replace(held, prefix_sha256="0" * 64)),)).encode())
        (finding,) = verify(home, effort=STRUCTURE).findings
        assert "are not those that the manifest names" in finding.what
        assert finding.spot is None, "no segment can be blamed for it"


def test_a_prefix_that_ends_within_a_segment_is_found_out_from_its_bytes(long: World, lines: Lines) -> None:
    """The manifest was written, then a merge went beyond it, then the power failed."""
    (manifest,) = long.layout.archive.glob("*/*/*.json")
    before = manifest.read_bytes()
    with small_sizes():
        long.append(long.main(), lines.some(160, size=300))
        long.scan()
        long.compact(cold=True)
        assert len(sealed_files(long)) == 1
        manifest.write_bytes(before)
        with long.open() as home:
            assert verify(home, effort=STRUCTURE).word == "ok"
            assert verify(home).word == "ok"


def test_an_account_whose_block_hashes_are_not_its_bytes_is_found_by_reading(long: World, monkeypatch: pytest.MonkeyPatch) -> None:
    with small_sizes(), long.open() as home:
        whole = sealed.read_footer

        def lies(source: FileSource) -> sealed.Footer:
            footer = whole(source)
            return replace(footer, meta=replace(footer.meta, blocks=("0" * 64, *footer.meta.blocks[1:])))

        monkeypatch.setattr("coldtrail.plain.read_footer", lies)
        assert any("the SHA-256 of a block" in each.what for each in verify(home).findings)


@pytest.mark.parametrize(("number", "word"), [(errno.EIO, "bad"), (errno.EACCES, "unverifiable")])
def test_a_disk_that_fails_is_damage_and_a_missing_right_proves_nothing(
    long: World, monkeypatch: pytest.MonkeyPatch, number: int, word: str
) -> None:
    read_at = FileSource.read_at

    def fails(source: FileSource, offset: int, length: int) -> bytes:
        if source.label.endswith(".jsonl.zst"):
            raise OSError(number, os.strerror(number), source.label)
        return read_at(source, offset, length)

    with small_sizes(), long.open() as home:
        monkeypatch.setattr(FileSource, "read_at", fails)
        verdict = verify(home)
        assert verdict.word == word
        assert any(f"cannot be read: {os.strerror(number)}" in each.what for each in verdict.findings + verdict.unverifiable)


def test_a_sample_is_rounded_up_and_never_more_than_there_is() -> None:
    assert [Sample.parse(text).of(30) for text in ("5%", "0%", "100%", "0.1%", "7", "31", "0")] == [2, 0, 30, 1, 7, 30, 0]
    assert Sample.parse("5%").of(0) == 0


@pytest.mark.parametrize("text", ["", "5 %", "%", "-1", "1e3", "101%", "100.1%", "5%%", "٣", "1.5"])
def test_what_is_no_sample_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="neither a number"):
        Sample.parse(text)


def test_chance_is_decided_by_seed_and_place_alone() -> None:
    places = [("a", 0, at) for at in range(2_000)]
    chosen = [is_chosen(1, 10, *place) for place in places]
    assert chosen == [is_chosen(1, 10, *place) for place in places]
    assert 120 < sum(chosen) < 280
    assert chosen != [is_chosen(2, 10, *place) for place in places]
    assert all(is_chosen(1, 100, *place) for place in places)
    assert not any(is_chosen(1, 0, *place) for place in places)


def test_nothing_is_written_by_a_verification_that_finds_nothing(long: World, tmp_path: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in long.layout.archive.rglob("*")}
    with small_sizes(), long.open() as home:
        verify(home, effort=Effort(percent=50, seed=1))
    assert {path: path.stat().st_mtime_ns for path in long.layout.archive.rglob("*")} == before
