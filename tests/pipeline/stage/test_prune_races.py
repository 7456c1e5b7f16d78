"""Retention in one process while another captures, compacts, verifies and rebuilds: no byte is lost between them."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from coldtrail.catalog import Catalog
from coldtrail.config import Retention, Rule
from coldtrail.errors import ColdtrailError
from coldtrail.home import Home
from coldtrail.stage import expire, prune, purge, thin
from coldtrail.stage.rebuild import rebuild
from coldtrail.stage.scan import Scanner
from coldtrail.stage.verify import verify
from world_of import Lines, World, chain_bytes, compact, metas

pytestmark = pytest.mark.usefixtures("small")

GO = Retention(grace_ms=1, companion_versions=2, rules=(Rule(keep_within_ms=2_000),))
HERE = {"claude-code"}
ROUNDS = 25


class Crowd:
    """Threads that each do one kind of work on one world, with a home of its own, until the agents have ended."""

    def __init__(self, world: World) -> None:
        self.world, self.over = world, threading.Event()
        self.errors: list[BaseException] = []
        self._threads: list[threading.Thread] = []

    def join_in(self, work: Callable[[Home], object]) -> None:
        """Do this again and again."""

        def run() -> None:
            try:
                with self.world.open() as home:
                    while not self.over.is_set():
                        work(home)
            except BaseException as error:  # noqa: BLE001 - whoever waits for it is told
                self.errors.append(error)

        self._threads.append(threading.Thread(target=run))

    def play(self, agents: Callable[[], None]) -> None:
        """Begin, let the agents write, and end."""
        for thread in self._threads:
            thread.start()
        try:
            agents()
        finally:
            self.over.set()
            for thread in self._threads:
                thread.join()
        for error in self.errors:
            raise error


def agents(world: World, seed: int) -> None:
    """Six sessions are written to, and time goes by."""
    draw = random.Random(seed)
    names = [f"{number:08d}-0000-4000-8000-000000000000" for number in range(6)]
    lines = {name: Lines(world.clock, name) for name in names}
    with world.open() as home:
        for _ in range(ROUNDS):
            name = draw.choice(names)
            world.append(world.main(session=name), lines[name].some(draw.randint(1, 20)))
            if draw.random() < 0.4:
                world.write(world.companion(session=name), draw.randbytes(300))
            Scanner(home).scan(world.sources, whole=True)
            world.clock.tick(draw.choice((1, 500, 3_000)))


def reckoned(world: World) -> None:
    """Each of the agents' files is held whole, or is one of a session that expired just so."""
    with world.open() as home:
        expire.finish(home)
        for _ in range(2):
            Scanner(home).scan(world.sources, whole=True)
        assert home.catalog.faults() == []
        verdict = verify(home)
        assert verdict.word == "ok", verdict.findings + verdict.unverifiable
        held = {Path(meta.path): chain_bytes(home, meta) for meta in metas(home)}
        buried = {(row.name, row.held) for row in home.catalog.graves()}
        lengths = [size for _, size in buried]
        for path, data in world.live().items():
            assert held.get(path) == data or (path not in held and len(data) in lengths), path
        assert set(held) <= set(world.live())


def pruned(home: Home) -> None:
    list(prune.carry_out(home, prune.plan(home, GO, HERE)))


@pytest.mark.parametrize("seed", range(4))
def test_capture_compaction_and_retention_at_once_lose_nothing(world: World, seed: int) -> None:
    crowd = Crowd(world)
    crowd.join_in(pruned)
    crowd.join_in(pruned)
    crowd.join_in(lambda home: compact(home, cold=True))
    crowd.join_in(lambda home: thin.thin(home, 2))
    crowd.play(lambda: agents(world, seed))
    reckoned(world)


def test_verify_and_rebuild_beside_retention_find_nothing_wrong_and_bring_nothing_back(world: World) -> None:
    words: list[str] = []
    crowd = Crowd(world)
    crowd.join_in(pruned)
    crowd.join_in(lambda home: words.append(verify(home).word))
    crowd.join_in(lambda home: words.append("ok" if rebuild(home) == [] else "bad"))
    crowd.play(lambda: agents(world, 7))
    assert set(words) == {"ok"}
    reckoned(world)


def test_what_is_purged_while_it_is_captured_does_not_come_back(world: World) -> None:
    lines = Lines(world.clock)
    world.append(world.main(), lines.some(5))
    world.scan()
    crowd = Crowd(world)
    crowd.join_in(lambda home: Scanner(home).scan(world.sources, whole=True))

    def purges() -> None:
        with world.open() as home:
            for _ in range(10):
                world.append(world.main(), lines.some(3))
            (row,) = home.catalog.sessions()
            assert purge.purge(home, row, "asked for", live=False).found_in == ()
            for _ in range(10):
                world.append(world.main(), lines.some(3))

    crowd.play(purges)
    with world.open() as home:
        Scanner(home).scan(world.sources, whole=True)
        assert home.catalog.sessions() == []
        assert list(home.store.streams()) == []
        assert home.catalog.faults() == []


def test_of_many_who_open_a_catalog_for_the_first_time_none_drops_what_another_has_put(tmp_path: Path) -> None:
    for attempt in range(20):
        path, begin, lost = tmp_path / str(attempt) / "catalog.db", threading.Barrier(4), list[object]()

        def run(number: int, path: Path = path, begin: threading.Barrier = begin, lost: list[object] = lost) -> None:
            begin.wait()
            try:
                with Catalog(path) as catalog:
                    catalog.note_fault(b"%d" % number, "", "", 0, 1)
                    lost.extend([] if catalog.fault(b"%d" % number) else [number])
            except ColdtrailError as error:
                lost.append(error)

        threads = [threading.Thread(target=run, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert lost == []
        with Catalog(path) as catalog:
            assert len(catalog.faults()) == 4
