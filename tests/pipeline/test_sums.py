"""What the catalog is asked in SQL is what its rows say, whatever is in them."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from coldtrail import sums
from coldtrail.catalog import Catalog, SessionRow, StreamRow

STREAM = StreamRow("", "", "", "claude-code", "main", 1, b"/a", "id", "")
SESSION = SessionRow("", "id", "claude-code", "s", "h", None, None, None, None, 0, 0, 0, 0, "live", 0, "[]", "[]", "[]", 0, 0)
numbers = st.integers(0, 20)
streams = st.lists(
    st.builds(
        lambda source, session, **numbers: STREAM._replace(source=source, session=session, **numbers),
        source=st.sampled_from("xy"),
        session=st.sampled_from("123"),
        is_log=st.integers(0, 1),
        held=numbers,
        size=numbers,
        open_bytes=numbers,
        mtime_ns=numbers,
        grew_ms=numbers,
        pending=numbers,
        rolled=st.integers(0, 1),
        settled=st.integers(0, 1),
        gone_ms=st.none() | numbers,
    ),
    max_size=12,
)
sessions = st.lists(
    st.builds(
        SESSION._replace,
        state=st.sampled_from(["live", "gone", "expiring"]),
        pinned=st.integers(0, 1),
        records=numbers,
        damaged=numbers,
        bytes=numbers,
        stored_bytes=numbers,
        last_ms=st.none() | numbers,
        grew_ms=numbers,
    ),
    max_size=3,
)


@settings(max_examples=60, deadline=None)
@given(streams=streams, sessions=sessions, before_ms=numbers)
def test_it_is_what_the_rows_come_to(streams: list[StreamRow], sessions: list[SessionRow], before_ms: int) -> None:
    rows = [row._replace(stream=f"{at:016x}") for at, row in enumerate(streams)]
    keyed = {str(at + 1): row._replace(key=str(at + 1)) for at, row in enumerate(sessions)}
    with tempfile.TemporaryDirectory() as folder, Catalog(Path(folder) / "catalog.db") as catalog:
        with catalog.transaction():
            for stream in rows:
                catalog.put(stream)
            for session in keyed.values():
                catalog.put(session)
        total = sums.sessions(catalog)
        assert (total.total, total.bytes, total.pinned) == (
            len(keyed),
            sum(r.bytes for r in keyed.values()),
            sum(r.pinned for r in keyed.values()),
        )
        assert {name: getattr(total, name) for name in ("live", "gone", "expiring")} == {
            name: sum(row.state == name for row in keyed.values()) for name in ("live", "gone", "expiring")
        }
        for counted in sums.sources(catalog):
            own = [row for row in rows if row.source == counted.source]
            lacking = [row for row in own if row.is_log and row.gone_ms is None and row.held < row.size]
            assert (counted.streams, counted.open_bytes) == (len(own), sum(row.open_bytes for row in own))
            assert counted.lacking_bytes == sum(row.size - row.held for row in lacking)
            assert counted.lacking_since_ns == min((row.mtime_ns for row in lacking), default=None)
            assert counted.there == sum(row.gone_ms is None for row in own)
        assert {row.stream for row in sums.unsettled(catalog, before_ms)} == {
            row.stream for row in rows if row.rolled or (not row.settled and newest(row, keyed) <= before_ms)
        }
        assert {row.stream for row in sums.long_logs(catalog, 10)} == {row.stream for row in rows if row.is_log and row.pending >= 10}


def newest(row: StreamRow, sessions: dict[str, SessionRow]) -> int:
    """When anything of a stream's session moved last."""
    session = sessions.get(row.session)
    return max(row.grew_ms, *((session.last_ms or 0, session.grew_ms) if session else (0,)))


def test_the_version_changes_when_another_has_written_and_only_then(tmp_path: Path) -> None:
    with Catalog(tmp_path / "catalog.db") as one, Catalog(tmp_path / "catalog.db") as other:
        before = sums.version(one)
        assert sums.version(one) == before
        other.put(SESSION._replace(key="1"))
        assert sums.version(one) != before
