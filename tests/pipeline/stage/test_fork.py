"""Fork: the log up to a moment as a session of its own, the original untouched, and nothing changed but whose it is."""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Mapping
from pathlib import Path

import pytest

from coldtrail import NotFoundError, RefusedError, UsageError, durable
from coldtrail.layout import TEMP_PREFIX
from coldtrail.model import Position, instant_text
from coldtrail.recover import Selection
from coldtrail.stage import prove
from coldtrail.stage.fork import make
from coldtrail.stage.restore import Passed
from pipeline.stage.forks import fork, forked_of, session_of
from pipeline.stage.places import CodexWorld, FolderWorld, flip_bit, sealed_files, the_session
from world_of import SESSION, Lines, World, metas


def as_it_is(path: Path) -> tuple[bytes, os.stat_result]:
    return path.read_bytes(), path.stat()


def captured(world: World, lines: Lines, count: int = 6) -> list[bytes]:
    """A captured session; gives its lines, a second apart."""
    written = []
    for _ in range(count):
        written.append(lines.line())
        world.append(world.main(), written[-1])
        world.clock.tick(1_000)
    world.scan()
    return written


def test_a_fork_is_the_logs_beginning_under_a_fresh_name_and_the_log_itself_stays(world: World, lines: Lines) -> None:
    written = captured(world, lines)
    before = as_it_is(world.main())
    done = fork(world, at="#4")
    assert as_it_is(world.main()) == before
    assert done.path.parent == world.main().parent
    assert done.path.stem == done.id == str(uuid.UUID(done.id)) != SESSION
    assert done.path.read_bytes() == b"".join(written[:4])
    assert (done.origin, done.changed_lines, done.bytes) == (SESSION, 0, len(b"".join(written[:4])))
    assert done.resume == f"cd /there && claude --resume {done.id}"


def test_every_fork_is_another_session(world: World, lines: Lines) -> None:
    captured(world, lines)
    assert len({fork(world, at="#4").path for _ in range(3)}) == 3
    assert len(list(world.main().parent.iterdir())) == 4


def test_a_moment_is_named_in_any_way(world: World, lines: Lines) -> None:
    start_ms = world.clock.now_ms
    written = captured(world, lines)
    third_ms = start_ms + 2_000
    third = Position(0, len(b"".join(written[:2])))
    ways: list[Mapping[str, str | int | Position]] = [
        {"at": "#3"},
        {"at": third},
        {"at": str(third)},
        {"at": lines.id_of(2)},
        {"at": third_ms},
        {"at": third_ms + 999},
        {"at": instant_text(third_ms) or ""},
        {"before": "#4"},
        {"before": lines.id_of(3)},
        {"before": third_ms + 1_000},
    ]
    for way in ways:
        assert fork(world, **way).path.read_bytes() == b"".join(written[:3]), way


def test_a_fork_reads_on_from_the_archive_into_the_store_and_the_live_file(world: World, lines: Lines) -> None:
    written = captured(world, lines)
    world.compact(cold=True)
    written += captured(world, lines)
    written += [lines.line() for _ in range(3)]
    world.append(world.main(), b"".join(written[12:]))  # which nobody has captured
    for count in (2, 6, 7, 12, 13, 14):
        assert fork(world, at=f"#{count}").path.read_bytes() == b"".join(written[:count])


def test_a_log_that_is_gone_can_be_forked_and_stays_gone(world: World, lines: Lines) -> None:
    written = captured(world, lines)
    world.main().unlink()
    world.scan()
    done = fork(world, at="#2")
    assert not world.main().exists()
    assert done.path.read_bytes() == b"".join(written[:2])


def test_a_chain_of_generations_is_forked_as_it_would_be_restored(world: World, lines: Lines) -> None:
    head = captured(world, lines)
    world.main().unlink()
    tail = captured(world, lines)  # made again without its head
    with world.open() as home:
        assert [len(meta.generations) for meta in metas(home)] == [2]
    assert fork(world, at="#9").path.read_bytes() == b"".join(head + tail[:3])
    assert fork(world, at="#3").path.read_bytes() == b"".join(head[:3])


def test_an_older_generation_is_forked_where_it_is_named(world: World, lines: Lines) -> None:
    old = captured(world, lines)
    world.write(world.main(), Lines(world.clock, session="2" * 8 + SESSION[8:]).some(9))
    world.scan()
    with world.open() as home:
        done = forked_of(the_session(home).restore(at="#2", generation=0))
        assert done.path.read_bytes() == b"".join(old[:2])
        with pytest.raises(NotFoundError, match="no record of this log is there"):
            the_session(home).restore(at=Position(0, 0))
        with pytest.raises(NotFoundError, match="it has 0 to 1"):
            the_session(home).restore(at="#2", generation=7)


NASTY = [
    b'{"a":1}\r\n',
    b"\0" * 50 + b"\n",
    b"\xff\xfe\n",
    b"\n",
    b'{"half',
    b'{"b":2}{"c":3}\n',
    "{}\u2028\x85\x0b\r{}\n".encode(),
    b'{"torn',
]


def test_every_byte_before_the_cut_is_the_originals_whatever_it_is(mine: FolderWorld) -> None:
    path = mine.root / "log.jsonl"
    data = b"".join(NASTY)
    mine.write(path, data)
    mine.clock.tick(60_000)
    mine.scan()
    with mine.open() as home, the_session(home).reader() as reader:
        records = [placed.record for placed in reader.placed(Selection())]
    ends = [record.offset + record.length for record in records]
    assert len(records) > len(NASTY)
    assert ends[-1] == len(data)
    for record, end in zip(records, ends, strict=True):
        done = fork(mine, at=Position(0, record.offset))
        wanted = data[:end] if data[:end].endswith(b"\n") else data[:end] + b"\n"
        assert done.path.read_bytes() == wanted
        assert done.bytes == len(wanted)
        assert ("a newline was added" in done.note) is not data[:end].endswith(b"\n")


