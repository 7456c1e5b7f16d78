"""The barrier over bytes that their agent takes back before anybody captures them: it lifts nothing, and lets nobody wait in vain."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from zstandard import ZstdCompressor

from coldtrail.errors import UnverifiableError
from coldtrail.home import Home
from coldtrail.settings import open_home
from coldtrail.stage.barrier import Barrier
from coldtrail.stage.scan import Scanner
from daemon.cli.desk import FIRST, SECOND, Desk
from world_of import chain_bytes, metas

OTHER_LIFE = b'{"type": "user", "uuid": "another life"}\n'


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    made = Desk(tmp_path)
    made.converse()
    made.capture()
    return made


@pytest.fixture
def home(desk: Desk) -> Iterator[Home]:
    with open_home(desk.settings()) as home:
        yield home


@pytest.fixture
def log(desk: Desk) -> Path:
    """The log of the session; its last record is not captured yet."""
    return desk.write(desk.log(), {"type": "user", "uuid": "more"})


def over(home: Home, desk: Desk) -> Barrier:
    (row,) = home.catalog.sessions()
    return Barrier.over(home, list(desk.settings().sources), row.key)


def lost(home: Home, barrier: Barrier) -> str:
    """What the barrier says once nobody can capture what it stands for."""
    with pytest.raises(UnverifiableError) as told:
        barrier.missing(home)
    assert told.value.exit_code == 5
    return str(told.value)


def in_place(log: Path) -> None:
    data = log.read_bytes()
    log.write_bytes(OTHER_LIFE * (len(data) // len(OTHER_LIFE)) + b"{}\n" * 20)


def longer(log: Path) -> None:
    log.write_bytes(OTHER_LIFE * (log.stat().st_size // len(OTHER_LIFE) + 2))


def cut(log: Path) -> None:
    os.truncate(log, 200)


def exchanged(log: Path) -> None:
    new = log.with_name("new")
    new.write_bytes(OTHER_LIFE)
    new.replace(log)


@pytest.mark.parametrize("take_back", [in_place, longer, cut, exchanged])
def test_bytes_that_were_overwritten_before_they_were_captured_are_counted_once_what_is_there_is_held(
    desk: Desk, home: Home, log: Path, take_back: object
) -> None:
    size, new = log.stat().st_size, len(b'{"type": "user", "uuid": "more"}\n')
    barrier = over(home, desk)
    assert len(barrier.missing(home)) == 1
    take_back(log)  # type: ignore[operator]
    said = f"{log}: up to {new} of {size} bytes were taken back before they were captured"
    assert said in barrier.missing(home), "and what is there now is waited for"
    assert any("bytes are safe" in each for each in barrier.missing(home))
    barrier.capture(home)
    assert lost(home, barrier) == said
    assert chain_bytes(home, metas(home)[0]) == log.read_bytes()


def test_a_log_that_was_removed_before_its_last_bytes_were_captured_is_not_waited_for(desk: Desk, home: Home, log: Path) -> None:
    barrier = over(home, desk)
    log.unlink()
    assert "bytes were taken back before they were captured" in lost(home, barrier)


def test_a_log_that_was_removed_before_anybody_met_it_is_not_waited_for(desk: Desk, home: Home) -> None:
    second = desk.converse(SECOND)
    size = second.stat().st_size
    barrier = Barrier.everywhere(home, list(desk.settings().sources))
    second.unlink()
    assert lost(home, barrier) == f"{second}: up to {size} of {size} bytes were taken back before they were captured"


def test_an_output_that_was_rewritten_is_no_loss_and_one_that_was_removed_is(desk: Desk, home: Home) -> None:
    output = desk.write(desk.log().with_suffix("") / "tool-results" / "t1.txt", b"first")
    barrier = over(home, desk)
    output.write_bytes(b"second, longer")
    assert barrier.missing(home)
    barrier.capture(home)
    assert barrier.missing(home) == []
    output.write_bytes(b"third, which nobody has captured")
    barrier = over(home, desk)
    output.unlink()
    assert str(output) in lost(home, barrier)


def test_a_log_that_was_moved_before_it_was_captured_is_taken_where_it_is(desk: Desk, home: Home, log: Path) -> None:
    target = desk.log(project="-elsewhere")
    target.parent.mkdir()
    barrier = over(home, desk)
    log.rename(target)
    assert barrier.missing(home)
    barrier.capture(home)
    assert barrier.missing(home) == []
    assert chain_bytes(home, metas(home)[0]) == target.read_bytes()


def test_a_file_that_has_the_inode_of_a_removed_one_is_not_taken_for_it(desk: Desk, home: Home, log: Path) -> None:
    target = desk.log(session_id=SECOND, project="-elsewhere")
    target.parent.mkdir()
    barrier = over(home, desk)
    log.rename(target)
    target.write_bytes(OTHER_LIFE * 40)
    assert f"{log}: up to" in lost(home, barrier)


def test_bytes_that_were_captured_before_they_were_taken_back_are_safe(desk: Desk, home: Home, log: Path) -> None:
    barrier = over(home, desk)
    with open_home(desk.settings()) as other:
        Scanner(other).scan(desk.settings().sources, whole=True)
    cut(log)
    assert barrier.missing(home) == []


def test_bytes_that_came_back_and_were_captured_are_not_lost(desk: Desk, home: Home, log: Path) -> None:
    data, barrier = log.read_bytes(), over(home, desk)
    log.write_bytes(b"")
    assert any("taken back" in each for each in barrier.missing(home))
    log.write_bytes(data)
    barrier.capture(home)
    assert barrier.missing(home) == []


def test_a_log_that_its_agent_compresses_meanwhile_is_not_lost(desk: Desk, home: Home) -> None:
    day = desk.user / ".codex" / "sessions" / "2026" / "01" / "01"
    log = desk.write(day / f"rollout-2026-01-01T00-00-00-{FIRST}.jsonl", {"type": "session_meta", "payload": {"id": FIRST}})
    barrier = Barrier.everywhere(home, list(desk.settings().sources))
    log.with_name(log.name + ".zst").write_bytes(ZstdCompressor().compress(log.read_bytes()))
    log.unlink()
    assert barrier.missing(home)
    barrier.capture(home)
    assert barrier.missing(home) == []


def test_while_nobody_can_look_it_is_missing_and_not_lost(desk: Desk, home: Home, log: Path, unreadable: Callable[[Path], None]) -> None:
    barrier = over(home, desk)
    longer(log)
    unreadable(log)
    (missing,) = barrier.missing(home)
    assert "bytes are safe" in missing
