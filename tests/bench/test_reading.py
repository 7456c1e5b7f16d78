"""What the last messages of a long archived log cost: a few frames, not the log."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

import orjson
import pytest

from bench.measuring import MIB, Bench, needs_corpus, one_log, show

pytestmark = [pytest.mark.bench, needs_corpus]
COUNT = 50


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    """A log of 200 MB, captured and made dense."""
    made = Bench(tmp_path_factory.mktemp("bench"))
    one_log(made.log("long"), 200 * MIB)
    made.work("capture")
    made.work("compact")
    return made


def parsed_seconds(log: Path) -> tuple[float, int]:
    """How long parsing every line takes."""
    began, count = time.perf_counter(), 0
    with log.open("rb") as file:
        for line in file:
            count += 1
            with contextlib.suppress(ValueError):  # real logs have such lines
                orjson.loads(line)
    return time.perf_counter() - began, count


def test_the_last_messages_cost_a_few_frames(bench: Bench) -> None:
    (log,) = bench.logs()
    seconds, count = parsed_seconds(log)
    size = log.stat().st_size
    log.rename(bench.folder / "gone.jsonl")
    took = bench.work("last", COUNT)
    (bench.folder / "gone.jsonl").rename(log)
    show(
        f"the last {COUNT} messages",
        of_records=count,
        seconds=took["seconds"],
        frames_decoded=took["frames"],
        bytes_read=took["bytes_read"],
        log_bytes=size,
        parsing_all_seconds=seconds,
        peak_MB=took["peak_bytes"] / 1e6,
    )
    assert took["frames"] <= 3
    assert took["seconds"] < seconds
