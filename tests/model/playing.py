"""Plays a game to its end; what goes wrong names the seed and the moves up to there."""

from __future__ import annotations

from typing import Protocol


class Playable(Protocol):
    """A game that is played by itself, its moves drawn by a seed."""

    moves: list[str]

    def play(self, turns: int) -> None:
        """So many moves, then the last reckoning."""

    def close(self) -> None:
        """Let everything go."""


def play_out(game: Playable, turns: int, seed: int) -> None:
    """Play so many turns."""
    try:
        game.play(turns)
    except BaseException as error:
        error.add_note(f"seed {seed}, moves: {', '.join(game.moves)}")
        raise
    finally:
        game.close()
