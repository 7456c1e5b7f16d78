"""Prune: the plan comes from the catalog alone, is carried out exactly, and one bad session stops no other."""

from __future__ import annotations

import os
import shutil
import time
from dataclasses import replace
from pathlib import Path

import pytest

from coldtrail import durable, steady
from coldtrail.agents import agent
from coldtrail.agents.walk import Source
from coldtrail.catalog import SessionRow, StreamRow
from coldtrail.config import Retention, Rule
from coldtrail.errors import RefusedError, StoreFullError
from coldtrail.home import Home
from coldtrail.journal import Act
from coldtrail.retention import Plan, Verdict
from coldtrail.sessions import ends_of
from coldtrail.stage import expire, prune, purge, thin
from coldtrail.steady import Uptime
from pipeline.threads import A, B, Threads, forked, state, words
from world_of import Lines, World, small_sizes

pytestmark = pytest.mark.usefixtures("small")

DAY = 86_400_000
OLD_GO = Retention(grace_ms=7 * DAY, rules=(Rule(keep_within_ms=30 * DAY),))
HERE = {"claude-code"}


def converse(world: World, number: int, project: str = "-p") -> str:
    """A session of a few lines; gives its id."""
    session = f"{number:08d}-0000-4000-8000-000000000000"
    world.append(world.main(project, session), Lines(world.clock, session).some(3))
    return session


@pytest.fixture
def old(world: World) -> list[str]:
    """Three sessions of 60 days ago, all sealed."""
    found = [converse(world, number) for number in range(3)]
    world.scan()
    world.clock.tick(60 * DAY)
    world.compact(cold=True)
    return found


def done(home: Home, plan: Plan) -> list[tuple[str, str]]:
    """What became of each session, by its id: the verdict, or why not."""
    return sorted((each.decision.id, each.passed or each.decision.verdict.value) for each in prune.carry_out(home, plan))


# ---- the whole way ------------------------------------------------------------------------------------------------------


def test_marked_then_removed_then_nothing_and_each_act_is_noted(world: World, old: list[str]) -> None:
    with world.open() as home:
        assert done(home, prune.plan(home, OLD_GO, HERE)) == [(name, "expire") for name in old]
        assert done(home, prune.plan(home, OLD_GO, HERE)) == [], "twice is once"
        world.clock.tick(7 * DAY - 1)
        assert done(home, prune.plan(home, OLD_GO, HERE)) == [], "a millisecond of grace is left"
        world.clock.tick(1)
        assert done(home, prune.plan(home, OLD_GO, HERE)) == [(name, "remove") for name in old]
        assert done(home, prune.plan(home, OLD_GO, HERE)) == []
        assert [entry.act for entry in home.journal.read()] == [Act.MARKED] * 3 + [Act.EXPIRED] * 3
        assert home.catalog.sessions() == []
    assert len(world.live()) == 3


def test_with_another_policy_the_marks_are_lifted(world: World, old: list[str]) -> None:
    with world.open() as home:
        list(prune.carry_out(home, prune.plan(home, OLD_GO, HERE)))
        assert done(home, prune.plan(home, Retention(), HERE)) == [(name, "lift") for name in old]
        assert {row.state for row in home.catalog.sessions()} == {"live"}
        assert [entry.reason for entry in home.journal.read()][-1] == "no rule is about it"


def test_what_grew_after_the_plan_is_passed_over(world: World, old: list[str]) -> None:
    with world.open() as home:
        first = prune.plan(home, OLD_GO, HERE)
        world.append(world.main(session=old[0]), Lines(world.clock, old[0]).some(1))
        world.scan()
        assert done(home, first) == [(old[0], "it has grown meanwhile"), (old[1], "expire"), (old[2], "expire")]
        world.clock.tick(8 * DAY)
        second = prune.plan(home, OLD_GO, HERE)
        world.append(world.main(session=old[1]), Lines(world.clock, old[1]).some(1))
        world.scan()
        assert dict(done(home, second))[old[1]].startswith("it has changed meanwhile")
        assert {row.id for row in home.catalog.sessions()} == set(old[:2])


