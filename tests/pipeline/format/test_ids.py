"""The table of a segment's ids: it may count one too many, and never one too few."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coldtrail.format import ids

HASHES = st.lists(st.integers(0, (1 << 64) - 1), max_size=50)


@given(HASHES)
def test_whatever_is_in_it_is_found_again(hashes: list[int]) -> None:
    table = ids.unpack(ids.pack(hashes))
    assert all(ids.count(table, each) for each in hashes if each)
    assert list(table) == sorted(each % (1 << 32) for each in hashes if each)


@given(HASHES, st.integers(0, (1 << 64) - 1))
def test_what_is_not_in_it_is_found_only_where_32_bits_are_the_same(hashes: list[int], other: int) -> None:
    table = ids.unpack(ids.pack(hashes))
    assert ids.count(table, other) == sum(each % (1 << 32) == other % (1 << 32) for each in hashes if each)


@pytest.mark.parametrize("data", [b"", b"\0\0\0", b"\1\0\0\0", b"\1\0\0\0abc", b"\0\0\0\0a", ids.pack([1, 2])[:-1]])
def test_what_is_no_table_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="ids"):
        ids.unpack(data)
