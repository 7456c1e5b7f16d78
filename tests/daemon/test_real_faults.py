"""Faults of the machine itself, in a namespace of its own: no watches left, a disk that is taken away, a disk that is full."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from coldtrail.settings import open_home
from coldtrail.stage.scan import Tally
from coldtraild import capturing as room
from coldtraild.capturing import Capturing, Listeners
from coldtraild.marks import Marks
from daemon.cli.desk import Desk
from daemon.waiting import until
from pipeline.stage.places import run_with_mounts

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="namespaces are Linux's")

# What the programs below begin with: a user's home with one session, a daemon over it, and its status.
_SCENE = """
import json, os, subprocess, sys, time
from pathlib import Path
home = Path(sys.argv[1])
os.environ["HOME"] = str(home)
for name in [name for name in os.environ if name.startswith(("XDG_", "COLDTRAIL_", "CLAUDE_"))]:
    del os.environ[name]
projects = home / ".claude" / "projects" / "-w"
projects.mkdir(parents=True, exist_ok=True)
log = projects / "11111111-2222-4333-8444-555555555555.jsonl"
line = b'{"type":"user","uuid":"u","message":{"role":"user","content":"hello"}}\\n'
config = home / ".config" / "coldtrail" / "config.toml"
config.parent.mkdir(parents=True, exist_ok=True)
config.write_text('[capture]\\nscan_every = "2s"\\ndebounce = "100ms"\\n')
def append(more=line):
    with log.open("ab") as file:
        file.write(more)
START = "import coldtraild.capturing as c; c.RETRY_S = 0.3; from coldtraild.cli import main; main()"
def start():
    return subprocess.Popen([sys.executable, "-c", START, "run"], stderr=(home / "daemon.log").open("ab"), stdin=subprocess.DEVNULL)
def status():
    done = subprocess.run([sys.executable, "-m", "coldtraild.cli", "status", "--json"], capture_output=True, text=True)
    return {**json.loads(done.stdout), "code": done.returncode}
def until(condition, what):
    end = time.monotonic() + 40
    while time.monotonic() < end:
        found = status()
        if condition(found):
            return found
        time.sleep(0.1)
    raise SystemExit(f"never came about: {what}\\n{json.dumps(found, indent=1)}\\n" + (home / "daemon.log").read_text())
"""


def said(done: subprocess.CompletedProcess[str]) -> dict[str, object]:
    assert done.returncode == 0, done.stderr[-3000:]
    told: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
    return told


# --- inotify's limits, which a user namespace has of its own ---

_LIMITED = _SCENE + textwrap.dedent("""
    append()
    Path(f"/proc/sys/user/max_inotify_{sys.argv[2]}").write_text(sys.argv[3])
    daemon = start()
    found = until(lambda found: found["ready"] and any(each["mode"] == "polling" for each in found["sources"][0]["watch"]), "polling")
    append()
    until(lambda found: found["records"] == 2, "what is polled is captured")
    found = until(lambda found: found["well"], "polling is well")
    Path(f"/proc/sys/user/max_inotify_{sys.argv[2]}").write_text("100000")
    daemon.terminate()
    code = daemon.wait(20)
    print(json.dumps({"watch": found["sources"][0]["watch"], "code": code}))
