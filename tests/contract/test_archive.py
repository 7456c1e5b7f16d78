"""What every archive must do: one suite, run on each backend."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from coldtrail import durable
from coldtrail.archive.base import Archive
from coldtrail.archive.local import LocalArchive

KEY = "0123456789abcdef/mine/fedcba9876543210/000000/0000000000000000-0000000000000005.jsonl.zst"


@pytest.fixture(params=["local"])
def archive(request: pytest.FixtureRequest, tmp_path: Path) -> Archive:
    """Each backend in turn."""
    assert request.param == "local"
    return LocalArchive(tmp_path / "archive")


def put(archive: Archive, key: str, data: bytes) -> None:
    """Publish a file as a stage does."""
    target = archive.staging(key) / key.rpartition("/")[2]
    with durable.unfinished(target) as (fd, temp):
        durable.write_all(fd, data, temp)
        durable.sync_fd(fd, temp)
        archive.publish(temp, key)


def content(archive: Archive, key: str) -> bytes:
    """The whole of a file."""
    opened = archive.open(key)
    try:
        return opened.read_at(0, opened.size)
    finally:
        opened.close()


def test_what_is_published_can_be_read_by_place(archive: Archive) -> None:
    put(archive, KEY, b"hello")
    opened = archive.open(KEY)
    assert (opened.size, opened.read_at(1, 3), opened.read_at(3, 99), opened.read_at(9, 1)) == (5, b"ell", b"lo", b"")
    opened.close()


def test_a_key_that_is_taken_is_never_overwritten(archive: Archive) -> None:
    put(archive, KEY, b"first")
    with pytest.raises(FileExistsError):
        put(archive, KEY, b"second")
    assert content(archive, KEY) == b"first"


def test_replace_gives_new_content(archive: Archive) -> None:
    key = KEY.rpartition("/")[0] + "/x.json"
    archive.replace(key, b"one")
    archive.replace(key, b"two")
    assert content(archive, key) == b"two"


def test_names_are_sorted_and_hold_nothing_unfinished(archive: Archive) -> None:
    folder = KEY.rpartition("/")[0]
    for name in ("b.jsonl.zst", "a.jsonl.zst"):
        put(archive, f"{folder}/{name}", b"x")
    (archive.staging(KEY) / ".tmp-left").write_bytes(b"torn")
    assert archive.names(folder) == ["a.jsonl.zst", "b.jsonl.zst"]
    assert list(archive.walk()) == [f"{folder}/a.jsonl.zst", f"{folder}/b.jsonl.zst"]


def test_a_folder_that_is_not_there_has_no_names(archive: Archive) -> None:
    assert archive.names("0123456789abcdef/none") == []


def test_a_missing_file_is_an_error_to_open_and_none_to_remove(archive: Archive) -> None:
    with pytest.raises(FileNotFoundError):
        archive.open(KEY)
    with pytest.raises(FileNotFoundError):
        archive.size(KEY)
    archive.remove(KEY)


def test_a_folder_goes_with_those_below_it_and_only_when_no_file_is_left(archive: Archive) -> None:
    put(archive, KEY, b"hello")
    top = KEY.rpartition("/")[0].rpartition("/")[0]
    with pytest.raises(OSError, match="not empty"):
        archive.remove_folder(top)
    assert content(archive, KEY) == b"hello"
    archive.remove(KEY)
    (archive.staging(KEY) / ".tmp-left").write_bytes(b"torn")
    for _ in range(2):
        archive.remove_folder(top)
        assert archive.names(top) == []
        assert list(archive.walk()) == []


def test_an_open_file_stays_readable_when_it_is_removed(archive: Archive) -> None:
    put(archive, KEY, b"hello")
    opened = archive.open(KEY)
    archive.remove(KEY)
    assert opened.read_at(0, 5) == b"hello"
    opened.close()


@pytest.mark.parametrize("key", ["../out", "a/../../out", "/out", "a//b", "", "."])
def test_no_key_leads_out(archive: Archive, key: str) -> None:
    with pytest.raises(ValueError, match="not a key"):
        archive.open(key)


def test_files_are_for_their_owner_alone(archive: Archive) -> None:
    old = os.umask(0o022)
    try:
        put(archive, KEY, b"hello")
    finally:
        os.umask(old)
    path = archive.staging(KEY) / KEY.rpartition("/")[2]
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
