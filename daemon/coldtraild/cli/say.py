"""How things are said: messages on stderr, documents on stdout, sizes and times for people, text that no terminal obeys."""

from __future__ import annotations

import os
import select
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

import click

from coldtrail.format import lines

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")
_QUARTER_MS = 900_000
_MINUTE, _HOUR, _DAY, _WEEK = 60, 3_600, 86_400, 7 * 86_400


def printable(text: str) -> str:
    r"""Text on one line that a terminal only shows: what could steer it is escaped.

    >>> printable("a\x1b[2J\u202eb")
    'a\\x1b[2J\\u202eb'
    """
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


def message(text: str, *, hint: str = "") -> None:
    """A line on stderr, and one with what to do about it."""
    click.echo(f"coldtrail: {printable(text)}", err=True)
    if hint:
        click.echo(f"hint: {printable(hint)}", err=True)


def document(value: Mapping[str, object]) -> None:
    """The one JSON document of a command."""
    write(lines.dumps(value, indent=True) + b"\n")


def write(data: bytes) -> None:
    """Every byte to stdout: where Python is told not to buffer, its stream may take only some of them at a time."""
    view = memoryview(data)
    while view:
        view = view[sys.stdout.buffer.write(view) :]


def is_unread() -> bool:
    """Whether nobody reads stdout any more, which a process that has nothing to write is not told otherwise."""
    with suppress(OSError):  # a stdout that is no file
        poll = select.poll()
        poll.register(sys.stdout.fileno(), 0)
        return bool(poll.poll(0))
    return False


def document_of_many(head: Mapping[str, object], name: str, items: Iterator[object], tail: Callable[[], Mapping[str, object]]) -> None:
    """The same, with a list `name` that is written as it comes: it may be longer than memory. `head` has a key at least.

    `tail` is asked when the list has ended. What goes wrong before the first item goes wrong before anything is written.
    """
    item = next(items, None)
    write(lines.dumps(head, indent=True).removesuffix(b"\n}") + b",\n" + f'  "{name}": ['.encode())
    before = b"\n    "
    while item is not None:
        write(before + _indented(item, 4))
        before, item = b",\n    ", next(items, None)
    write(b"]" if before == b"\n    " else b"\n  ]")
    for key, value in tail().items():
        write(f',\n  "{key}": '.encode() + _indented(value, 2))
    write(b"\n}\n")


def _indented(value: object, by: int) -> bytes:
    return lines.dumps(value, indent=True).replace(b"\n", b"\n" + b" " * by)


def size(count: int) -> str:
    """Bytes for people.

    >>> size(812), size(1_300), size(35 << 20)
    ('812 B', '1.3 KiB', '35 MiB')
    """
    amount, units = float(count), iter(_UNITS)
    unit = next(units)
    while amount >= 1024 and (larger := next(units, None)) is not None:
        amount, unit = amount / 1024, larger
    return f"{amount:.1f} {unit}" if count >= 1024 and amount < 10 else f"{amount:.0f} {unit}"


def counted(number: int, word: str) -> str:
    """A number and what it counts.

    >>> counted(1, "session"), counted(2, "session")
    ('1 session', '2 sessions')
    """
    return f"{number} {word}" if number == 1 else f"{number} {word}s"


def local(ms: int | None) -> str:
    """Milliseconds since 1970 as a time of this place."""
    if ms is None:
        return "-"
    moment = datetime.fromtimestamp(ms / 1000, UTC)
    with suppress(OverflowError):  # the last hours of the year 9999, seen from the east
        moment = moment.astimezone()
    return moment.strftime("%Y-%m-%d %H:%M:%S")


@cache
def _day(quarter: int) -> str:
    """The day of a quarter of an hour, anywhere: no zone is shifted by less."""
    return local(quarter * _QUARTER_MS)[:10]


def ago(ms: int | None, now_ms: int) -> str:
    """The same as people say it: how long ago, or the date where that is over a week.

    >>> ago(0, 7_300_000), ago(None, 0)
    ('2 h ago', '-')
    """
    if ms is None:
        return "-"
    seconds = (now_ms - ms) // 1000
    if not 0 <= seconds < _WEEK:
        return _day(ms // _QUARTER_MS)
    for unit, name in ((_DAY, "d"), (_HOUR, "h"), (_MINUTE, "min")):
        if seconds >= unit:
            return f"{seconds // unit} {name} ago"
    return "just now"


def folder(path: str | None) -> str:
    """A folder as people write it, with `~` for their own."""
    if path is None:
        return "-"
    home = os.environ.get("HOME") or str(Path.home())  # a list asks 20,000 times
    return printable("~" + path[len(home) :] if path == home or path.startswith(home + "/") else path)


def width() -> int | None:
    """How many cells a line on stdout may have; None where it is no terminal."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def in_colour() -> bool:
    """Whether stdout may be styled."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR")