@pytest.mark.parametrize("moment", [{"before": "#1"}, {"before": 1}, {"at": "#7"}, {"at": 1}, {"at": "0:999999.0"}, {"at": "3:0.0"}])
def test_a_moment_without_a_record_is_not_found(world: World, lines: Lines, moment: Mapping[str, str | int]) -> None:
    captured(world, lines)
    with pytest.raises(NotFoundError):
        fork(world, **moment)
    assert list(world.live()) == [world.main()]


def test_a_moment_is_either_inclusive_or_not(world: World, lines: Lines) -> None:
    captured(world, lines)
    with pytest.raises(UsageError, match="either"):
        fork(world, at="#2", before="#3")


def test_another_folder_gets_it_as_below_the_agents_root(world: World, lines: Lines, tmp_path: Path) -> None:
    written = captured(world, lines)
    with world.open() as home:
        done = forked_of(the_session(home).restore(tmp_path / "elsewhere", at="#2"))
    assert done.path == tmp_path / "elsewhere" / "projects" / "-p" / f"{done.id}.jsonl"
    assert done.path.read_bytes() == b"".join(written[:2])
    assert done.resume is None
    assert list(world.live()) == [world.main()]


def test_a_plan_writes_nothing_and_says_what_would_be_changed(codex: CodexWorld) -> None:
    codex.write(codex.rollout(), codex.some(4))
    codex.scan()
    before = codex.live()
    with codex.open() as home:
        plan = the_session(home).plan_fork("#3")
    assert codex.live() == before
    first_three = b"".join(line + b"\n" for line in codex.rollout().read_bytes().split(b"\n")[:3])
    assert (len(plan.changes), plan.bytes, plan.end) == (1, len(first_three), len(first_three))


def test_the_next_capture_takes_it_as_a_session_of_its_own(world: World, lines: Lines) -> None:
    captured(world, lines)
    done = fork(world, at="#4")
    with world.open() as home:
        whole = session_of(home, SESSION).to_json()
    world.scan()
    world.append(done.path, lines.line(parent=lines.id_of(3)))
    world.scan()
    with world.open() as home:
        assert session_of(home, SESSION).to_json() == whole
        mine = session_of(home, done.id)
        assert (mine.row.records, mine.state, [len(meta.generations) for meta in mine.streams()]) == (5, "live", [1])


def test_a_fork_that_is_given_a_lost_logs_inode_is_not_taken_for_it(world: World, lines: Lines, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prove, "identity", lambda found: "1:1")
    captured(world, lines)
    world.main().unlink()
    world.scan()
    done = fork(world, at="#6")
    world.scan()
    with world.open() as home:
        assert {(row.id, row.state) for row in home.catalog.sessions()} == {(SESSION, "gone"), (done.id, "live")}


def test_the_agent_may_write_to_it_and_its_mtime_is_now(world: World, lines: Lines) -> None:
    captured(world, lines)
    world.main().chmod(0o440)
    original_ns = world.main().stat().st_mtime_ns
    world.scan()
    world.clock.tick(86_400_000)
    done = fork(world, at="#2")
    assert done.path.stat().st_mode & 0o7777 == 0o640
    assert done.path.stat().st_mtime_ns == done.mtime_ns == world.clock.now_ms * 1_000_000
    assert fork(world, at="#2", mtime="keep").path.stat().st_mtime_ns == original_ns


def test_what_has_its_name_already_is_never_overwritten(world: World, lines: Lines, monkeypatch: pytest.MonkeyPatch) -> None:
    captured(world, lines)
    taken = world.main(session="22222222-2222-4333-8444-555555555555")
    world.write(taken, b"somebody else's\n")
    monkeypatch.setattr(uuid, "uuid4", lambda: taken.stem)
    with world.open() as home:
        (done,) = the_session(home).restore(at="#2")
    assert isinstance(done, Passed)
    assert done.failed
    assert "nothing was overwritten" in done.why
    assert taken.read_bytes() == b"somebody else's\n"


def test_damage_to_our_copy_is_told_and_nothing_is_left_half_written(world: World, lines: Lines) -> None:
    captured(world, lines)
    world.compact(cold=True)
    world.main().unlink()
    world.scan()
    (segment,) = sealed_files(world)
    segment.chmod(0o600)
    with world.open() as home:
        plan = the_session(home).plan_fork("#4")
        flip_bit(segment, 40)
        (done,) = make(home, plan)
        assert isinstance(done, Passed)
        assert "at byte" in done.why
    assert [path for path in world.folder.rglob("*") if path.name.startswith(TEMP_PREFIX) or path.stem == plan.id] == []


def test_a_crash_before_it_has_its_name_leaves_no_trace(world: World, lines: Lines, monkeypatch: pytest.MonkeyPatch) -> None:
    captured(world, lines)
    before = world.live()

    def crash(name: str, path: Path) -> None:
        if name == "place":
            raise KeyboardInterrupt

    monkeypatch.setattr(durable, "step", crash)
    with pytest.raises(KeyboardInterrupt):
        fork(world, at="#2")
    assert world.live() == before


def test_links_do_not_lead_a_fork_out_of_the_root(world: World, lines: Lines) -> None:
    captured(world, lines)
    trap = world.folder / "trap"
    shutil.move(world.main().parent, trap)
    world.main().parent.symlink_to(trap)
    with pytest.raises(RefusedError, match="links lead it out"):
        fork(world, at="#2")
    assert [path.name for path in trap.iterdir()] == [world.main().name]