""")


@pytest.mark.parametrize(("limit", "left", "sysctl"), [("watches", "0", "max_user_watches"), ("instances", "0", "max_user_instances")])
def test_without_anything_left_of_inotify_polling_takes_over_and_status_names_the_sysctl(
    tmp_path: Path, limit: str, left: str, sysctl: str
) -> None:
    if shutil.which("unshare") is None or subprocess.run(["unshare", "-U", "-r", "true"], capture_output=True, check=False).returncode:
        pytest.skip("user namespaces are not permitted here")
    if not Path(f"/proc/sys/user/max_inotify_{limit}").exists():
        pytest.skip("this kernel has no limits of a namespace")
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(os.path.abspath(each) for each in sys.path if each)}
    command = ["unshare", "-U", "-r", sys.executable, "-c", _LIMITED, str(tmp_path), limit, left]
    told = said(subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False))
    (polled,) = [each for each in told["watch"] if each["mode"] == "polling"]  # type: ignore[attr-defined]
    assert (sysctl in polled["hint"], "left for this user" in polled["why"], told["code"]) == (True, True, 0)


# --- a disk that is taken away ---

_UNMOUNTED = _SCENE + textwrap.dedent("""
    disk, root = home / "disk", home / ".claude"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=700", "none", disk], check=True)
    subprocess.run(["mount", "--bind", disk, root], check=True)
    projects.mkdir(parents=True)
    append()
    daemon = start()
    until(lambda found: found["records"] == 1 and found["well"], "captured")
    subprocess.run(["umount", root], check=True)
    time.sleep(5)  # more than two scans
    away = status()
    subprocess.run(["mount", "--bind", disk, root], check=True)
    begin = time.monotonic()
    append()
    back = until(lambda found: found["records"] == 2, "what is written when it is back")
    took = time.monotonic() - begin
    append()
    until(lambda found: found["records"] == 3, "and then")
    back = until(lambda found: found["well"], "well again")
    daemon.terminate()
    watch = {each["folder"].removeprefix(str(home)): each["mode"] for each in back["sources"][0]["watch"]}
    print(json.dumps({"away": away["sessions"], "back": back["sessions"], "took": took, "watch": watch, "code": daemon.wait(20)}))
""")


def test_while_a_disk_is_away_nothing_is_gone_and_when_it_is_back_it_is_watched_within_a_scan_period(tmp_path: Path) -> None:
    told = said(run_with_mounts(_UNMOUNTED, str(tmp_path)))
    one = {"total": 1, "live": 1, "gone": 0, "expiring": 0, "pinned": 0}
    assert (told["away"], told["back"], told["code"]) == (one, one, 0)
    assert float(str(told["took"])) < 2 + 3, "a scan period, and what a slow machine takes"
    assert told["watch"]["/.claude/projects"] == "events"  # type: ignore[index]


# --- a disk that is full ---

_FULL = _SCENE + textwrap.dedent("""
    trail = home / ".local" / "share" / "coldtrail"
    trail.mkdir(parents=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m,mode=700", "none", trail], check=True)
    append()
    daemon = start()
    until(lambda found: found["records"] == 1, "captured")
    text = os.urandom(3_000_000).hex().encode()
    content = b'{"type":"user","uuid":"v","message":{"role":"user","content":"' + text + b'"}}\\n'
    append(content)
    live = log.read_bytes()
    full = until(lambda found: found["no_space"], "no space")
    later = until(lambda found: found["no_space"] and found["jobs"][0]["last_start"] > full["jobs"][0]["last_start"], "tried again")
    same = log.read_bytes() == live
    subprocess.run(["mount", "-o", "remount,size=100m", trail], check=True)
    freed = until(lambda found: found["records"] == 2 and found["well"], "resumed by itself")
    daemon.terminate()
    code = daemon.wait(20)
    verified = subprocess.run([sys.executable, "-m", "coldtraild.cli", "verify"], capture_output=True).returncode
    times = (home / "daemon.log").read_text().count("paused: no space")
    print(json.dumps({
        "states": [each["state"] for each in full["findings"]], "exit": full["code"], "same": same, "code": code,
        "verified": verified, "told": times, "temps": [str(path) for path in trail.rglob(".tmp-*")],
    }))
""")


def test_a_full_disk_pauses_capture_says_so_once_and_goes_on_by_itself(tmp_path: Path) -> None:
    told = said(run_with_mounts(_FULL, str(tmp_path)))
    assert "disk-full" in told["states"]  # type: ignore[operator]
    assert told | {"states": []} == {"states": [], "exit": 1, "same": True, "code": 0, "verified": 0, "told": 1, "temps": []}


# --- folders from which no events come ---


def test_what_a_scan_finds_and_no_event_told_of_is_told_and_nothing_else_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    desk = Desk(tmp_path)
    log = desk.converse()
    desk.configure('[capture]\ndebounce = "1ms"\n')
    missed, scans = list[Path](), list[Tally]()
    monkeypatch.setattr(room, "_MISSED_S", 0.2)
    marks = Marks()
    capturing = Capturing(desk.settings(), marks, Listeners(missed=missed.extend))
    capturing.start()
    capturing.ready.wait()

    def captured(count: int) -> bool:
        with open_home(desk.settings()) as home:
            return sum(row.records for row in home.catalog.sessions()) == count

    until(lambda: captured(4))
    desk.write(log, {"type": "user", "uuid": "late"})
    marks.add(log)  # an event came
    until(lambda: captured(5))
    capturing.scan()
    desk.write(log, {"type": "user", "uuid": "now"})  # it may still come
    capturing.scan()
    until(lambda: captured(6))
    assert (missed, scans) == ([], [])
    desk.write(log, {"type": "user", "uuid": "unseen"})
    ctime_s = log.stat().st_ctime
    until(lambda: time.time() > ctime_s + 0.5)
    capturing.scan()
    until(lambda: captured(7))
    until(lambda: missed)
    assert missed == [log]
    assert capturing.stop(20)


# ---- a disk that is full, and what may go ---------------------------------------------------------------------------------

# An old session that is marked to go, and what a test does on a disk that was full before the next one was written.
_OLD = """
import time
from pipeline.stage import places
disk = home / "disk"
disk.mkdir()
subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24m", "none", disk], check=True)
os.environ["COLDTRAIL_HOME"] = str(disk / "trail")
old = (time.time() - 90 * 86_400, ) * 2
def coldtrail(*asked):
    return subprocess.run([sys.executable, "-m", "coldtraild.cli", *asked], capture_output=True, text=True)
said = {"type": "user", "uuid": "u", "timestamp": "2020-01-01T00:00:00.000Z"}
append(json.dumps({**said, "message": {"role": "user", "content": os.urandom(3_000_000).hex()}}).encode() + b"\\n")
os.utime(log, old)
config.write_text('[retention]\\ngrace = "1s"\\n[[retention.rule]]\\nkeep_within = "30d"\\n[compact]\\nafter = "0s"\\n')
print(coldtrail("run", "--once").returncode)
def fill():
    places.fill(disk)
    fresh = {**said, "timestamp": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())}
    new = json.dumps({**fresh, "message": {"role": "user", "content": os.urandom(300_000).hex()}}).encode() + b"\\n"
    log.with_name("22222222-2222-4333-8444-555555555555.jsonl").write_bytes(new)