def test_what_is_damaged_or_compacted_or_gone_keeps_no_other_from_going(world: World, old: list[str]) -> None:
    with world.open() as home:
        list(prune.carry_out(home, prune.plan(home, OLD_GO, HERE)))
        world.clock.tick(8 * DAY)
        plan, keys = prune.plan(home, OLD_GO, HERE), {row.id: row.key for row in home.catalog.sessions()}
        manifest = world.layout.archive / world.layout.manifest_key(home.host, "claude-code", keys[old[0]])
        manifest.write_bytes(manifest.read_bytes()[:-5])
        with durable.locked(world.layout.compact_lock(keys[old[1]])):
            told = dict(done(home, plan))
        assert (told[old[0]].startswith("archive/"), told[old[1]], told[old[2]]) == (
            True,
            "it has changed meanwhile, or is being compacted",
            "remove",
        )
        assert dict(done(home, plan))[old[2]] == "it is not kept any more"
        assert {row.id for row in home.catalog.sessions()} == {old[0]}


def test_a_full_disk_ends_the_pass_and_the_next_one_goes_on(world: World, old: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    with world.open() as home:
        list(prune.carry_out(home, prune.plan(home, OLD_GO, HERE)))
        world.clock.tick(8 * DAY)
        with monkeypatch.context() as full:
            full.setattr(durable, "append", lambda _fd, _data, path, _end: (_ for _ in ()).throw(StoreFullError(path)))
            with pytest.raises(StoreFullError):
                list(prune.carry_out(home, prune.plan(home, OLD_GO, HERE)))
        assert len(home.catalog.sessions()) == 3, "what cannot be noted is not done"
        assert done(home, prune.plan(home, OLD_GO, HERE)) == [(name, "remove") for name in old]


def test_a_pass_ends_first_what_an_earlier_one_was_kept_from_ending(world: World, old: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    with world.open() as home:
        list(prune.carry_out(home, prune.plan(home, OLD_GO, HERE)))
        world.clock.tick(8 * DAY)
        with monkeypatch.context() as cut:
            cut.setattr(expire, "clear", lambda *_: None)
            list(prune.carry_out(home, prune.plan(home, OLD_GO, HERE)))
        assert len(list(home.store.streams())) == 3
        list(prune.carry_out(home, prune.plan(home, OLD_GO, HERE)))
        assert list(home.store.streams()) == []


# ---- sources that are away, clocks that are wrong, forks, floors ------------------------------------------------------------


def test_an_empty_folder_where_logs_should_be_is_an_unmounted_disk(world: World, old: list[str]) -> None:
    with world.open() as home:
        assert prune.present(home, world.sources) == HERE
        shutil.move(world.root, world.folder / "unmounted")
        assert prune.present(home, world.sources) == set()
        world.root.mkdir()
        assert prune.present(home, world.sources) == set()
        plan = prune.plan(home, OLD_GO, prune.present(home, world.sources))
        assert not any(map(plan.of, (Verdict.EXPIRE, Verdict.REMOVE)))
        assert any("is not there" in note for note in plan.notes)


def test_a_source_whose_logs_its_agent_has_swept_is_there(world: World, old: list[str]) -> None:
    for path in world.live():
        path.unlink()
    world.scan()
    with world.open() as home:
        assert {row.state for row in home.catalog.sessions()} == {"gone"}
        assert prune.present(home, world.sources) == HERE


def test_a_source_that_has_never_had_a_session_is_there(world: World) -> None:
    with world.open() as home:
        assert prune.present(home, world.sources) == HERE
        assert prune.present(home, [Source("other", agent("codex"), world.folder / "nowhere")]) == set()


def test_a_clock_that_jumps_400_days_ahead_and_back_removes_nothing(world: World, old: list[str]) -> None:
    clock, up = world.layout.clock, 0

    def plan(home: Home) -> Plan:
        return prune.plan(home, OLD_GO, HERE, suspended=steady.suspended(clock, home.now_ms(), Uptime("boot", up)))

    with world.open() as home:
        newer = converse(world, 9)
        world.scan()
        assert done(home, plan(home)) == [(name, "expire") for name in old]
        for jump in (400 * DAY, -400 * DAY):
            up += 3_600_000
            world.clock.tick(3_600_000 + jump)
            found = plan(home)
            assert not any(map(found.of, (Verdict.EXPIRE, Verdict.REMOVE)))
            assert any("the clock went" in note for note in found.notes)
            assert done(home, found) == []
        assert {row.id for row in home.catalog.sessions()} == {*old, newer}
        up += 9 * DAY
        world.clock.tick(9 * DAY)
        assert done(home, plan(home)) == [(name, "remove") for name in old]


def test_mtimes_in_2099_and_times_of_1970_make_nothing_old_or_young(world: World) -> None:
    session = converse(world, 1)
    os.utime(world.main(session=session), ns=(4_070_908_800_000_000_000,) * 2)
    world.write(world.main(session="1d"), b'{"type":"user","timestamp":"1970-01-01T00:00:00Z","sessionId":"1d"}\n')
    world.scan()
    with world.open() as home:
        assert done(home, prune.plan(home, OLD_GO, HERE)) == []
        world.clock.tick(31 * DAY)
        assert len(prune.plan(home, OLD_GO, HERE).of(Verdict.EXPIRE)) == 2


def test_what_others_go_on_from_stays_until_they_go_and_is_named(world: World, old: list[str]) -> None:
    with world.open() as home:
        rows = {row.id: row for row in home.catalog.sessions()}
        fork = converse(world, 9)
        world.scan()
        (young,) = home.catalog.sessions_with_id(fork)
        home.catalog.put(young._replace(parents=f'["{old[0]}"]'))
        plan = prune.plan(home, OLD_GO, HERE)
        assert {each.id for each in plan.of(Verdict.EXPIRE)} == set(old[1:])
        assert next(each.reason for each in plan.decisions if each.key == rows[old[0]].key) == f"{fork} needs it"


def test_a_codex_thread_stays_as_long_as_its_fork_and_goes_after_it(tmp_path: Path) -> None:
    with small_sizes():
        threads = Threads(tmp_path)
        forked(threads)
        threads.scan()
        threads.clock.tick(60 * DAY)
        with threads.open() as home:
            (parent,) = home.catalog.sessions_with_id(A)
            assert done(home, prune.plan(home, OLD_GO, {"codex"})) == [(B, "expire")]
            with pytest.raises(RefusedError, match=home.catalog.sessions_with_id(B)[0].key):
                purge.purge(home, parent, "asked for", live=False)
            assert words(state(home, B, verify=True)) == ["one", "two", "three"]
            threads.clock.tick(8 * DAY)
            assert done(home, prune.plan(home, OLD_GO, {"codex"})) == [(A, "expire"), (B, "remove")]
            threads.clock.tick(8 * DAY)
            assert done(home, prune.plan(home, OLD_GO, {"codex"})) == [(A, "remove")]


# ---- ten thousand -------------------------------------------------------------------------------------------------------


@pytest.fixture
def many(world: World) -> Home:
    """10,000 sessions of which the catalog knows; there is no file of any."""
    home, now_ms = world.open(), world.clock()
    with home.catalog.transaction():
        for number in range(10_000):
            key, last_ms = f"{number:016x}", now_ms - (number % 365) * DAY
            stream = StreamRow(
                key, key, "claude-code", "claude-code", "main", 1, b"/x/%d" % number, key, "", held=1_000, grew_ms=last_ms, gone_ms=1
            )
            home.catalog.put(stream)
            known = {"first_ms": last_ms, "last_ms": last_ms, "records": 5, "damaged": 0, "bytes": 1_000, "stored_bytes": 100 + number}
            more = {"state": "gone", "pinned": 0, "tags": "[]", "paths": "[]", "parents": "[]", "orphan": 0, "grew_ms": last_ms}
            project = f"/p/{number % 40}"
            row = SessionRow(key, key, "claude-code", "claude-code", home.host, project, None, **known, **more)  # type: ignore[arg-type]
            home.catalog.put(row)
    return home


def test_a_plan_for_ten_thousand_sessions_opens_no_file(many: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    budget = replace(OLD_GO, max_total_bytes=10_000_000, min_free_bytes=1, project_floor_bytes=1_000, companion_versions=3)
    for name in ("open", "names", "size"):
        monkeypatch.setattr(type(many.archive), name, None)
    monkeypatch.setattr(type(many.store), "meta", None)
    began_s = time.process_time()
    plan = prune.plan(many, budget, HERE)
    assert thin.plan(many, 3) == ()
    assert time.process_time() - began_s < 10, "some tenths of a second on an idle machine"
    assert len(plan.of(Verdict.EXPIRE)) == 2_000, "no more than a pass may"
    assert (many.work.files_opened, many.work.frames_decoded) == (0, 0)
    many.close()


def test_the_lengths_of_a_plan_are_those_of_the_catalog(world: World, old: list[str]) -> None:
    with world.open() as home:
        for each in prune.plan(home, OLD_GO, HERE).decisions:
            assert tuple((one.stream, one.generation, one.bytes) for one in each.lengths) == ends_of(home.catalog.streams_of(each.key))
