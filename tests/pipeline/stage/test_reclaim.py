"""Reclaim takes a session's own files away when the archive is proven to hold them, and in any doubt leaves or puts them back."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from coldtrail import holders
from coldtrail.errors import NotFoundError
from coldtrail.sessions import read_manifest, write_manifest
from coldtrail.stage import aside, placing, reclaim
from coldtrail.stage.rebuild import differences
from coldtrail.stage.reclaim import WAIT_MS, Act, Terms, candidates, pending
from coldtrail.stage.scan import Scanner
from pipeline.stage.places import THREAD, CodexWorld
from reclaiming import (
    AFTER_MS,
    TERMS,
    Cold,
    assert_in_order_and_held,
    busy,
    damaged,
    grow,
    grow_and_capture,
    held,
    lost,
    missing,
    pending_of,
    restore,
)  # fmt: skip
from world_of import SESSION, Lines, World, assert_sound, metas

pytestmark = pytest.mark.usefixtures("small")


@pytest.fixture
def cold(tmp_path: Path) -> Cold:
    """A session that may go."""
    return Cold.made(tmp_path)


def why_not(cold: Cold) -> list[str | None]:
    """What is said of each session."""
    with cold.world.open() as home:
        return [each.why_not for each in candidates(home, AFTER_MS, home.now_ms())]


# ---- all goes well ----------------------------------------------------------------------------------------------------------


def test_a_session_is_set_aside_whole_and_goes_after_the_wait(cold: Cold) -> None:
    before = cold.world.live()
    inodes = {path.stat().st_ino for path in before}
    assert cold.step().act is Act.SET_ASIDE
    assert cold.world.live() == {}
    waiting = list((cold.world.layout.aside / "files").iterdir())
    assert {path.stat().st_ino for path in waiting} == inodes
    assert cold.world.layout.aside.stat().st_mode & 0o777 == 0o700

    outcome = cold.step()
    assert (outcome.act, outcome.next_ms) == (Act.SET_ASIDE, cold.world.clock() + WAIT_MS)
    cold.world.clock.tick(WAIT_MS)
    outcome = cold.step()
    assert (outcome.act, outcome.bytes) == (Act.RECLAIMED, sum(map(len, before.values())))
    assert [path for path in cold.world.layout.aside.rglob("*") if path.name != "files"] == []
    assert [path for path in cold.world.root.rglob("*") if path.name == SESSION] == []
    assert lost(cold) == []
    assert cold.step().act is Act.KEPT


def test_what_was_reclaimed_is_told_from_what_its_agent_has_removed(cold: Cold) -> None:
    other = "22222222-2222-4333-8444-555555555555"
    cold.world.write(cold.world.main(session=other), Lines(cold.world.clock, session=other).some(3))
    cold.scan()
    cold.world.main(session=other).unlink()
    cold.reclaim()
    now_ms = cold.world.clock()
    cold.scan()
    with cold.world.open() as home:
        said = {meta.session_id: aside.reclaimed_ms(meta) for meta in metas(home) if meta.path.endswith(f"{meta.session_id}.jsonl")}
        assert said == {SESSION: now_ms, other: None}
        assert {row.state for row in home.catalog.sessions()} == {"gone"}
        assert differences(home) == ([], [])


def test_a_restored_session_is_whole_again_and_no_longer_called_reclaimed(cold: Cold) -> None:
    before = cold.world.live()
    cold.reclaim()
    with cold.world.open() as home:
        restore(home)
        assert cold.world.live() == before
        assert {aside.reclaimed_ms(meta) for meta in metas(home)} == {None}
    cold.scan()
    assert_in_order_and_held(cold)


def test_what_waits_is_not_called_vanished_nor_captured_by_a_pass(cold: Cold) -> None:
    cold.step()
    with cold.world.open() as home:
        before = metas(home)
        tally = Scanner(home).scan(cold.world.sources)
        assert (tally.gone, tally.captured, tally.failed) == (0, 0, 0)
        assert metas(home) == before
        assert pending(home) == [cold.key(home)]
        assert differences(home) == ([], [])
        assert_sound(home)


def test_every_act_is_told_once(cold: Cold) -> None:
    told: list[tuple[str, int]] = []
    with cold.world.open() as home:
        for _ in range(2):
            reclaim.reclaim(home, cold.key(home), TERMS, lambda act, _session, _reason, size: told.append((act, size)))
        cold.world.clock.tick(WAIT_MS)
        reclaim.reclaim(home, cold.key(home), TERMS, lambda act, _session, _reason, size: told.append((act, size)))
    size = len(b"".join(cold.written))
    assert [act for act, _ in told] == ["set-aside", "reclaimed"]
    assert all(count > size for _, count in told)


def test_without_a_wait_both_looks_are_one(cold: Cold) -> None:
    assert cold.step(Terms(AFTER_MS, 0)).act is Act.RECLAIMED
    assert lost(cold) == []


@pytest.mark.skipif(not hasattr(os, "posix_fadvise"), reason="this system reads from memory what it has there")
def test_every_segment_is_read_back_from_the_disk_at_both_looks(cold: Cold, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    monkeypatch.setattr(os, "posix_fadvise", lambda fd, *_: asked.append(os.fstat(fd).st_ino))
    segments = sorted(path.stat().st_ino for path in cold.world.layout.archive.rglob("*.jsonl.zst"))
    cold.step()
    assert sorted(asked) == segments
    cold.world.clock.tick(WAIT_MS)
    cold.step()
    assert sorted(asked) == sorted(segments * 2)


def test_an_empty_file_goes_too_and_comes_back(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.write(world.main(), Lines(world.clock).some(3))
    world.write(world.companion(), b"")
    world.scan()
    world.compact(cold=True)
    world.clock.tick(AFTER_MS)
    before = world.live()
    cold = Cold(world, Lines(world.clock))
    assert cold.reclaim().act is Act.RECLAIMED
    with world.open() as home:
        restore(home)
    assert world.live() == before


def test_a_folder_in_which_something_is_left_stays(cold: Cold) -> None:
    note = cold.world.companion().with_name(".mine")
    note.write_bytes(b"the user's own")
    cold.reclaim()
    assert note.read_bytes() == b"the user's own"
    assert not cold.world.child().parent.exists()


def test_a_log_that_was_made_again_without_its_head_goes_as_well(cold: Cold) -> None:
    """Of its chain every byte is read back, and its own generation is what the file is held against."""
    cold.world.main().unlink()
    cold.scan()
    cold.world.append(cold.world.main(), cold.line())
    cold.scan()
    cold.world.compact(cold=True)
    cold.world.clock.tick(AFTER_MS)
    cold.scan()
    assert cold.reclaim().act is Act.RECLAIMED
    assert_in_order_and_held(cold)


def test_on_another_device_it_waits_above_the_agents_root(cold: Cold, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(placing, "folder_outside", lambda _folder, root, _home: root.parent)
    assert cold.step().act is Act.SET_ASIDE
    place = cold.world.folder / ".coldtrail-aside"
    assert place.stat().st_mode & 0o777 == 0o700
    assert all(path.is_symlink() for path in cold.world.layout.aside.iterdir())
    assert len(list(place.iterdir())) == 3
    with cold.world.open() as home:
        assert len(pending(home)) == 1
    cold.world.clock.tick(WAIT_MS)
    assert cold.step().act is Act.RECLAIMED
    assert list(place.iterdir()) == []
    assert list(cold.world.layout.aside.iterdir()) == []


# ---- why it stays where it is -----------------------------------------------------------------------------------------------


def test_a_session_that_may_go_is_a_candidate_with_its_bytes(cold: Cold) -> None:
    with cold.world.open() as home:
        (found,) = candidates(home, AFTER_MS, home.now_ms())
    assert (found.why_not, found.bytes) == (None, sum(map(len, cold.world.live().values())))


def not_archived(cold: Cold) -> None:
    """It grew long ago, in its file's own words, and nobody has sealed it since."""
    with cold.world.main().open("ab") as file:
        file.write(b'{"type":"mode"}\n')
    os.utime(cold.world.main(), ns=(0, 0))
    cold.scan()


