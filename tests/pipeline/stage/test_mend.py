"""A damaged meta.json or manifest: verify names the file, and a rebuild writes it anew from what else is known."""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from coldtrail.errors import ColdtrailError
from coldtrail.sessions import read_manifest
from coldtrail.stage.rebuild import differences, rebuild
from coldtrail.stage.restore import Passed, Restored
from coldtrail.stage.verify import Verdict, verify
from coldtrail.stage.wish import set_pin
from pipeline.stage.places import put_back, the_session, the_stream
from world_of import Lines, World, assert_sound, generation_bytes, listed, metas

Damage = Callable[[Path], None]


def path_bit(path: Path) -> None:
    """One bit of the path is another: it is a good path still."""
    data = path.read_bytes()
    at = data.index(b"projects/-p") + 3
    path.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])


def number_bit(path: Path) -> None:
    """One digit of a stamp is another."""
    data = path.read_bytes()
    at = data.index(b'"began_ms": ') + 14
    path.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])


def halved(path: Path) -> None:
    """Half of it is missing."""
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def emptied(path: Path) -> None:
    """Nothing is left of it."""
    path.write_bytes(b"")


def removed(path: Path) -> None:
    """Somebody has."""
    path.unlink()


def zeroed(path: Path) -> None:
    """As after a crash of the machine."""
    path.write_bytes(b"\0" * path.stat().st_size)


each_damage = pytest.mark.parametrize("damage", [path_bit, number_bit, halved, emptied, zeroed])


def meta_json(world: World, path: Path) -> Path:
    with world.open() as home:
        return home.layout.meta(the_stream(home, path).stream)


def the_manifest(world: World) -> Path:
    (found,) = world.layout.archive.glob("*/*/*.json")
    return found


def verdict(world: World) -> Verdict:
    with world.open() as home:
        return verify(home)


def rebuilt(world: World) -> list[str]:
    """Rebuild; gives the files that were written anew."""
    mended: list[str] = []
    with world.open() as home:
        assert rebuild(home, mended=mended.append) == []
        assert differences(home) == ([], [])
        assert_sound(home)
    return mended


@pytest.fixture
def bundle(world: World, lines: Lines) -> World:
    """A main log and a companion, captured, nothing sealed."""
    world.write(world.main(), lines.some(5))
    world.write(world.companion(), b"an output")
    world.scan()
    return world


@each_damage
@pytest.mark.parametrize("sealed", [False, True], ids=["no manifest", "with a manifest"])
@pytest.mark.parametrize("of", ["main log", "companion"])
def test_a_damaged_meta_json_is_named_and_written_anew(bundle: World, damage: Damage, sealed: bool, of: str) -> None:
    if sealed:
        bundle.compact(cold=True)
    path = meta_json(bundle, bundle.main() if of == "main log" else bundle.companion())
    with bundle.open() as home:
        before = {meta.path: [generation_bytes(home, meta, each.number) for each in meta.generations] for meta in metas(home)}
        told = listed(home, bundle.folder)
    damage(path)
    (finding,) = verdict(bundle).findings[:1]
    assert (finding.path, "coldtrail rebuild" in finding.hint) == (str(path), True)
    assert str(path) not in finding.what
    with bundle.open() as home:
        assert [str(path) in str(error) for error in differences(home)[1]] == [True], "a check names it and changes nothing"
        with pytest.raises(ColdtrailError, match=re.escape(str(path))):
            home.store.meta(path.parent.name)
    assert rebuilt(bundle) == [str(path)]
    with bundle.open() as home:
        assert {meta.path: [generation_bytes(home, meta, each.number) for each in meta.generations] for meta in metas(home)} == before
        assert listed(home, bundle.folder) == told
        bundle.main().unlink()
        done = put_back(home)
    assert {each.path for each in done if isinstance(each, Restored)} == {bundle.main()}
    assert rebuilt(bundle) == []


@pytest.mark.parametrize("damage", [path_bit, number_bit, halved, emptied, zeroed, removed])
def test_a_generation_that_the_manifests_copy_does_not_know_is_not_lost(bundle: World, damage: Damage, lines: Lines) -> None:
    bundle.compact(cold=True)
    first = bundle.main().read_bytes()
    second = Lines(bundle.clock, session="another-0000").some(3)
    bundle.write(bundle.main(), second)
    bundle.scan()
    damage(meta_json(bundle, bundle.main()))
    rebuilt(bundle)
    with bundle.open() as home:
        meta = the_stream(home, bundle.main())
        assert [generation_bytes(home, meta, each.number) for each in meta.generations] == [first, second]
    third = second + Lines(bundle.clock, session="another-0000", count=3).some(1)
    bundle.write(bundle.main(), third)
    bundle.scan()
    with bundle.open() as home:
        meta = the_stream(home, bundle.main())
        assert [generation_bytes(home, meta, each.number) for each in meta.generations] == [first, third]


@pytest.mark.parametrize("sealed", [False, True], ids=["no manifest", "with a manifest"])
def test_a_meta_json_that_is_gone_is_made_again(bundle: World, sealed: bool) -> None:
    if sealed:
        bundle.compact(cold=True)
    path = meta_json(bundle, bundle.main())
    path.unlink()
    (finding,) = verdict(bundle).findings
    assert "coldtrail rebuild" in finding.hint
    assert rebuilt(bundle) == [str(path)]
    with bundle.open() as home:
        assert b"".join(the_session(home).raw()) == bundle.main().read_bytes()


