"""Random games of retention: nothing that must be kept is ever lost, what goes is what the plan said, and twice is once."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from model.keeping import Game
from model.playing import play_out
from world_of import small_sizes

SEEDS = int(os.environ.get("COLDTRAIL_MODEL_SEEDS") or 20)
TURNS = 40


@pytest.mark.parametrize("seed", range(SEEDS))
def test_what_must_be_held_is_held_and_what_goes_is_what_the_plan_said(seed: int, tmp_path: Path) -> None:
    with small_sizes():
        play_out(Game(tmp_path, seed), TURNS, seed)
