"""Every real session at random moments: the state recovered from a checkpoint is that of a replay from the start."""

from __future__ import annotations

import os
import random
import sys
import time
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from coldtrail.format.manifest import StreamMeta
from coldtrail.home import Home
from coldtrail.lookback import LogPast
from coldtrail.model import Position
from coldtrail.recover import Selection, StreamReader
from coldtrail.recovery import recover, ref_of
from coldtrail.settings import open_home
from coldtrail.stage.checkpoint import Policy, advance, due
from coldtrail.stage.compact import Compactor
from coldtrail.stage.scan import Scanner
from coldtrail.state import Fold
from pipeline.corpus_home import CORPUS, CorpusHome
from pipeline.recovering import held
from world_of import metas

pytestmark = pytest.mark.skipif(not CORPUS.is_dir(), reason=f"the real logs are missing: {CORPUS}")

EVERYTHING = bool(os.environ.get("COLDTRAIL_TEST_EVERYTHING"))  # every session at 20 moments, for some minutes
POINTS = 20 if EVERYTHING else 5
ONE_IN = 1 if EVERYTHING else 6  # of the files
COST_PERCENT = 3.0
AGENTS = ("claude", "codex", "gemini")


def is_wanted(path: Path) -> bool:
    """The sample; the shortest answer to "why this one" is its name."""
    return path.relative_to(CORPUS).parts[0] in AGENTS and zlib.crc32(str(path.relative_to(CORPUS)).encode()) % ONE_IN == 0


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Home]:
    """Captured and checkpointed; every other session is in the archive."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(os, "fsync", lambda _fd: None)
        corpus = CorpusHome(tmp_path_factory.mktemp("recovery"))
        corpus.fill(is_wanted)
        with open_home(corpus.settings) as home:
            Scanner(home).scan(corpus.settings.sources, whole=True)
            policy = Policy()
            for row in list(due(home, policy)):
                advance(home, row, policy)
            for row in list(home.catalog.all_streams())[::2]:
                Compactor(home, 3).compact(row, cold=True)
            yield home


def tell(what: str) -> None:
    sys.stdout.write(f"\n{what}\n")


def logs(home: Home) -> list[StreamMeta]:
    return [meta for meta in metas(home) if home.plain(meta, meta.newest.number).end()]


def straight(home: Home, meta: StreamMeta, chance: random.Random) -> dict[Position, str]:
    """The hash of the state after some of the records, by one replay from the start."""
    found = {}
    with StreamReader(home, meta) as reader:
        count = sum(1 for _ in reader.rows(Selection()))
        numbers = {count - 1, *(chance.randrange(count) for _ in range(POINTS - 1))}
        fold = Fold(reader.agent.ids, LogPast(reader))
        for number, placed in enumerate(reader.placed(Selection())):
            if placed.reading is not None:
                fold.apply(ref_of(placed), placed.reading)
            if number in numbers:
                found[placed.position] = fold.state.hash()
    return found


def test_every_session_at_every_moment_is_what_a_replay_gives(home: Home) -> None:
    tested, from_checkpoints, times, replayed = 0, 0, [], []
    for meta in logs(home):
        chance = random.Random(meta.path)
        for moment, wanted in straight(home, meta, chance).items():
            began = time.perf_counter()
            with StreamReader(home, meta) as reader:
                found = recover(reader, moment)
            times.append(time.perf_counter() - began)
            assert found.state.hash() == wanted, (meta.path, moment, found.checkpoint)
            assert (found.position, found.gaps, found.notes) == (moment, [], []), (meta.path, moment)
            tested, from_checkpoints = tested + 1, from_checkpoints + (found.checkpoint is not None)
            replayed.append(found.replayed)
    assert tested > (3000 if EVERYTHING else 120)
    assert from_checkpoints > tested / 4
    if EVERYTHING:
        times.sort()
        tell(f"{tested} recoveries, {from_checkpoints} from a checkpoint, at most {max(replayed)} records replayed")
        tell(f"median {1000 * times[tested // 2]:.1f} ms, 99 % below {1000 * times[tested * 99 // 100]:.1f} ms")


def test_verified_is_what_is_recovered(home: Home) -> None:
    for meta in logs(home)[:: 1 if EVERYTHING else 4]:
        with StreamReader(home, meta) as reader:
            found = recover(reader, verify=True)
        assert found.verified is True, meta.path


def test_the_checkpoints_are_a_few_hundredths_of_the_logs(home: Home) -> None:
    long = [meta for meta in logs(home) if home.plain(meta, 0).end() >= 256 << 10]
    assert len(long) > 5
    packed = [sum(len(each.encode()) for each in held(home, meta)) for meta in long]
    plain = [home.plain(meta, 0).end() for meta in long]
    shares = [100 * part / whole for part, whole in zip(packed, plain, strict=True)]
    if EVERYTHING:
        share = 100 * sum(packed) / sum(plain)
        tell(f"{sum(packed)} bytes of checkpoints for {sum(plain)} of log: {share:.2f} %, {max(shares):.2f} % at most")
    assert 100 * sum(packed) / sum(plain) <= COST_PERCENT
    assert max(shares) <= 2 * COST_PERCENT
