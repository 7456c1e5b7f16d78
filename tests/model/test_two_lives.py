"""Small games by hand, where one life of a file ends and the next begins: what the random ones found, and what they cannot know."""

from __future__ import annotations

import pytest

from coldtrail.home import Home
from coldtrail.model import Relation
from coldtrail.recover import Selection, StreamReader
from coldtrail.stage.adopt import adopt
from coldtrail.stage.rebuild import rebuild
from coldtrail.stage.restore import Passed, Wish, carry_out, plan_restore
from world_of import SESSION, Lines, World, chain_bytes, generation_bytes, metas

pytestmark = pytest.mark.usefixtures("small")


def captured(world: World, data: bytes) -> bytes:
    """A main log, captured."""
    world.append(world.main(), data)
    world.scan()
    world.clock.tick(10_000)
    return data


def lives(world: World) -> list[tuple[str | None, int]]:
    """The main log's generations: how each relates to the one before, and its length."""
    with world.open() as home:
        (meta,) = metas(home)
        return [(each.relation and each.relation.value, len(generation_bytes(home, meta, each.number))) for each in meta.generations]


def comes_back(world: World) -> bytes:
    """What a restore would write."""
    with world.open() as home:
        (meta,) = metas(home)
        return chain_bytes(home, meta)


def made_again(world: World, data: bytes) -> bytes:
    """The log is removed, and made again with these bytes; the new file is likely to get the old one's inode."""
    world.main().unlink()
    world.write(world.main(), data)
    return data


# ---- made again without its head --------------------------------------------------------------------------------------


@pytest.mark.parametrize("first_bytes", [200, 300_000])
@pytest.mark.parametrize("catalog", ["kept", "lost"])
def test_made_again_between_two_looks_it_goes_on_whatever_its_inode_and_its_first_record_s_length(
    world: World, lines: Lines, catalog: str, first_bytes: int
) -> None:
    old = captured(world, lines.some(5))
    if catalog == "lost":
        world.forget_catalog()
    new = made_again(world, lines.line(size=first_bytes) + lines.some(2))
    with world.open() as home:
        assert adopt(home) == []
    world.scan()
    assert comes_back(world) == old + new


def test_rewritten_with_some_of_its_first_records_it_does_not_go_on_though_a_record_hangs_on_a_lost_one(world: World, lines: Lines) -> None:
    old = captured(world, lines.some(9))
    new = made_again(world, b"".join(old.splitlines(keepends=True)[:3]) + lines.some(12))
    world.scan()
    assert lives(world) == [(None, len(old)), ("replaces", len(new))]


@pytest.mark.parametrize("seen_at", [0, 60])
def test_made_again_it_goes_on_though_it_was_seen_before_its_first_line_was_whole(world: World, lines: Lines, seen_at: int) -> None:
    old = captured(world, lines.some(5))
    first = lines.line()
    made_again(world, first[:seen_at])
    world.scan()
    world.append(world.main(), first[seen_at:])
    world.scan()
    assert comes_back(world) == old + first


def test_made_again_it_goes_on_though_the_last_records_before_were_never_captured(world: World, lines: Lines) -> None:
    old = captured(world, lines.some(5))
    world.append(world.main(), lines.some(2))
    new = made_again(world, lines.some(2))
    world.scan()
    assert comes_back(world) == old + new


def test_made_again_elsewhere_between_two_looks_it_goes_on_and_stays_one_session(world: World, lines: Lines) -> None:
    old = captured(world, lines.some(5))
    world.main().unlink()
    new = lines.some(3)
    world.write(world.main("-q"), new)
    world.scan()
    assert comes_back(world) == old + new
    assert lives(world) == [(None, len(old)), ("continues", len(new))]


def test_emptied_and_then_made_again_it_goes_on(world: World, lines: Lines) -> None:
    old = captured(world, lines.some(5))
    world.write(world.main(), b"")
    world.scan()
    new = made_again(world, lines.some(2))
    world.scan()
    assert comes_back(world) == old + new


def test_made_again_with_bookkeeping_lines_first_it_goes_on_once_a_record_tells(world: World, lines: Lines) -> None:
    old = captured(world, lines.some(5))
    untold = b'{"type":"mode","mode":"normal","sessionId":"%s"}\n' % SESSION.encode()
    made_again(world, untold)
    world.scan()
    new = lines.some(2)
    world.append(world.main(), new)
    world.scan()
    assert comes_back(world) == old + untold + new
    assert lives(world) == [(None, len(old)), ("continues", len(untold + new))]


