"""The journal: what was done is told in order, whoever wrote, and a torn line costs itself alone."""

from __future__ import annotations

import json
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from coldtrail.journal import Act, Journal

KEY = "5d0c6a1f3b2e4987"


def journal(tmp_path: Path) -> Journal:
    return Journal(tmp_path / "trail" / "journal.jsonl", lambda: 1_767_225_600_000)


def test_what_was_noted_is_read_back_in_order(tmp_path: Path) -> None:
    ours = journal(tmp_path)
    ours.note(Act.MARKED, KEY, "ae3d54a6", "rule 1: older than 2y")
    ours.note(Act.EXPIRED, KEY, "ae3d54a6", "rule 1: older than 2y", size=4096)
    assert [(entry.act, entry.session, entry.id, entry.reason, entry.freed) for entry in ours.read()] == [
        (Act.MARKED, KEY, "ae3d54a6", "rule 1: older than 2y", 0),
        (Act.EXPIRED, KEY, "ae3d54a6", "rule 1: older than 2y", 4096),
    ]
    assert ours.damaged == 0


def test_its_lines_are_json_with_the_time_for_people_too_and_the_file_is_private(tmp_path: Path) -> None:
    ours = journal(tmp_path)
    ours.note(Act.PINNED, KEY, "ae3d54a6", "asked for")
    path = tmp_path / "trail" / "journal.jsonl"
    (line,) = path.read_bytes().splitlines()
    assert json.loads(line)["at"] == "2026-01-01T00:00:00.000Z"
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_torn_line_is_counted_and_the_next_one_stands_alone(tmp_path: Path) -> None:
    ours = journal(tmp_path)
    ours.note(Act.PINNED, KEY, "a", "one")
    path = tmp_path / "trail" / "journal.jsonl"
    os.truncate(path, path.stat().st_size - 9)
    ours.note(Act.UNPINNED, KEY, "a", "two")
    assert [entry.reason for entry in ours.read()] == ["two"]
    assert ours.damaged == 1


def test_an_act_of_a_later_version_is_counted_and_passed_over(tmp_path: Path) -> None:
    ours = journal(tmp_path)
    ours.note(Act.PINNED, KEY, "a", "one")
    path = tmp_path / "trail" / "journal.jsonl"
    path.write_bytes(path.read_bytes().replace(b'"pinned"', b'"polished"'))
    assert list(ours.read()) == []
    assert ours.damaged == 1


def test_many_who_write_at_once_tear_nothing(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: journal(tmp_path).note(Act.TAGGED, KEY, "a", str(number)), range(80)))
    ours = journal(tmp_path)
    assert sorted(int(entry.reason) for entry in ours.read()) == list(range(80))
    assert ours.damaged == 0


def test_where_there_is_none_there_is_nothing_to_tell(tmp_path: Path) -> None:
    assert list(journal(tmp_path).read()) == []
