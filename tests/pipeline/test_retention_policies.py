"""The example policies in config/ decide what their comments say, on a made-up year of sessions."""

from __future__ import annotations

from pathlib import Path

import pytest

from coldtrail.config import Config, load_file
from coldtrail.retention import Candidate, decide
from pipeline.retaining import DAY, NOW, carried_out, session, verdicts

CONFIG = Path(__file__).resolve().parents[2] / "config"
MIB = 1 << 20
POLICIES = ["coldtrail", "free-the-agents", "laptop", "team-server"]


def policy(name: str) -> Config:
    return load_file(CONFIG / f"{name}.toml", user_home=Path("/me"))


def a_year() -> list[Candidate]:
    """A busy project of one session a day, 100 MiB each, and a quiet one of 100 MiB every two months; 42,200 MiB in all."""
    busy = [session(f"busy{day}", day, 100 * MIB, project="/me/work/app") for day in range(365)]
    quiet = [session(f"quiet{day}", day, 100 * MIB, project="/me/notes") for day in range(300, 0, -60)]
    wishes = [session("pinned", 700, 100 * MIB, pinned=True), session("restored", 701, 100 * MIB, held_until_ms=NOW + DAY)]
    return [*busy, *quiet, *wishes, session("base", 702, 5_000 * MIB), session("fork", 703, 100 * MIB, parents=("base",), pinned=True)]


def expiring(name: str, *, force: bool = True) -> set[str]:
    found = verdicts(decide(a_year(), policy(name).retention, NOW, free_bytes=0, force=force))
    assert set(found.values()) <= {"keep", "expire"}
    return {one for one, verdict in found.items() if verdict == "expire"}


def test_every_policy_here_is_tested() -> None:
    assert sorted(path.stem for path in CONFIG.glob("*.toml")) == POLICIES


@pytest.mark.parametrize("name", ["coldtrail", "free-the-agents"])
def test_the_default_and_the_one_that_frees_the_agents_keep_everything(name: str) -> None:
    assert expiring(name) == set()


def test_the_one_that_frees_the_agents_reclaims_after_30_days() -> None:
    freeing, default = policy("free-the-agents"), policy("coldtrail")
    assert (freeing.reclaim.after_ms, freeing.reclaim.wait_ms, freeing.retention.restored_hold_ms) == (30 * DAY, DAY, 30 * DAY)
    assert (default.reclaim.after_ms, policy("laptop").reclaim.after_ms, policy("team-server").reclaim.after_ms) == (None, None, None)


def test_the_laptop_keeps_10_gib_of_the_newest_and_of_each_project_what_is_new_there() -> None:
    gone = expiring("laptop")
    # 5,300 MiB must stay; of the rest 10,240 - 5,300 have room: 46 busy sessions, and the three of the quiet project within its floor.
    assert gone == {f"busy{day}" for day in range(46, 365)} | {"quiet240", "quiet300"}
    left = sum(each.bytes for each in a_year() if each.id not in gone)
    assert 10_140 * MIB < left <= 10_240 * MIB


def test_the_laptop_comes_down_to_its_budget_a_hundred_sessions_at_a_time() -> None:
    sessions, marked = a_year(), []
    for hours in range(5):
        plan = decide(sessions, policy("laptop").retention, NOW + hours, free_bytes=0)
        marked.append(plan.totals["expire"]["sessions"])
        sessions = carried_out(sessions, plan, NOW + hours)
    assert marked == [100, 100, 100, 21, 0]


def test_the_team_server_keeps_90_days_the_newest_of_each_project_and_what_is_pinned() -> None:
    kept = {each.id for each in a_year()} - expiring("team-server")
    assert {one for one in kept if one.startswith("busy")} == {f"busy{day}" for day in range(91)}
    assert kept - {f"busy{day}" for day in range(91)} == {
        *(f"quiet{day}" for day in range(60, 301, 60)),
        "pinned",
        "restored",
        "base",
        "fork",
    }
    assert policy("team-server").retention.grace_ms == 14 * DAY
