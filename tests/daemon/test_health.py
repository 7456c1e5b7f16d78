"""What is well and what is not: told from a document alone, by the daemon, by `status` and to the alarm in the same words."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

import pytest

from coldtrail.config import ALARMS
from coldtraild import health
from coldtraild.health import findings, freshness, outside

NOW_MS = 1_800_000_000_000


def source(**more: Any) -> dict[str, Any]:
    """A source that is well."""
    well = {"name": "claude-code", "root": "/r", "there": True, "freshness": "fresh", "lag_s": 0.0, "uncaptured_bytes": 0, "files": 3}
    return {**well, "watch": [], **more}


def job(**more: Any) -> dict[str, Any]:
    """A job that is well."""
    return {"name": "compact", "running": False, "last_success_ms": 5, "last_error_ms": 4, "last_error": "old", "hung": None, **more}


def fault(place: str, what: str = "Permission denied") -> dict[str, Any]:
    return {"place": place, "what": what, "hint": "do this", "since_ms": 7}


def document(**more: Any) -> dict[str, Any]:
    """A document in which all is well."""
    well: dict[str, Any] = {
        "version": health.VERSION,
        "mode": "daemon",
        "written_ms": NOW_MS,
        "stopped_ms": None,
        "no_space": None,
        "alarms": [],
        "faults": [],
        "ours": ["/trail/store", "/trail/archive"],
        "sources": [source()],
        "jobs": [job()],
        "clock": "",
        "drill": {"verdict": "ok", "at": "2026-01-01T00:00:00.000Z", "tried": 3, "ok": 3, "bad": 0, "unverifiable": 0},
        "config": {"refused": ""},
        "paused": None,
    }
    return {**well, **more}


def test_nothing_is_found_where_all_is_well() -> None:
    assert findings(document()) == []


WRONG: dict[str, tuple[dict[str, Any], str, str]] = {
    "a full disk": ({"no_space": {"since_ms": 3, "place": "/trail"}}, "disk-full", "no space"),
    "a full archive": ({"faults": [fault("/trail/archive", "paused: no space left on device")]}, "disk-full", "no space"),
    "an unreadable log": ({"faults": [fault("/r/a.jsonl")]}, "fault", "Permission denied"),
    "a damaged segment": ({"faults": [fault("/trail/archive/h/s/x.zst", "at byte 7: a bad frame")]}, "damage", "a bad frame"),
    "no checkpoint": ({"faults": [fault("/trail/store/s/000000/checkpoints", "nothing")]}, "fault", "nothing"),
    "a log to be swept": (
        {"alarms": [{"agent": "claude-code", "path": "/r/a", "key": "k", "what": "not all of it is held"}]},
        "unheld",
        "not all of it is held",
    ),
    "a stale source": ({"sources": [source(freshness="stale", lag_s=90.0, uncaptured_bytes=5)]}, "stale", "5 bytes wait"),
    "an unmounted source": ({"sources": [source(there=False, freshness="unknown")]}, "missing", "not there"),
    "a job that failed": ({"jobs": [job(last_error_ms=6, last_error="OSError: x")]}, "job", "OSError: x"),
    "a job that never succeeded": ({"jobs": [job(last_error_ms=6, last_success_ms=None)]}, "job", "failed"),
    "a job that hangs": ({"jobs": [job(hung={"since_ms": 1, "place": "seal.py:9 in seal"})]}, "job", "seal.py:9"),
    "a clock that jumped": ({"clock": "the clock went ahead by 399 days"}, "clock", "399 days"),
    "a drill that failed": ({"drill": {"verdict": "bad", "at": "2026-01-01", "tried": 3, "bad": 2}}, "damage", "2 of 3 sessions"),
    "a refused config": ({"config": {"refused": "c.toml:3: x: bad"}}, "config", "c.toml:3"),
    "a pause": ({"paused": {"since_ms": 1, "until_ms": None, "capture": False}}, "paused", "paused"),
}


@pytest.mark.parametrize(("wrong", "state", "said"), WRONG.values(), ids=WRONG.keys())
def test_each_thing_that_is_wrong_is_one_finding(wrong: dict[str, Any], state: str, said: str) -> None:
    (found,) = findings(document(**wrong))
    assert (found.state, said in found.what) == (state, True)
    json.dumps(health.listed([found]))


def test_every_kind_of_alarm_can_come_about() -> None:
    assert {state for _, state, _ in WRONG.values()} == {*ALARMS, "paused"}


def test_a_full_disk_is_told_once() -> None:
    full = document(
        no_space={"since_ms": 3, "place": "/trail"}, faults=[fault("/trail", "paused: no space"), fault("/trail/archive", "paused: x")]
    )
    assert [each.state for each in findings(full)] == ["disk-full"]


def test_a_source_that_was_never_there_is_no_finding() -> None:
    assert findings(document(sources=[source(there=False, freshness="unknown", files=0)])) == []


def test_polling_is_no_finding() -> None:
    watched = {"folder": "/r", "mode": "polling", "why": "no watches left", "hint": "raise it"}
    assert findings(document(sources=[source(watch=[watched])])) == []


@pytest.mark.parametrize(
    ("there", "looked", "lag_s", "said"),
    [
        (True, True, 0.0, "fresh"),
        (True, True, 30.0, "fresh"),
        (True, True, 30.1, "stale"),
        (True, False, 0.0, "unknown"),
        (False, True, 0.0, "unknown"),
        (True, False, 31.0, "stale"),
    ],
)
def test_a_source_is_fresh_stale_or_unknown(there: bool, looked: bool, lag_s: float, said: str) -> None:
    assert freshness(there=there, looked=looked, lag_s=lag_s) == said


def said(found: dict[str, Any] | None, *, running: bool, now_ms: int = NOW_MS) -> list[str]:
    return [each.state for each in outside(found, running=running, now_ms=now_ms)]


def test_a_running_daemon_must_say_how_it_is() -> None:
    assert said(document(), running=True, now_ms=NOW_MS + health.OLD_MS) == []
    assert said(document(), running=True, now_ms=NOW_MS + health.OLD_MS + 1) == ["hung"]
    assert said(None, running=True) == ["hung"]


def test_without_a_daemon_only_a_pass_of_late_is_well() -> None:
    once = document(mode="once")
    assert said(once, running=False, now_ms=NOW_MS + 3_600_000) == []
    assert said(once, running=False, now_ms=NOW_MS + health.ONCE_GOOD_MS) == ["stopped"]
    assert said(document(stopped_ms=NOW_MS), running=False) == ["stopped"]
    assert said(None, running=False) == ["stopped"]


def test_that_a_daemon_did_not_end_in_order_is_told() -> None:
    (killed,) = outside(document(), running=False, now_ms=NOW_MS)
    (stopped,) = outside(document(stopped_ms=NOW_MS), running=False, now_ms=NOW_MS)
    assert "did not end in order" in killed.what
    assert "in order" not in stopped.what


def test_the_file_is_private_and_replaced_whole(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    for number in range(3):
        health.write(path, document(number=number))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert (health.read(path) or {})["number"] == 2
    assert [each.name for each in tmp_path.iterdir()] == ["state.json"]


@pytest.mark.parametrize("content", [b"", b"\xff", b"[]", b'{"version": 99}', b'{"version"'])
def test_a_file_that_cannot_be_read_is_as_none(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "state.json"
    assert health.read(path) is None
    path.write_bytes(content)
    assert health.read(path) is None
