"""What is wished for a session, or done to its own files, stands in the journal, wherever it was stopped; and nothing else is half done."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from coldtrail.format.manifest import Manifest
from coldtrail.home import Home
from coldtrail.journal import Act
from coldtrail.sessions import read_manifest
from coldtrail.stage import aside, expire, reclaim, wish
from coldtrail.stage.adopt import adopt_wishes
from coldtrail.stage.rebuild import differences
from crash.killing import EVERY, dies_at, steps_of
from reclaiming import Cold
from world_of import Lines, World, metas

pytestmark = pytest.mark.usefixtures("small")

_POWER = pytest.mark.parametrize("power", [False, True], ids=["killed", "power cut"])


@dataclass(frozen=True, slots=True)
class Asked:
    """Something that a user asks for, or takes back."""

    act: Act
    ask: Callable[[Home], object]
    stands: Callable[[Manifest], bool]
    first: Callable[[Home], object] = lambda _: None

    def __str__(self) -> str:
        return self.act.value


def _tag(home: Home) -> None:
    wish.set_tags(home, home.catalog.sessions()[0], add=["mine"])


def _pin(home: Home) -> None:
    wish.set_pin(home, home.catalog.sessions()[0], pinned=True)


def _unpin(home: Home) -> None:
    wish.set_pin(home, home.catalog.sessions()[0], pinned=False)


def _mark(home: Home) -> None:
    assert expire.mark(home, home.catalog.sessions()[0], "rule 1")


def _lift(home: Home) -> None:
    expire.lift(home, home.catalog.sessions()[0])


ASKED = (
    Asked(Act.PINNED, _pin, lambda manifest: manifest.pinned),
    Asked(Act.UNPINNED, _unpin, lambda manifest: not manifest.pinned, _pin),
    Asked(Act.TAGGED, _tag, lambda manifest: manifest.tags == ("mine",)),
    Asked(Act.MARKED, _mark, lambda manifest: manifest.mark is not None),
    Asked(Act.LIFTED, _lift, lambda manifest: manifest.mark is None, _mark),
)


def begin(folder: Path, asked: Asked) -> World:
    """A session that is kept, right before."""
    world = World(folder)
    world.write(world.main(), Lines(world.clock).some(5))
    world.scan()
    world.compact(cold=True)
    with world.open() as home:
        asked.first(home)
    return world


def ask(world: World, asked: Asked) -> None:
    with world.open() as home:
        asked.ask(home)


def looked_at(world: World, asked: Asked) -> tuple[bool, int]:
    """Whether the manifest has it, and how often the journal."""
    with world.open() as home:
        (row,) = home.catalog.sessions()
        told = [entry for entry in home.journal.read() if entry.act is asked.act]
        assert home.journal.damaged == 0
        return asked.stands(read_manifest(home, row.source, row.key)), len(told)


@_POWER
@pytest.mark.parametrize("asked", ASKED, ids=str)
def test_what_is_asked_for_is_never_kept_without_a_line_in_the_journal(asked: Asked, power: bool, tmp_path: Path) -> None:
    reference = begin(tmp_path / "reference", asked)
    steps = steps_of(lambda: ask(reference, asked))
    assert looked_at(reference, asked) == (True, 1)
    undone = 0
    for step in range(1, len(steps) + 1):
        world = begin(tmp_path / str(step), asked)
        assert dies_at(step, lambda world=world: ask(world, asked), power=world.folder if power else None), steps[step - 1]  # type: ignore[misc]
        stands, told = looked_at(world, asked)
        assert told >= stands, steps[step - 1]
        undone += not stands
        with world.open() as home:
            assert adopt_wishes(home) == []
            assert differences(home) == ([], []), steps[step - 1]
        ask(world, asked)
        stands, told = looked_at(world, asked)
        assert stands, steps[step - 1]
        assert told in (1, 2), steps[step - 1]
    assert undone


def test_what_is_so_already_is_no_line(tmp_path: Path) -> None:
    for asked in ASKED[:3:2]:
        world = begin(tmp_path / asked.act.value, asked)
        for _ in range(2):
            ask(world, asked)
        assert looked_at(world, asked) == (True, 1)


def reclaimed(cold: Cold) -> None:
    """The whole of it, as the service does it: each act is noted."""
    with cold.world.open() as home:

        def note(act: str, session: str, reason: str, size: int) -> None:
            home.journal.note(Act(act), session, "", reason, size=size)

        (row,) = home.catalog.sessions()
        reclaim.reclaim(home, row.key, reclaim.Terms(0, 0), note)


def test_no_file_of_an_agent_is_taken_without_a_line_in_the_journal(tmp_path: Path) -> None:
    steps = steps_of(lambda: reclaimed(Cold.made(tmp_path / "reference")))
    seen = set[tuple[bool, bool]]()
    for step in range(1, len(steps) + 1, 1 if EVERY else 3):
        cold = Cold.made(tmp_path / str(step))
        if not dies_at(step, lambda cold=cold: reclaimed(cold)):  # type: ignore[misc]
            break
        with cold.world.open() as home:
            told = {entry.act for entry in home.journal.read()}
            gone = any(not Path(meta.path).exists() for meta in metas(home))
            over = any(
                meta.aside is not None and not Path(aside.record(meta).path).exists() and meta.gone_ms is not None for meta in metas(home)
            )
        assert Act.SET_ASIDE in told or not gone, steps[step - 1]
        assert Act.RECLAIMED in told or not over, steps[step - 1]
        seen.add((gone, over))
    assert len(seen) > 1


def test_a_file_that_is_refused_in_the_last_moment_is_told_to_be_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        raise aside.DoubtError("somebody has opened it just then")

    monkeypatch.setattr(aside, "_move_out", refused)
    cold = Cold.made(tmp_path)
    reclaimed(cold)
    with cold.world.open() as home:
        assert [entry.act for entry in home.journal.read()] == [Act.SET_ASIDE, Act.PUT_BACK]
    assert len(cold.world.live()) == len({meta.path for meta in metas(home)})
