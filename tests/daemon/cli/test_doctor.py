"""`coldtrail doctor`: what is wrong is found, and mended where nothing is lost by it."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from coldtrail import durable
from coldtrail.catalog import changed
from coldtrail.settings import open_home
from coldtrail.stage import doctor
from coldtrail.stage.surroundings import of_disks, of_sources
from coldtraild.cli.doctor import machine
from coldtraild.cli.doctor.machine import of_service
from coldtraild.units import Installed
from daemon.cli.desk import Desk

HOUR_S = 3_600
RUNS = Installed("systemd", "/u/coldtraild.service", "active", runs=True, starts_by_itself=True, outlives_logout=True)


@pytest.fixture
def kept(desk: Desk) -> Desk:
    """One session, captured and sealed."""
    desk.captured()
    return desk


def findings(desk: Desk, *, code: int | None = None) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(desk.run("doctor", "--json", code=code).stdout)["findings"]
    return found


def about(desk: Desk, place: Path | str) -> list[tuple[str, str]]:
    return [(each["severity"], each["what"]) for each in findings(desk) if each["place"] == str(place)]


def files(desk: Desk) -> dict[Path, tuple[bytes, int, int]]:
    """Everything in the user's home, but for what SQLite does when it reads."""
    found = (path for path in desk.user.rglob("*") if path.is_file() and not path.name.startswith("catalog.db"))
    return {path: (path.read_bytes(), path.stat().st_mode, path.stat().st_mtime_ns) for path in found}


# --- what it says ---


def test_a_sound_home_is_a_0_without_any_error(kept: Desk) -> None:
    said = kept.json("doctor")
    assert [each for each in said["findings"] if each["severity"] == "error"] == []
    assert said["verdict"] in ("ok", "warning")
    assert said["versions"]["python"]


def test_it_changes_nothing(kept: Desk) -> None:
    kept.run("drill")
    (kept.trail / "store").chmod(0o755)
    before = files(kept)
    kept.run("doctor", code=1)
    assert files(kept) == before


def test_where_nothing_is_kept_yet_nothing_is_made(desk: Desk) -> None:
    assert ("note", "nothing is kept yet") in about(desk, desk.trail)
    desk.run("doctor")
    assert not desk.trail.exists()


def test_each_finding_says_what_it_means_and_what_to_do(kept: Desk) -> None:
    (kept.trail / "store").chmod(0o755)
    result = kept.run("doctor", code=1)
    lines = result.stdout.splitlines()
    assert lines[:3] == [
        "error    ~/.local/share/coldtrail/store: may be read or changed by others",
        "         logs hold whatever the agent saw, secrets included",
        "         do: coldtrail doctor --fix",
    ]
    assert lines[-1].startswith("error: 1 error, ")
    assert lines[-1].endswith("`coldtrail doctor --fix` mends 1")


def test_a_bad_config_is_told_and_a_1(kept: Desk) -> None:
    kept.configure("compact.after = 5\n")
    (wrong,) = (each for each in findings(kept, code=1) if each["severity"] == "error")
    assert wrong["place"] == str(kept.config)
    assert "compact.after" in wrong["what"]


# --- what is mended ---


def opened_up(desk: Desk) -> Path:
    path = next(desk.trail.rglob("meta.json"))
    path.chmod(0o644)
    path.parent.chmod(0o755)
    return path.parent


def left_over(desk: Desk) -> Path:
    path = desk.trail / "store" / ".tmp-0123456789ab"
    path.write_bytes(b"x")
    path.chmod(0o600)
    old = time.time() - 2 * HOUR_S
    os.utime(path, (old, old))
    return path


def no_catalog(desk: Desk) -> Path:
    for path in desk.trail.glob("catalog.db*"):
        path.unlink()
    return desk.trail / "catalog.db"


def torn_catalog(desk: Desk) -> Path:
    path = desk.trail / "catalog.db"
    data = bytearray(path.read_bytes())
    for at in range(4096, len(data), 64):
        data[at : at + 32] = os.urandom(32)
    path.write_bytes(data)
    return path