def kept():
    return [session["id"][:8] for session in json.loads(coldtrail("ls", "--json").stdout)["sessions"]]
time.sleep(1.1)  # the grace
"""

_FULL_FOR_ONE_RUN = """
(disk / "trail" / "schedule.json").unlink()  # as if the last pass of retention were long ago
fill()
done = coldtrail("run", "--once")
print(done.returncode, done.stderr.count("what retention lets go goes first"))
print(kept())
"""

_FULL_UNDER_A_DAEMON = """
daemon = start()
until(lambda found: found["ready"] and any(job["name"] == "retain" and job["last_success"] for job in found["jobs"]), "ready")
assert kept() == ["11111111"]
fill()
until(lambda found: not found["no_space"] and kept() == ["22222222"], "the new one takes the old one's place")
daemon.terminate()
print(daemon.wait(20))
"""


def test_on_a_full_disk_a_single_run_lets_go_what_may_go_and_then_captures(tmp_path: Path) -> None:
    done = run_with_mounts(_SCENE + _OLD + _FULL_FOR_ONE_RUN, str(tmp_path))
    assert done.stdout.split("\n")[:3] == ["0", "0 1", "['22222222']"], done.stdout + done.stderr


def test_on_a_full_disk_a_daemon_does_so_at_once_and_not_a_day_later(tmp_path: Path) -> None:
    done = run_with_mounts(_SCENE + _OLD + _FULL_UNDER_A_DAEMON, str(tmp_path))
    assert done.stdout.split() == ["0", "0"], done.stdout + done.stderr
