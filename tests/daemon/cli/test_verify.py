"""`coldtrail verify` in parts: a sample, a budget, going on; and repair."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from coldtrail.settings import open_home
from coldtrail.stage.stopped import NAME, Stopped
from coldtrail.stage.verify import Effort, Spot, verify
from daemon.cli.desk import FIRST, SECOND, Desk

THIRD = "c8d12233-0000-4000-8000-000000000003"


@pytest.fixture
def three(desk: Desk) -> Desk:
    """Three sessions, captured and sealed."""
    for number, session in enumerate((FIRST, SECOND, THIRD)):
        desk.converse(session, project=f"/somebody/p{number}")
    desk.capture()
    desk.seal()
    return desk


def segments(desk: Desk) -> list[Path]:
    return sorted(desk.trail.glob("archive/*/*/*/*/*.jsonl.zst"))


def flip(path: Path, at: int = 40) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


# --- a sample ---


def test_a_share_of_nothing_checks_the_structure_alone(three: Desk) -> None:
    said = three.json("verify", "--sample", "0%")
    assert (said["verdict"], said["complete"], said["checked"]["frames"], said["checked"]["frames_there"]) == ("ok", True, 0, 3)
    flip(segments(three)[0])
    assert three.json("verify", "--sample", "0%")["verdict"] == "ok"
    whole = segments(three)[1].read_bytes()
    segments(three)[1].write_bytes(whole[:-1])
    assert three.json("verify", "--sample", "0%", code=1)["verdict"] == "bad"


def test_the_seed_is_told_and_chooses_the_same_again(three: Desk) -> None:
    said = [three.json("verify", "--sample", "50%", "--seed", str(seed)) for seed in (*range(12), 3)]
    assert said[3]["sampled"] == {"percent": 50, "seed": 3}
    assert said[3] == said[12]
    assert len({each["checked"]["frames"] for each in said}) > 1, "chance is at work"
    assert "50 % by chance; --seed 3 chooses the same" in three.run("verify", "--sample", "50%", "--seed", "3").stdout


@pytest.mark.parametrize("wrong", [["--sample", "5"], ["--sample", "101%"], ["--sample", ""], ["--budget", "ten"], ["--seed", "-1"]])
def test_what_is_no_share_or_span_is_a_2(three: Desk, wrong: list[str]) -> None:
    result = three.run("verify", *wrong, code=2)
    assert wrong[0] in result.stderr


# --- a budget ---


def test_without_time_one_segment_is_read_and_the_structure_of_all_and_the_next_run_goes_on(three: Desk) -> None:
    budget = ("verify", "--budget", "1ms", "--resume")
    first, second, third = (three.json(*budget) for _ in range(3))
    assert [(each["complete"], each["checked"]["frames"], each["checked"]["segments"]) for each in (first, second, third)] == [
        (False, 1, 3),
        (False, 1, 3),
        (True, 1, 3),
    ]
    assert first["next"]["session"] < second["next"]["session"]
    assert third["next"] is None
    assert not (three.trail / NAME).exists()
    assert three.json(*budget)["complete"] is False, "then it begins again"


def test_stopping_is_said_with_how_to_go_on(three: Desk) -> None:
    lines = three.run("verify", "--budget", "1ms").stdout.splitlines()
    assert lines[0].startswith("ok so far: 3 sessions")
    assert lines[-1] == "stopped after 1ms: the same with --resume goes on"
    assert oct((three.trail / NAME).stat().st_mode & 0o777) == "0o600"


def test_what_was_bad_before_the_stop_is_bad_still_until_it_is_mended(three: Desk) -> None:
    with open_home(three.settings()) as home:
        order = [(row.session, row.stream) for row in home.catalog.all_streams()]
    first = next(path for path in segments(three) if path.parts[-3] == min(order)[1])
    whole = first.read_bytes()
    flip(first)
    assert three.json("verify", "--budget", "1ms", code=1)["complete"] is False
    assert three.json("verify", "--resume", code=1)["complete"] is True
    assert three.json("verify", "--budget", "1ms", code=1)["complete"] is False
    first.write_bytes(whole)
    assert three.json("verify", "--resume")["verdict"] == "ok"


def test_going_on_is_for_the_same_sessions_and_share(three: Desk) -> None:
    three.run("verify", "--budget", "1ms")
    assert three.json("verify", FIRST, "--resume")["checked"]["frames"] == 1
    assert three.json("verify", "--sample", "99%", "--seed", "1", "--resume")["sampled"]["seed"] == 1
    assert (three.trail / NAME).exists(), "they were other passes"
    assert three.json("verify", "--resume")["checked"]["frames"] == 2
    assert not (three.trail / NAME).exists()


@pytest.mark.parametrize("text", ["", "{", "[]", '{"version": 2}', '{"version": 1, "next": {"session": "../x"}}'])
def test_a_damaged_note_of_where_it_stopped_is_no_obstacle(three: Desk, text: str) -> None:
    (three.trail / NAME).write_text(text)
    with open_home(three.settings()) as home:
        assert Stopped.load(home) is None
    assert three.json("verify", "--resume")["checked"]["frames"] == 3


def test_a_segment_that_was_merged_since_is_read_whole(three: Desk) -> None:
    """It may reach beyond where the last run stopped, though it begins before."""
    with open_home(three.settings()) as home:
        second = verify(home, effort=Effort(is_over=lambda: True)).next
        assert second is not None
        assert verify(home, effort=Effort(begin=second)).frames == 2
        first = min((row.session, row.stream) for row in home.catalog.all_streams())
        assert verify(home, effort=Effort(begin=Spot(*first, 0, 100))).frames == 3


# --- repair ---


def test_a_damaged_segment_is_repaired_from_the_agents_file_and_a_0(desk: Desk) -> None:
    log = desk.captured()
    segment = desk.damage()
    said = desk.json("verify", "--repair")
    assert (said["verdict"], said["findings"], said["lost"]) == ("ok", [], [])
    assert [(each["bytes"], each["from"]) for each in said["repaired"]] == [(log.stat().st_size, [f"the agent's file {log}"])]
    assert desk.json("verify")["verdict"] == "ok"
    assert list(segment.parent.iterdir()) == [segment]
    log.unlink()
    desk.run("restore", FIRST)
    assert log.exists()


def test_what_was_repaired_is_told(desk: Desk) -> None:
    desk.captured()
    desk.damage()
    lines = desk.run("verify", "--repair").stdout.splitlines()
    assert lines[0].startswith("repaired: archive/")
    assert lines[-1].startswith("ok: ")


def test_what_cannot_be_repaired_is_a_1_with_what_is_left(desk: Desk) -> None:
    desk.captured().unlink()
    segment = desk.damage()
    before = segment.read_bytes()
    said = desk.json("verify", "--repair", code=1)
    (lost,) = said["lost"]
    assert (said["verdict"], lost["start"], lost["unread"]) == ("bad", 0, [{"start": 0, "end": lost["end"]}])
    assert "cannot be read; `coldtrail events " in desk.run("verify", "--repair", code=1).stdout
    assert segment.read_bytes() == before


def test_without_repair_nothing_is_changed(desk: Desk) -> None:
    desk.captured()
    before = desk.damage().read_bytes()
    result = desk.run("verify", code=1)
    assert "--repair" in result.stdout
    assert desk.sealed_segment().read_bytes() == before


def test_the_document_has_every_promised_key(desk: Desk) -> None:
    desk.captured()
    said = json.loads(desk.run("verify", "--json").stdout)
    assert {"verdict", "checked", "findings", "sampled", "complete", "next", "repaired", "lost", "errors"} <= said.keys()
