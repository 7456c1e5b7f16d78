"""Expiry by hand: marked, kept, lifted by growth, removed whole; and what was removed does not come back by itself."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from coldtrail.catalog import SessionRow
from coldtrail.format.wishes import Act
from coldtrail.home import Home
from coldtrail.layout import TEMP_PREFIX
from coldtrail.stage import expire, wish
from coldtrail.stage.rebuild import rebuild
from coldtrail.stage.verify import verify
from crash.killing import dies_at
from world_of import Lines, World

pytestmark = pytest.mark.usefixtures("small")

DAY = 86_400_000


def kept(world: World, lines: Lines) -> bytes:
    """A session of three streams, captured, the half of it sealed."""
    world.append(world.main(), lines.some(30))
    world.append(world.child(), lines.some(2))
    world.write(world.companion(), b"output\n")
    world.scan()
    world.clock.tick(10_000)
    world.compact(cold=True)
    world.append(world.main(), lines.some(3))
    world.scan()
    world.clock.tick(10_000)
    return world.main().read_bytes()


def the_session(home: Home) -> SessionRow:
    (row,) = home.catalog.sessions()
    return row


def expired(world: World, act: Act = Act.EXPIRED) -> None:
    with world.open() as home:
        expire.mark(home, the_session(home), "rule 1")
        assert expire.remove(home, the_session(home), act, "rule 1") is not None


def left(world: World) -> list[str]:
    """What is left of anything in store and archive, but for folders that hold others'."""
    folders = (world.layout.store, world.layout.archive)
    return sorted(
        str(path.relative_to(world.layout.home))
        for folder in folders
        for path in folder.rglob("*")
        if path.is_file() and not path.name.startswith(TEMP_PREFIX)
    )


# ---- the mark ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("catalog", ["kept", "lost"])
def test_a_marked_session_is_expiring_and_whole(world: World, lines: Lines, catalog: str) -> None:
    kept(world, lines)
    with world.open() as home:
        expire.mark(home, the_session(home), "rule 1")
    if catalog == "lost":
        world.forget_catalog()
    with world.open() as home:
        if catalog == "lost":
            assert rebuild(home) == []
        row = the_session(home)
        assert row.state == "expiring"
        assert verify(home).word == "ok"
        expire.lift(home, row)
        assert the_session(home).state == "live"


@pytest.mark.parametrize("catalog", ["kept", "lost"])
@pytest.mark.parametrize("grows", ["main", "child", "companion", "a new child"])
def test_whatever_grows_lifts_the_mark(world: World, lines: Lines, grows: str, catalog: str) -> None:
    kept(world, lines)
    with world.open() as home:
        expire.mark(home, the_session(home), "rule 1")
    path = {"main": world.main(), "child": world.child(), "companion": world.companion()}.get(
        grows, world.child().with_name("agent-b2.jsonl")
    )
    world.append(path, lines.line())
    world.scan()
    if catalog == "lost":
        world.forget_catalog()
    with world.open() as home:
        if catalog == "lost":
            assert rebuild(home) == []
        assert the_session(home).state == "live"
        assert expire.remove(home, the_session(home), Act.EXPIRED, "rule 1") is None, "it has changed since it was marked"
        assert the_session(home).bytes > 0


def test_a_touch_and_a_compaction_leave_the_mark(world: World, lines: Lines) -> None:
    kept(world, lines)
    with world.open() as home:
        expire.mark(home, the_session(home), "rule 1")
    world.stamp(world.main())
    world.scan()
    world.compact(cold=True)
    with world.open() as home:
        assert the_session(home).state == "expiring"
    world.forget_catalog()
    with world.open() as home:
        assert rebuild(home) == []
        assert the_session(home).state == "expiring", "compaction writes the manifest anew and keeps the mark"


def test_a_hold_takes_the_mark_back_and_is_remembered(world: World, lines: Lines) -> None:
    kept(world, lines)
    with world.open() as home:
        expire.mark(home, the_session(home), "rule 1")
        wish.hold(home, the_session(home), world.clock() + DAY)
    world.forget_catalog()
    with world.open() as home:
        assert rebuild(home) == []
        assert (the_session(home).state, the_session(home).held_until_ms) == ("live", world.clock() + DAY)


