"""Purge: nothing of a session is left in any file of ours, and the search for it proves that."""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from coldtrail.catalog import SessionRow
from coldtrail.format.frames import decode
from coldtrail.home import Home
from coldtrail.stage import purge as room
from coldtrail.stage.purge import purge
from coldtrail.stage.verify import verify
from world_of import SESSION, Lines, World

pytestmark = pytest.mark.usefixtures("small")

SECRET = "the combination of the safe is 4711-0815"
OTHER = "22222222-2222-4333-8444-555555555555"


def told(session: str, text: str, number: int) -> bytes:
    message = {"role": "user", "content": text}
    record = {"type": "user", "uuid": f"{session[:8]}-{number}", "parentUuid": None, "sessionId": session, "message": message}
    return json.dumps({**record, "timestamp": "2026-01-01T00:00:00.000Z", "cwd": "/there"}).encode() + b"\n"


@pytest.fixture
def home(world: World) -> Iterator[Home]:
    """Two sessions, both sealed in part; the one to be purged has its secret in its title, its text, and its companion."""
    for session, text in ((SESSION, SECRET), (OTHER, "how do I bake bread")):
        lines = Lines(world.clock, session)
        world.append(world.main(session=session), told(session, text, 0) + lines.some(20))
        world.write(world.companion(session=session), f"{text}, says the tool\n".encode())
        world.scan()
    world.clock.tick(10_000)
    world.compact(cold=True)
    for session in (SESSION, OTHER):
        world.append(world.main(session=session), told(session, f"once more: {SECRET if session == SESSION else 'bread'}", 90))
    world.scan()
    with world.open() as home:
        home.catalog.note_fault(os.fsencode(world.main()), f"cannot be read: {SECRET}", "", 0, 1)
        yield home


def the_session(home: Home, session: str = SESSION) -> SessionRow:
    (row,) = home.catalog.sessions_with_id(session)
    return row


def holding(world: World, text: str) -> list[Path]:
    """Every file of ours that holds the text, as it is or in a zstd frame."""
    return [path for path in world.layout.home.rglob("*") if path.is_file() and text.encode() in unpacked(path.read_bytes())]


def unpacked(data: bytes) -> bytes:
    try:
        return data + decode(data)
    except (ValueError, zlib.error):
        return data


def test_nothing_is_left_of_it_in_any_file_and_the_others_are_whole(world: World, home: Home) -> None:
    assert holding(world, SECRET)
    before = world.live()
    done = purge(home, the_session(home), "asked for", live=False)
    assert done.freed > 0
    assert done.live == ()
    assert done.scanned_files > 5
    assert done.found_in == ()
    assert holding(world, SECRET) == []
    assert holding(world, str(world.main())) == []
    assert world.live() == before
    assert [row.id for row in home.catalog.sessions()] == [OTHER]
    assert verify(home).word == "ok"
    assert world.scan().new_bytes == 0


def test_it_is_noted_with_ids_and_the_reason_alone(world: World, home: Home) -> None:
    key = the_session(home).key
    purge(home, the_session(home), "asked for", live=False)
    (entry,) = home.journal.read()
    assert (entry.act.value, entry.session, entry.id, entry.reason) == ("purged", key, SESSION, "asked for")


def test_live_removes_the_agents_own_files_of_that_session_too(world: World, home: Home) -> None:
    done = purge(home, the_session(home), "asked for", live=True)
    assert sorted(done.live) == sorted([world.main(), world.companion()])
    assert sorted(world.live()) == sorted([world.main(session=OTHER), world.companion(session=OTHER)])


def test_a_link_that_was_put_in_a_files_place_leads_to_no_other_file(world: World, home: Home, tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.write_bytes(b"mine")
    world.main().unlink()
    world.main().symlink_to(mine)
    row = the_session(home)
    world.companion().parent.rename(tmp_path / "elsewhere")
    world.companion().parent.symlink_to(tmp_path / "elsewhere")
    assert purge(home, row, "asked for", live=True).live == ()
    assert mine.read_bytes() == b"mine"
    assert (tmp_path / "elsewhere" / world.companion().name).exists()


def test_what_the_search_finds_is_told(world: World, home: Home) -> None:
    stray = world.layout.home / "notes.txt"
    stray.write_bytes(b"x" * 10_000 + os.fsencode(world.main()))
    assert purge(home, the_session(home), "asked for", live=False).found_in == (stray,)


def test_a_text_across_two_reads_is_found(world: World, home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "_STEP_BYTES", 64)
    stray = world.layout.home / "notes.txt"
    stray.write_bytes(b"x" * 50 + os.fsencode(world.main()))
    assert purge(home, the_session(home), "asked for", live=False).found_in == (stray,)


def test_a_title_that_another_session_has_too_is_no_sign(world: World, home: Home) -> None:
    copy = "33333333-2222-4333-8444-555555555555"
    world.append(world.main(session=copy), told(copy, SECRET, 0))
    world.scan()
    assert purge(home, the_session(home), "asked for", live=False).found_in == ()
    assert the_session(home, copy).title == SECRET
