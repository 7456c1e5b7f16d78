"""A pass over the sources: everything is looked at, a fault stays one file's own, and nothing is taken for gone that is not."""

from __future__ import annotations

import itertools
import os
import shutil
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from coldtrail.agents import agent
from coldtrail.agents.claude_code import ClaudeCode
from coldtrail.agents.walk import Candidate, Source
from coldtrail.catalog import WAIT_MAX_MS, StreamRow
from coldtrail.stage.capture import Capture, Taken
from coldtrail.stage.rebuild import rebuild
from coldtrail.stage.scan import BACK_OFF_MS, Scanner
from pipeline.stage.places import DAY_MS, FolderWorld, faults, look, put_back, run_with_mounts, the_session, the_stream
from world_of import Lines, World, chain_bytes, generation_bytes, held, metas

SCAN_EVERY_MS = 300_000


@pytest.fixture
def poisoned(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A parser that runs out of memory at records of the session `poison`."""
    read = ClaudeCode.read

    def greedy(self: ClaudeCode, value: object) -> object:
        if isinstance(value, dict) and value.get("sessionId") == "poison":
            raise MemoryError
        return read(self, value)

    with monkeypatch.context() as patched:
        patched.setattr(ClaudeCode, "read", greedy)
        yield


def sessions_made(world: World, count: int) -> list[Path]:
    paths = [world.main("-p", f"s{number:03d}") for number in range(count)]
    for path in paths:
        world.write(path, Lines(world.clock, path.stem).some(2))
    return paths


def test_one_file_of_250_that_breaks_the_parser_and_one_that_cannot_be_read_hold_up_no_other(
    world: World, poisoned: None, unreadable: Callable[[Path], None]
) -> None:
    paths = sessions_made(world, 248)
    poison, closed = world.main("-p", "poison"), world.main("-p", "closed")
    world.write(poison, Lines(world.clock, "poison").some(2))
    world.write(closed, Lines(world.clock, "closed").some(2))
    unreadable(closed)
    tally = world.scan()
    assert (tally.found, tally.captured, tally.failed) == (250, 248, 2)
    unread = "captured, but its records cannot be read (MemoryError)"
    assert faults(world) == {poison: unread, closed: "Permission denied"}
    with world.open() as home:
        assert {path.stem for path in paths} <= {row.id for row in home.catalog.sessions()}
        assert chain_bytes(home, the_stream(home, poison)) == poison.read_bytes(), "what does not parse is held all the same"


def test_what_a_log_gets_is_held_though_its_parser_breaks_each_time(world: World, poisoned: None) -> None:
    poison = world.main("-p", "poison")
    for _ in range(3):
        world.append(poison, Lines(world.clock, "poison").some(2))
        world.scan()
        world.clock.tick(WAIT_MAX_MS)
    with world.open() as home:
        assert chain_bytes(home, the_stream(home)) == poison.read_bytes()


def test_what_fails_is_tried_again_with_longer_and_longer_waits_but_always_again(
    world: World, lines: Lines, unreadable: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    world.write(world.main(), lines.some(2))
    unreadable(world.main())
    tries = []
    for _ in range(2 * WAIT_MAX_MS // BACK_OFF_MS):
        if world.scan().failed:
            tries.append(world.clock.now_ms)
        world.clock.tick(BACK_OFF_MS)
    waits = [after - before for before, after in itertools.pairwise(tries)]
    assert waits == sorted(waits)
    assert waits[0] == BACK_OFF_MS
    assert max(waits) <= WAIT_MAX_MS
    monkeypatch.undo()
    world.clock.tick(WAIT_MAX_MS)
    assert world.scan().captured == 1
    assert faults(world) == {}


def test_who_asks_for_a_whole_pass_need_not_wait_for_the_next_try(
    world: World, lines: Lines, unreadable: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As `run --once` does, once somebody has mended the rights."""
    world.write(world.main(), lines.some(2))
    unreadable(world.main())
    assert world.scan().failed == 1
    monkeypatch.undo()
    assert world.scan().captured == 0
    with world.open() as home:
        assert Scanner(home).scan(world.sources, whole=True).captured == 1
    assert faults(world) == {}


def test_a_fault_noted_by_a_clock_that_was_far_ahead_does_not_keep_a_file_waiting(
    world: World, lines: Lines, unreadable: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    world.write(world.main(), lines.some(2))
    unreadable(world.main())
    world.clock.tick(400 * DAY_MS)
    world.scan()
    world.clock.tick(-400 * DAY_MS)
    monkeypatch.undo()
    assert world.scan().captured == 1


def test_a_fault_is_over_when_its_folder_can_be_read_again(world: World, lines: Lines) -> None:
    world.write(world.main(), lines.some(2))
    loop = world.root / "projects" / "loop"
    loop.symlink_to("loop")
    tally = world.scan()
    assert (tally.captured, tally.unreadable, list(faults(world))) == (1, 1, [loop])
    loop.unlink()
    assert world.scan().unreadable == 0
    assert faults(world) == {}


def test_a_fault_is_over_when_its_file_is_gone_before_it_was_ever_known(
    world: World, lines: Lines, unreadable: Callable[[Path], None]
) -> None:
    path = world.root / "projects" / "-p" / "agent-a1.jsonl"  # whose it is must be read in it
    world.write(path, lines.some(2))
    unreadable(path)
    world.scan()
    assert list(faults(world)) == [path]
    path.unlink()
    world.clock.tick(SCAN_EVERY_MS)
    world.scan()
    assert faults(world) == {}


def test_a_stream_whose_metadata_was_lost_does_not_end_the_pass(world: World, lines: Lines) -> None:
    broken, other = world.main("-p", "broken"), world.main("-q", "other")
    world.write(broken, lines.some(2))
    world.write(other, lines.some(2))
    world.scan()
    with world.open() as home:
        world.layout.meta(the_stream(home, broken).stream).unlink()
    broken.unlink()
    other.unlink()
    world.scan()
    assert list(faults(world)) == [broken]
    with world.open() as home:
        assert the_stream(home, other).gone_ms is not None


def test_a_source_that_is_not_there_is_passed_over_and_nothing_of_it_is_gone(world: World, lines: Lines) -> None:
    world.write(world.main(), lines.some(2))
    world.scan()
    world.root.rename(world.folder / "unmounted")
    assert world.scan().gone == 0
    with world.open() as home:
        assert the_session(home).state == "live"
    (world.folder / "unmounted").rename(world.root)
    world.append(world.main(), lines.line())
    assert (world.scan().captured, world.scan().gone) == (1, 0)


_MOUNTED = """
import subprocess, sys
from pathlib import Path
from world_of import Lines, World
world = World(Path(sys.argv[1]))
disk = world.root if sys.argv[2] == "root" else world.root / "projects"
subprocess.run(["mount", "-t", "tmpfs", "none", disk], check=True)
lines = Lines(world.clock)
world.write(world.main(), lines.some(2))
first = world.scan()
subprocess.run(["umount", disk], check=True)
second = world.scan()
print(first.captured, second.gone)
"""


@pytest.mark.parametrize("mounted", ["root", "folder"])
def test_the_empty_folder_that_an_unmounted_disk_leaves_is_no_deletion(mounted: str, tmp_path: Path) -> None:
    done = run_with_mounts(_MOUNTED, str(tmp_path), mounted)
    assert done.stdout.split() == ["1", "0"], done.stderr


def test_pipes_sockets_and_devices_that_are_named_like_logs_hold_nobody_up(world: World, lines: Lines) -> None:
    folder = world.main().parent
    world.write(world.main(), lines.some(2))
    os.mkfifo(folder / "pipe.jsonl")
    (folder / "device.jsonl").symlink_to("/dev/zero")
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(folder / "socket.jsonl"))
    tally = world.scan()
    assert (tally.found, tally.captured, tally.failed) == (1, 1, 0)
    assert look(world, folder / "pipe.jsonl", folder / "device.jsonl").captured == 0
    (folder / "late.jsonl").write_bytes(lines.line())
    with world.open() as home:
        scanner = Scanner(home)
        found_as_file = look(world, folder / "late.jsonl")
        assert found_as_file.captured == 1
        (folder / "late.jsonl").unlink()
        os.mkfifo(folder / "late.jsonl")
        assert scanner.scan(world.sources).failed == 0


ODD_NAMES = [
    b"\xff\xfe not utf-8",
    b"two\nlines",
    b"n" * 249,
    "\N{SNOWMAN} \u202e".encode(),
    b"back\\slash \\udcff",
    b"quote\"'`$(x)",
    b" ",
]


@pytest.mark.parametrize("name", ODD_NAMES, ids=ascii)
def test_a_file_of_any_name_is_captured_and_comes_back_under_it(mine: FolderWorld, name: bytes) -> None:
    path = Path(os.fsdecode(os.fsencode(mine.root) + b"/" + name[:200] + b"/" + name + b".jsonl"))
    mine.write(path, b'{"n":1}\n')
    assert (mine.scan().captured, faults(mine)) == (1, {})
    path.unlink()
    mine.scan()
    mine.compact(cold=True)
    mine.forget_catalog()
    with mine.open() as home:
        assert rebuild(home) == []
        put_back(home)
        assert the_session(home).to_json()["state"] == "live"
    assert path.read_bytes() == b'{"n":1}\n'


def test_two_files_whose_names_differ_in_bytes_that_are_no_utf8_are_two_sessions(mine: FolderWorld) -> None:
    for name in (b"\xff", b"\xfe"):
        mine.write(Path(os.fsdecode(os.fsencode(mine.root) + b"/" + name + b".jsonl")), b'{"n":1}\n')
    mine.scan()
    with mine.open() as home:
        assert len({(row.key, row.id) for row in home.catalog.sessions()}) == 2


def test_a_folder_named_in_bytes_that_are_no_utf8_in_a_record_is_no_fault(world: World, lines: Lines) -> None:
    world.write(world.main(), lines.line().replace(b'"/there"', b'"/th\\udcffre"') + lines.line().replace(b'"/there"', b'"/\xff"'))
    world.scan()
    with world.open() as home:
        assert (the_session(home).project, home.catalog.faults()) == ("/th?re", [])


def test_where_roots_lie_in_each_other_each_file_is_captured_once(world: World, lines: Lines) -> None:
    sources = [Source("mine", agent("jsonl"), world.root.parent), *world.sources]
    world.write(world.main(), lines.some(2))
    world.write(world.companion(), b"only Claude Code's reader knows whose this is\n")
    with world.open() as home:
        scanner = Scanner(home)
        assert scanner.look(sources, [world.main(), world.companion()]).captured == 2
        assert scanner.scan(sources).captured == 0
        assert {path: [each.data for each in lives] for path, lives in held(home).items()} == {
            world.main(): [world.main().read_bytes()],
            world.companion(): [world.companion().read_bytes()],
        }


def test_the_files_that_their_agent_will_soon_delete_come_first_then_the_newest(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    days = {"new": 0, "day": 1, "urgent": 28, "more-urgent": 29, "week": 7}
    for name, age in days.items():
        world.write(world.main("-p", name), Lines(world.clock, name).some(1))
        moment = (world.clock.now_ms - age * DAY_MS) // 1000
        os.utime(world.main("-p", name), (moment, moment))
    order: list[str] = []
    first = Capture.first

    def noted(self: Capture, row: StreamRow, found: Candidate, *, whole: bool) -> Taken:
        order.append(found.path.stem)
        return first(self, row, found, whole=whole)

    monkeypatch.setattr(Capture, "first", noted)
    world.scan()
    assert order == ["more-urgent", "urgent", "new", "day", "week"]


def test_what_the_agent_swept_stays_and_says_since_when(world: World, lines: Lines) -> None:
    world.write(world.main(), lines.some(3))
    world.write(world.companion(), b"output")
    world.scan()
    data = world.live()
    shutil.rmtree(world.root / "projects" / "-p")
    world.clock.tick(60_000)
    assert world.scan().gone == 2
    world.clock.tick(60_000)
    assert world.scan().gone == 0
    with world.open() as home:
        assert the_session(home).state == "gone"
        assert {meta.gone_ms for meta in metas(home)} == {world.clock.now_ms - 60_000}
        assert {Path(meta.path): generation_bytes(home, meta, 0) for meta in metas(home)} == data


def test_a_linked_folder_whose_disk_is_away_is_no_deletion_though_the_others_are_there(world: World, lines: Lines) -> None:
    disk, linked = world.folder / "disk", world.main("-linked", "linked")
    disk.mkdir()
    linked.parent.symlink_to(disk)
    world.write(linked, lines.some(2))
    world.write(world.main("-other", "other"), Lines(world.clock, "other").some(2))
    world.scan()
    disk.rename(world.folder / "away")
    assert world.scan().gone == 0
    (world.folder / "away").rename(disk)
    linked.unlink()
    assert world.scan().gone == 1
