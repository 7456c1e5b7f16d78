"""Sessions that are removed, and what must be so wherever that is stopped."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from coldtrail.config import Retention, Rule
from coldtrail.format.frames import decode
from coldtrail.format.wishes import Act
from coldtrail.home import Home
from coldtrail.sessions import read_manifest
from coldtrail.stage import expire, prune, purge
from coldtrail.stage.adopt import adopt, adopt_wishes
from coldtrail.stage.rebuild import differences, rebuild
from coldtrail.stage.verify import verify
from crash.image import CATALOG
from world_of import SESSION, Lines, World, generation_bytes, metas

OTHER = "22222222-2222-4333-8444-555555555555"
SECRET = b"the combination of the safe is 4711-0815"


@dataclass(frozen=True, slots=True)
class Removal:
    """A way for a session, or some of it, to go."""

    name: str
    act: Callable[[Home], object]
    live: bool = True  # the agent's own files stay

    def __str__(self) -> str:
        return self.name


def _expire(home: Home) -> None:
    for row in home.catalog.sessions_with_id(SESSION):
        expire.remove(home, row, Act.EXPIRED, "rule 1")


def _prune(home: Home) -> None:
    """A whole pass."""
    policy = Retention(rules=(Rule(keep_within_ms=1),), most_per_pass_percent=100, grace_ms=1)
    assert not [each for each in prune.carry_out(home, prune.plan(home, policy, {"claude-code"}, force=True)) if each.passed]


def _purge(home: Home) -> None:
    for row in home.catalog.sessions_with_id(SESSION):
        assert purge.purge(home, row, "asked for", live=False).found_in == ()


def _purge_live(home: Home) -> None:
    for row in home.catalog.sessions_with_id(SESSION):
        purge.purge(home, row, "asked for", live=True)


EXPIRE, PRUNE = Removal("expire", _expire), Removal("prune", _prune)
PURGE, PURGE_LIVE = Removal("purge", _purge), Removal("purge --live", _purge_live, live=False)


def begin(folder: Path) -> World:
    """Two sessions, sealed for the most part; one of them, with a secret, is marked, and its grace is over."""
    world = World(folder)
    for session, text in ((SESSION, SECRET), (OTHER, b"how to bake bread, once more")):
        lines = Lines(world.clock, session)
        world.append(world.main(session=session), lines.some(20) + lines.line().replace(b"/there", text))
        world.write(world.companion(session=session), text + b", says the tool\n")
        world.write(world.companion(session=session).with_name("t2.txt"), b"")
    with world.kept_open():
        world.scan()
        world.clock.tick(10_000)
        world.compact(cold=True)
        world.write(world.companion(), b"rewritten: " + SECRET)
        world.append(world.main(), Lines(world.clock, SESSION, 30).line().replace(b"/there", SECRET))
        world.scan()
    with world.open() as home:
        assert expire.mark(home, home.catalog.sessions_with_id(SESSION)[0], "rule 1")
    world.clock.tick(2)
    return world


def held(home: Home) -> dict[Path, list[bytes]]:
    """Every generation of every stream, read from store and archive."""
    return {Path(meta.path): [generation_bytes(home, meta, each.number) for each in meta.generations] for meta in metas(home)}


def start(world: World, *, scan: bool = True) -> None:
    """As the daemon begins."""
    with world.open() as home:
        if home.owes_rebuild():
            assert rebuild(home) == []
        expire.finish(home)
        assert adopt(home) == []
        assert adopt_wishes(home) == []
    if scan:
        world.scan()


def of(found: dict[Path, list[bytes]], session: str = SESSION) -> dict[Path, list[bytes]]:
    return {path: each for path, each in found.items() if session in str(path)}


def is_gone(world: World, before: dict[Path, list[bytes]]) -> bool:
    """Whether the session is gone, all of it; else all of it is there. The other one is as it was in any case."""
    with world.open() as home:
        now = held(home)
        assert of(now, OTHER) == of(before, OTHER)
        assert verify(home).word == "ok"
        assert differences(home) == ([], [])
        if home.catalog.sessions_with_id(SESSION):
            assert of(now) == of(before)
            return False
        assert of(now) == {}
        assert {entry.act.value for entry in home.journal.read()} & {"expired", "purged"}
        graves = home.catalog.graves()
        assert graves
        for grave in graves:
            assert grave.cleared
            assert read_manifest(home, grave.source, grave.session).tombstone is not None
            assert not home.layout.stream(grave.stream).exists()
            assert home.archive.names(home.layout.stream_key(grave.host, grave.source, grave.stream)) == []
        return True


def removed(world: World, removal: Removal) -> None:
    with world.open() as home:
        removal.act(home)


def put_back(world: World, saved: Path) -> None:
    shutil.rmtree(world.folder)
    shutil.copytree(saved, world.folder, symlinks=True)


def lose(world: World, catalog: str, saved: Path) -> None:
    """What else the power took with it: SQLite's last transactions, or all of the catalog."""
    if catalog != "kept":
        world.forget_catalog()
    if catalog == "behind":
        for path in (saved / "trail").glob(f"{CATALOG}*"):
            shutil.copy2(path, world.layout.home / path.name)


def holding(world: World) -> list[Path]:
    """Every file of ours that has the secret, or the name of the session's log, as it is or in a zstd frame."""
    return [path for path in world.layout.home.rglob("*") if path.is_file() and any(each in unpacked(path) for each in secrets(world))]


def secrets(world: World) -> tuple[bytes, bytes]:
    return SECRET, os.fsencode(world.main())


def unpacked(path: Path) -> bytes:
    data = path.read_bytes()
    try:
        return data + decode(data)
    except ValueError:
        return data
