"""`coldtrail plan`, `prune`, `tag`, `purge` and `journal`: what goes is shown first, done as shown, and told afterwards."""

from __future__ import annotations

import time

import pytest

from coldtrail.catalog import Catalog
from coldtrail.settings import open_home
from daemon.cli.desk import FIRST, SECOND, Desk

OLD_GO = '[retention]\ngrace = "1ms"\n[[retention.rule]]\nagent = "claude-code"\nkeep_within = "30d"\n'
NOW_MS = time.time_ns() // 1_000_000


@pytest.fixture
def two(desk: Desk) -> Desk:
    """An old session and one of today, both kept."""
    desk.converse(FIRST)
    desk.converse(SECOND, project="/somebody/else", said="bake bread", at_ms=NOW_MS - 3_600_000)
    desk.capture()
    desk.seal()
    return desk


def states(desk: Desk) -> dict[str, str]:
    return {session["id"]: session["state"] for session in desk.json("ls")["sessions"]}


# --- plan ---


def test_with_no_rule_everything_stays(two: Desk) -> None:
    plan = two.json("plan")
    assert [plan["expire"], plan["remove"], len(plan["keep"])] == [[], [], 2]
    assert {each["reason"] for each in plan["keep"]} == {"no rule is about it"}


def test_a_plan_names_what_would_go_why_and_how_much_and_changes_nothing(two: Desk) -> None:
    two.configure(OLD_GO)
    before = sorted((path, path.stat().st_size) for path in two.trail.rglob("*") if path.is_file() and path.name != "clock")
    plan = two.json("plan")
    (going,) = plan["expire"]
    assert going["id"] == FIRST
    assert going["bytes"] > 0
    assert "rule 1" in going["reason"]
    assert "30d" in going["reason"]
    assert plan["totals"]["expire"] == {"sessions": 1, "bytes": going["bytes"]}
    shown = two.run("plan", "--all").stdout
    assert going["key"] in shown
    assert plan["fingerprint"] in shown
    assert "stay" in shown
    after = sorted((path, path.stat().st_size) for path in two.trail.rglob("*") if path.is_file() and path.name != "clock")
    assert after == before


@pytest.mark.parametrize("bad", ['grace = "0"', 'grace = "-1"', 'max_total = ""', 'grace = "1Y"', "keep = 5"])
def test_with_a_bad_config_nothing_is_removed_and_the_place_is_named(two: Desk, bad: str) -> None:
    two.configure(OLD_GO.replace('grace = "1ms"', bad))
    for command in (["plan"], ["prune", "--yes"]):
        result = two.run(*command, code=2)
        assert f"{two.config}:2" in result.stderr
    two.config.unlink()
    assert len(states(two)) == 2


# --- prune ---


def test_without_yes_prune_shows_and_does_nothing(two: Desk) -> None:
    two.configure(OLD_GO)
    result = two.run("prune")
    assert "nothing was done" in result.stderr
    assert set(states(two).values()) == {"live"}


def test_marked_first_then_removed_and_told_in_the_journal(two: Desk) -> None:
    two.configure(OLD_GO)
    (marked,) = two.json("prune", "--yes")["done"]
    assert (marked["id"], marked["verdict"], marked["passed"]) == (FIRST, "expire", None)
    assert states(two) == {FIRST: "expiring", SECOND: "live"}
    time.sleep(0.01)  # the grace is a millisecond
    (removed,) = two.json("prune", "--yes")["done"]
    assert (removed["verdict"], removed["freed"] > 0) == ("remove", True)
    assert states(two) == {SECOND: "live"}
    assert two.log().exists(), "the agent's own file stays"
    entries = two.json("journal")["entries"]
    assert [(entry["act"], entry["id"]) for entry in entries] == [("marked", FIRST), ("expired", FIRST)]
    assert "list the files" not in two.run("journal").stdout
    two.capture()
    assert states(two) == {SECOND: "live"}, "and is not captured anew"
    assert two.json("prune", "--yes")["done"] == []


def test_only_the_named_plan_is_carried_out(two: Desk) -> None:
    two.configure(OLD_GO)
    fingerprint = two.json("plan")["fingerprint"]
    two.run("pin", FIRST)
    result = two.run("prune", "--yes", "--plan", fingerprint, code=4)
    assert "another one now" in result.stderr
    two.run("unpin", FIRST)
    assert len(two.json("prune", "--yes", "--plan", fingerprint)["done"]) == 1


