"""Memory stays bounded however long a log or one of its lines is: each stage runs in a process of its own that tells its peak."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

PEAK_MB = 200

_PRELUDE = """
import hashlib, re, resource, sys
from pathlib import Path
from coldtrail.stage.restore import Wish, carry_out, plan_restore
from coldtrail.stage.scan import Scanner
from coldtrail.stage.verify import verify
from coldtrail import Session
from coldtrail.stage.rebuild import rebuild
from world_of import World, compact
world = World(Path(sys.argv[1]))
world.clock.tick(86_400_000)
def digest(path):
    found = hashlib.sha256()
    with open(path, "rb") as file:
        while data := file.read(1 << 20):
            found.update(data)
    return found.hexdigest()
"""
_PEAK = """
status = Path("/proc/self/status")  # getrusage would tell the peak of the process that started this one, if that was higher
told = re.search(r"VmHWM:\\s+(\\d+) kB", status.read_text()) if status.exists() else None
print(int(told[1]) >> 10 if told else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 20)
"""
STAGES = {
    "capture": "assert world.scan().captured == 1",
    "hot compaction": "world.compact(cold=False)",
    "cold compaction": "world.compact(cold=True)",
    "verify": "assert verify(world.open()).word == 'ok'",
    "rebuild": "world.forget_catalog(); assert rebuild(world.open()) == []",
    "read": "home = world.open(); print(sum(1 for _ in Session(home, home.catalog.sessions()[0]).events()), file=sys.stderr)",
    "restore": """
before = digest(world.main())
world.main().unlink()
home = world.open()
(done,) = carry_out(home, plan_restore(home, home.catalog.sessions()[0], Wish()))
assert digest(world.main()) == before == done.sha256
""",
    "check": """
world.stamp(world.main())
assert world.scan().checked == 1
""",
}


def first_record(size: int) -> bytes:
    """A prompt of that size."""
    said = {"role": "user", "content": "What it is about " + "and on " * (size // 7)}
    return (
        json.dumps({"type": "user", "uuid": "u0", "parentUuid": None, "timestamp": "2026-01-01T00:00:00Z", "message": said}).encode()
        + b"\n"
    )


def long_lines(path: Path, count: int, size: int) -> None:
    """A log of lines of `size` bytes, no two alike."""
    with path.open("wb") as file:
        file.write(first_record(250_000))
        for number in range(count):
            filler = os.urandom(size // 8).hex() * 4
            said = {"role": "assistant", "content": [{"type": "text", "text": filler}]}
            line = {"type": "assistant", "uuid": f"a{number}", "parentUuid": "u0", "timestamp": "2026-01-01T00:00:01Z", "message": said}
            file.write(json.dumps(line).encode() + b"\n")


def one_endless_line(path: Path, size: int) -> None:
    """A log whose last line has no end."""
    with path.open("wb") as file:
        file.write(first_record(250_000))
        file.write(b'{"type":"user","message":{"content":"')
        for _ in range(size >> 20):
            file.write(os.urandom(1 << 19).hex().encode())


def shortest_lines(path: Path, count: int) -> None:
    """A log of lines of 1 to 3 bytes: each is a record, and all that is noted of one is longer than itself."""
    with path.open("wb") as file:
        for _ in range(count // 4_000):
            file.write(b"1\n\n22\n{}\n" * 1_000)


LOGS = [
    pytest.param(lambda path: long_lines(path, 48, 1 << 20), id="48 lines of 1 MB"),
    pytest.param(lambda path: one_endless_line(path, 40 << 20), id="a line of 40 MB"),
    pytest.param(lambda path: long_lines(path, 1_000, 1 << 20), id="1000 lines of 1 MB", marks=pytest.mark.bench),
    pytest.param(lambda path: one_endless_line(path, 300 << 20), id="a line of 300 MB", marks=pytest.mark.bench),
    pytest.param(lambda path: shortest_lines(path, 2_400_000), id="2.4 million lines of 1 to 3 bytes", marks=pytest.mark.bench),
    pytest.param(lambda path: long_lines(path, 6, 15 << 20), id="lines as long as are parsed", marks=pytest.mark.bench),
]


@pytest.mark.parametrize("write", LOGS)
def test_every_stage_stays_below_200_mb(tmp_path: Path, write: object) -> None:
    from world_of import World

    world = World(tmp_path)
    world.main().parent.mkdir()
    assert callable(write)
    write(world.main())
    world.stamp(world.main())
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "MALLOC_ARENA_MAX": "2"}
    peaks = {}
    for stage, code in STAGES.items():
        command = [sys.executable, "-c", _PRELUDE + code + _PEAK, str(tmp_path)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600, check=False)
        assert done.returncode == 0, f"{stage}: {done.stderr}"
        peaks[stage] = int(done.stdout)
    assert max(peaks.values()) < PEAK_MB, peaks


def test_the_title_is_found_though_the_first_record_is_long(tmp_path: Path) -> None:
    from world_of import World

    world = World(tmp_path)
    world.write(world.main(), first_record(250_000))
    world.scan()
    with world.open() as home:
        (row,) = home.catalog.sessions()
        assert row.title is not None
        assert row.title.startswith("What it is about and on and on")
        assert len(row.title) <= 200