def no_database(desk: Desk) -> Path:
    path = desk.trail / "catalog.db"
    path.write_bytes(b"this is no database at all" * 100)
    return path


def damaged_meta(desk: Desk) -> Path:
    path = next(desk.trail.rglob("meta.json"))
    path.write_text("{")
    return path


def damaged_manifest(desk: Desk) -> str:
    path = next(desk.trail.glob("archive/*/*/*.json"))
    path.write_text("{")
    return str(path.relative_to(desk.trail))


WRONGS: list[Callable[[Desk], Path | str]] = [
    opened_up,
    left_over,
    no_catalog,
    torn_catalog,
    no_database,
    damaged_meta,
    damaged_manifest,
]


@pytest.mark.parametrize("spoil", WRONGS, ids=lambda each: each.__name__)
def test_what_can_be_mended_is_told_and_mended_and_no_session_is_lost(kept: Desk, spoil: Callable[[Desk], Path | str]) -> None:
    listed = kept.json("ls")
    place = spoil(kept)
    (found,) = (each for each in findings(kept) if each["place"] == str(place))
    assert found["mendable"]
    result = kept.run("doctor", "--fix")
    assert "mended: " in result.stdout
    assert "NOT mended" not in result.stdout
    assert not [each for each in findings(kept) if each["place"] == str(place)]
    assert kept.json("ls") == listed
    assert kept.json("verify")["verdict"] == "ok"


def test_a_damaged_catalog_is_let_be_while_a_daemon_is_at_work(kept: Desk) -> None:
    no_database(kept)
    with durable.locked(kept.trail / "lock"):
        result = kept.run("doctor", "--fix", code=1)
    assert "NOT mended: the catalog: a daemon is at work on it; stop it first" in result.stdout
    assert (kept.trail / "catalog.db").read_bytes().startswith(b"this is no database")


def test_a_young_unfinished_file_may_be_somebodys_work(kept: Desk) -> None:
    (kept.trail / "store" / ".tmp-0123456789ab").write_bytes(b"x")
    kept.run("doctor", "--fix")
    assert (kept.trail / "store" / ".tmp-0123456789ab").exists()


def test_what_is_the_agents_own_keeps_its_rights(kept: Desk) -> None:
    """A file of an agent that is on its way out goes back as it was, if it has to."""
    aside = kept.trail / "aside" / "files" / "0123456789abcdef"
    aside.parent.mkdir(parents=True, mode=0o700)
    aside.parent.parent.chmod(0o700)
    aside.write_bytes(b"x")
    aside.chmod(0o644)
    (kept.trail / "aside" / "0123456789abcdef").symlink_to(aside)
    assert not [each for each in findings(kept) if "rights" in each["what"] or "others" in each["what"]]
    kept.run("doctor", "--fix")
    assert aside.stat().st_mode & 0o777 == 0o644


# --- what is found ---


def test_a_lost_or_damaged_host_id_is_found(kept: Desk) -> None:
    path = kept.trail / "host-id"
    path.write_text("nonsense\n")
    assert about(kept, path) == [("error", "damaged: not a host id (16 hex digits)")]
    path.unlink()
    assert about(kept, path) == [("warning", "missing")]
    assert not path.exists(), "it looks, and makes nothing"


def test_a_catalog_of_another_version_is_let_be(kept: Desk) -> None:
    path = kept.trail / "catalog.db"
    for version, severity in ((1, "note"), (99, "error")):
        data = bytearray(path.read_bytes())
        data[60:64] = version.to_bytes(4, "big")
        path.write_bytes(data)
        ((found, what),) = about(kept, path)
        assert (found, what.startswith(f"of version {version}")) == (severity, True)
        assert path.read_bytes() == bytes(data)