def test_a_restore_takes_the_mark_off_and_holds_the_session(two: Desk) -> None:
    two.configure(OLD_GO)
    two.run("prune", "--yes")
    two.log().unlink()
    two.run("restore", FIRST)
    assert states(two)[FIRST] == "live"
    assert "restored" in {entry["act"] for entry in two.json("journal")["entries"]}
    plan = two.json("plan")
    assert plan["expire"] == []
    assert "restored, and held until" in next(each["reason"] for each in plan["keep"] if each["id"] == FIRST)


def test_a_restore_to_another_folder_is_no_wish_to_keep_it(two: Desk) -> None:
    two.configure(OLD_GO)
    two.run("prune", "--yes")
    two.run("restore", FIRST, "--to", two.folder / "elsewhere")
    assert states(two)[FIRST] == "expiring"


# --- tag ---


def test_tags_are_given_taken_and_outlive_the_catalog(two: Desk) -> None:
    two.run("tag", FIRST, "--add", "release", "--add", "demo")
    two.run("tag", FIRST, "--remove", "demo")
    for path in two.trail.glob("catalog.db*"):
        path.unlink()
    assert two.json("show", FIRST)["tags"] == ["release"]
    assert two.run("tag", FIRST).stdout.endswith("[release]\n")


def test_a_rule_may_be_about_a_tag(two: Desk) -> None:
    two.configure('[[retention.rule]]\ntag = "scratch"\nkeep_within = "30d"\n')
    assert two.json("plan")["expire"] == []
    two.run("tag", FIRST, "--add", "scratch")
    assert [each["id"] for each in two.json("plan")["expire"]] == [FIRST]


@pytest.mark.parametrize("tag", ["", " ", "a\nb"])
def test_what_is_no_tag_is_an_error(two: Desk, tag: str) -> None:
    assert "not a tag" in two.run("tag", FIRST, "--add", tag, code=2).stderr


# --- purge ---


def test_purge_without_yes_shows_and_refuses(two: Desk) -> None:
    result = two.run("purge", FIRST, "--live", code=4)
    assert str(two.log()) in result.stdout
    assert "--yes" in result.stderr
    assert len(states(two)) == 2


def test_purge_removes_it_everywhere_and_says_so(two: Desk) -> None:
    done = two.json("purge", FIRST, "--yes")
    assert (done["found_in"], done["removed"]) == ([], [])
    assert done["freed"] > 0
    assert two.log().exists()
    two.capture()
    assert states(two) == {SECOND: "live"}
    assert [path for path in two.trail.rglob("*") if path.is_file() and b"list the files" in path.read_bytes()] == []
    two.run("purge", "--forget", done["key"])
    two.capture()
    assert set(states(two)) == {FIRST, SECOND}


def test_purge_live_removes_the_agents_own_file(two: Desk) -> None:
    assert two.json("purge", FIRST, "--yes", "--live")["removed"] == [str(two.log())]
    assert not two.log().exists()


def test_what_was_never_purged_cannot_be_forgotten(two: Desk) -> None:
    two.run("purge", "--forget", "5d0c6a1f3b2e4987", code=3)


# --- journal ---


def test_the_journal_can_be_asked_for_one_session_one_act_and_a_time(two: Desk) -> None:
    two.run("pin", FIRST, SECOND)
    two.run("unpin", FIRST)
    entries = two.json("journal", "--session", FIRST)["entries"]
    assert [entry["act"] for entry in entries] == ["pinned", "unpinned"]
    assert len(two.json("journal", "--act", "pinned")["entries"]) == 2
    assert len(two.json("journal", "--since", "1h", "--limit", "1")["entries"]) == 1
    assert two.json("journal", "--since", "2099-01-01")["entries"] == []
    two.run("journal", "--since", "#5", code=2)


# --- companions' older versions, dependants, what was removed ---


def rewrite_companion(desk: Desk, times: int) -> None:
    path = desk.log().with_suffix("") / "tool-results" / "t1.txt"
    path.parent.mkdir(parents=True, exist_ok=True)
    for number in range(times):
        path.write_bytes(b"%d\n" % number * 50)
        desk.capture()


