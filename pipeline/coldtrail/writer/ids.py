"""Event ids that sort by time: UUIDs of version 7, each greater than every one before it in its log."""

from __future__ import annotations

import re
import secrets

_FORM = re.compile(r"([0-9a-f]{8})-([0-9a-f]{4})-7([0-9a-f]{3})-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
_COUNT_MAX = 0xFFF
_LAST_MS = 253_402_300_799_999  # the year 9999: what claims to be later is no time that ids could go on from


class SortableIds:
    """Makes ids of milliseconds, a count within the millisecond, and 62 random bits that stay the same.

    Unique: the random bits are this object's alone (a child process has a copy of them, and the same log, in which no time and
    count comes twice). Where the clock stands still or goes back, the count goes on from the greatest id that was seen.

    >>> ids = SortableIds(); ids.see("018bcfe5-6800-7005-8000-000000000000")
    True
    >>> ids.next(1_700_000_000_000)[:18], ids.next(1_699_999_999_999)[:18], ids.next(1_700_000_000_001)[:18]
    ('018bcfe5-6800-7006', '018bcfe5-6800-7007', '018bcfe5-6801-7000')
    """

    def __init__(self) -> None:
        self._ms, self._count = 0, -1
        bits = f"{secrets.randbits(62) | 1 << 63:016x}"
        self._node = f"{bits[:4]}-{bits[4:]}"

    def see(self, known: str | None) -> bool:
        """Let the ids to come be greater than this one; False where it is none of this form."""
        match = _FORM.fullmatch(known) if known is not None else None
        if match is None or (ms := int(match[1] + match[2], 16)) > _LAST_MS:
            return False
        self._ms, self._count = max((self._ms, self._count), (ms, int(match[3], 16)))
        return True

    def next(self, now_ms: int) -> str:
        """The next id."""
        if now_ms > self._ms:
            self._ms, self._count = now_ms, 0
        elif self._count < _COUNT_MAX:
            self._count += 1
        else:
            self._ms, self._count = self._ms + 1, 0
        time = f"{self._ms:012x}"
        return f"{time[:8]}-{time[8:]}-7{self._count:03x}-{self._node}"
