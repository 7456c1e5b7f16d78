"""How much memory a log of 2 GB takes: capture, compact, restore, each less than 200 MB."""

from __future__ import annotations

import pytest

from bench.measuring import MIB, Bench, needs_corpus, one_log, pieces, show

pytestmark = [pytest.mark.bench, needs_corpus]
LOG_BYTES = 2_000 * MIB
PEAK_MAX_BYTES = 200_000_000


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    made = Bench(tmp_path_factory.mktemp("bench"))
    one_log(made.log("huge"), LOG_BYTES)
    return made


@pytest.mark.parametrize("verb", ["capture", "compact", "restore"])
def test_a_log_of_2_gb_takes_less_than_200_mb_of_memory(bench: Bench, verb: str) -> None:
    """One after the other."""
    took = bench.work(verb)
    (log,) = bench.logs()
    show(
        f"{verb} of 2 GB",
        peak_MB=took["peak_bytes"] / 1e6,
        seconds=took["seconds"],
        MB_a_second=log.stat().st_size / 1e6 / took["seconds"],
        stored=bench.stored_bytes() + bench.archived_bytes(),
    )
    assert took["plain_bytes"] == log.stat().st_size
    assert took["peak_bytes"] < PEAK_MAX_BYTES


def test_what_was_restored_is_the_log(bench: Bench) -> None:
    (log,) = bench.logs()
    (restored,) = (bench.folder / "restored").rglob("*.jsonl")
    assert all(ours == theirs for ours, theirs in zip(pieces(restored), pieces(log), strict=True))