def test_faults_are_told_with_what_to_do(kept: Desk) -> None:
    with open_home(kept.settings()) as home:
        home.catalog.note_fault(b"/somewhere/x.jsonl", "cannot be read", "give it rights", home.now_ms(), 1000)
    (found,) = (each for each in findings(kept) if each["place"] == "/somewhere/x.jsonl")
    assert (found["severity"], found["what"], found["fix"]) == ("warning", "cannot be read", "give it rights")


def test_what_is_cold_and_not_archived_is_a_backlog(desk: Desk) -> None:
    log = desk.converse()
    old = time.time() - 5 * 24 * HOUR_S
    os.utime(log, (old, old))
    desk.capture()
    (found,) = about(desk, desk.trail / "store")
    assert found[0] == "warning"
    assert "1 streams have been cold for over a day" in found[1]


def test_an_archive_that_is_not_mounted_is_an_error(desk: Desk) -> None:
    desk.configure(f'archive.url = "{desk.user / "disk"}"\n')
    desk.captured()
    assert about(desk, desk.user / "disk") == []
    shutil.rmtree(desk.user / "disk")
    ((severity, what),) = about(desk, desk.user / "disk")
    assert (severity, what) == ("error", "is not there, or empty: is its disk mounted?")


def test_what_its_agent_deletes_before_it_is_held_is_an_error(desk: Desk) -> None:
    log = desk.converse()
    desk.capture()
    old = time.time() - 29.5 * 24 * HOUR_S
    with open_home(desk.settings()) as home:
        (row,) = home.catalog.all_streams()
        home.catalog.put(changed(row, size=row.size + 1, mtime_ns=int(old * 10**9)))
    ((severity, what),) = about(desk, log)
    assert severity == "error"
    assert "claude-code deletes it from" in what


def test_a_segment_that_was_set_aside_is_told(kept: Desk) -> None:
    segment = kept.sealed_segment()
    shutil.copy(segment, f"{segment}.damaged")
    ((severity, what),) = about(kept, f"{segment}.damaged")
    assert (severity, what) == ("warning", "a segment that was set aside as damaged")


def test_a_clock_that_has_jumped_is_told(kept: Desk) -> None:
    kept.run("plan")
    text = (kept.trail / "clock").read_text()
    at = int(text.partition('"at_ms":')[2].partition(",")[0])
    (kept.trail / "clock").write_text(text.replace(f'"at_ms":{at}', f'"at_ms":{at - 400 * 24 * HOUR_S * 1000}'))
    before = (kept.trail / "clock").read_bytes()
    ((severity, what),) = about(kept, "clock")
    assert severity == "warning"
    assert "nothing is removed before" in what
    assert (kept.trail / "clock").read_bytes() == before


def test_the_last_drill_is_told(kept: Desk) -> None:
    place = kept.trail / "drill.json"
    assert about(kept, place) == [("note", "no drill has shown yet that sessions come back")]
    kept.run("drill")
    assert about(kept, place) == []
    kept.damage()
    kept.run("drill", "--sample", "100%", code=1)
    assert about(kept, place) == [("error", "of 1 sessions 0 came back in the last drill")]


# --- the agents' folders and the disks ---


def test_an_agent_that_is_not_there_is_a_note_and_a_source_of_the_config_a_warning(desk: Desk) -> None:
    desk.configure(f'[[source]]\nname = "mine"\nagent = "jsonl"\nroot = "{desk.user / "logs"}"\n')
    assert about(desk, desk.user / ".codex")[0][0] == "note"
    ((severity, what),) = about(desk, desk.user / "logs")
    assert (severity, what) == ("warning", "the source mine is not there: is its disk mounted?")


def test_links_out_of_a_root_are_told(kept: Desk) -> None:
    (kept.user / "elsewhere").mkdir()
    (kept.user / ".claude" / "projects" / "-linked").symlink_to(kept.user / "elsewhere")
    ((severity, what),) = about(kept, kept.user / ".claude")
    assert severity == "note"
    assert "1 links lead to folders outside" in what


