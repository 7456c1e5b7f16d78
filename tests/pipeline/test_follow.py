"""Following a session: history, then what is written, each event once and in order, whatever becomes of the file meanwhile."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from coldtrail import Event, NotFoundError, Session, UsageError
from coldtrail.follow import Surroundings
from coldtrail.format.frames import Work
from coldtrail.home import Home
from crash.workers import TESTS, captured, until, working
from crash.working import RealClock
from pipeline.following import QUIET_MS, Stepped, generations, grown, ids, numbers
from pipeline.stage.places import flip_bit, reads_of, sealed_files, the_session, the_stream
from world_of import Lines, World

pytestmark = pytest.mark.usefixtures("small")

FOLLOWERS = int(os.environ.get("COLDTRAIL_READERS") or 4)
SECONDS = float(os.environ.get("COLDTRAIL_READERS_SECONDS") or 4)


# --- what is written ---


@pytest.mark.parametrize("sealed", [False, True], ids=["open", "sealed"])
def test_history_and_what_is_written_come_once_each_while_it_is_captured_and_compacted(
    world: World, lines: Lines, home: Home, sealed: bool
) -> None:
    grown(world, lines.some(30))
    if sealed:
        world.compact(cold=True)
    grown(world, lines.some(7))
    world.append(world.main(), lines.some(3))
    follower = Stepped(home)
    assert ids(follower.look()) == numbers(lines, 0, 40)
    for turn in range(12):
        world.append(world.main(), lines.some(4))
        if turn % 3 == 0:
            world.scan()
        assert ids(follower.look()) == numbers(lines, 40 + 4 * turn, 44 + 4 * turn)
        if turn % 4 == 1:
            world.compact(cold=True)
        assert follower.look() == []
    assert [str(event.position) for event in follower.told] == [str(event.position) for event in the_session(home).events()]
    assert follower.follower.gaps == []


def test_segments_may_vanish_while_the_history_is_told(world: World, lines: Lines, home: Home) -> None:
    for _ in range(8):
        grown(world, lines.some(20))
    reading = Stepped(home).follower.read()
    told = [next(reading) for _ in range(3)]
    world.compact(cold=True)
    world.append(world.main(), lines.some(2))
    while (event := next(reading)) is not None:
        told.append(event)
    assert ids([event for event in told if event is not None]) == numbers(lines, 0, 162)


@pytest.mark.parametrize("captured", [False, True], ids=["live", "captured"])
def test_an_unfinished_line_waits_for_its_newline(world: World, lines: Lines, home: Home, captured: bool) -> None:
    grown(world, lines.some(3))
    follower = Stepped(home)
    follower.look()
    line = lines.line()
    for part in (line[:1], line[1:90], line[90:-1]):
        (grown if captured else lambda world, data: world.append(world.main(), data))(world, part)
        assert follower.looks() == []
    world.append(world.main(), line[-1:] + lines.line()[:40])
    assert ids(follower.looks()) == numbers(lines, 3, 4)


def test_an_unfinished_line_that_was_captured_is_not_told_at_the_start_either(world: World, lines: Lines, home: Home) -> None:
    line = lines.some(2) + lines.line()[:-1]
    grown(world, line)
    follower = Stepped(home)
    assert ids(follower.looks()) == numbers(lines, 0, 2)
    world.append(world.main(), b"\n")
    assert ids(follower.looks()) == numbers(lines, 2, 3)


def test_a_log_of_which_nothing_is_captured_yet_is_followed(world: World, lines: Lines, home: Home) -> None:
    world.append(world.main(), lines.line()[:20])
    world.scan()
    follower = Stepped(home)
    assert follower.looks() == []
    world.write(world.main(), b"".join(Lines(world.clock).line() for _ in range(1)))
    assert ids(follower.looks()) == numbers(lines, 0, 1)


def test_a_childs_log_is_followed_by_naming_it(world: World, lines: Lines, home: Home) -> None:
    world.append(world.main(), lines.some(2))
    child = Lines(world.clock, "c1111111")
    world.append(world.child(), child.some(2))
    world.scan()
    follower = Stepped(home, stream="agent-a1.jsonl")
    assert ids(follower.look()) == numbers(child, 0, 2)
    world.append(world.main(), lines.some(2))
    world.append(world.child(), child.some(1))
    assert ids(follower.look()) == numbers(child, 2, 3)


# --- what it costs ---


@pytest.mark.parametrize("gone", [False, True], ids=["live", "gone"])
def test_a_look_at_a_file_that_has_not_changed_is_a_few_stats(
    world: World, lines: Lines, home: Home, gone: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    grown(world, lines.some(50))
    if gone:
        world.main().unlink()
        world.scan()
    follower = Stepped(home)
    follower.looks()
    counts = dict.fromkeys(("stat", "listdir", "open", "pread", "read"), 0)
    for name in counts:
        monkeypatch.setattr(os, name, counted(counts, name, getattr(os, name)))
    follower.looks(10)
    monkeypatch.undo()
    assert counts == {"stat": 40 if gone else 20, "listdir": 10 if gone else 0, "open": 0, "pread": 0, "read": 0}


def counted(counts: dict[str, int], name: str, real: Callable[..., object]) -> Callable[..., object]:
    def call(*args: object, **more: object) -> object:
        counts[name] += 1
        return real(*args, **more)

    return call


def test_what_is_read_is_what_was_written_and_the_proof(tmp_path: Path) -> None:
    world = World(tmp_path)
    lines = Lines(world.clock)
    grown(world, lines.some(5_000))
    with world.open() as home:
        follower = Stepped(home)
        follower.look()
        before = Work(home.work.bytes_read, home.work.frames_decoded, home.work.files_opened)
        with reads_of(world.main()) as reads:
            for _ in range(20):
                world.append(world.main(), lines.some(3))
                assert len(ids(follower.look())) == 3
        assert sum(reads) <= 20 * (3 * 240 + (20 << 10))
        assert home.work.frames_decoded == before.frames_decoded
        assert home.work.bytes_read <= before.bytes_read + (1 << 10), "the last stamp of the open segment"


def test_a_line_that_grows_without_end_is_read_once(tmp_path: Path) -> None:
    world = World(tmp_path)
    lines = Lines(world.clock)
    grown(world, lines.some(2))
    with world.open() as home:
        follower = Stepped(home)
        follower.look()
        world.append(world.main(), b'{"type": "user", "uuid": "long", "message": {"role": "user", "content": "')
        with reads_of(world.main()) as reads:
            for _ in range(30):
                world.append(world.main(), b"x" * (1 << 20))
                assert follower.look() == []
            world.append(world.main(), b'"}}\n' + lines.some(1))
            assert ids(follower.look()) == numbers(lines, 2, 3), "a line beyond the limit is kept, not read"
        assert sum(reads) < (30 << 20) + 100 * (20 << 10)


# --- which events ---


def of(session: Session, **chosen: object) -> list[Event]:
    """What a follower is told that ends as soon as nothing is new."""
    return list(session.follow(**chosen, stop=lambda: True))  # type: ignore[arg-type]


def test_it_ends_when_it_is_told_to_and_waits_between_two_looks(world: World, lines: Lines, home: Home) -> None:
    grown(world, lines.some(3))
    waits: list[float] = []

    def wait(seconds: float) -> None:
        waits.append(seconds)
        world.append(world.main(), lines.some(1))

    session = Session(home, the_session(home).row, Surroundings(wait, lambda _: False))
    told = session.follow(poll_s=0.7, stop=lambda: len(waits) == 4)
    assert ids(list(told)) == numbers(lines, 0, 7)
    assert waits == [0.7] * 4


@pytest.mark.parametrize("live", [0, 3])
def test_a_choice_holds_for_history_and_for_what_is_written(world: World, lines: Lines, home: Home, live: int) -> None:
    times = []
    for _ in range(6):
        times.append(world.clock.now_ms)
        grown(world, lines.some(2))
    for _ in range(live):
        times.append(world.clock.now_ms)
        world.append(world.main(), lines.some(2))
        world.clock.tick(QUIET_MS)
    session, count = the_session(home), 12 + 2 * live
    said = {"types": {"message_added"}}
    for at in range(len(times)):
        assert ids(of(session, **said, since=times[at])) == numbers(lines, 2 * at, count)
    for number in range(count):
        assert ids(of(session, **said, after=lines.id_of(number))) == numbers(lines, number + 1, count)
        assert ids(of(session, **said, since=f"#{number + 1}")) == numbers(lines, number, count)
    events = list(session.events())
    for event in events:
        assert [each.position for each in of(session, after=event.position)] == [
            each.position for each in events if each.position > event.position
        ]


def test_a_time_to_come_is_waited_for(world: World, lines: Lines, home: Home) -> None:
    grown(world, lines.some(2))
    due_ms = world.clock.now_ms + QUIET_MS
    follower = the_session(home)._follower(None, due_ms, None, None).read()
    assert next(follower) is None
    world.append(world.main(), lines.some(1))
    assert next(follower) is None
    world.clock.tick(QUIET_MS)
    world.append(world.main(), lines.some(1))
    assert {event.id for event in iter(lambda: next(follower), None)} == {lines.id_of(3)}
    world.clock.tick(-2 * QUIET_MS)
    world.append(world.main(), lines.some(1))
    assert {event.id for event in iter(lambda: next(follower), None)} == {lines.id_of(4)}, "times may run backwards"


def test_who_has_come_as_far_as_an_older_life_is_told_all_since(world: World, lines: Lines, home: Home) -> None:
    grown(world, lines.some(5))
    seen = list(the_session(home).events())[5].position
    grown(world, lines.some(2))
    for _ in range(2):
        world.write(world.main(), lines.line(root=True) + lines.some(2))
        world.scan()
    told = of(the_session(home), after=seen)
    positions = [event.position for event in told]
    assert positions == sorted(positions)
    assert ids(told) == numbers(lines, 2, 13)
    assert generations(told) == {0, 1, 2}
    assert generations(of(the_session(home))) == {2}


@pytest.mark.parametrize(
    ("chosen", "error"), [({"types": {"no such"}}, UsageError), ({"after": "no such"}, NotFoundError), ({"stream": "x"}, NotFoundError)]
)
def test_what_there_is_not_is_told_at_once(
    world: World, lines: Lines, home: Home, chosen: dict[str, object], error: type[Exception]
) -> None:
    grown(world, lines.some(2))
    with pytest.raises(error):
        the_session(home).follow(**chosen)  # type: ignore[arg-type]


def test_a_session_that_is_no_longer_kept_ends_it(world: World, lines: Lines, home: Home) -> None:
    grown(world, lines.some(2))
    follower = Stepped(home)
    follower.look()
    world.layout.meta(the_stream(home).stream).unlink()
    with pytest.raises(NotFoundError, match="no longer kept"):
        follower.look()


# --- damage to our copy ---


def test_damage_in_the_history_is_noted_and_what_comes_is_told(world: World, lines: Lines, home: Home) -> None:
    for _ in range(6):
        grown(world, lines.some(5))
    world.compact(cold=True)
    flip_bit(sealed_files(world)[0], 100)
    follower = the_session(home)._follower({"message_added"}, None, None, None)
    events = follower.read()
    told = [event.id for event in iter(lambda: next(events), None)]
    assert 0 < len(told) < 30
    assert {gap.generation for gap in follower.gaps} == {0}
    world.append(world.main(), lines.some(2))
    world.clock.tick(QUIET_MS)
    world.scan()
    assert [event.id for event in iter(lambda: next(events), None)] == numbers(lines, 30, 32)


# --- asyncio ---


def test_the_twin_for_asyncio_tells_the_same_and_reads_in_threads(world: World, lines: Lines, home: Home) -> None:
    grown(world, lines.some(300))
    session = the_session(home)
    pauses: list[int] = []

    def stop() -> bool:
        pauses.append(1)
        world.append(world.main(), lines.some(1))
        return len(pauses) == 4

    async def told() -> list[Event]:
        return [event async for event in session.afollow(types={"message_added"}, poll_s=0.001, stop=stop)]

    assert ids(asyncio.run(told())) == numbers(lines, 0, 303)


def test_the_twin_for_asyncio_notes_damage_in_the_session_that_was_asked(world: World, lines: Lines, home: Home) -> None:
    grown(world, lines.some(30))
    world.compact(cold=True)
    flip_bit(sealed_files(world)[0], 100)
    session = the_session(home)

    async def told() -> list[Event]:
        return [event async for event in session.afollow(stop=lambda: True)]

    assert len(ids(asyncio.run(told()))) < 30
    assert {gap.generation for gap in session.gaps} == {0}


def test_the_twin_for_asyncio_leaves_others_their_turn_and_can_be_cancelled(world: World, lines: Lines, home: Home) -> None:
    grown(world, lines.some(3))
    session = the_session(home)

    async def both() -> list[str | None]:
        queue: asyncio.Queue[Event] = asyncio.Queue()

        async def follow() -> None:
            async for event in session.afollow(types={"message_added"}, poll_s=0.001):
                await queue.put(event)

        task = asyncio.create_task(follow())
        told = [(await queue.get()).id for _ in range(3)]
        world.append(world.main(), lines.some(1))
        told.append((await queue.get()).id)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return told

    assert asyncio.run(asyncio.wait_for(both(), 20)) == numbers(lines, 0, 4)


# --- beside others ---


@contextmanager
def following(world: World) -> Iterator[subprocess.Popen[str]]:
    """A process that follows the world's only session."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS), *sys.path])}
    command = [sys.executable, "-m", "pipeline.following", str(world.folder)]
    process = subprocess.Popen(command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def test_processes_that_follow_are_told_every_line_once_while_another_writes_captures_and_compacts(tmp_path: Path) -> None:
    world = World(tmp_path, RealClock())
    world.main().parent.mkdir()
    with ExitStack() as followers:
        with working(world, writes=True) as process:
            until(lambda: captured(world) > 10_000, process)
            all_of_them = [followers.enter_context(following(world)) for _ in range(FOLLOWERS)]
            end_s = time.monotonic() + SECONDS
            while time.monotonic() < end_s and all(each.poll() is None for each in all_of_them):
                threading.Event().wait(0.05)
        written = world.main().read_bytes().count(b"\n")
        for each in all_of_them:
            said, wrong = each.communicate(timeout=60)
            assert (said, wrong) == (f"{written}\n", "")
    assert written > 200
