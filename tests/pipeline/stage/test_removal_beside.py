"""Removal beside readers, verify, rebuild, and those that go on from what is removed."""

from __future__ import annotations

import os
import sqlite3
import threading
from pathlib import Path

import pytest

from coldtrail import durable
from coldtrail import session as api
from coldtrail.catalog import Catalog
from coldtrail.errors import NotFoundError, RefusedError
from coldtrail.format.wishes import Act
from coldtrail.sessions import read_manifest, write_manifest
from coldtrail.stage import expire, purge
from coldtrail.stage.rebuild import rebuild
from coldtrail.stage.verify import verify
from pipeline.stage.removing import OTHER, kept, marked, removed, the_session
from world_of import Lines, World, metas

pytestmark = pytest.mark.usefixtures("small")


# ---- beside others --------------------------------------------------------------------------------------------------------


def test_what_is_removed_while_it_is_verified_is_no_damage(world: World, lines: Lines) -> None:
    kept(world, lines)
    marked(world)
    with world.open() as home:
        row, done = the_session(home), list[str]()

        def remove_once(_: object) -> None:
            if not done:
                done.append("")
                expire.remove(home, row, Act.EXPIRED, "rule 1")

        assert verify(home, progress=remove_once).word == "ok"
        assert done


def test_what_is_removed_while_the_catalog_is_rebuilt_stays_removed(world: World, lines: Lines) -> None:
    kept(world, lines)
    other = Lines(world.clock, OTHER)
    world.append(world.main(session=OTHER), other.some(3))
    world.scan()
    with world.open() as home:
        rows = {row.key: row for row in home.catalog.sessions()}

        def remove_last(session: str) -> None:
            if session != max(rows):
                expire.remove(home, rows[max(rows)], Act.PURGED, "asked for")

        assert rebuild(home, progress=remove_last) == []
        assert [row.key for row in home.catalog.sessions()] == [min(rows)]
        assert verify(home).word == "ok"


@pytest.mark.parametrize("read", ["events", "raw", "records"])
def test_a_reader_of_a_session_that_is_removed_reads_on_or_is_told_where_that_stands(world: World, lines: Lines, read: str) -> None:
    kept(world, lines)
    world.append(world.main(), lines.some(40))  # not sealed yet: a segment of its own
    world.scan()
    world.main().unlink()
    world.scan()
    with world.open() as home:
        session = api.Session(home, the_session(home))
        whole = list(getattr(session, read)())
        reading = getattr(session, read)()
        found = [next(reading)]
        expire.remove(home, session.row, Act.PURGED, "asked for")
        try:
            found += reading
        except NotFoundError as error:
            assert "was removed" in str(error)  # noqa: PT017 - either of two ends is right
            assert "coldtrail journal" in error.hint  # noqa: PT017
        else:
            assert found == whole, "what is open may be read to its end, never less of it"
        with pytest.raises(NotFoundError, match="was removed"):
            session.recover()


def test_an_open_segment_reads_on_after_the_removal(world: World, lines: Lines) -> None:
    kept(world, lines)
    with world.open() as home:
        (meta,) = [meta for meta in metas(home) if meta.path == str(world.main())]
        plain = home.plain(meta, 0)
        segment = plain.segment(plain.pieces()[0])
        expire.remove(home, the_session(home), Act.PURGED, "asked for")
        assert b"".join(data for _, data in segment.chunks(0, segment.plain_end)) == world.main().read_bytes()
        segment.close()


def test_a_purge_beside_a_reader_of_the_catalog_ends_and_the_next_run_scrubs_it(
    world: World, lines: Lines, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept(world, lines)
    monkeypatch.setattr("coldtrail.catalog._BUSY_MS", 50)
    with world.open() as home:
        reader = sqlite3.connect(world.layout.catalog, isolation_level=None)
        reader.execute("BEGIN")
        reader.execute("SELECT * FROM streams").fetchone()
        done = purge.purge(home, the_session(home), "asked for", live=False)
        assert (done.scrubbed, done.found_in) == (False, ())
        assert home.catalog.sessions() == []
        path = os.fsencode(world.main())
        assert path in b"".join(each.read_bytes() for each in world.layout.home.glob("catalog.db*"))
        reader.close()
        expire.finish(home)
        assert path not in b"".join(each.read_bytes() for each in world.layout.home.glob("catalog.db*"))
        assert not [row for row in home.catalog.graves() if row.cleared != 2]


def test_a_purge_beside_a_writer_of_the_catalog_says_that_it_is_not_scrubbed(world: World, lines: Lines, tmp_path: Path) -> None:
    kept(world, lines)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("coldtrail.catalog._BUSY_MS", 50)
        with Catalog(tmp_path / "c.db") as one, Catalog(tmp_path / "c.db") as two, two.transaction():
            assert one.scrub() is False


# ---- dependants -----------------------------------------------------------------------------------------------------------


def test_what_others_go_on_from_is_purged_only_by_force_and_they_are_named(world: World, lines: Lines) -> None:
    kept(world, lines)
    other = Lines(world.clock, OTHER)
    world.append(world.main(session=OTHER), other.some(3))
    world.scan()
    with world.open() as home:
        (row,) = home.catalog.sessions_with_id(lines.session)
        (fork,) = home.catalog.sessions_with_id(OTHER)
        home.catalog.put(fork._replace(parents=f'["{row.id}"]'))
        assert [each.key for each in purge.needed_by(home, row)] == [fork.key]
        with pytest.raises(RefusedError, match=fork.key):
            purge.purge(home, row, "asked for", live=False)
        assert len(home.catalog.sessions()) == 2
        purge.purge(home, row, "asked for", live=False, force=True)
        assert [each.key for each in home.catalog.sessions()] == [fork.key]


def test_the_agents_own_files_go_before_ours_so_that_it_can_be_done_again(world: World, lines: Lines) -> None:
    kept(world, lines)
    order: list[str] = []
    durable.fault_hook = lambda name, path: order.append(str(path)) if name == "removed" or path.suffix == ".json" else None
    try:
        with world.open() as home:
            purge.purge(home, the_session(home), "asked for", live=True)
    finally:
        durable.fault_hook = None
    assert order[0] == str(world.main())
    assert world.live() == {}


def test_writing_a_manifest_of_nobody_is_not_needed_for_a_tombstone(world: World, lines: Lines) -> None:
    """A session that was never sealed has no manifest, and is removed all the same."""
    world.append(world.main(), lines.some(3))
    world.scan()
    removed(world)
    with world.open() as home:
        assert home.catalog.sessions() == []
        manifest = read_manifest(home, "claude-code", home.catalog.graves()[0].session)
        assert manifest.tombstone is not None
        write_manifest(home, "claude-code", manifest)
    assert world.scan().new_bytes == 0


def test_what_is_being_restored_is_removed_only_when_that_has_ended(world: World, lines: Lines) -> None:
    kept(world, lines)
    marked(world)
    done = threading.Event()

    def remove() -> None:
        with world.open() as mine:
            expire.remove(mine, the_session(mine), Act.EXPIRED, "rule 1")
        done.set()

    with world.open() as home:
        thread = threading.Thread(target=remove)
        with home.changing(the_session(home).key):  # as a restore does while it writes a file
            thread.start()
            assert not done.wait(0.2)
            assert verify(home).word == "ok"
        thread.join()
        assert home.catalog.sessions() == []
