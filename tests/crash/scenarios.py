"""What coldtrail may be doing when it is killed: what was there before, what the agent did then, what coldtrail does about it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass

from coldtrail import durable
from coldtrail.home import Home
from coldtrail.stage.rebuild import rebuild
from coldtrail.stage.restore import Passed, Wish, carry_out, plan_restore
from coldtrail.stage.scan import Scanner
from coldtrail.stage.wish import set_pin
from world_of import Lines, World

TOOL_OUTPUT = b"a tool's output\n" * 20
LONG_OUTPUT = b"".join(b"%06d of a long output\n" % number for number in range(1_000))  # is read, and compressed, in many parts


@dataclass(slots=True)
class Story:
    """A world, the lines of its main log, and those of its child."""

    world: World
    lines: Lines
    child_lines: Lines


@dataclass(frozen=True, slots=True)
class Scenario:
    """One thing to be killed in."""

    name: str
    before: Callable[[Story], None]  # captured when it is over
    change: Callable[[Story], None]  # what the agent does then
    act: Callable[[World], None]  # what coldtrail does about it; done again after a crash

    def __str__(self) -> str:
        return self.name


def _nothing(story: Story) -> None:
    """The agent does nothing."""


def _bundle(story: Story) -> None:
    world = story.world
    world.write(world.main(), story.lines.some(5))
    world.write(world.child(), story.child_lines.some(3))
    world.write(world.companion(), TOOL_OUTPUT)


def _captured(story: Story) -> None:
    _bundle(story)
    story.world.scan()


def _captured_long(story: Story) -> None:
    """Some 10 KiB: two segments that have stopped growing, one that grows."""
    _captured(story)
    for _ in range(3):
        story.world.append(story.world.main(), story.lines.some(17))
        story.world.scan()


def _sealed_then_grown(story: Story) -> None:
    _captured_long(story)
    story.world.compact(cold=False)
    for _ in range(3):
        story.world.append(story.world.main(), story.lines.some(17))
        story.world.scan()


def _dense_then_grown(story: Story) -> None:
    _captured_long(story)
    story.world.compact(cold=True)
    story.world.append(story.world.main(), story.lines.some(3) + story.lines.line()[:-40])
    story.world.clock.tick(6_000)
    story.world.scan()


def _rewritten_then_captured(story: Story) -> None:
    _captured_long(story)
    story.world.write(story.world.main(), story.lines.line(root=True) + story.lines.some(30))
    story.world.write(story.world.companion(), b"another output\n")
    story.world.scan()


def _all_gone(story: Story) -> None:
    _rewritten_then_captured(story)
    shutil.rmtree(story.world.root / "projects" / "-p")
    story.world.scan()


def _gone_dense(story: Story) -> None:
    _rewritten_then_captured(story)
    story.world.compact(cold=True)
    shutil.rmtree(story.world.root / "projects" / "-p")
    story.world.scan()


def _chain_gone(story: Story) -> None:
    """A log that was made again without its head, and is gone too."""
    _captured(story)
    story.world.main().unlink()
    story.world.scan()
    story.world.write(story.world.main(), story.lines.some(3))
    story.world.scan()
    shutil.rmtree(story.world.root / "projects" / "-p")
    story.world.scan()


def _grow(story: Story) -> None:
    story.world.append(story.world.main(), story.lines.some(80))
    story.world.append(story.world.child(), story.child_lines.some(20))


def _tear(story: Story) -> None:
    story.world.append(story.world.main(), story.lines.some(3) + story.lines.line()[:-40])
    story.world.clock.tick(6_000)


def _rewrite(story: Story) -> None:
    story.world.write(story.world.main(), story.lines.line(root=True) + story.lines.some(45))


def _rewrite_middle(story: Story) -> None:
    data = story.world.main().read_bytes()
    middle = data.index(b"/there", len(data) // 2)
    story.world.write(story.world.main(), data[:middle] + b"/other" + data[middle + 6 :])


def _truncate(story: Story) -> None:
    path = story.world.main()
    story.world.write(path, b"".join(path.read_bytes().splitlines(keepends=True)[:3]) + story.lines.some(60))


def _headless(story: Story) -> None:
    path = story.world.main()
    path.rename(path.with_suffix(".away"))  # keeps its inode from being given to the next file
    story.world.scan()
    path.with_suffix(".away").unlink()
    story.world.write(path, story.lines.some(45))


def _rewrite_companion(story: Story) -> None:
    story.world.write(story.world.companion(), b"rewritten\n" * 300)


def _rewrite_companion_long(story: Story) -> None:
    story.world.write(story.world.companion(), LONG_OUTPUT)


def _move(story: Story) -> None:
    world = story.world
    os.rename(world.root / "projects" / "-p", world.root / "projects" / "-q")
    world.append(world.main("-q"), story.lines.some(2))


def _delete(story: Story) -> None:
    shutil.rmtree(story.world.root / "projects" / "-p")


def _touch(story: Story) -> None:
    story.world.clock.tick(1_000)
    for path in story.world.live():
        story.world.stamp(path)


def _lose_catalog(story: Story) -> None:
    story.world.forget_catalog()


def _scan(world: World) -> None:
    world.scan()


def _compact_hot(world: World) -> None:
    world.compact(cold=False)


def _compact_cold(world: World) -> None:
    world.compact(cold=True)


def _pin(world: World) -> None:
    with world.open() as home:
        for session in home.catalog.sessions():
            set_pin(home, session, pinned=True)


def _restore(world: World) -> None:
    with world.open() as home:
        restore_all(home)
        Scanner(home).scan(world.sources)


def restore_all(home: Home, *, overwrite: bool = False) -> None:
    """Put every session back; none of its files fails."""
    for session in home.catalog.sessions():
        done = list(carry_out(home, plan_restore(home, session, Wish(overwrite=overwrite))))
        assert not [each for each in done if isinstance(each, Passed) and each.failed]


def _overwrite(world: World) -> None:
    with world.open() as home:
        restore_all(home, overwrite=True)
        Scanner(home).scan(world.sources)


def _cut_live(story: Story) -> None:
    """The agent's file loses its end; nobody has looked since."""
    path = story.world.main()
    story.world.write(path, path.read_bytes()[:1000])


