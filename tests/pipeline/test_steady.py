"""The clock that jumps: what removes by age waits, and says so."""

from __future__ import annotations

from pathlib import Path

import pytest

from coldtrail import durable
from coldtrail.errors import StoreFullError
from coldtrail.steady import WAIT_MS, Uptime, suspended

HOUR, DAY = 3_600_000, 86_400_000
NOW = 20_000 * DAY


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "clock"


def test_on_the_first_look_nothing_is_known_against_it(path: Path) -> None:
    assert suspended(path, NOW, Uptime("a", 5)) == ""


@pytest.mark.parametrize("slept", [0, HOUR, 20 * DAY])
def test_time_that_goes_by_as_the_machine_counts_it_is_no_jump(path: Path, slept: int) -> None:
    suspended(path, NOW, Uptime("a", 5))
    assert suspended(path, NOW + slept + HOUR // 2, Uptime("a", 5 + slept)) == ""


@pytest.mark.parametrize(
    ("jump", "told"), [(400 * DAY, "ahead by 400 days"), (-400 * DAY, "back by 400 days"), (2 * HOUR, "ahead by 2 hours")]
)
def test_a_jump_within_one_start_of_the_machine_suspends_for_a_day_of_steady_clock(path: Path, jump: int, told: str) -> None:
    suspended(path, NOW, Uptime("a", 0))
    assert told in suspended(path, NOW + jump, Uptime("a", 0))
    assert told in suspended(path, NOW + jump + WAIT_MS - 1, Uptime("a", WAIT_MS - 1))
    assert suspended(path, NOW + jump + WAIT_MS, Uptime("a", WAIT_MS)) == ""


def test_a_jump_there_and_back_suspends_from_the_second_one_on(path: Path) -> None:
    suspended(path, NOW, Uptime("a", 0))
    suspended(path, NOW + 400 * DAY, Uptime("a", 0))
    assert "back by 400 days" in suspended(path, NOW, Uptime("a", 0))
    assert suspended(path, NOW + WAIT_MS - 1, Uptime("a", WAIT_MS - 1)) != ""
    assert suspended(path, NOW + WAIT_MS, Uptime("a", WAIT_MS)) == ""


def test_between_two_starts_only_what_cannot_be_is_a_jump(path: Path) -> None:
    suspended(path, NOW, Uptime("a", 5))
    assert suspended(path, NOW + 29 * DAY, Uptime("b", 5)) == ""
    assert "away for 31 days" in suspended(path, NOW + 60 * DAY, Uptime("c", 5))
    assert "back by 60 days" in suspended(path, NOW, Uptime("d", 5))


def test_where_starts_cannot_be_told_apart_it_is_taken_for_another_one(path: Path) -> None:
    suspended(path, NOW, Uptime("", 5))
    assert suspended(path, NOW + 2 * DAY, Uptime("", 5)) == ""
    assert suspended(path, NOW, Uptime("", 5)) != ""


def test_a_damaged_file_is_made_anew(path: Path) -> None:
    path.write_bytes(b"{")
    assert suspended(path, NOW, Uptime("a", 5)) == ""
    assert suspended(path, NOW + 5 * DAY, Uptime("a", 5)) != ""
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_look_that_a_full_disk_does_not_keep_hides_no_jump(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(target: Path, _: bytes) -> None:
        raise StoreFullError(target)

    suspended(path, NOW, Uptime("a", 0))
    with monkeypatch.context() as patched:
        patched.setattr(durable, "replace", full)
        assert "ahead by 399 days" in suspended(path, NOW + 400 * DAY, Uptime("a", DAY))
    assert "ahead by" in suspended(path, NOW + 400 * DAY + HOUR, Uptime("a", DAY + HOUR))