def touched(cold: Cold) -> None:
    cold.world.stamp(cold.world.main())


def rewritten(cold: Cold) -> None:
    """In place, of the same size and mtime."""
    path = cold.world.child()
    before = path.stat()
    path.write_bytes(path.read_bytes().replace(b"/there", b"/other"))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def second_name(cold: Cold) -> None:
    cold.world.main().with_suffix(".copy").hardlink_to(cold.world.main())
    cold.scan()
    with cold.world.open() as home:
        Scanner(home).scan(cold.world.sources)


def unnamed(cold: Cold) -> None:
    with cold.world.open() as home:
        (row,) = home.catalog.sessions()
        write_manifest(home, row.source, replace(read_manifest(home, row.source, row.key), sealed=()))


def compressed(cold: Cold) -> None:
    cold.world.main().with_name(cold.world.main().name + ".zst").write_bytes(b"")


def mixed(cold: Cold) -> None:
    with cold.world.open() as home:
        meta = next(each for each in metas(home) if each.path == str(cold.world.child()))
        home.store.write_meta(meta.with_generation(replace(meta.newest, mixed=True)))


DOUBTS: dict[str, tuple[Callable[[Cold], None], str]] = {
    "grown": (grow, "has changed since it was captured"),
    "grown and captured": (grow_and_capture, "not cold before"),
    "not archived": (not_archived, "not fully archived"),
    "touched": (touched, "has changed since it was captured"),
    "rewritten unseen": (rewritten, "has changed since it was captured"),
    "another name": (second_name, "another name"),
    "busy": (busy, "busy: pid"),
    "restored lately": (held, "held until"),
    "a damaged copy": (damaged, "damaged"),
    "a missing segment": (missing, "is not as long as what is held"),
    "a manifest that lags": (unnamed, "manifest"),
    "a compressed twin": (compressed, "twin"),
    "two lives": (mixed, "two lives"),
}


