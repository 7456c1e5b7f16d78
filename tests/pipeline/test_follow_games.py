"""Random games with followers: whatever an agent and coldtrail do, each is told every event of every life once, in order."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from coldtrail import Event, Session
from coldtrail.format.lines import read_line
from coldtrail.indexer import read_record
from coldtrail.recover import Selection, StreamReader
from model.play import Game, Played
from model.playing import play_out
from pipeline.following import Stepped, nobody
from world_of import generation_bytes, small_sizes

SEEDS = int(os.environ.get("COLDTRAIL_MODEL_SEEDS") or 20)
TURNS = 30


class FollowedGame(Game):
    """A game in which each session's main log is followed, from its first capture on."""

    def __init__(self, folder: Path, seed: int) -> None:
        super().__init__(folder, seed)
        self.reading = self.world.open()  # the game changes its own home
        self.scan()
        self.followed = {played.id: self._follow(played) for played in self.sessions}
        self.contents: dict[str, list[bytes]] = {played.id: [] for played in self.sessions}

    def close(self) -> None:
        super().close()
        self.reading.close()

    def _follow(self, played: Played) -> Stepped:
        capture = self._captured if self.random.random() < 0.3 else nobody
        return Stepped(self.reading, session=Session(self.reading, played.row()), capture=capture)

    def _captured(self, _session: str) -> bool:
        self.moves.append("(by the follower)")
        self.scan()
        return True

    def _do(self, act: Callable[[], None], name: str) -> None:
        super()._do(act, name)
        for played in self.sessions:
            if played.main.exists:
                self.contents[played.id].append(played.main.path.read_bytes())
            if self.random.random() < 0.7:
                self.followed[played.id].looks(self.random.randint(1, 4))

    def reckon(self) -> None:
        super().reckon()
        for played in self.sessions:
            follower = self.followed[played.id]
            follower.looks(6)
            self._reckon_follower(played, follower)

    def _reckon_follower(self, played: Played, follower: Stepped) -> None:
        (meta,) = [meta for meta in Session(self.reading, played.row()).streams() if meta.role == "main"]
        positions = [event.position for event in follower.told]
        assert positions == sorted(set(positions)), "each event once, in order"
        for each in meta.generations:
            told = [event for event in follower.told if event.position.generation == each.number]
            newest = each.number == meta.newest.number and played.main.exists
            data = played.main.path.read_bytes() if newest else generation_bytes(self.reading, meta, each.number)
            whole = data.rfind(b"\n") + 1
            with StreamReader(self.reading, meta, generation=each.number) as reader:
                read = [event for placed in reader.placed(Selection()) for event in placed.events() if placed.generation == each.number]
            lines = [event for event in told if event.position.offset < whole]
            assert _brief(lines) == _brief([event for event in read if event.position.offset < whole]), f"generation {each.number}"
            for event in told[len(lines) :]:
                assert not newest
                if event not in read:
                    self._reckon_lost(played, event)

    def _reckon_lost(self, played: Played, event: Event) -> None:
        """What was told and never captured did stand there once."""
        at, agent = event.position.offset, self.reading.agents["claude-code"]
        lines = (content[at : content.find(b"\n", at) + 1] for content in self.contents[played.id])
        readings = (read_record(agent, record) for line in lines for record in read_line(line, at)[:1])
        assert any(reading is not None and reading.id == event.id for reading in readings), event


def _brief(events: list[Event]) -> list[tuple[str, str, str | None]]:
    return [(str(event.position), event.type.value, event.id) for event in events]


@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_follower_is_told_every_event_of_every_life_once_in_order(seed: int, tmp_path: Path) -> None:
    with small_sizes():
        play_out(FollowedGame(tmp_path, seed), TURNS, seed)
