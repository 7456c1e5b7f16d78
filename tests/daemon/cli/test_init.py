"""`coldtrail init`: what is on this machine, and a config that fits."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from coldtrail.config import Config, load_file
from coldtrail.stage import surroundings
from coldtraild.cli import coldtrail
from daemon.cli.desk import FIRST, SECOND, Desk

DAY_S = 86_400


@pytest.fixture
def busy(desk: Desk) -> Desk:
    """Two sessions of Claude Code, one with a sub-agent; it deletes one of them tomorrow."""
    log = desk.converse()
    desk.write(log.with_suffix("") / "subagents" / "agent-a1.jsonl", {"type": "user", "sessionId": FIRST})
    old = desk.converse(SECOND, project="/somebody/else")
    age_ns = (old.stat().st_mtime // 1 - 29 * DAY_S) * 10**9
    os.utime(old, ns=(int(age_ns), int(age_ns)))
    return desk


def test_it_says_which_agents_there_are_and_what_they_will_delete(busy: Desk) -> None:
    (agent,) = busy.json("init")["agents"]
    assert (agent["agent"], agent["sessions"], agent["files"]) == ("claude-code", 2, 3)
    assert (agent["deletes_after_days"], agent["deletes_within_a_week"]) == (30, 1)
    assert agent["bytes"] == sum(path.stat().st_size for path in (busy.user / ".claude").rglob("*.jsonl"))
    lines = busy.run("init", "--yes").stdout.splitlines()
    assert lines[0].startswith("claude-code in ~/.claude: 2 sessions, 3 files, ")
    assert lines[1] == "  it deletes them after 30 days: 1 within a week"


def test_what_it_writes_is_a_good_config_with_the_defaults(busy: Desk) -> None:
    busy.run("init", "--yes")
    assert load_file(busy.config, user_home=busy.user) == Config.defaults(user_home=busy.user)
    assert oct(busy.config.stat().st_mode & 0o777) == "0o600"
    busy.run("config", "check")
    busy.run("run", "--once")
    assert len(busy.json("ls")["sessions"]) == 2


def test_it_writes_nothing_but_the_config(busy: Desk) -> None:
    before = set(busy.user.rglob("*"))
    busy.run("init", "--yes")
    assert set(busy.user.rglob("*")) - before == {busy.config, busy.config.parent, busy.config.parent.parent}


ANSWERS = {"yes": ("y\n", True), "enter": ("\n", True), "no": ("n\n", False), "nobody": ("", False)}


@pytest.mark.parametrize(("answer", "written"), ANSWERS.values(), ids=ANSWERS)
def test_it_asks_before_it_writes(busy: Desk, answer: str, written: bool) -> None:
    result = busy.runner.invoke(coldtrail, ["init"], env=busy.env(), input=answer, prog_name="coldtrail")
    assert result.exit_code == 0, result.output
    assert busy.config.exists() is written
    assert ("coldtrail service install" in result.stdout) is written
    assert ("nothing was written" in result.stderr) is not written


def test_a_config_that_is_there_is_not_touched_and_a_4(busy: Desk) -> None:
    busy.configure('compact.after = "1d"\n')
    for arguments in (["init"], ["init", "--yes"], ["init", "--yes", "--json"]):
        assert "is there already" in busy.run(*arguments, code=4).stderr
    assert busy.config.read_text() == 'compact.after = "1d"\n'
    assert busy.json("init")["written"] is False, "to look is no refusal"


def test_with_force_it_is_replaced_and_the_old_ones_are_kept(busy: Desk) -> None:
    busy.configure("first\n")
    busy.run("init", "--yes", "--force")
    busy.configure("second\n")
    said = busy.json("init", "--yes", "--force")
    folder = busy.config.parent
    assert said["backup"] == str(folder / "config.toml.bak2")
    assert [(folder / name).read_text() for name in ("config.toml.bak", "config.toml.bak2")] == ["first\n", "second\n"]
    busy.run("config", "check")


def test_a_config_file_that_is_a_link_stays_one(busy: Desk) -> None:
    real = busy.user / "dotfiles" / "coldtrail.toml"
    real.parent.mkdir()
    real.write_text("old\n")
    busy.config.parent.mkdir(parents=True)
    busy.config.symlink_to(real)
    busy.run("init", "--yes", "--force")
    assert busy.config.is_symlink()
    assert "What differs" in real.read_text()


def test_the_file_that_is_named_is_the_one_that_is_written(busy: Desk) -> None:
    busy.run("--config", busy.user / "mine.toml", "init", "--yes")
    assert (busy.user / "mine.toml").exists()
    assert not busy.config.exists()


def test_another_home_stands_in_the_config(busy: Desk) -> None:
    busy.run("--home", busy.user / "kept here", "init", "--yes")
    assert load_file(busy.config, user_home=busy.user).home == busy.user / "kept here"


def test_a_network_disk_is_scanned_often(busy: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(surroundings, "kind_of", lambda _path: "nfs4")
    busy.run("init", "--yes")
    assert load_file(busy.config, user_home=busy.user).capture.scan_every_ms == 30_000


def test_a_small_disk_is_told(busy: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    small = os.statvfs_result((1, 1, 100, 100, 100, 10, 10, 10, 0, 255))
    monkeypatch.setattr(os, "statvfs", lambda _: small)
    assert "To have it on another disk" in busy.json("init")["config"]


def test_without_any_agent_it_says_so_and_writes_all_the_same(desk: Desk) -> None:
    assert "no agent was found" in desk.run("init", "--yes").stdout
    desk.run("config", "check")


def test_a_name_with_a_newline_does_not_get_out_of_its_comment(desk: Desk) -> None:
    root = desk.user / "a\nhome = 5"
    desk.write(root / "projects" / "-p" / f"{FIRST}.jsonl", {"type": "user", "sessionId": FIRST})
    result = desk.runner.invoke(
        coldtrail,
        ["init", "--yes", "--json"],
        env={**desk.env(), "CLAUDE_CONFIG_DIR": str(root)},
    )
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["agents"][0]["root"] == str(root)
    desk.run("config", "check")


def test_a_folder_that_cannot_be_read_is_told(busy: Desk) -> None:
    loop = busy.user / ".claude" / "projects" / "-loop"
    loop.symlink_to(loop)
    (agent,) = busy.json("init")["agents"]
    assert [Path(each.partition(": ")[0]) for each in agent["unreadable"]] == [loop]
