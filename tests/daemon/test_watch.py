"""Watching: every touch marks, by whatever way, and roots may come and go."""

from __future__ import annotations

import os
import shutil
import sys
import threading
from pathlib import Path

import pytest

from coldtraild.watch import Watched, linked_folders, real_folders
from daemon.waiting import until
from daemon.watching import World, inotify_instances, what

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="inotify is Linux's")


# Events


def test_a_new_a_grown_and_a_removed_file_are_marked(world: World) -> None:
    world.start()
    log = world.root / "a.jsonl"
    assert world.sees(log)
    world.marked.clear()
    with log.open("ab") as stream:
        stream.write(b'{"n":2}\n')
    assert world.marked.wait_for(log)
    world.marked.clear()
    log.unlink()
    assert world.marked.wait_for(log)


def test_a_file_that_is_held_open_is_marked_when_it_grows(world: World) -> None:
    world.start()
    log = world.root / "a.jsonl"
    with log.open("ab", buffering=0) as stream:
        assert world.marked.wait_for(log)
        world.marked.clear()
        stream.write(b'{"n":2}\n')
        assert world.marked.wait_for(log)


def test_a_move_marks_both_paths(world: World) -> None:
    old, new = world.root / "a.jsonl", world.root / "b.jsonl"
    old.write_bytes(b"{}\n")
    world.start()
    old.rename(new)
    assert world.marked.wait_for(old, new)


def test_a_changed_mtime_marks_for_it_may_hide_a_rewrite(world: World) -> None:
    log = world.root / "a.jsonl"
    log.write_bytes(b"{}\n")
    world.start()
    os.utime(log, (0, 0))
    assert world.marked.wait_for(log)


def test_reading_marks_nothing(world: World) -> None:
    log = world.root / "a.jsonl"
    log.write_bytes(b"{}\n")
    world.start()
    log.read_bytes()
    assert world.sees(world.root / "later.jsonl")
    assert not world.marked.has(log)


def test_folders_made_later_are_watched_with_what_is_in_them(world: World) -> None:
    world.start()
    deep = world.root / "a" / "b" / "c"
    deep.mkdir(parents=True)
    assert world.sees(deep / "first.jsonl")
    assert world.sees(deep / "second.jsonl")


def test_deep_folders_made_at_full_speed_end_no_thread(world: World) -> None:
    """Watchdog adds a watch twice where a folder is made while its parent is walked; the warning of that must not be its end."""
    world.start()
    for number in range(60):
        (world.root / str(number) / "a/b/c/d/e").mkdir(parents=True)
    assert world.sees(world.root / "last.jsonl")
    assert "thread" not in what(world.watcher.check())


def test_a_path_that_is_no_utf8_is_marked(world: World) -> None:
    world.start()
    assert world.sees(world.root / os.fsdecode(b"caf\xe9.jsonl"))


def test_a_root_is_marked_when_its_watch_begins(world: World) -> None:
    world.watcher.start()
    assert world.marked.has(world.root)


# Roots that come and go


def test_a_root_removed_and_made_again_is_watched_again_after_mend(world: World) -> None:
    """Watchdog's emitter is dead then, though its observer says that it lives."""
    world.start()
    shutil.rmtree(world.root)
    world.root.mkdir()
    assert [fault.folder for fault in world.faults_before_long()] == [world.root]
    world.marked.clear()
    assert world.watcher.mend()
    assert world.marked.has(world.root), "a scan must follow"
    assert world.watcher.check() == []
    assert world.sees(world.root / "a.jsonl")


def test_another_folder_in_the_roots_place_is_noticed_and_watched(world: World) -> None:
    world.start()
    world.root.rename(world.folder / "away")
    world.root.mkdir()
    assert what(world.watcher.check()) == "another folder has taken its place"
    world.watcher.mend()
    assert world.sees(world.root / "a.jsonl")
    (world.folder / "away" / "ghost.jsonl").write_bytes(b"{}\n")
    assert world.sees(world.root / "b.jsonl")
    assert not world.marked.has(world.root / "ghost.jsonl")


def test_a_missing_root_is_no_fault_and_is_taken_up_when_it_appears(world: World) -> None:
    world.root.rmdir()
    world.start()
    assert (world.watcher.check(), world.watcher.mend()) == ([], [])
    assert world.status() == Watched(world.root, "absent", None)
    world.root.mkdir()
    world.watcher.mend()
    assert world.marked.has(world.root)
    assert world.status() == Watched(world.root, "events", None)
    assert world.sees(world.root / "a.jsonl")


