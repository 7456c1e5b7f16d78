"""Many sessions: how soon 48,000 files that are made at once are held, and what 20,000 cost that are at rest."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from bench.measuring import show
from coldtrail.settings import find_sources, open_home, settings
from coldtrail.stage.scan import Scanner
from daemon.test_daemon import COMMAND, Daemon, World
from daemon.test_many_files import PROCESSES
from daemon.waiting import until

pytestmark = [pytest.mark.bench, pytest.mark.skipif(sys.platform != "linux", reason="what the daemon takes is read from /proc")]
FILES = 48_000
SCAN_EVERY_S = 300.0  # the default
SESSIONS = int(os.environ.get("COLDTRAIL_BENCH_SESSIONS") or 20_000)
REST_S = 60.0
REST_CPU_MAX = 0.01  # of a core
RSS_MAX_BYTES = 150_000_000
COMMAND_MAX_S = {"ls": 0.3, "status": 0.3, "ls --json": 0.6, "status --json": 0.3}  # 20,000 documents are 14 MB of text
TRIES = 5
_WRITER = """
import os, sys
folder, count, which = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
for number in range(count):
    if number % 100 == 0:
        project = f"{folder}/-p{which}-{number // 100}"
        os.makedirs(project, exist_ok=True)
    name = f"{which:08x}-0000-4000-8000-{number:012x}"
    line = '{"type":"user","uuid":"%s","parentUuid":null,"timestamp":"2026-01-01T00:00:00.000Z","cwd":"/w/%d",' % (name, number // 100)
    with open(f"{project}/{name}.jsonl", "w") as file:
        file.write(line + '"message":{"role":"user","content":"a question of number %d"}}\\n' % number)
"""


def make(projects: Path, count: int) -> float:
    """So many logs of one line, made by 8 processes; gives how long it took."""
    began_s = time.monotonic()
    words = [[sys.executable, "-c", _WRITER, str(projects), str(count // PROCESSES), str(which)] for which in range(PROCESSES)]
    writers = [subprocess.Popen(each, stdin=subprocess.DEVNULL) for each in words]
    assert [writer.wait(600) for writer in writers] == [0] * PROCESSES
    return time.monotonic() - began_s


def cpu_s(pid: int) -> float:
    """What a process has used of a core until now."""
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


def memory(pid: int, what: str) -> int:
    """Of a process, in bytes: `VmRSS`, or `VmHWM` for the most there was."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith(what))


def test_48_000_files_that_8_processes_make_at_once_are_held_within_one_scan_period(tmp_path: Path) -> None:
    world = World(tmp_path / "user")
    with world.daemon() as daemon:
        began_s = time.monotonic()
        made_s = make(world.log.parent.parent, FILES)
        with open_home(settings(env=world.env)) as home:
            until(lambda: len(home.catalog.stream_ids()) == FILES, 2 * SCAN_EVERY_S)
            until(lambda: all(row.held == row.size for row in home.catalog.all_streams()), 60)
            held_s, pid = time.monotonic() - began_s, daemon.process.pid
            assert home.catalog.faults() == []
            assert len(home.catalog.sessions()) == FILES
        show(
            f"{FILES} files",
            made_s=made_s,
            held_s=held_s,
            ms_a_file=held_s / FILES * 1e3,
            cpu_s=cpu_s(pid),
            peak_MB=memory(pid, "VmHWM") / 1e6,
        )
    assert held_s < SCAN_EVERY_S


@dataclass(frozen=True)
class AtRest:
    """A daemon over sessions that nobody touches."""

    world: World
    daemon: Daemon


@pytest.fixture(scope="module")
def at_rest(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AtRest]:
    world = World(tmp_path_factory.mktemp("rest") / "user")
    make(world.log.parent.parent, SESSIONS)
    found = settings(env=world.env)
    with open_home(found) as home:
        tally = Scanner(home).scan(find_sources(found))
    assert tally.captured == SESSIONS
    with world.daemon() as daemon:
        until(lambda: json.loads(world.run("status", "--json").stdout)["ready"], 120)
        yield AtRest(world, daemon)


def settled(pid: int) -> None:
    """Wait until what a start owes is done: a second in which nothing is."""
    pause = threading.Event()
    for _ in range(120):
        before_s = cpu_s(pid)
        pause.wait(2)
        if cpu_s(pid) - before_s < 0.1:
            return
    pytest.fail("it never comes to rest")


def test_20_000_sessions_at_rest_take_less_than_a_hundredth_of_a_core_and_150_mb(at_rest: AtRest) -> None:
    """A minute in which nothing happens, and its share of the look at everything that comes every five."""
    pid = at_rest.daemon.process.pid
    settled(pid)
    before_s, pause = cpu_s(pid), threading.Event()
    pause.wait(REST_S)  # the measurement itself
    quiet = (cpu_s(pid) - before_s) / REST_S
    before_s = cpu_s(pid)
    assert at_rest.world.run("sync").returncode == 0  # a scan like any other
    pause.wait(1)
    settled(pid)
    scan_s = cpu_s(pid) - before_s
    share = quiet + scan_s / SCAN_EVERY_S
    show(
        f"{SESSIONS} sessions at rest",
        percent_of_a_core=share * 100,
        of_that_between_scans=quiet * 100,
        scan_cpu_s=scan_s,
        RSS_MB=memory(pid, "VmRSS") / 1e6,
        peak_MB=memory(pid, "VmHWM") / 1e6,
        threads=len(os.listdir(f"/proc/{pid}/task")),
    )
    assert scan_s > 0
    assert memory(pid, "VmRSS") < RSS_MAX_BYTES
    assert share < REST_CPU_MAX


@pytest.mark.parametrize("words", COMMAND_MAX_S)
def test_looking_at_20_000_sessions_takes_less_than_a_third_of_a_second(at_rest: AtRest, words: str) -> None:
    settled(at_rest.daemon.process.pid)
    took = sorted(once(at_rest.world, words.split()) for _ in range(TRIES))
    (wall_s, cpu), (most_s, _) = took[0], took[-1]
    show(f"{words} of {SESSIONS}", best_wall_s=wall_s, its_cpu_s=cpu, worst_wall_s=most_s)
    assert min(wall_s, cpu) < COMMAND_MAX_S[words]  # on a machine that others use the wall's clock tells of them too


def once(world: World, words: list[str]) -> tuple[float, float]:
    """Wall and CPU seconds of one command, its start included."""
    before, began_s = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    done = subprocess.run([*COMMAND, *words], env=world.env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=False)
    wall_s, after = time.monotonic() - began_s, resource.getrusage(resource.RUSAGE_CHILDREN)
    assert done.returncode == 0
    return wall_s, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
