"""What the readers share never raises, and takes only what it is sure of."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from coldtrail.agents.reading import command, first_text, number, session_id_in, setting, time_ms


@pytest.mark.parametrize(
    ("said", "ms"),
    [
        ("2026-01-02T03:04:05.678Z", 1767323045678),
        ("2026-01-02T03:04:05.678901234Z", 1767323045678),
        ("2026-01-02T05:04:05.678+02:00", 1767323045678),
        ("2026-01-02T03:04:05.678", 1767323045678),  # no zone: UTC
        ("2026-01-02", 1767312000000),
        (1767323045, 1767323045000),
        (1767323045.678, 1767323045678),
        (1767323045678, 1767323045678),
        (1767323045678901, 1767323045678),
        (1767323045678901234, 1767323045678),
    ],
)
def test_a_time_is_read_from_text_and_from_numbers_of_any_unit(said: object, ms: int) -> None:
    assert time_ms(said) == ms


@pytest.mark.parametrize(
    "said",
    [
        None, True, "", "yesterday", "12:00", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59-23:59:60", "2026-01-02T03:04:05Z\ud800",
        0, 12.5, -1, 10**30, math.inf, math.nan, [], {},
    ],
)  # fmt: skip
def test_what_is_no_time_is_none(said: object) -> None:
    assert time_ms(said) is None


@pytest.mark.parametrize("said", [None, True, "5", -1, 10**400, math.inf, math.nan, [5]])
def test_what_is_no_count_is_none(said: object) -> None:
    assert number(said) is None


def test_a_count_is_told_in_whole_units() -> None:
    assert number(1.25, 1000) == 1250


def test_the_first_text_of_a_content_is_found_whatever_stands_before_it() -> None:
    assert first_text("plain") == "plain"
    assert first_text([{"image": 1}, 5, {"text": None}, {"text": "found"}, {"text": "later"}]) == "found"
    assert first_text(["bare"]) == "bare"
    assert first_text({"text": "no content"}) == ""


@pytest.mark.parametrize(
    ("head", "session"),
    [
        (b'{"type":"x"}\n{"a":1,"sessionId":"s1"}\n', "s1"),
        (b'{\n  "messages": [],\n  "sessionId" : "s2"\n}', "s2"),
        (b'{"sessionId":"s3","mess', "s3"),
        (rb'{"content":"he said {\"sessionId\":\"no\"}","sessionId":"s4"}', "s4"),
        (b'{"sessionId":7}\n', None),
        (b'{"sessionId":"cut', None),
        (b"", None),
    ],
)
def test_a_session_id_is_found_in_whole_torn_and_indented_heads_but_not_inside_texts(head: bytes, session: str | None) -> None:
    assert session_id_in(head) == session


@pytest.mark.parametrize("text", [b"", b"{", b"\xff", b"[]", b'{"a": 5}', b"[" * 100_000])
def test_a_setting_that_is_not_there_or_not_readable_is_none(tmp_path: Path, text: bytes) -> None:
    (tmp_path / "settings.json").write_bytes(text)
    assert setting(tmp_path / "settings.json", "a", "b") is None
    assert setting(tmp_path / "missing.json", "a") is None


def test_a_nested_setting_is_found(tmp_path: Path) -> None:
    (tmp_path / "settings.json").write_text('{"a": {"b": [1]}}')
    assert setting(tmp_path / "settings.json", "a", "b") == [1]


def test_a_command_survives_the_shell() -> None:
    assert command("x", "a b;c", cwd="/it's here") == """cd '/it'"'"'s here' && x 'a b;c'"""