def test_a_root_that_goes_is_a_fault_once_and_absent_then(world: World) -> None:
    world.start()
    world.root.rmdir()
    assert what(world.watcher.mend()) == "the folder is gone"
    assert world.status() == Watched(world.root, "absent", None)
    assert world.watcher.mend() == []


def test_roots_can_be_added_and_dropped_while_others_go_on(world: World) -> None:
    other = world.folder / "other"
    other.mkdir()
    world.start()
    world.watcher.set_roots([world.root, other])
    assert world.marked.has(other)
    assert not world.marked.has(world.root), "it was disturbed"
    assert world.sees(other / "a.jsonl")
    world.watcher.set_roots([world.root])
    (other / "b.jsonl").write_bytes(b"{}\n")
    assert world.sees(world.root / "c.jsonl")
    assert not world.marked.has(other / "b.jsonl")
    assert [status.folder for status in world.watcher.status()] == [world.root]


def test_stop_leaves_no_thread_and_no_inotify_instance(world: World) -> None:
    threads, instances = set(threading.enumerate()), inotify_instances()
    world.start()
    assert inotify_instances() == instances + 1
    world.watcher.stop()
    until(lambda: set(threading.enumerate()) <= threads)
    assert inotify_instances() == instances
    assert world.watcher.mend() == []


# Links


def test_writes_behind_a_linked_folder_are_marked_by_its_real_path(world: World) -> None:
    outside = world.folder / "outside"
    outside.mkdir()
    (world.root / "link").symlink_to(outside)
    world.watcher.set_roots(real_folders(world.root))
    world.start()
    world.marked.clear()
    (world.root / "link" / "a.jsonl").write_bytes(b"{}\n")
    assert world.marked.wait_for(outside / "a.jsonl")


def test_a_root_that_is_a_link_is_watched_by_its_own_name(world: World) -> None:
    link = world.folder / "link"
    link.symlink_to(world.root)
    world.watcher.set_roots([link])
    world.start()
    assert world.sees(link / "a.jsonl")
    world.root.rename(world.folder / "moved")
    world.root.mkdir()
    world.watcher.mend()
    assert world.sees(link / "b.jsonl")


def test_real_folders_are_the_roots_own_and_those_that_links_lead_out_to(tmp_path: Path) -> None:
    for name in ("real/inside", "outside/deep", "far"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "root").symlink_to("real")
    (tmp_path / "real/inside/out").symlink_to(tmp_path / "outside")
    (tmp_path / "real/within").symlink_to("inside")
    (tmp_path / "outside/deep/on").symlink_to(tmp_path / "far")
    assert real_folders(tmp_path / "root") == {tmp_path / "real", tmp_path / "outside", tmp_path / "far"}
    assert linked_folders(tmp_path / "root") == {
        tmp_path / "outside": tmp_path / "root/inside/out",
        tmp_path / "far": tmp_path / "root/inside/out/deep/on",
    }


def test_loops_of_links_end_and_a_link_upward_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    (tmp_path / "outside").mkdir()
    for number in range(3):
        (tmp_path / f"root/self{number}").symlink_to(tmp_path / "root")
        (tmp_path / f"outside/back{number}").symlink_to(tmp_path / "root")
    (tmp_path / "root/up").symlink_to(tmp_path)
    (tmp_path / "root/out").symlink_to(tmp_path / "outside")
    (tmp_path / "root/knot").symlink_to("knot")
    assert real_folders(tmp_path / "root") == {tmp_path / "root", tmp_path / "outside"}


@pytest.mark.parametrize("order", [("a", "b"), ("b", "a")])
def test_of_two_linked_folders_one_in_the_other_only_the_outer_one_is_named(tmp_path: Path, order: tuple[str, str]) -> None:
    (tmp_path / "root/1").mkdir(parents=True)
    (tmp_path / "root/2").mkdir()
    (tmp_path / "outer/inner").mkdir(parents=True)
    (tmp_path / f"root/1/{order[0]}").symlink_to(tmp_path / "outer")
    (tmp_path / f"root/2/{order[1]}").symlink_to(tmp_path / "outer/inner")
    assert real_folders(tmp_path / "root") == {tmp_path / "root", tmp_path / "outer"}


def test_a_root_that_does_not_exist_is_its_own_real_folder(tmp_path: Path) -> None:
    assert real_folders(tmp_path / "none") == {tmp_path / "none"}
