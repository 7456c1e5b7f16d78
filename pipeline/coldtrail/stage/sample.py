"""How much of something is looked at: so many of it, or so many per cent."""

from __future__ import annotations

import hashlib
import math
import re
from dataclasses import dataclass
from typing import Self

_COUNT = re.compile(r"[0-9]{1,9}")
_SHARE = re.compile(r"([0-9]{1,3}(?:\.[0-9]{1,6})?)%")


@dataclass(frozen=True, slots=True)
class Sample:
    """A number, or a share of all; one of the two is given."""

    count: int | None = None
    percent: float | None = None  # 0 to 100

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read `12` or `5%`; ValueError for anything else.

        >>> Sample.parse("12"), Sample.parse("0.5%")
        (Sample(count=12, percent=None), Sample(count=None, percent=0.5))
        """
        if _COUNT.fullmatch(text):
            return cls(count=int(text))
        share = _SHARE.fullmatch(text)
        if share is None or float(share[1]) > 100:
            raise ValueError(f"{text[:40]!r} is neither a number such as 10 nor a share such as 5% (0% to 100%)")
        return cls(percent=float(share[1]))

    def of(self, total: int) -> int:
        """How many of `total` that are, rounded up.

        >>> Sample(percent=5).of(30), Sample(count=12).of(5)
        (2, 5)
        """
        return min(total, self.count if self.count is not None else math.ceil(total * (self.percent or 0) / 100))


def is_chosen(seed: int, percent: float, *place: object) -> bool:
    """Whether chance, which `seed` decides, picks a place: the same answer whenever and in whatever order it is asked."""
    digest = hashlib.blake2b(repr((seed, *place)).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") < percent / 100 * 2**64
