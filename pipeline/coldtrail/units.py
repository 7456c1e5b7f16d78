"""Spans of time and sizes of files, as people write them."""

from __future__ import annotations

import re
from collections.abc import Mapping

_SPANS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 7 * 86_400_000, "y": 365 * 86_400_000}
_SIZES = {"B": 1, "KB": 10**3, "KiB": 2**10, "MB": 10**6, "MiB": 2**20, "GB": 10**9, "GiB": 2**30, "TB": 10**12, "TiB": 2**40}
_AMOUNT = re.compile(r"([0-9]{1,19})([A-Za-z]+)")
LONGEST_MS = 1_000 * _SPANS["y"]
LARGEST_BYTES = 2**20 * _SIZES["TiB"]


def parse_span(text: str) -> int:
    """A span of time in milliseconds: a whole number and one of ms, s, m, h, d, w, y (365 days); ValueError for anything else.

    >>> parse_span("36h")
    129600000
    """
    return _parse(text, _SPANS, LONGEST_MS, 'a span of time such as "90s" or "7d"')


def parse_size(text: str) -> int:
    """A size in bytes: a whole number and one of B, KB, KiB, MB, MiB, GB, GiB, TB, TiB; ValueError for anything else.

    >>> parse_size("4KiB"), parse_size("4KB")
    (4096, 4000)
    """
    return _parse(text, _SIZES, LARGEST_BYTES, 'a size such as "50GiB"')


def span_text(ms: int) -> str:
    """Milliseconds as a span, in the largest unit that says them exactly.

    >>> span_text(129_600_000)
    '36h'
    """
    return _text(ms, _SPANS, "0s")


def size_text(size: int) -> str:
    """Bytes as a size, in the largest unit that says them exactly.

    >>> size_text(50 * 2**30)
    '50GiB'
    """
    return _text(size, _SIZES, "0B")


def _parse(text: str, units: Mapping[str, int], most: int, example: str) -> int:
    match = _AMOUNT.fullmatch(text)
    worth = units.get(match[2]) if match else None
    if match is None or worth is None:
        raise ValueError(f"{text[:40]!r} is not {example} (a whole number and one of {', '.join(units)})")
    amount = int(match[1]) * worth
    if amount > most:
        raise ValueError(f"{text!r} is more than the {_text(most, units, '0')} allowed")
    return amount


def _text(amount: int, units: Mapping[str, int], nothing: str) -> str:
    for unit, worth in sorted(units.items(), key=lambda pair: pair[1], reverse=True):
        if amount and amount % worth == 0:
            return f"{amount // worth}{unit}"
    return nothing