@pytest.mark.parametrize("catalog", ["kept", "lost"])
def test_what_a_session_is_known_by_is_the_same_once_the_relation_has_come_out(world: World, lines: Lines, catalog: str) -> None:
    captured(world, lines.some(5))
    first = lines.line()
    made_again(world, first[:60])
    world.scan()
    world.append(world.main(), first[60:])
    world.scan()
    if catalog == "lost":
        world.forget_catalog()
    with world.open() as home:
        if catalog == "lost":
            rebuild(home)
        (session,) = home.catalog.sessions()
        assert (session.records, session.bytes) == (6, len(comes_back(world)))


def test_a_log_without_its_head_that_is_cut_back_still_has_the_head_before_it(world: World, lines: Lines) -> None:
    old = captured(world, lines.some(5))
    new = made_again(world, lines.some(5))
    world.scan()
    world.write(world.main(), new[: new.index(b"\n") + 1])
    world.scan()
    assert comes_back(world) == old + new[: new.index(b"\n") + 1]


# ---- put back ---------------------------------------------------------------------------------------------------------


def put_back(home: Home, *, overwrite: bool = False) -> None:
    for session in home.catalog.sessions():
        list(carry_out(home, plan_restore(home, session, Wish(overwrite=overwrite))))


def test_what_an_agent_writes_over_a_restored_file_is_not_called_restored(world: World, lines: Lines) -> None:
    captured(world, lines.some(5))
    world.main().unlink()
    world.scan()
    with world.open() as home:
        put_back(home)
    world.scan()
    world.clock.tick(10_000)
    world.write(world.main(), lines.line(root=True))
    world.scan()
    assert [relation for relation, _ in lives(world)] == [None, "replaces"]


def test_a_chain_that_was_put_back_goes_on_as_one_life(world: World, lines: Lines) -> None:
    old = captured(world, lines.some(5))
    new = made_again(world, lines.some(3))
    world.scan()
    world.main().unlink()
    world.scan()
    with world.open() as home:
        put_back(home)
    assert world.main().read_bytes() == old + new
    more = captured(world, lines.some(2))
    assert lives(world)[-1] == (Relation.RESTORED.value, len(old + new + more))
    assert comes_back(world) == old + new + more


def test_a_file_that_grows_between_plan_and_restore_is_not_overwritten(world: World, lines: Lines) -> None:
    old = captured(world, lines.some(5))
    world.write(world.main(), old[:300])
    with world.open() as home:
        plan = plan_restore(home, home.catalog.sessions()[0], Wish(overwrite=True))
        world.append(world.main(), b"something new\n")
        (done,) = carry_out(home, plan)
    assert isinstance(done, Passed)
    assert done.failed
    assert world.main().read_bytes() == old[:300] + b"something new\n"


# ---- what is derived --------------------------------------------------------------------------------------------------


def test_times_that_run_backwards_across_segments_select_the_same_records_however_they_are_held(world: World, lines: Lines) -> None:
    world.clock.tick(10_000_000)
    captured(world, lines.some(5))
    world.compact(cold=True)
    late_ms = world.clock.now_ms
    world.clock.now_ms -= 9_000_000
    early = lines.some(2)
    world.clock.now_ms = late_ms
    captured(world, early)
    selected = [since(world, late_ms - 5_000_000)]
    next(world.layout.store.rglob("index")).unlink()
    selected.append(since(world, late_ms - 5_000_000))
    world.compact(cold=True)
    selected.append(since(world, late_ms - 5_000_000))
    assert selected == [7, 7, 7]


def since(world: World, since_ms: int) -> int:
    with world.open() as home, StreamReader(home, metas(home)[0]) as reader:
        return len(list(reader.placed(Selection(since_ms=since_ms))))


def test_a_damaged_manifest_is_written_anew_by_the_next_compaction_as_verify_says(world: World, lines: Lines) -> None:
    captured(world, lines.some(40))
    world.compact(cold=True)
    (manifest,) = world.layout.archive.rglob("*.json")
    manifest.write_bytes(manifest.read_bytes()[:50])
    captured(world, lines.some(5))
    world.compact(cold=True)