@pytest.mark.parametrize(("change", "reason"), DOUBTS.values(), ids=list(DOUBTS))
def test_in_doubt_nothing_is_touched_and_it_is_said_why(cold: Cold, change: Callable[[Cold], None], reason: str) -> None:
    change(cold)
    before = cold.world.live()
    outcome = cold.step()
    assert outcome.act is Act.KEPT
    assert reason in outcome.reason
    assert cold.world.live() == before
    assert pending_of(cold) == []


@pytest.mark.parametrize("name", ["grown and captured", "not archived", "busy", "restored lately"])
def test_what_the_catalog_tells_is_told_of_each_session(cold: Cold, name: str) -> None:
    change, reason = DOUBTS[name]
    change(cold)
    (said,) = why_not(cold)
    assert reason in (said or "")


def test_where_holders_cannot_be_known_it_stays(cold: Cold, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(holders, "file_system", lambda _fd: "nfs4")
    outcome = cold.step()
    assert outcome.act is Act.KEPT
    assert "nfs4" in outcome.reason
    assert len(cold.world.live()) == 3


def test_a_reader_keeps_it_too(cold: Cold) -> None:
    with cold.world.companion().open("rb"):
        outcome = cold.step()
    assert outcome.act is Act.KEPT
    assert f"open: pid {os.getpid()}" in outcome.reason


def test_where_one_file_cannot_go_none_does(cold: Cold, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last of three fails when two are out already."""
    real, calls = os.rename, [0]

    def rename(source: Path, target: Path) -> None:
        calls[0] += 1
        if calls[0] == 3:
            raise PermissionError(13, "Permission denied", str(source))
        real(source, target)

    before = {path: path.stat().st_ino for path in cold.world.live()}
    monkeypatch.setattr(os, "rename", rename)
    outcome = cold.step()
    assert outcome.act is Act.KEPT
    assert "Permission denied" in outcome.reason
    assert {path: path.stat().st_ino for path in cold.world.live()} == before
    assert pending_of(cold) == []


def test_a_parent_that_a_forked_session_reads_stays(tmp_path: Path) -> None:
    """Codex: the child names the parent's file and takes a part of it."""
    world, child = CodexWorld(tmp_path), "019dc0d3-6b22-7052-b168-4487a38e0f4e"
    world.write(world.rollout(), world.some(5))
    base = {"id": child, "cwd": "/there", "forked_from_id": THREAD}
    world.write(
        world.rollout(child), json.dumps({"timestamp": "2026-01-01T00:00:00Z", "type": "session_meta", "payload": base}).encode() + b"\n"
    )
    world.scan()
    world.clock.tick(AFTER_MS + 1_000)
    world.compact(cold=True)
    with world.open() as home:
        said = {each.session.id: each.why_not for each in candidates(home, AFTER_MS, home.now_ms())}
        assert said == {THREAD: f"{child} was forked from it, and is there", child: None}
        (key,) = (row.key for row in home.catalog.sessions() if row.id == child)
        assert reclaim.reclaim(home, key, Terms(AFTER_MS, 0)).act is Act.RECLAIMED
        assert [each.why_not for each in candidates(home, AFTER_MS, home.now_ms())] == [None]


def test_a_session_that_is_not_there_is_an_error(cold: Cold) -> None:
    with cold.world.open() as home, pytest.raises(NotFoundError):
        reclaim.reclaim(home, "0" * 16, TERMS)
