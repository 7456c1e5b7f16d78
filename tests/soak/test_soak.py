"""A soak: for a while everything happens at once, and the daemon is killed in it; afterwards every byte is accounted for."""

from __future__ import annotations

import json
import os
import random
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

import coldtrail
from soak.judging import Judge, Judgement
from soak.ledger import Reading
from soak.running import Pace, Sample, Soak

LASTS_S = float(os.environ.get("COLDTRAIL_SOAK_S") or 0)  # 1200: the long form
KILL_S = float(os.environ.get("COLDTRAIL_SOAK_KILL_S") or 60)
SEED = int(os.environ.get("COLDTRAIL_SOAK_SEED") or random.SystemRandom().randrange(1 << 32))
SHORT = Pace(lasts_s=22, kill_s=5, scan_s=1, command_s=0.7, config_s=1.5, sample_s=0.5, rest_s=7)
LONG = Pace(lasts_s=LASTS_S, kill_s=KILL_S, scan_s=5, command_s=5, config_s=7, sample_s=5, rest_s=20)
FLAT = 1.15
LAST = 60


@pytest.mark.bench  # for minutes: COLDTRAIL_SOAK_S
@pytest.mark.skipif(sys.platform != "linux", reason="what the daemon takes is read from /proc")
def test_whatever_happens_at_once_every_byte_that_stood_still_is_held(tmp_path: Path) -> None:
    pace = LONG if LASTS_S else SHORT
    soak = Soak(tmp_path / "user", pace, SEED)
    end_s = soak.run()
    ledger = Reading(soak.ledger)
    with coldtrail.open(soak.trail) as trail:
        done = Judge(trail.home, ledger, soak.ups, soak.lines_s).judge(end_s, passed=lambda life: "-spent" in life.path.parts)
    told = figures(soak, done)
    sys.stdout.write(f"\n  soak: {told}\n")
    assert not soak.wrong + done.wrong, failure(soak, ledger, done.wrong, told)
    assert sum(done.judged.values()) > 40, told
    assert len(soak.ups) > 1 or pace.kill_s > pace.lasts_s, told
    if LASTS_S:
        assert_flat(soak.samples)


def assert_flat(samples: Sequence[Sample]) -> None:
    """What the daemon takes in the last third is what it took in the second."""
    second, last = thirds(samples)[1:]
    assert statistics.median(each.rss_bytes for each in last) < FLAT * statistics.median(each.rss_bytes for each in second)
    assert max(each.threads for each in last) <= max(each.threads for each in second)
    assert max(each.fds for each in last) <= FLAT * max(each.fds for each in second)


def thirds(samples: Sequence[Sample]) -> list[Sequence[Sample]]:
    third = len(samples) // 3
    return [samples[:third], samples[third : 2 * third], samples[2 * third :]]


def figures(soak: Soak, done: Judgement) -> str:
    """For whoever runs it."""
    told = {
        "seed": soak.seed,
        "starts": len(soak.ups),
        "ready_s": [round(up.ready_s - up.spawned_s, 2) for up in soak.ups if up.ready_s < float("inf")],
        "lives": done.lives,
        "judged": dict(done.judged),
        "whole": done.whole,
        "tails": done.tails,
        "MB": round(done.bytes / 1e6, 1),
        "commands": {f"{verb} {code}": count for (verb, code), count in sorted(soak.codes.items())},
        "rss_MB": _spans(soak.samples, lambda each: round(each.rss_bytes / 1e6, 1)),
        "threads": _spans(soak.samples, lambda each: each.threads),
        "fds": _spans(soak.samples, lambda each: each.fds),
    }
    return json.dumps(told)


def _spans(samples: Sequence[Sample], value) -> list[tuple[float, float, float]]:  # type: ignore[no-untyped-def]
    """Least, median and most of each third."""
    found = [sorted(map(value, third)) for third in thirds(samples) if third]
    return [(each[0], statistics.median(each), each[-1]) for each in found]


def failure(soak: Soak, ledger: Reading, wrong: Sequence[str], told: str) -> str:
    """What is wrong, and what came before."""
    latest = [json.dumps(event) for event in ledger.events()[-LAST:]]
    parts = [*soak.wrong, *wrong[:20], f"seed {soak.seed}: COLDTRAIL_SOAK_SEED={soak.seed} makes the agents do the same again", told]
    return "\n".join([*parts, "--- the runner:", *soak.told[-LAST:], "--- the agents:", *latest, f"--- now {time.monotonic():.2f}"])
