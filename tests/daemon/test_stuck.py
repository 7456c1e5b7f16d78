"""Capture that does not move: it is told with its place, everything else goes on, and it is forgotten when it moves again."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from daemon.test_daemon import World
from daemon.waiting import until

# Every look at a marked file stands still for as long as there is a file named `gate`; a second without a sign of life is too long.
_START = """
import os, sys, time
import coldtraild.capturing as capturing, coldtraild.heartbeat as heartbeat, coldtraild.daemon as daemon
from coldtrail.stage.scan import Scanner
capturing._IDLE_S, heartbeat.HANG_S, heartbeat.LOOK_EVERY_S, daemon.LOOK_EVERY_S = 0.2, 1.0, 0.3, 0.3
look = Scanner.look
def standing(self, *given, **named):
    secret = "the words of a session"
    while os.path.exists(sys.argv[-1]):
        time.sleep(0.1)
    return look(self, *given, **named)
Scanner.look = standing
from coldtraild.cli import main
gate = sys.argv.pop()
sys.argv.append("run")
os.environ["GATE"] = gate
main()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the place of a thread's time is Linux's")
def test_a_capture_that_stands_still_is_told_with_its_place_and_the_others_go_on(tmp_path: Path) -> None:
    world = World(tmp_path / "user")
    world.append()
    world.configure('[capture]\ndebounce = "50ms"\n')
    gate = tmp_path / "gate"
    start = _START.replace("sys.argv[-1]", "os.environ['GATE']")
    process = subprocess.Popen(
        [sys.executable, "-c", start, str(gate)],
        env=world.env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        until(lambda: status(world).get("well"))
        gate.touch()
        world.append()
        until(lambda: capture_of(world)["hung"])
        found = status(world)
        (stuck,) = [each for each in found["findings"] if each["state"] == "job"]
        assert "the job capture does not move: it stands at " in stuck["what"]
        assert "in standing" in stuck["what"]
        assert "words" not in json.dumps(found)
        before = {each["name"]: each["last_success"] for each in found["jobs"]}
        until(lambda: {each["name"]: each["last_success"] for each in status(world)["jobs"]}["mend"] != before["mend"])
        gate.unlink()
        until(lambda: world.held() == world.log.read_bytes())
        until(lambda: status(world)["well"])
    finally:
        process.kill()
        process.wait()


def status(world: World) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(world.run("status", "--json").stdout or "{}")
    return found


def capture_of(world: World) -> dict[str, Any]:
    found: dict[str, Any] = next(each for each in status(world)["jobs"] if each["name"] == "capture")
    return found
