"""Files that are not appended to: companions rewritten whole, and the logs that Codex compresses and takes back."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from coldtrail.agents import agent
from coldtrail.agents.walk import Source
from coldtrail.model import Relation
from coldtrail.stage.rebuild import rebuild
from coldtrail.stage.scan import BACK_OFF_MS, Scanner
from pipeline.stage.places import THREAD, CodexWorld, faults, look, put_back, the_session, the_stream, twin_of
from world_of import Lines, World, assert_sound, generation_bytes, listed, metas

BIG = 9 << 20  # more than is read of a file at once


@pytest.fixture
def meddled(monkeypatch: pytest.MonkeyPatch) -> Callable[[Path, Callable[[int], None]], None]:
    """Lets something happen to a file right before the read of it that has a certain number, from 0."""
    read = os.pread

    def meddle(path: Path, act: Callable[[int], None]) -> None:
        count = 0

        def reading(fd: int, length: int, offset: int) -> bytes:
            nonlocal count
            if os.readlink(f"/proc/self/fd/{fd}") == str(path):
                act(count)
                count += 1
            return read(fd, length, offset)

        monkeypatch.setattr(os, "pread", reading)

    return meddle


def lives(world: World, path: Path) -> list[bytes]:
    """What is held of each generation of the stream at `path`."""
    with world.open() as home:
        meta = the_stream(home, path)
        return [generation_bytes(home, meta, each.number) for each in meta.generations]


def test_each_content_of_a_companion_is_kept_and_the_newest_restored(world: World, lines: Lines) -> None:
    contents = [b"first", b"second, longer", b"third", b"first"]
    world.write(world.main(), lines.some(1))
    for content in contents:
        world.write(world.companion(), content)
        world.scan()
        world.clock.tick(1_000)
    world.scan()
    assert lives(world, world.companion()) == contents
    world.companion().unlink()
    with world.open() as home:
        put_back(home)
    assert world.companion().read_bytes() == contents[-1]


@pytest.mark.parametrize("size", [0, 1, (8 << 20) - 1, 8 << 20, (8 << 20) + 1, BIG])
def test_a_companion_of_any_size_is_held_whole(world: World, size: int) -> None:
    content = os.urandom(1024) * (size // 1024 + 1)
    world.write(world.companion(), content[:size])
    world.scan()
    world.scan()
    world.compact(cold=True)
    assert lives(world, world.companion()) == [content[:size]]


@pytest.mark.parametrize("size", [1_000, 8 << 20, BIG], ids=["small", "one read", "several reads"])
@pytest.mark.parametrize("new_size", [500, 2 * BIG], ids=["to a shorter one", "to a longer one"])
@pytest.mark.parametrize("when", range(3))
def test_a_companion_that_is_rewritten_while_it_is_read_leaves_no_mixture(
    world: World, meddled: Callable[[Path, Callable[[int], None]], None], size: int, new_size: int, when: int
) -> None:
    first, second = b"A" * size, b"B" * new_size
    world.write(world.companion(), first)

    def rewrite(number: int) -> None:
        if number == when:
            world.companion().write_bytes(second)

    meddled(world.companion(), rewrite)
    for _ in range(4):
        world.scan()
        world.clock.tick(BACK_OFF_MS * 4)
    held = lives(world, world.companion())
    assert set(held) <= {first, second}
    assert held[-1] == world.companion().read_bytes()
    assert faults(world) == {}


def test_the_title_of_a_long_document_is_known_at_once_and_not_only_after_a_rebuild(world: World) -> None:
    said = {"id": "m1", "type": "user", "timestamp": "2026-01-01T00:00:00Z", "content": "What it is about"}
    document = {"sessionId": THREAD, "startTime": "2026-01-01T00:00:00Z", "messages": [said, {**said, "id": "m2", "content": "x" * BIG}]}
    source = Source("gemini-cli", agent("gemini-cli"), world.folder / "gemini")
    world.write(source.root / "tmp" / "x" / "chats" / f"session-2026-01-01T00-00-{THREAD[:8]}.json", json.dumps(document).encode())
    with world.open() as home:
        Scanner(home).scan([source])
        before = listed(home, world.folder)
        assert the_session(home).title == "What it is about"
        rebuild(home)
        assert listed(home, world.folder) == before


def test_a_log_that_codex_compresses_and_takes_back_is_one_stream_of_one_life(codex: CodexWorld) -> None:
    log = codex.rollout()
    codex.write(log, codex.some(10))
    codex.scan()
    twin = twin_of(log)
    assert codex.scan().new_bytes == 0, "both are there for a moment: the plain one wins"
    plain = log.read_bytes()
    log.unlink()
    for _ in range(2):
        tally = codex.scan()
        assert (tally.new_bytes, tally.gone) == (0, 0)
    codex.compact(cold=True)
    codex.write(log, plain)
    codex.scan()
    twin.unlink()
    codex.append(log, codex.some(3))
    codex.clock.tick(10_000)
    codex.scan()
    assert lives(codex, log) == [log.read_bytes()]
    with codex.open() as home:
        assert (len(metas(home)), the_session(home).row.records) == (1, 13)
        assert_sound(home)


def test_a_log_met_only_in_its_compressed_form_is_held_plain_and_restored_plain(codex: CodexWorld) -> None:
    log = codex.rollout()
    codex.write(log, codex.some(10))
    plain = log.read_bytes()
    twin = twin_of(log)
    log.unlink()
    codex.scan()
    assert lives(codex, log) == [plain]
    with codex.open() as home:
        assert next(the_session(home).events()).type == "session_start"
        (done,) = put_back(home)
        assert not log.exists(), f"it is there already, in the form that Codex reads in its stead: {done}"
    twin.unlink()
    codex.scan()
    with codex.open() as home:
        put_back(home)
    assert log.read_bytes() == plain


@pytest.mark.parametrize("known", [False, True], ids=["never met", "held already"])
@pytest.mark.parametrize("cut", [1, 4, 100])
def test_a_cut_off_compressed_log_is_told_and_read_when_it_is_whole(codex: CodexWorld, cut: int, known: bool) -> None:
    log = codex.rollout()
    codex.write(log, codex.some(200))
    if known:
        codex.scan()
        codex.append(log, codex.some(1))
    plain = log.read_bytes()
    whole = twin_of(log).read_bytes()
    twin = log.with_name(log.name + ".zst")
    twin.write_bytes(whole[:-cut])
    log.unlink()
    for _ in range(3):
        assert codex.scan().failed == 1
        codex.clock.tick(3_600_000)
    assert list(faults(codex)) == [log]
    assert all(plain.startswith(life) for life in lives(codex, log))
    with codex.open() as home:
        assert the_session(home).state == "live"
    twin.write_bytes(whole)
    codex.scan()
    assert (lives(codex, log), faults(codex)) == ([plain], {})


def test_a_log_that_was_touched_and_then_compressed_is_checked_in_that_form(codex: CodexWorld) -> None:
    log = codex.rollout()
    codex.write(log, codex.some(5))
    codex.scan()
    codex.clock.tick(1_000)
    codex.stamp(log)
    look(codex, log)
    twin_of(log)
    log.unlink()
    assert (codex.scan().failed, faults(codex)) == (0, {})


def test_a_compressed_log_that_holds_something_else_is_the_next_life(codex: CodexWorld) -> None:
    log = codex.rollout()
    codex.write(log, codex.some(5))
    codex.scan()
    first = log.read_bytes()
    log.write_bytes(b"".join(reversed(first.splitlines(keepends=True))))
    second = log.read_bytes()
    twin_of(log)
    log.unlink()
    codex.scan()
    assert lives(codex, log) == [first, second]
    with codex.open() as home:
        assert the_stream(home).newest.relation is Relation.REPLACES
