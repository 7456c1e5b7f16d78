"""Whose is a file: bundles stay one session, moves are followed, links are other names and no other files."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from coldtrail.agents import agent
from coldtrail.agents.walk import Source
from coldtrail.home import Home
from coldtrail.model import Role
from coldtrail.stage.scan import Scanner
from pipeline.stage.places import THREAD, CodexWorld, faults, look, put_back, the_session, the_stream, twin_of
from world_of import SESSION, Lines, World, generation_bytes, metas


def bundle(world: World, lines: Lines) -> dict[Path, bytes]:
    """A session with all that Claude Code keeps beside one."""
    beside = world.main().with_suffix("")
    old_child = world.main().parent / "agent-old1.jsonl"
    world.write(world.main(), lines.some(3))
    world.write(beside / "subagents" / "agent-a1.jsonl", lines.some(2))
    world.write(beside / "subagents" / "agent-a1.meta.json", b'{"agentType":"x"}')
    world.write(beside / "subagents" / "workflows" / "run1" / "agent-b1.jsonl", lines.some(2))
    world.write(beside / "subagents" / "workflows" / "run1" / "journal.jsonl", b'{"type":"started","agentId":"b1"}\n')
    world.write(beside / "workflows" / "wf_1.json", b"{}")
    world.write(beside / "tool-results" / "t1.txt", b"output")
    world.write(old_child, lines.some(2))
    world.write(world.root / "file-history" / SESSION / "abc@v1", b"before the edit")
    return world.live()


def sessions_of(home: Home) -> dict[str, set[str]]:
    """The names of the files of each session."""
    found: dict[str, set[str]] = {}
    for meta in metas(home):
        found.setdefault(meta.session, set()).add(Path(meta.path).name)
    return found


def paths_of(home: Home) -> dict[Path, str]:
    """The session of each path."""
    return {Path(meta.path): meta.session for meta in metas(home)}


@pytest.mark.parametrize("order", ["main first", "main last", "all in one pass"])
def test_a_main_log_and_all_beside_it_are_one_session_in_whichever_order_they_are_met(world: World, lines: Lines, order: str) -> None:
    files = bundle(world, lines)
    if order != "all in one pass":
        for path in sorted(files, key=lambda path: (path == world.main()) == (order == "main last")):
            look(world, path)
    world.scan()
    with world.open() as home:
        assert len(sessions_of(home)) == 1
        assert set(paths_of(home)) == set(files)
        row = the_session(home).row
        assert (row.id, row.orphan, row.records) == (SESSION, 0, 3), "a child is no session, and its records not the session's"
        assert row.paths == f'["{world.main()}"]'
        roles = {Path(meta.path).name: meta.role for meta in metas(home)}
    assert [name for name, role in roles.items() if role is Role.MAIN] == [world.main().name]
    children = {"agent-a1.jsonl", "agent-b1.jsonl", "agent-old1.jsonl", "journal.jsonl"}
    assert {name for name, role in roles.items() if role is Role.CHILD} == children


def test_a_bundle_is_restored_as_one_with_the_main_log_last(world: World, lines: Lines) -> None:
    files = bundle(world, lines)
    world.scan()
    shutil.rmtree(world.root / "projects")
    shutil.rmtree(world.root / "file-history")
    world.scan()
    with world.open() as home:
        done = put_back(home)
    assert [each.path for each in done][-1] == world.main()
    assert world.live() == files


def test_children_whose_main_log_is_missing_are_kept_and_flagged(world: World, lines: Lines) -> None:
    files = bundle(world, lines)
    world.main().unlink()
    world.scan()
    with world.open() as home:
        row = the_session(home).row
        assert (row.orphan, row.id, row.state) == (1, SESSION, "live")
        assert the_session(home).to_json()["orphan"] is True
        assert {Path(meta.path): generation_bytes(home, meta, 0) for meta in metas(home)} == {
            path: data for path, data in files.items() if path != world.main()
        }
    world.write(world.main(), files[world.main()])
    world.scan()
    with world.open() as home:
        assert the_session(home).row.orphan == 0


def test_the_same_id_in_two_projects_is_two_sessions(world: World, lines: Lines) -> None:
    for project in ("-p", "-q"):
        world.write(world.main(project), Lines(world.clock).some(2) + project.encode() + b"\n")
        world.write(world.companion(project), project.encode())
    world.scan()
    with world.open() as home:
        by_session = paths_of(home)
        assert by_session[world.main("-p")] == by_session[world.companion("-p")]
        assert by_session[world.main("-q")] == by_session[world.companion("-q")]
        assert by_session[world.main("-p")] != by_session[world.main("-q")]


@pytest.mark.parametrize("seen_by", ["scan", "look at the new place", "look at the old place"])
@pytest.mark.parametrize("sealed", [False, True], ids=["open", "sealed"])
def test_a_session_that_moves_to_another_project_keeps_its_history_and_both_paths(
    world: World, lines: Lines, seen_by: str, sealed: bool
) -> None:
    old, new = world.main("-p"), world.main("-q")
    world.write(old, lines.some(3))
    world.write(world.companion("-p"), b"output")
    world.scan()
    if sealed:
        world.compact(cold=True)
    os.rename(old.parent, new.parent)
    world.append(new, lines.some(2))
    if seen_by != "scan":
        look(world, *((new, world.companion("-q")) if seen_by == "look at the new place" else (old, old.parent)))
    world.scan()
    with world.open() as home:
        meta, row = the_stream(home, new), the_session(home).row
        assert [seen.path for seen in meta.paths] == [str(old), str(new)]
        assert [each.number for each in meta.generations] == [0]
        assert generation_bytes(home, meta, 0) == new.read_bytes()
        assert (row.state, row.records, row.paths) == ("live", 5, f'["{new}"]')
        assert {Path(meta.path) for meta in metas(home)} == {new, world.companion("-q")}
    shutil.rmtree(new.parent)
    world.scan()
    with world.open() as home:
        put_back(home)
    assert set(world.live()) == {new, world.companion("-q")}


def test_what_is_written_beside_a_moved_session_is_its_own_though_it_is_met_first(world: World, lines: Lines) -> None:
    world.write(world.main("-p"), lines.some(3))
    world.scan()
    os.rename(world.main("-p").parent, world.main("-q").parent)
    world.clock.tick(5_000)
    world.write(world.companion("-q"), b"newer than the log, so it is met before it")
    world.scan()
    with world.open() as home:
        assert sessions_of(home) == {the_session(home).key: {world.main().name, world.companion().name}}


def test_a_copy_is_a_session_of_its_own_while_the_first_one_is_there(world: World, lines: Lines) -> None:
    world.write(world.main("-p"), lines.some(3))
    world.scan()
    world.main("-q").parent.mkdir()
    shutil.copy2(world.main("-p"), world.main("-q"))
    world.scan()
    with world.open() as home:
        assert len(sessions_of(home)) == 2
        assert the_stream(home, world.main("-p")).gone_ms is None


@pytest.mark.parametrize("compressed", [False, True], ids=["plain", "compressed"])
def test_a_thread_that_codex_archives_and_takes_back_is_one_stream(codex: CodexWorld, compressed: bool) -> None:
    codex.write(codex.rollout(), codex.some(5))
    codex.scan()
    here, there = codex.rollout(), codex.archived()
    if compressed:
        here, there = twin_of(here), there.with_name(there.name + ".zst")
        codex.rollout().unlink()
        codex.scan()
    there.parent.mkdir()
    for origin, goal, path in ((here, there, codex.archived()), (there, here, codex.rollout())):
        os.rename(origin, goal)
        codex.clock.tick(1_000)
        codex.scan()
        with codex.open() as home:
            meta = the_stream(home)
            assert (Path(meta.path), meta.gone_ms, len(meta.generations)) == (path, None, 1)
            assert the_session(home).id == THREAD


def test_a_config_folder_that_is_moved_is_another_source_and_both_can_be_restored(world: World, lines: Lines) -> None:
    world.write(world.main(), lines.some(3))
    world.scan()
    new_root = world.folder / "config" / "claude"
    new_root.parent.mkdir()
    world.root.rename(new_root)
    sources = [*world.sources, Source("claude-code-2", agent("claude-code"), new_root)]
    with world.open() as home:
        Scanner(home).scan(sources)
        found = {meta.source: Path(meta.path) for meta in metas(home)}
        assert found == {"claude-code": world.main(), "claude-code-2": new_root / world.main().relative_to(world.root)}
        data = found["claude-code-2"].read_bytes()
        for path in found.values():
            path.unlink(missing_ok=True)
        for row in home.catalog.sessions():
            put_back(home, row)
        assert [path.read_bytes() for path in found.values()] == [data, data]


def test_a_named_source_that_is_moved_is_followed_and_restored_to_its_new_place(world: World, lines: Lines) -> None:
    world.write(world.main(), lines.some(3))
    world.scan()
    new_root = world.folder / "elsewhere"
    world.root.rename(new_root)
    path = new_root / world.main().relative_to(world.root)
    with world.open() as home:
        Scanner(home).scan([Source("claude-code", agent("claude-code"), new_root)])
        assert the_session(home).row.paths == f'["{path}"]'
        data = path.read_bytes()
        path.unlink()
        put_back(home)
    assert path.read_bytes() == data


def test_a_linked_project_folder_is_captured_once_by_its_real_name(world: World, lines: Lines) -> None:
    world.write(world.main("-real"), lines.some(3))
    (world.root / "projects" / "-alias").symlink_to("-real")
    world.scan()
    tally = look(world, world.root / "projects" / "-alias", world.main("-alias"))
    assert tally.captured == 0
    world.append(world.main("-real"), lines.line())
    look(world, world.main("-alias"))
    with world.open() as home:
        assert Path(the_stream(home).path) == world.main("-real")
        assert generation_bytes(home, the_stream(home), 0) == world.main("-real").read_bytes()


def test_two_links_to_one_folder_outside_are_one_place(world: World, lines: Lines) -> None:
    outside = world.folder / "outside"
    outside.mkdir()
    for name in ("-a", "-b"):
        (world.root / "projects" / name).symlink_to(outside)
    world.write(world.main("-a"), lines.some(3))
    assert world.scan().captured == 1
    world.append(outside / world.main().name, lines.line())
    assert world.scan().captured == 1, "what is written behind the link is seen"
    assert look(world, world.main("-b"), world.root / "projects" / "-b").captured == 0
    with world.open() as home:
        assert Path(the_stream(home).path) == world.main("-a")
        assert the_stream(home).paths[0].real == str(outside / world.main().name)


def test_a_loop_of_links_ends_and_is_told(world: World, lines: Lines) -> None:
    world.write(world.main(), lines.some(3))
    (world.root / "projects" / "-up").symlink_to(world.root)
    (world.main().parent / "again").symlink_to(world.main().parent)
    (world.root / "projects" / "-itself").symlink_to("-itself")
    assert (world.scan().found, len(faults(world))) == (1, 1)


def test_a_link_to_a_log_is_no_second_one_and_a_link_out_of_the_root_is_followed(world: World, lines: Lines) -> None:
    outside = world.folder / "outside.jsonl"
    world.write(outside, Lines(world.clock, "outside").some(2))
    world.write(world.main(), lines.some(3))
    world.main("-p", "inside").symlink_to(world.main())
    world.main("-p", "outside").symlink_to(outside)
    world.scan()
    with world.open() as home:
        assert {Path(meta.path).stem for meta in metas(home)} == {SESSION, "outside"}
        assert generation_bytes(home, the_stream(home, world.main("-p", "outside")), 0) == outside.read_bytes()
