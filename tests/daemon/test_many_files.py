"""Many files at once: whatever the kernel's queue of events loses, all are captured within one scan period."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from coldtrail.settings import open_home, settings
from daemon.test_daemon import World
from daemon.waiting import until

PROCESSES = 8
SCAN_EVERY_S = 300
_WRITER = """
import sys, uuid
from pathlib import Path
folder = Path(sys.argv[1])
for number in range(int(sys.argv[2])):
    project = folder / f"-p{sys.argv[3]}-{number // 50}"
    project.mkdir(parents=True, exist_ok=True)
    line = '{"type":"user","uuid":"u","message":{"role":"user","content":"%d"}}\\n' % number
    (project / f"{uuid.uuid4()}.jsonl").write_text(line)
"""


@pytest.mark.parametrize("each", [60, pytest.param(1_000, marks=pytest.mark.bench)])
def test_the_files_that_8_processes_make_at_once_are_all_captured(tmp_path: Path, each: int) -> None:
    world = World(tmp_path / "user")
    world.configure(f'[capture]\nscan_every = "{SCAN_EVERY_S}s"\n')
    projects = world.log.parent.parent
    with world.daemon():
        writers = [
            subprocess.Popen([sys.executable, "-c", _WRITER, str(projects), str(each), str(number)], stdin=subprocess.DEVNULL)
            for number in range(PROCESSES)
        ]
        assert [writer.wait(120) for writer in writers] == [0] * PROCESSES
        written_s = time.monotonic()
        with open_home(settings(env=world.env)) as home:
            until(lambda: len(home.catalog.stream_ids()) == PROCESSES * each, SCAN_EVERY_S)
            until(lambda: all(row.held for row in home.catalog.all_streams()))
            assert time.monotonic() - written_s < SCAN_EVERY_S
            assert len(home.catalog.sessions()) == PROCESSES * each
            assert home.catalog.faults() == []
            held = {row.path for row in home.catalog.all_streams()}
    assert held == {str(path).encode() for path in projects.rglob("*.jsonl")}
