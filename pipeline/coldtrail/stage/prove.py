"""Is the agent's file still the one whose bytes we hold? In O(new bytes) for growth, whole where there is doubt."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable

from coldtrail.catalog import StreamRow, changed
from coldtrail.errors import CorruptionError
from coldtrail.plain import Plain

HEAD_BYTES = 4 << 10
WINDOW_BYTES = 16 << 10
_COMPARE_BYTES = 1 << 20


def identity(found: os.stat_result) -> str:
    """Device and inode, as a row holds them."""
    return f"{found.st_dev}:{found.st_ino}"


def unchanged(row: StreamRow, found: os.stat_result) -> bool:
    """Whether a file looks just as it did when it was last captured."""
    return (row.size, row.mtime_ns, row.ctime_ns) == (found.st_size, found.st_mtime_ns, found.st_ctime_ns) and row.identity == identity(
        found
    )


def seen(row: StreamRow, found: os.stat_result) -> StreamRow:
    """The row, remembering how the file looked."""
    return changed(row, size=found.st_size, mtime_ns=found.st_mtime_ns, ctime_ns=found.st_ctime_ns, identity=identity(found), gone_ms=None)


def ends_match(row: StreamRow, fd: int) -> bool:
    """Whether the file still begins and (where we left off) ends as it did; reads at most 20 KiB."""
    if os.fstat(fd).st_size < row.held:
        return False
    window = os.pread(fd, row.window_length, row.held - row.window_length)
    if len(window) != row.window_length or digest(window) != row.window:
        return row.held == 0
    head = os.pread(fd, row.head_length, 0)
    return digest(head) == row.head


def with_ends(row: StreamRow, plain: bytes, before: bytes) -> StreamRow:
    """The row after `plain` was captured at its `held`; `before` is what stands in front of it, WINDOW_BYTES if there are."""
    head, head_length = row.head, row.head_length
    if head_length < HEAD_BYTES:  # until the head is whole, `before` reaches back to byte 0
        start = (before + plain)[:HEAD_BYTES]
        head, head_length = digest(start), len(start)
    window = plain[-WINDOW_BYTES:] if len(plain) >= WINDOW_BYTES else (before + plain)[-WINDOW_BYTES:]
    return changed(row, held=row.held + len(plain), head=head, head_length=head_length, window=digest(window), window_length=len(window))


def digest(data: bytes) -> bytes:
    """A short digest that tells two windows apart."""
    return hashlib.blake2b(data, digest_size=16).digest()


def same_bytes(plain: Plain, end: int, fd: int) -> bool:
    """Whether the file begins with the `end` bytes that we hold, compared one by one; not, where our copy is damaged.

    So the file is captured anew, for it may soon be the only whole copy.
    """
    try:
        for offset, held in plain.read(0, end):
            for at in range(0, len(held), _COMPARE_BYTES):
                part = held[at : at + _COMPARE_BYTES]
                if os.pread(fd, len(part), offset + at) != part:
                    return False
    except CorruptionError:
        return False
    return True


def begins_with(chunks: Iterable[bytes], plain: Plain, end: int) -> bytes | None:
    """What follows in the first uneven chunk once `chunks` have repeated the `end` bytes that we hold.

    None where they differ, or our copy is damaged. `chunks` is left right behind that chunk, so the caller goes on with what
    this gives and then with the rest.
    """
    rest = b""
    source = iter(chunks)
    try:
        for _, held in plain.read(0, end):
            while len(rest) < len(held):
                more = next(source, None)
                if more is None:
                    return None
                rest += more
            if not rest.startswith(held):
                return None
            rest = rest[len(held) :]
    except CorruptionError:
        return None
    return rest
