"""How long capture and compaction take and how small they make real sessions, beside stock zstd in the same run."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from bench.measuring import Bench, needs_corpus, needs_zstd, read_seconds, real_logs, show, zstd

pytestmark = [pytest.mark.bench, needs_corpus, needs_zstd]


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    """Every real log of Claude Code, each a session."""
    made = Bench(tmp_path_factory.mktemp("bench"))
    for path in real_logs():
        shutil.copyfile(path, made.log(str(path)))
    return made


def size_of(logs: list[Path]) -> int:
    return sum(path.stat().st_size for path in logs)


def test_backfill_takes_a_small_multiple_of_compressing_the_same_files(bench: Bench) -> None:
    logs = bench.logs()
    size, reading = size_of(logs), read_seconds(logs)
    fast_seconds, fast_size = zstd(logs, "-3")
    took = bench.work("capture")
    assert (took["files"], took["plain_bytes"]) == (len(logs), size)
    show("backfill", files=len(logs), bytes=size, seconds=took["seconds"], stored=bench.stored_bytes(), ratio=size / bench.stored_bytes())
    show("  memory", peak_MB=took["peak_bytes"] / 1e6, MB_a_second=size / 1e6 / took["seconds"])
    show(
        "  zstd -3", seconds=fast_seconds, ratio=size / fast_size, plain_read_seconds=reading, times_as_long=took["seconds"] / fast_seconds
    )
    assert took["seconds"] < 12 * fast_seconds


def test_what_is_cold_becomes_nearly_as_small_as_zstd_makes_it_in_one_piece(bench: Bench) -> None:
    """Runs after the backfill. The price of reading any 4 MiB by themselves, and of proving all that was written."""
    if not bench.home.exists():
        bench.work("capture")
    logs = bench.logs()
    size = size_of(logs)
    dense_seconds, dense_size = zstd(logs, "-12", "--long")
    took = bench.work("compact")
    archived = bench.archived_bytes()
    assert took["plain_bytes"] == size
    show("compact", files=len(logs), bytes=size, seconds=took["seconds"], archived=archived, ratio=size / archived)
    show("  memory", peak_MB=took["peak_bytes"] / 1e6, MB_a_second=size / 1e6 / took["seconds"])
    show("  zstd -12 --long", seconds=dense_seconds, ratio=size / dense_size, times_as_long=took["seconds"] / dense_seconds)
    assert archived < 1.15 * dense_size
    assert took["seconds"] < 6 * dense_seconds
