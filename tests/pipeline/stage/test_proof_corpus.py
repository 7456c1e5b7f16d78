"""Over real sessions: whatever is damaged is found, repaired from the agents' files, and everything comes back."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from coldtrail.settings import open_home
from coldtrail.stage.compact import Compactor, due
from coldtrail.stage.drill import drill
from coldtrail.stage.repair import Repaired, repair
from coldtrail.stage.sample import Sample
from coldtrail.stage.scan import Scanner
from coldtrail.stage.verify import verify
from pipeline.corpus_home import CORPUS, CorpusHome

LARGEST = 400_000

pytestmark = pytest.mark.skipif(not CORPUS.is_dir(), reason="the corpus is not on this machine")


def flipped(path: Path, chance: Random) -> None:
    data = bytearray(path.read_bytes())
    data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    path.write_bytes(data)


def cut(path: Path, chance: Random) -> None:
    path.write_bytes(path.read_bytes()[: chance.randrange(path.stat().st_size)])


def removed(path: Path, _chance: Random) -> None:
    path.unlink()


DAMAGES: list[Callable[[Path, Random], None]] = [flipped, flipped, cut, removed]


def test_damage_of_every_kind_is_found_and_repaired_and_every_session_comes_back(tmp_path: Path) -> None:
    user = tmp_path / "user"
    user.mkdir()
    home = CorpusHome(user)
    home.fill(lambda path: path.stat().st_size <= LARGEST)
    settings, chance = home.settings, Random(7)
    with open_home(settings) as opened:
        Scanner(opened).scan(settings.sources, whole=True)
        for row, _ in list(due(opened, 0)):
            Compactor(opened, 9).compact(row, cold=True)
        whole = {path: path.read_bytes() for path in sorted(settings.layout.archive.rglob("*.jsonl.zst"))}
        assert len(whole) > 200
        damaged = chance.sample(list(whole), len(whole) // 2)
        for path in damaged:
            chance.choice(DAMAGES)(path, chance)
        found = verify(opened).damaged
        assert len(damaged) * 0.97 < len(found) <= len(damaged), "a few bits of zstd's say nothing, and harm nothing"
        assert [each for each in repair(opened, found) if not isinstance(each, Repaired)] == []
        assert verify(opened).word == "ok"
        (tmp_path / "scratch").mkdir()
        report = drill(opened, Sample(percent=100), chance, tmp_path / "scratch")
        assert [each.to_json() for each in report.tried if each.word != "ok"] == []
        assert (report.count("ok"), report.sums()["live"]) == (report.sessions, len(home.originals))