# ---- the removal ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("catalog", ["kept", "lost"])
@pytest.mark.parametrize("act", list(Act))
def test_what_is_removed_leaves_a_tombstone_and_is_not_captured_anew(world: World, lines: Lines, act: Act, catalog: str) -> None:
    before = kept(world, lines)
    expired(world, act)
    (manifest,) = left(world)
    assert manifest.endswith(".json")
    if catalog == "lost":
        world.forget_catalog()
        with world.open() as home:
            assert rebuild(home) == []
    for _ in range(2):
        world.stamp(world.main())
        assert world.scan().new_bytes == 0
    assert left(world) == [manifest]
    with world.open() as home:
        assert home.catalog.sessions() == []
        assert verify(home).word == "ok"
    assert world.main().read_bytes() == before, "the agent's own file is not touched"


def test_looking_at_it_again_reads_nothing_once_it_is_known(world: World, lines: Lines, monkeypatch: pytest.MonkeyPatch) -> None:
    kept(world, lines)
    expired(world)
    world.scan()
    monkeypatch.setattr("coldtrail.stage.graves.opened", None)
    assert world.scan().new_bytes == 0


def test_growth_of_an_expired_session_is_captured_from_its_first_byte_on(world: World, lines: Lines) -> None:
    before = kept(world, lines)
    expired(world)
    world.scan()
    more = lines.line()
    world.append(world.main(), more)
    for _ in range(2):
        world.scan()
    with world.open() as home:
        row = the_session(home)
        assert row.bytes == len(before + more) + world.child().stat().st_size + world.companion().stat().st_size, "its whole bundle"
        assert home.catalog.graves() == []


def test_a_purged_session_is_not_captured_again_even_when_it_grows(world: World, lines: Lines) -> None:
    kept(world, lines)
    expired(world, Act.PURGED)
    world.append(world.main(), lines.some(5))
    world.main().with_name("x").touch()
    assert world.scan().new_bytes == 0


def test_a_moved_file_of_an_expired_session_is_known_again(world: World, lines: Lines) -> None:
    kept(world, lines)
    expired(world)
    shutil.move(world.main().parent, world.main("-q").parent)
    assert world.scan().new_bytes == 0


def test_another_session_is_not_mistaken_for_an_expired_one(world: World, lines: Lines) -> None:
    kept(world, lines)
    expired(world)
    other = Lines(world.clock, "22222222-2222-4333-8444-555555555555")
    world.append(world.main(session=other.session), other.some(3))
    assert world.scan().new_bytes == world.main(session=other.session).stat().st_size


def test_what_is_being_compacted_is_not_removed(world: World, lines: Lines) -> None:
    from coldtrail import durable

    kept(world, lines)
    with world.open() as home:
        row = the_session(home)
        expire.mark(home, row, "rule 1")
        with durable.locked(world.layout.compact_lock(row.key)):
            assert expire.remove(home, row, Act.EXPIRED, "rule 1") is None
        assert verify(home).word == "ok"


def test_killed_at_every_step_it_is_there_whole_or_gone_and_doing_it_again_ends_it(world: World, lines: Lines, tmp_path: Path) -> None:
    kept(world, lines)
    with world.open() as home:
        expire.mark(home, the_session(home), "rule 1")
    saved = tmp_path / "saved"
    shutil.copytree(world.folder / "trail", saved)

    def work() -> None:
        with world.open() as home:
            expire.finish(home)
            for row in home.catalog.sessions():
                expire.remove(home, row, Act.EXPIRED, "rule 1")

    step = 1
    while dies_at(step, work):
        with world.open() as home:
            assert verify(home).word == "ok", f"step {step}"
        assert world.scan().new_bytes == 0
        work()
        assert [name.endswith(".json") for name in left(world)] == [True], f"step {step}"
        shutil.rmtree(world.folder / "trail")
        shutil.copytree(saved, world.folder / "trail")
        step += 1
    assert step > 10