def test_a_folder_that_cannot_be_looked_into_is_an_error(kept: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    walk = os.walk

    def refuses(top: Any, **more: Any) -> Any:
        more["onerror"](PermissionError(13, "Permission denied", str(kept.user / ".claude" / "projects" / "-shut")))
        return walk(top, **more)

    monkeypatch.setattr(os, "walk", refuses)
    claude = next(each for each in kept.settings().sources if each.agent.name == "claude-code")
    assert [each.severity for each in of_sources([claude], []) if "cannot be looked into" in each.what] == ["error"]


def test_few_watches_and_instances_are_told_with_the_sysctl(kept: Desk, tmp_path: Path) -> None:
    limits = tmp_path / "limits"
    limits.mkdir()
    (limits / "max_user_watches").write_text("1\n")
    (limits / "max_user_instances").write_text("1\n")
    found = [each for each in of_sources(kept.settings().sources, [], limits=limits) if each.place.startswith("fs.inotify")]
    assert [each.fix for each in found] == [
        "sudo sysctl fs.inotify.max_user_watches=524288",
        "sudo sysctl fs.inotify.max_user_instances=512",
    ]
    assert list(of_sources([], [], limits=tmp_path / "nothing")), "where there are no such limits nothing is said of them"


def test_a_network_disk_is_told(kept: Desk) -> None:
    sources = [each for each in kept.settings().sources if each.root.is_dir()]
    found = [each for each in of_sources(sources, [], kind=lambda _: "nfs4") if "network file system (nfs4)" in each.what]
    assert len(found) == 1
    assert not [each for each in of_sources(sources, [], kind=lambda _: "ext4") if "network" in each.what]
    (of_home,) = of_disks(kept.settings().layout, kind=lambda _: "nfs4")
    assert "WAL" in of_home.means


@pytest.mark.parametrize(("free_mib", "severity"), [(100, "error"), (2_000, "warning"), (100_000, None)])
def test_a_full_disk_is_told(kept: Desk, free_mib: int, severity: str | None) -> None:
    disk = os.statvfs_result((1 << 20, 1 << 20, 200_000, free_mib, free_mib, 0, 0, 0, 0, 255))
    found = [each.severity for each in of_disks(kept.settings().layout, statvfs=lambda _: disk, kind=lambda _: "ext4")]
    assert found == ([severity] if severity else [])


# --- the service ---


def test_a_service_that_is_well_is_not_spoken_of() -> None:
    assert list(of_service(RUNS, running=True)) == []


@pytest.mark.parametrize(
    ("changes", "severity", "fix"),
    [
        ({"runs": False, "state": "failed", "ended": "exit-code"}, "error", "coldtrail service logs"),
        ({"starts_by_itself": False}, "warning", "coldtrail service install"),
        ({"outlives_logout": False}, "warning", "loginctl enable-linger"),
    ],
)
def test_what_is_wrong_with_a_service_is_told(changes: dict[str, Any], severity: str, fix: str) -> None:
    values = {name: getattr(RUNS, name) for name in RUNS.__slots__} | changes
    (found,) = of_service(Installed(**values), running=False)
    assert (found.severity, found.fix) == (severity, fix)


def test_a_lock_is_held_by_who_holds_it_and_not_by_who_wrote_into_it(kept: Desk) -> None:
    lock = kept.trail / "lock"
    lock.write_text("1\n")
    lock.chmod(0o600)
    assert machine.lock_holder(lock) == (False, None)
    with durable.locked(lock, note=b"999999999\n"):
        assert machine.lock_holder(lock) == (True, 999999999)
        ((severity, what),) = about(kept, lock)
        assert (severity, "process 999999999" in what) == ("warning", True)
    assert about(kept, lock) == []


def test_a_umask_that_takes_our_own_rights_is_an_error(kept: Desk) -> None:
    old = os.umask(0o777)
    try:
        (found,) = machine._umask()
    finally:
        os.umask(old)
    assert found.severity == doctor.Severity.ERROR
