"""How much memory a log of 2 GB takes, and one of millions of lines: capture, compact, restore, each less than 200 MB."""

from __future__ import annotations

import pytest

from bench.measuring import MIB, Bench, needs_corpus, one_log, pieces, show

pytestmark = pytest.mark.bench
LOG_BYTES = 2_000 * MIB
PEAK_MAX_BYTES = 200_000_000
DENSE_LINES = 2_400_000


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    made = Bench(tmp_path_factory.mktemp("bench"))
    one_log(made.log("huge"), LOG_BYTES)
    return made


@needs_corpus
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


@pytest.fixture(scope="module")
def dense(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    """Its records are many times what is held in memory at once: more of them would take longer, and no more memory."""
    made = Bench(tmp_path_factory.mktemp("dense"))
    with made.log("dense").open("wb") as file:
        for _ in range(DENSE_LINES // 4_000):
            file.write(b"1\n\n22\n{}\n" * 1_000)
    return made


@pytest.mark.parametrize("verb", ["capture", "compact", "restore"])
def test_lines_of_1_to_3_bytes_take_less_than_200_mb_of_memory(dense: Bench, verb: str) -> None:
    """One after the other."""
    took = dense.work(verb)
    (log,) = dense.logs()
    show(f"{verb} of {DENSE_LINES / 1e6:g} million lines", peak_MB=took["peak_bytes"] / 1e6, seconds=took["seconds"])
    assert took["plain_bytes"] == log.stat().st_size
    assert took["peak_bytes"] < PEAK_MAX_BYTES


@needs_corpus
def test_what_was_restored_is_the_log(bench: Bench) -> None:
    (log,) = bench.logs()
    (restored,) = (bench.folder / "restored").rglob("*.jsonl")
    assert all(ours == theirs for ours, theirs in zip(pieces(restored), pieces(log), strict=True))
