"""Watching: every way to go blind is noticed, named and mended."""

from __future__ import annotations

import ctypes
import errno
import itertools
import os
import resource
import shutil
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from coldtraild.watch import Fault, Watched, Watcher
from coldtraild.watch.kernel import cause_of
from daemon.waiting import DEADLINE_S, until
from daemon.watching import Marked, World, inotify_instances, refuse, what

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="inotify is Linux's")


def assert_polled_for_want_of_watches(world: World) -> None:
    status = world.status()
    assert status.mode == "polling"
    assert status.why is not None
    assert "no watches left" in status.why.what
    assert "fs.inotify.max_user_watches" in status.why.hint
    assert world.watcher.check() == [Fault(world.root, status.why)]


def test_without_watches_left_polling_takes_over_and_the_sysctl_is_named(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    refuse(monkeypatch, errno.ENOSPC, lambda _: True)
    instances = inotify_instances()
    world.start()
    assert_polled_for_want_of_watches(world)
    assert inotify_instances() == instances
    log = world.root / "a.jsonl"
    assert world.sees(log)
    world.marked.clear()
    with log.open("ab") as stream:
        stream.write(b'{"n":2}\n')
    assert world.marked.wait_for(log)


def test_polling_takes_over_where_the_emitter_cannot_start(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    from watchdog.observers.inotify import InotifyEmitter

    def refused(emitter: object) -> None:
        raise OSError(errno.ENOSPC, "inotify watch limit reached")

    monkeypatch.setattr(InotifyEmitter, "on_thread_start", refused)
    world.start()
    assert_polled_for_want_of_watches(world)


def test_a_folder_inside_without_a_watch_is_reason_enough_to_poll(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Watchdog tells of the limit for the top folder only, and goes blind for the others."""
    inner = world.root / "b"
    for name in ("a", "b", "c"):
        (world.root / name).mkdir()
    refuse(monkeypatch, errno.ENOSPC, lambda path: path == os.fsencode(inner))
    instances = inotify_instances()
    world.start()
    assert_polled_for_want_of_watches(world)
    assert inotify_instances() == instances
    assert world.sees(inner / "a.jsonl")


def test_a_folder_made_later_without_a_watch_left_is_polled_after_mend(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    inner = world.root / "new"
    refuse(monkeypatch, errno.ENOSPC, lambda path: path == os.fsencode(inner))
    world.start()
    assert world.watcher.check() == []
    inner.mkdir()
    assert "no watches left" in what(world.faults_before_long())
    world.watcher.mend()
    assert_polled_for_want_of_watches(world)
    assert world.sees(inner / "a.jsonl")


def test_what_stays_wrong_is_told_by_mend_once(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as limited:
        refuse(limited, errno.ENOSPC, lambda _: True)
        world.start()
        why = "inotify has no watches left for this user (raise the sysctl fs.inotify.max_user_watches)"
        assert [str(fault.why) for fault in world.watcher.mend()] == [why]
        world.clock.now_s += 301
        assert world.watcher.mend() == []
        assert world.watcher.check() != []
    world.clock.now_s += 301
    world.watcher.mend()
    assert world.watcher.check() == []
    refuse(monkeypatch, errno.ENOSPC, lambda _: True)
    world.root.rename(world.folder / "away")
    world.root.mkdir()
    assert what(world.watcher.mend()) == "another folder has taken its place"
    assert [str(fault.why) for fault in world.watcher.mend()] == [why]


def test_events_are_tried_again_when_the_limit_was_raised(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as limited:
        refuse(limited, errno.ENOSPC, lambda _: True)
        world.start()
        world.clock.now_s += 301
        world.watcher.mend()
        assert_polled_for_want_of_watches(world)
    world.watcher.mend()
    assert world.status().mode == "polling", "it was tried too soon"
    world.clock.now_s += 301
    world.marked.clear()
    world.watcher.mend()
    assert world.status() == Watched(world.root, "events", None)
    assert world.marked.has(world.root)
    assert world.sees(world.root / "a.jsonl")


def test_without_instances_left_polling_takes_over_and_the_sysctl_is_named(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    from watchdog.observers import inotify_c

    def none_left() -> int:
        ctypes.set_errno(errno.EMFILE)
        return -1

    monkeypatch.setattr(inotify_c, "inotify_init", none_left)
    world.start()
    status = world.status()
    assert status.mode == "polling"
    assert status.why is not None
    assert "fs.inotify.max_user_instances" in status.why.hint
    assert world.sees(world.root / "a.jsonl")


def test_too_many_open_files_are_not_blamed_on_inotify() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
    try:
        why = cause_of(OSError(errno.EMFILE, "inotify instance limit reached"))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert "too many files open" in why.what
    assert "LimitNOFILE" in why.hint


def test_a_folder_that_may_not_be_watched_is_not_taken_for_watched(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Watchdog takes EACCES for success."""
    refuse(monkeypatch, errno.EACCES, lambda _: True)
    world.start()
    status = world.status()
    assert status.mode == "polling"
    assert status.why is not None
    assert "Permission denied" in status.why.what


def test_a_folder_that_may_not_even_be_read_is_absent_with_a_reason(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def unreadable(path: str) -> Iterator[os.DirEntry[str]]:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)

    with monkeypatch.context() as closed:
        refuse(closed, errno.EACCES, lambda _: True)
        closed.setattr(os, "scandir", unreadable)
        world.start()
        assert world.status().mode == "absent"
        assert "Permission denied" in what(world.watcher.check())
        assert not world.marked.has(world.root)
    world.watcher.mend()
    assert world.status() == Watched(world.root, "events", None)


def test_polling_does_not_follow_links_round_in_loops(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two links that lead back up are a walk of two to the fortieth folders."""
    for number in range(3):
        (tmp_path / f"loop{number}").symlink_to(tmp_path)
    refuse(monkeypatch, errno.ENOSPC, lambda _: True)
    marked = Marked()
    watcher = Watcher(marked, poll_every_s=0.05)
    watcher.set_roots([tmp_path])
    starting = threading.Thread(target=watcher.start, daemon=True)
    starting.start()
    starting.join(DEADLINE_S)
    assert not starting.is_alive()
    (tmp_path / "a.jsonl").touch()
    assert marked.wait_for(tmp_path / "a.jsonl")
    watcher.stop()


@pytest.mark.parametrize(("took_s", "every_s"), [(0.01, 1.0), (0.1, 3.0), (10.0, 60.0)])
def test_a_folder_that_is_slow_to_poll_is_polled_less_often(tmp_path: Path, took_s: float, every_s: float) -> None:
    ticks = itertools.count()
    watcher = Watcher(Marked(), poll_every_s=1.0, clock=lambda: took_s * next(ticks))
    watcher.set_roots([tmp_path])
    watcher.start()
    watcher.fall_back(tmp_path, "no events here")
    observer = watcher._roots[tmp_path].observer
    assert observer is not None
    assert observer.timeout == pytest.approx(every_s)
    watcher.stop()


def hold_the_reader(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Let the reader handle no event until the answer is set."""
    from watchdog.observers.inotify_c import InotifyEvent, InotifyFD

    gate, handle = threading.Event(), InotifyFD.handle_event

    def held(reader: InotifyFD, event: InotifyEvent) -> None:
        gate.wait(DEADLINE_S)
        handle(reader, event)

    monkeypatch.setattr(InotifyFD, "handle_event", held)
    return gate


def test_an_overflow_of_inotifys_queue_marks_the_root_and_is_told(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    queue = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())
    if queue > 50_000:
        pytest.skip("this kernel's queue is too long to overflow in a test")
    gate = hold_the_reader(monkeypatch)
    world.start()
    with (world.root / "a.jsonl").open("wb", buffering=0) as stream:
        for _ in range(queue // 2 + 2000):  # two events that cannot be told as one; some are read before the gate holds
            stream.write(b"\n")
            os.fchmod(stream.fileno(), 0o600)
    gate.set()
    assert world.marked.wait_for(world.root)
    (fault,) = world.faults_before_long()
    assert "queue ran over" in fault.why.what
    assert "fs.inotify.max_queued_events" in fault.why.hint
    world.watcher.mend()
    assert world.watcher.check() == []
    assert world.sees(world.root / "after.jsonl")


def test_an_unmounted_file_system_is_a_loss_that_mend_makes_good(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    from watchdog.observers.inotify_c import InotifyConstants, InotifyEvent, InotifyFD

    handle = InotifyFD.handle_event

    def unmounted(reader: InotifyFD, event: InotifyEvent) -> None:
        object.__setattr__(event, "mask", InotifyConstants.IN_UNMOUNT)
        handle(reader, event)

    world.start()
    with monkeypatch.context() as broken:
        broken.setattr(InotifyFD, "handle_event", unmounted)
        (world.root / "a.jsonl").touch()
        assert what(world.faults_before_long()) == "a file system was unmounted"
    world.watcher.mend()
    assert world.watcher.check() == []
    assert world.sees(world.root / "b.jsonl")


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_the_end_of_the_reader_is_noticed_though_all_others_live(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    from watchdog.observers.inotify_c import InotifyEvent, InotifyFD

    def broken(reader: InotifyFD, event: InotifyEvent) -> None:
        raise RuntimeError("a fault of watchdog that nobody has met yet")

    world.start()
    with monkeypatch.context() as breaking:
        breaking.setattr(InotifyFD, "handle_event", broken)
        (world.root / "a.jsonl").touch()
        assert what(world.faults_before_long()) == "a thread that watches it has ended"
    world.watcher.mend()
    assert world.watcher.check() == []
    assert world.sees(world.root / "b.jsonl")


def test_a_folder_moved_out_and_made_again_ends_no_thread(world: World) -> None:
    """Watchdog's reader dies of it, while observer and emitter live."""
    inner = world.root / "a"
    inner.mkdir()
    world.start()
    inner.rename(world.folder / "away")
    assert world.marked.wait_for(inner)
    assert_marks(world, inner, inner.mkdir)
    assert_marks(world, inner, inner.rmdir)
    (world.folder / "away").rmdir()
    assert what(world.faults_before_long()) == "the watch of a folder inside was lost"
    assert world.sees(world.root / "b.jsonl")
    world.watcher.mend()
    assert world.watcher.check() == []
    assert world.sees(world.root / "c.jsonl")


def assert_marks(world: World, path: Path, act: Callable[[], object]) -> None:
    world.marked.clear()
    act()
    assert world.marked.wait_for(path)


def test_a_folder_whose_events_do_not_come_can_be_put_on_polling_for_good(world: World) -> None:
    world.start()
    world.watcher.fall_back(world.root, "a scan found changes that no event told of")
    assert world.marked.has(world.root)
    world.clock.now_s += 1_000_000
    world.watcher.mend()
    status = world.status()
    assert status.mode == "polling"
    assert status.why is not None
    assert status.why.what == "a scan found changes that no event told of"
    assert world.sees(world.root / "a.jsonl")


def test_a_polled_root_removed_and_made_again_is_polled_again_after_mend(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    refuse(monkeypatch, errno.ENOSPC, lambda _: True)
    world.start()
    shutil.rmtree(world.root)
    assert what(world.watcher.mend()) == "the folder is gone"
    assert world.status().mode == "absent"
    world.root.mkdir()
    world.watcher.mend()
    assert_polled_for_want_of_watches(world)
    assert world.sees(world.root / "a.jsonl")


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_an_observer_that_a_mark_has_ended_is_noticed_and_mended(tmp_path: Path) -> None:
    marked, broken = Marked(), threading.Event()

    def mark(path: Path) -> None:
        if broken.is_set():
            raise ValueError("no room for this mark")
        marked(path)

    watcher = Watcher(mark)
    watcher.set_roots([tmp_path])
    watcher.start()
    try:
        broken.set()
        (tmp_path / "a.jsonl").touch()
        until(watcher.check)
        assert what(watcher.check()) == "a thread that watches it has ended"
        broken.clear()
        marked.clear()
        watcher.mend()
        assert marked.has(tmp_path)
        (tmp_path / "b.jsonl").touch()
        assert marked.wait_for(tmp_path / "b.jsonl")
    finally:
        watcher.stop()