def test_older_versions_of_companions_are_planned_counted_and_thinned(two: Desk) -> None:
    rewrite_companion(two, 5)
    assert two.json("plan")["thin"] == {"sessions": 0, "versions": 0, "bytes": 0}, "off by default"
    two.configure("[retention]\ncompanion_versions = 2\n")
    plan = two.json("plan")
    assert (plan["thin"]["sessions"], plan["thin"]["versions"]) == (1, 3)
    assert plan["thin"]["bytes"] > 0
    assert "3 older versions of companions in 1 session" in two.run("plan").stdout
    assert two.json("prune")["thinned"] == []
    (thinned,) = two.json("prune", "--yes", "--plan", plan["fingerprint"])["thinned"]
    assert (thinned["versions"], thinned["freed"], thinned["passed"]) == (3, plan["thin"]["bytes"], None)
    assert two.json("prune", "--yes")["thinned"] == []
    (entry,) = two.json("journal", "--act", "thinned")["entries"]
    assert (entry["id"], entry["freed"]) == (FIRST, plan["thin"]["bytes"])
    two.run("verify")


def test_a_session_that_was_removed_is_told_from_one_that_never_was(two: Desk) -> None:
    done = two.json("purge", FIRST, "--yes")
    for name in (FIRST, done["key"]):
        result = two.run("show", name, code=3)
        assert "this session was purged" in result.stderr
        assert f"coldtrail journal --session {done['key']}" in result.stderr
    assert "no session has this key" in two.run("show", "11111111", code=3).stderr


def test_one_session_that_cannot_be_read_keeps_no_other_from_going(two: Desk) -> None:
    two.configure(OLD_GO.replace("30d", "1s"))
    two.run("prune", "--yes")
    key = next(session["key"] for session in two.json("ls")["sessions"] if session["id"] == FIRST)
    (manifest,) = two.trail.glob(f"archive/*/*/{key}.json")
    manifest.write_bytes(manifest.read_bytes()[:-9])
    time.sleep(0.01)
    done = {each["id"]: each["passed"] for each in two.json("prune", "--yes")["done"]}
    assert done[SECOND] is None
    assert "manifest" in done[FIRST] or key in done[FIRST]
    assert states(two) == {FIRST: "expiring"}


def test_while_a_sources_disk_is_not_mounted_retention_rests_for_it(two: Desk) -> None:
    two.configure(OLD_GO)
    (two.user / ".claude").rename(two.folder / "unmounted")
    two.capture()
    for _ in ("it is not there", "an empty folder is in its place, as an unmounted disk leaves one"):
        plan = two.json("plan")
        assert plan["expire"] == []
        assert "its source is not there" in {each["reason"] for each in plan["keep"]}
        assert any("claude-code is not there" in note for note in plan["notes"])
        (two.user / ".claude").mkdir(exist_ok=True)
    (two.user / ".claude").rmdir()
    (two.folder / "unmounted").rename(two.user / ".claude")
    assert len(two.json("plan")["expire"]) == 1


def test_what_others_go_on_from_is_named_and_purged_only_by_force(two: Desk) -> None:
    with open_home(two.settings()) as home:
        (fork,) = home.catalog.sessions_with_id(SECOND)
        home.catalog.put(fork._replace(parents=f'["{FIRST}"]'))
    assert fork.key in two.run("purge", FIRST, code=4).stdout
    result = two.run("purge", FIRST, "--yes", code=4)
    assert fork.key in result.stderr
    assert "--force" in result.stderr
    assert len(states(two)) == 2
    assert two.json("purge", FIRST, "--yes", "--force")["found_in"] == []


def test_a_purge_that_readers_keep_from_scrubbing_is_told_and_ended_by_the_next_prune(two: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as busy:
        busy.setattr(Catalog, "scrub", lambda _: False)
        result = two.run("purge", FIRST, "--yes", code=1)
        assert "others are reading" in result.stderr
        assert "prune --yes" in result.stderr
    assert states(two).keys() == {SECOND}
    two.run("prune", "--yes")
    with open_home(two.settings()) as home:
        assert {row.cleared for row in home.catalog.graves()} == {2}
