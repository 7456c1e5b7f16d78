"""The snapshots of real sessions, written over each other as the agent did: growth is growth, and a rewrite is seen."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from coldtrail.model import Relation
from pipeline.corpus_home import CORPUS
from pipeline.stage.places import CodexWorld, older, reads_of, the_stream
from world_of import World, assert_sound, generation_bytes

pytestmark = pytest.mark.skipif(not CORPUS.is_dir(), reason=f"the real logs are missing: {CORPUS}")

BESIDE_BYTES = 64 << 10  # what may be read of a file beside what is new in it
FIRST_BYTES = 256 << 10  # and of a rewritten one, to see whether it goes on where the one before ended
SERIES = [folder for folder in sorted(CORPUS.glob("c*/entireio__*/*")) if len(list(folder.iterdir())) > 1]


@dataclass(slots=True)
class Replay:
    """A session's snapshots, captured one after the other."""

    world: World
    log: Path
    lives: list[bytes] = field(default_factory=list)  # the bytes of each life, as the agent left them
    generation: list[int] = field(default_factory=list)  # in which life each snapshot was
    read: list[tuple[int, int]] = field(default_factory=list)  # bytes that were new, bytes that were read


@pytest.fixture(scope="module", params=SERIES, ids=lambda folder: f"{folder.parent.parent.name}-{folder.name[:15]}")
def replay(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Replay]:
    folder: Path = request.param
    tmp_path = tmp_path_factory.mktemp("replay")
    codex = CodexWorld(tmp_path)
    replay = Replay(codex, codex.rollout()) if "codex" in folder.parts else Replay(world := World(tmp_path), world.main())
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("os.fsync", lambda _fd: None)
        for number, snapshot in enumerate(sorted(folder.iterdir())):
            _write(replay, snapshot.read_bytes())
            replay.world.clock.tick(60_000)
            with reads_of(replay.log) as read:
                replay.world.scan()
            replay.read[-1] = replay.read[-1][0], sum(read)
            if number % 2:
                replay.world.compact(cold=bool(number % 4 == 1))
        yield replay
    shutil.rmtree(tmp_path)


def _write(replay: Replay, data: bytes) -> None:
    """Append where the log has grown, else write it over in place."""
    before = replay.lives[-1] if replay.lives else None
    if before is not None and data.startswith(before):
        replay.world.append(replay.log, data[len(before) :])
        replay.lives[-1] = data
        replay.read.append((len(data) - len(before), 0))
    else:
        replay.world.write(replay.log, data)
        replay.lives.append(data)
        replay.read.append((len(data), 0))
    replay.generation.append(len(replay.lives) - 1)


def test_growth_stays_in_one_life_and_each_rewrite_begins_the_next(replay: Replay) -> None:
    with replay.world.open() as home:
        meta = the_stream(home)
        assert [generation_bytes(home, meta, each.number) for each in meta.generations] == replay.lives
        # Some of the publisher's snapshots are slices that go on where the one before ended, as a log does that was made again.
        assert {each.relation for each in meta.generations[1:]} <= {Relation.REPLACES, Relation.CONTINUES}
        assert_sound(home)


def test_every_life_can_be_restored_and_so_every_snapshot_is_held(replay: Replay, tmp_path: Path) -> None:
    with replay.world.open() as home:
        meta = the_stream(home)
    for number in range(len(replay.lives)):
        chain = b"".join(replay.lives[each.number] for each in meta.chain(number))
        assert older(replay.world, number, tmp_path / str(number)) == chain


def test_what_is_read_of_a_log_grows_with_what_is_new_in_it(replay: Replay) -> None:
    for number, (new, read) in enumerate(replay.read):
        rewritten = number > 0 and replay.generation[number] > replay.generation[number - 1]
        beside = BESIDE_BYTES + (FIRST_BYTES if rewritten else 0)
        assert read <= new + beside, f"{read} bytes read for {new} new ones"


def test_there_are_series_that_grow_and_series_that_are_rewritten() -> None:
    assert len(SERIES) == 7
