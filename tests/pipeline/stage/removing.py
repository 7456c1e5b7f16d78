"""A session that is kept, and helpers to mark and remove it, for tests of what goes wrong meanwhile."""

from __future__ import annotations

from coldtrail.catalog import SessionRow
from coldtrail.format.wishes import Act
from coldtrail.home import Home
from coldtrail.stage import expire
from world_of import Lines, World

DAY = 86_400_000
OTHER = "22222222-2222-4333-8444-555555555555"


def kept(world: World, lines: Lines) -> None:
    """A session of three streams, the most of it sealed, and one that is empty."""
    world.append(world.main(), lines.some(30))
    world.append(world.child(), lines.some(2))
    world.write(world.companion(), b"output\n")
    world.write(world.companion().with_name("empty.txt"), b"")
    world.scan()
    world.clock.tick(10_000)
    world.compact(cold=True)


def the_session(home: Home) -> SessionRow:
    (row,) = home.catalog.sessions()
    return row


def marked(world: World) -> None:
    with world.open() as home:
        assert expire.mark(home, the_session(home), "rule 1")


def removed(world: World, act: Act = Act.EXPIRED) -> None:
    marked(world)
    with world.open() as home:
        assert expire.remove(home, the_session(home), act, "rule 1") is not None


def files(world: World) -> set[str]:
    """What store and archive have."""
    folders = (world.layout.store, world.layout.archive)
    return {str(path.relative_to(world.layout.home)) for folder in folders for path in folder.rglob("*") if path.is_file()}