def _lose_store(story: Story) -> None:
    """Only the archive is left."""
    shutil.rmtree(story.world.layout.store)
    story.world.forget_catalog()


def _rebuild(world: World) -> None:
    with world.open() as home:
        durable.step("rebuild", world.layout.catalog)
        assert rebuild(home, lambda _: durable.step("rebuilt", world.layout.catalog)) == []


def _everything(world: World) -> None:
    """A whole pass: capture, compaction hot and cold."""
    _scan(world)
    _compact_hot(world)
    _compact_cold(world)


SCENARIOS = (
    Scenario("first capture", _nothing, _bundle, _scan),
    Scenario("growth over many batches", _captured, _grow, _scan),
    Scenario("growth of a dense log with a torn tail", _dense_then_grown, _grow, _scan),
    Scenario("a torn tail", _captured, _tear, _scan),
    Scenario("rewritten", _captured_long, _rewrite, _scan),
    Scenario("rewritten in the middle", _captured_long, _rewrite_middle, _scan),
    Scenario("truncated and grown", _captured_long, _truncate, _scan),
    Scenario("made again without its head", _captured, _headless, _scan),
    Scenario("companion rewritten", _captured, _rewrite_companion, _scan),
    Scenario("companion rewritten as a long one", _captured, _rewrite_companion_long, _scan),
    Scenario("moved", _captured, _move, _scan),
    Scenario("gone", _captured, _delete, _scan),
    Scenario("touched", _captured_long, _touch, _scan),
    Scenario("sealed", _captured_long, _nothing, _compact_hot),
    Scenario("merged", _sealed_then_grown, _nothing, _compact_hot),
    Scenario("made dense", _sealed_then_grown, _nothing, _compact_cold),
    Scenario("made dense again", _dense_then_grown, _nothing, _compact_cold),
    Scenario("old generations made dense", _rewritten_then_captured, _nothing, _compact_cold),
    Scenario("pinned", _captured, _nothing, _pin),
    Scenario("restored", _all_gone, _nothing, _restore),
    Scenario("restored from dense segments", _gone_dense, _nothing, _restore),
    Scenario("restored as a chain", _chain_gone, _nothing, _restore),
    Scenario("overwritten by a restore", _rewritten_then_captured, _cut_live, _overwrite),
    Scenario("catalog made again", _sealed_then_grown, _lose_catalog, _rebuild),
    Scenario("rewritten, captured, made dense", _captured_long, _rewrite, _everything),
)

COMPACTIONS = tuple(each for each in SCENARIOS if each.act in (_compact_hot, _compact_cold))
LOST_STORE = Scenario("made again from the archive alone", _gone_dense, _lose_store, _rebuild)
