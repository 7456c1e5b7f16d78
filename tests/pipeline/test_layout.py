"""Where files lie and what they may be called: names cannot escape, collide, or be taken for what they are not."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coldtrail.layout import TEMP_PREFIX, Layout, SegmentName, check_id, safe_name

ID = "00112233445566aa"
LAYOUT = Layout.at(Path("/h"))
names = st.text(max_size=80) | st.text("aA1._-/\\ \0\n\udcff\N{LATIN SMALL LETTER E WITH ACUTE}", max_size=80)
offsets = st.integers(0, 10**16 - 1)


# ---- names of people's ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["claude-code", "a", "0", "my_logs.2", "x" * 64])
def test_a_good_name_stays(name: str) -> None:
    assert safe_name(name) == name


@pytest.mark.parametrize(
    "name",
    [
        "",
        ".",
        "..",
        "../up",
        "a/b",
        "/",
        ".hidden",
        "-x",
        "Mine",
        "a b",
        "a.",
        "x" * 65,
        "caf\N{LATIN SMALL LETTER E WITH ACUTE}",
        "a\0b",
        "\udcff",
        "...",
    ],
)
def test_any_other_name_gains_a_hash(name: str) -> None:
    assert safe_name(name) != name


@given(names)
def test_a_name_never_escapes_nor_is_one_of_ours(name: str) -> None:
    safe = safe_name(name)
    assert 0 < len(safe) <= 64
    assert set(safe) <= set("abcdefghijklmnopqrstuvwxyz0123456789._-")
    assert safe not in {".", ".."}
    assert not safe.startswith((".", "-"))
    assert not safe.endswith(".")
    assert not safe.startswith(TEMP_PREFIX)


@given(names, names)
def test_two_names_share_no_folder_not_even_where_upper_and_lower_case_are_one(one: str, other: str) -> None:
    if one != other and other != safe_name(one) and one != safe_name(other):
        assert safe_name(one).lower() != safe_name(other).lower()


def test_names_that_differ_in_case_or_in_a_byte_get_different_folders() -> None:
    alike = ["mine", "Mine", "MINE", "mine ", "mine/", "../mine", "m\udcffine", "m\udcfeine"]
    assert len({safe_name(name).lower() for name in alike}) == len(alike)


@pytest.mark.parametrize("text", [ID, "0" * 16, "f" * 16])
def test_an_id_is_sixteen_hex_digits(text: str) -> None:
    assert check_id(text) == text


@pytest.mark.parametrize(
    "text", ["", "0" * 15, "0" * 17, ID.upper(), f"{ID}\n", f" {ID}", "../../../../etc/x", "g" * 16, "\N{ARABIC-INDIC DIGIT ONE}" * 16]
)
def test_nothing_else_is_an_id(text: str) -> None:
    with pytest.raises(ValueError, match="not an id of coldtrail"):
        check_id(text)


# ---- names of segments ------------------------------------------------------------------------------------------------


@given(offsets, st.none() | offsets)
def test_a_segments_name_is_read_back(start: int, end: int | None) -> None:
    name = SegmentName(start, end)
    parsed = SegmentName.parse(str(name))
    assert parsed == (name if end is None or start < end else None)
    assert name.is_open == (end is None)


@given(offsets, offsets)
def test_names_sort_as_the_bytes_that_they_hold(one: int, other: int) -> None:
    assert (str(SegmentName(one)) < str(SegmentName(other))) == (one < other)
    assert (str(SegmentName(one, one + 1)) < str(SegmentName(other, other + 1))) == (one < other)


@given(st.from_regex(r"[0-9]{16}(-[0-9]{16})?(\.open)?\.jsonl\.zst.?", fullmatch=True) | st.text(max_size=50))
def test_whatever_is_read_as_a_segments_name_is_written_so(text: str) -> None:
    parsed = SegmentName.parse(text)
    assert parsed is None or str(parsed) == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "0.open.jsonl.zst",
        f"{0:016d}.jsonl.zst",
        f"{0:016d}-{9:016d}.open.jsonl.zst",
        f"{9:016d}-{9:016d}.jsonl.zst",
        f"{9:016d}-{0:016d}.jsonl.zst",
        f"{0:016d}.open.jsonl.zst.damaged",
        f"{TEMP_PREFIX}{0:016d}.open.jsonl.zst",
        f"{0:016d}.open.jsonl.zst\n",
        f"{-1:016d}.open.jsonl.zst",
        "index",
        "meta.json",
    ],
)
def test_no_other_name_is_a_segments(text: str) -> None:
    assert SegmentName.parse(text) is None


# ---- where they lie ---------------------------------------------------------------------------------------------------


def test_every_file_lies_where_the_format_page_says() -> None:
    assert LAYOUT.archive == Path("/h/archive")
    assert Layout.at(Path("/h"), Path("/a")).archive == Path("/a")
    assert [str(path) for path in (LAYOUT.catalog, LAYOUT.daemon_lock, LAYOUT.host_id, LAYOUT.journal)] == [
        "/h/catalog.db", "/h/lock", "/h/host-id", "/h/journal.jsonl",
    ]  # fmt: skip
    assert str(LAYOUT.session_lock(ID)) == f"/h/locks/{ID}"
    assert str(LAYOUT.compact_lock(ID)) == f"/h/locks/{ID}.compact"
    assert str(LAYOUT.meta(ID)) == f"/h/store/{ID}/meta.json"
    assert str(LAYOUT.generation(ID, 7)) == f"/h/store/{ID}/000007"
    assert Layout.generation_key(ID, "claude-code", ID, 12) == f"{ID}/claude-code/{ID}/000012"
    assert Layout.manifest_key(ID, "Mine", ID) == f"{ID}/{safe_name('Mine')}/{ID}.json"


@pytest.mark.parametrize("bad", ["..", "", "x" * 16, f"{ID}/.."])
def test_no_path_is_made_of_what_is_no_id(bad: str) -> None:
    for make in (LAYOUT.session_lock, LAYOUT.compact_lock, LAYOUT.stream, LAYOUT.meta):
        with pytest.raises(ValueError, match="not an id"):
            make(bad)
    for ids in ((bad, ID), (ID, bad)):
        with pytest.raises(ValueError, match="not an id"):
            Layout.generation_key(ids[0], "s", ids[1], 0)
        with pytest.raises(ValueError, match="not an id"):
            Layout.manifest_key(ids[0], "s", ids[1])


@given(names)
def test_a_source_never_leads_out_of_its_hosts_folder(source: str) -> None:
    key = Layout.generation_key(ID, source, ID, 0)
    assert len(key.split("/")) == 4
    assert Path("/archive", key).resolve().is_relative_to(f"/archive/{ID}")
