"""What one more line of a long log costs: not the log."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from bench.measuring import MIB, Bench, needs_corpus, one_log, pieces, show

pytestmark = [pytest.mark.bench, needs_corpus]
THEIRS_MAX_BYTES = 200 + (64 << 10)  # the line, and what proves that it belongs to the log


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    """A log of 200 MB, captured."""
    made = Bench(tmp_path_factory.mktemp("bench"))
    one_log(made.log("long"), 200 * MIB)
    made.work("capture")
    return made


def whole_seconds(log: Path) -> float:
    began = time.perf_counter()
    for _ in pieces(log):
        pass
    return time.perf_counter() - began


@pytest.mark.parametrize("count", [1, 2, 1_000], ids=["right after a start", "then", "the thousandth"])
def test_a_line_of_200_bytes_costs_the_same_however_long_the_log_is(bench: Bench, count: int) -> None:
    (log,) = bench.logs()
    whole = whole_seconds(log)
    took = bench.work("grow", count)
    show(
        f"200 bytes more ({count})",
        log_bytes=log.stat().st_size,
        seconds=took["wake_seconds"],
        read_of_the_agents=took["theirs_bytes"],
        read_of_ours=took["ours_bytes"],
        reading_all_seconds=whole,
        peak_MB=took["peak_bytes"] / 1e6,
    )
    assert took["theirs_bytes"] <= THEIRS_MAX_BYTES
    assert took["wake_seconds"] < 0.2
