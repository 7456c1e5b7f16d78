"""Random games against the toy model: whatever an agent does to its files, every content that was seen is held, exactly and once."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from model.play import Game
from model.playing import play_out
from world_of import small_sizes

SEEDS = int(os.environ.get("COLDTRAIL_MODEL_SEEDS") or 20)
TURNS = 30


@pytest.mark.parametrize("seed", range(SEEDS))
def test_every_content_that_was_seen_is_held_and_the_newest_chain_is_the_live_file(seed: int, tmp_path: Path) -> None:
    with small_sizes():
        play_out(Game(tmp_path, seed), TURNS, seed)
