"""How a WHEN is read: each way of writing it, and that nothing is guessed."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from coldtrail.agents.reading import time_ms
from coldtrail.errors import UsageError
from coldtrail.model import Position, instant_text
from coldtrail.moments import Instant, Moment, RecordId, RecordNumber, read_moment

NOW_MS = 1_767_225_600_000  # 2026-01-01T00:00:00Z
DAY_MS = 86_400_000

MEANINGS: dict[str, Moment] = {
    "2026-01-01": Instant(NOW_MS),
    "2026-01-01T00:00Z": Instant(NOW_MS),
    "2026-01-01T00:00:00": Instant(NOW_MS),
    "2026-01-01 00:00:00": Instant(NOW_MS),
    "2026-01-01T00:00:00.250Z": Instant(NOW_MS + 250),
    "2026-01-01T00:00:00.2507Z": Instant(NOW_MS + 251),
    "2026-01-01T02:30:00+02:30": Instant(NOW_MS),
    "2025-12-31T19:00:00-05:00": Instant(NOW_MS),
    "1969-12-31T23:59:59.999Z": Instant(-1),
    "0001-01-01T00:00:00+14:00": Instant(-62_135_596_800_000 - 14 * 3_600_000),
    "9999-12-31T23:59:59.999Z": Instant(253_402_300_799_999),
    "  2026-01-01\n": Instant(NOW_MS),
    "2h": Instant(NOW_MS - 7_200_000),
    "3d": Instant(NOW_MS - 3 * DAY_MS),
    "250ms": Instant(NOW_MS - 250),
    "0s": Instant(NOW_MS),
    "1y": Instant(NOW_MS - 365 * DAY_MS),
    "#1": RecordNumber(1),
    "#0099": RecordNumber(99),
    "0:0.0": Position(0, 0, 0),
    "2:1200.3": Position(2, 1200, 3),
    "toolu_01": RecordId("toolu_01"),
    "ae3d54a6-6f1d-4c5e-9d0b-5b7f3f0a1c2d": RecordId("ae3d54a6-6f1d-4c5e-9d0b-5b7f3f0a1c2d"),
    "20260101": RecordId("20260101"),
    "2h30m": RecordId("2h30m"),
    "1.5h": RecordId("1.5h"),
    "-2h": RecordId("-2h"),
    "2 h": RecordId("2 h"),
    "2H": RecordId("2H"),
    "# 1": RecordId("# 1"),
    "#1x": RecordId("#1x"),
    "1:2": RecordId("1:2"),
    "1:2.3.4": RecordId("1:2.3.4"),
    "id-of-2026-01-01": RecordId("id-of-2026-01-01"),
}


@pytest.mark.parametrize(("text", "moment"), MEANINGS.items(), ids=[repr(text) for text in MEANINGS])
def test_a_moment_is_read_as_it_is_written(text: str, moment: Moment) -> None:
    assert read_moment(text, NOW_MS) == moment


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "empty"),
        (" \n", "empty"),
        ("#0", "counted from #1"),
        ("#000", "counted from #1"),
        ("2026-02-30", "not a time"),
        ("2026-13-01", "not a time"),
        ("2026-01-01T25:00Z", "not a time"),
        ("2026-01-01T00:00:00 somewhere", "not a time"),
        ("2026-01-01Tnoon", "not a time"),
        ("0000-01-01", "not a time"),
        ("99999999999999999999d", "span of time"),
        ("9999999999999y", "more than"),
    ],
)
def test_what_looks_like_a_moment_and_is_none_is_a_usage_error(text: str, said: str) -> None:
    with pytest.raises(UsageError, match=said) as raised:
        read_moment(text, NOW_MS)
    assert raised.value.exit_code == 2


@given(st.integers(-30_000_000_000_000, 250_000_000_000_000))
def test_an_instant_as_coldtrail_prints_it_is_read_back(ms: int) -> None:
    text = instant_text(ms)
    assert text is not None
    assert read_moment(text, NOW_MS) == Instant(ms)


zones = st.integers(-14 * 60, 14 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes)))


@given(st.datetimes(timezones=st.just(UTC)), zones)
def test_a_time_with_a_zone_is_that_instant_to_the_nearest_millisecond(when: datetime, zone: timezone) -> None:
    aware = when.replace(tzinfo=zone)
    found = read_moment(aware.isoformat(), NOW_MS)
    assert isinstance(found, Instant)
    exact = (aware - datetime(1970, 1, 1, tzinfo=UTC)) / timedelta(milliseconds=1)
    assert abs(found.ms - exact) <= 0.51


@given(st.datetimes(timezones=st.just(UTC)), zones)
@example(datetime.max.replace(tzinfo=UTC), timezone(timedelta(hours=-5)))
@example(datetime.min.replace(tzinfo=UTC), timezone(timedelta(hours=5)))
def test_whatever_time_a_record_says_can_be_printed_and_asked_for(when: datetime, zone: timezone) -> None:
    """One line in a log must not be able to end `ls`."""
    said = time_ms(when.replace(tzinfo=zone).isoformat())
    text = instant_text(said)
    assert text is None or read_moment(text, NOW_MS) == Instant(said or 0)


@given(st.builds(Position, st.integers(0, 10**6), st.integers(0, 10**16), st.integers(0, 10**4)))
def test_a_position_is_read_back(position: Position) -> None:
    assert read_moment(str(position), NOW_MS) == position


@given(st.text(max_size=40))
def test_any_text_is_a_moment_or_a_usage_error(text: str) -> None:
    try:
        found = read_moment(text, NOW_MS)
    except UsageError:
        return
    assert found != RecordId("")
