"""What the service remembers over restarts: its rare jobs' last runs and a pause, whatever became of the file."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from coldtrail import durable
from coldtrail.errors import StoreFullError
from coldtraild.runs import Last, Pause, Runs

LAST = Last(1_000, 2_000, 500, "OSError at x.py:1", "removed 3")


def test_what_was_noted_is_known_after_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "schedule.json"
    Runs(path).note("retain", LAST)
    Runs(path).set_pause(Pause(1_000, 9_000, capture=True))
    assert (Runs(path).last("retain"), Runs(path).last("other"), Runs(path).pause) == (LAST, Last(), Pause(1_000, 9_000, True))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    Runs(path).set_pause(None)
    assert (Runs(path).pause, Runs(path).all()) == (None, {"retain": LAST})


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff",
        b"[]",
        b"null",
        b'{"paused": null}',
        b'{"paused": null, "jobs": []}',
        b'{"paused": {"since_ms": "now"}, "jobs": {}}',
        b'{"paused": {"since": 1}, "jobs": {}}',
        b'{"paused": null, "jobs": {"retain": {"success_ms": true}}}',
        b'{"paused": null, "jobs": {"retain": 1}}',
        b'{"paused": null, "jobs": {"retain": {"a": 1}}}',
    ],
)
def test_a_damaged_file_is_as_none(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "schedule.json"
    path.write_bytes(content)
    assert (Runs(path).pause, Runs(path).all()) == (None, {})
    Runs(path).note("retain", LAST)
    assert Runs(path).last("retain") == LAST


def test_on_a_full_disk_it_is_remembered_until_the_process_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path, _data: bytes) -> None:
        raise StoreFullError(path)

    runs = Runs(tmp_path / "schedule.json")
    monkeypatch.setattr(durable, "replace", full)
    runs.note("retain", LAST)
    assert runs.last("retain") == LAST


def test_a_pause_holds_until_its_end_and_one_from_the_future_does_not() -> None:
    assert [Pause(1_000, 2_000).holds(at) for at in (999, 1_000, 1_999, 2_000)] == [False, True, True, False]
    assert Pause(1_000).holds(10**15)
