"""A process that captures, checkpoints and compacts one growing log as fast as it can, until it is killed; it may be its writer too."""

from __future__ import annotations

import itertools
import os
import sys
import time
from pathlib import Path

from coldtrail.home import Home
from coldtrail.stage import checkpoint
from coldtrail.stage.adopt import adopt
from coldtrail.stage.checkpoint import Policy
from coldtrail.stage.compact import Compactor, due
from coldtrail.stage.scan import Scanner
from world_of import FOR_EVER_MS, SESSION, Clock, World, small_sizes

LINES = 40_000  # more than any test writes
OFTEN = Policy(every_events=20, least_bytes=4 << 10, cost_factor=1)
CAPTURED = "captured"  # in this file stands how many bytes were captured for certain


class RealClock(Clock):
    """The machine's own."""

    def __call__(self) -> int:
        return time.time_ns() // 1_000_000


def line_of(number: int) -> bytes:
    """The log's line of that number, always the same, 120 to 360 bytes long."""
    parent = "null" if number == 0 else f'"{id_of(number - 1)}"'
    filler = f"{number:x}" * (number * 37 % 60)
    return (
        f'{{"type":"user","uuid":"{id_of(number)}","parentUuid":{parent},"sessionId":"{SESSION}",'
        f'"timestamp":"2026-01-01T00:00:00.{number % 1000:03d}Z",'
        f'"message":{{"role":"user","content":"{filler}"}}}}\n'
    ).encode()


def id_of(number: int) -> str:
    """A line's id."""
    return f"line-{number:06d}"


def truth() -> bytes:
    """All that the log will ever hold."""
    return b"".join(line_of(number) for number in range(LINES))


def written(world: World) -> int:
    """How many bytes the log has now."""
    try:
        return world.main().stat().st_size
    except FileNotFoundError:
        return 0


def work(world: World, *, writes: bool) -> None:
    """Capture, make checkpoints, compact, for ever."""
    lines = itertools.count()
    with world.open() as home, open(world.folder / CAPTURED, "wb", buffering=0) as captured:
        assert adopt(home) == []
        scanner, compactor = Scanner(home), Compactor(home, 1)
        for turn in itertools.count():
            if writes:
                with world.main().open("ab", buffering=0) as log:
                    log.write(b"".join(line_of(next(lines)) for _ in range(1 + turn % 7)))
            scanner.scan(world.sources)
            for row in home.catalog.all_streams():
                os.pwrite(captured.fileno(), row.held.to_bytes(8, "little"), 0)
            for row in list(checkpoint.due(home, OFTEN)):
                checkpoint.advance(home, row, OFTEN)
            compact(home, compactor, cold=turn % 5 == 4)


def compact(home: Home, compactor: Compactor, *, cold: bool) -> None:
    """One pass."""
    for row, is_cold in list(due(home, 0 if cold else FOR_EVER_MS)):
        compactor.compact(row, cold=is_cold)


def main() -> None:
    """`python -m crash.working FOLDER writes|reads`."""
    with small_sizes():
        work(World(Path(sys.argv[1]), RealClock()), writes=sys.argv[2] == "writes")


if __name__ == "__main__":
    main()