def test_with_the_catalog_gone_too_what_can_be_read_is_taken(bundle: World) -> None:
    path = meta_json(bundle, bundle.main())
    path_bit(path)
    bundle.forget_catalog()
    assert rebuilt(bundle) == [str(path)]
    with bundle.open() as home:
        assert the_session(home).row.records == 5


@each_damage
@pytest.mark.parametrize("by", ["rebuild", "compaction"])
def test_a_damaged_manifest_is_named_and_written_anew_with_the_pin(bundle: World, damage: Damage, by: str, lines: Lines) -> None:
    bundle.compact(cold=True)
    with bundle.open() as home:
        set_pin(home, the_session(home).row, pinned=True)
    manifest = the_manifest(bundle)
    before = manifest.read_bytes()
    damage(manifest)
    (finding,) = verdict(bundle).findings
    assert finding.path == f"archive/{manifest.relative_to(bundle.layout.archive)}"
    assert "coldtrail rebuild" in finding.hint
    if by == "rebuild":
        assert rebuilt(bundle) == [finding.path]
        assert manifest.read_bytes() == before
    else:
        bundle.append(bundle.main(), lines.some(2))
        bundle.scan()
        bundle.compact(cold=True)
    assert verdict(bundle).word == "ok"
    with bundle.open() as home:
        row = the_session(home).row
        assert (row.pinned, read_manifest(home, row.source, row.key).pinned) == (1, True)


@each_damage
def test_a_damaged_manifest_keeps_no_session_from_coming_back(bundle: World, damage: Damage) -> None:
    bundle.compact(cold=True)
    whole = bundle.main().read_bytes()
    bundle.main().unlink()
    bundle.companion().unlink()
    damage(the_manifest(bundle))
    with bundle.open() as home:
        told, *done = put_back(home)
    assert isinstance(told, Passed)
    assert (told.path, told.failed) == (the_manifest(bundle), True)
    assert "not held" in told.why
    assert "coldtrail rebuild" in told.hint
    assert {each.path for each in done if isinstance(each, Restored)} == {bundle.main(), bundle.companion()}
    assert bundle.main().read_bytes() == whole


def test_a_pin_that_only_a_damaged_manifest_has_still_holds(bundle: World) -> None:
    """Better one pin too many than a session that expires."""
    bundle.compact(cold=True)
    with bundle.open() as home:
        set_pin(home, the_session(home).row, pinned=True)
    number_bit(the_manifest(bundle))
    bundle.forget_catalog()
    rebuilt(bundle)
    with bundle.open() as home:
        assert the_session(home).row.pinned


def test_files_without_a_checksum_are_read_cannot_be_judged_and_get_one_by_a_rebuild(bundle: World) -> None:
    bundle.compact(cold=True)
    files = [the_manifest(bundle), meta_json(bundle, bundle.main()), meta_json(bundle, bundle.companion())]
    before = [path.read_bytes() for path in files]
    for path in files:
        value = json.loads(path.read_bytes())
        del value["sha256"]
        path.write_text(json.dumps(value))
    found = verdict(bundle)
    assert (found.word, len(found.unverifiable)) == ("unverifiable", 3)
    assert {"coldtrail rebuild" in each.hint for each in found.unverifiable} == {True}
    with bundle.open() as home:
        assert differences(home) == ([], [])
        assert b"".join(the_session(home).raw()) == bundle.main().read_bytes()
    assert len(rebuilt(bundle)) == 3
    assert [path.read_bytes() for path in files] == before
    assert verdict(bundle).word == "ok"


def test_of_what_nothing_is_known_the_error_stays(bundle: World) -> None:
    path = meta_json(bundle, bundle.main())
    emptied(path)
    bundle.forget_catalog()
    with bundle.open() as home:
        (error,) = rebuild(home)
        assert str(path) in str(error)
    assert path.read_bytes() == b""


def test_a_manifest_that_cannot_be_a_sessions_is_passed_over(bundle: World) -> None:
    bundle.compact(cold=True)
    (the_manifest(bundle).parent / "notes.json").write_text("{")
    assert rebuilt(bundle) == []


@pytest.mark.parametrize("of", ["meta.json", "manifest"])
def test_a_file_of_a_newer_coldtrail_is_no_damage_and_never_overwritten(bundle: World, of: str) -> None:
    bundle.compact(cold=True)
    path = the_manifest(bundle) if of == "manifest" else meta_json(bundle, bundle.main())
    value = {key: each for key, each in json.loads(path.read_bytes()).items() if key != "sha256"} | {"version": 2}
    canonical = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
    path.write_text(json.dumps({**value, "sha256": hashlib.sha256(canonical).hexdigest()}))
    before = path.read_bytes()
    (finding,) = [each for each in verdict(bundle).findings if path.name in each.path]
    assert (finding.what, "newer coldtrail" in finding.hint) == ("version 2; this coldtrail reads version 1", True)
    with bundle.open() as home:
        (error,) = rebuild(home)
        assert "newer coldtrail" in error.hint
    bundle.append(bundle.companion(), b"more")
    bundle.scan()
    with contextlib.suppress(ColdtrailError):
        bundle.compact(cold=True)
    assert path.read_bytes() == before
