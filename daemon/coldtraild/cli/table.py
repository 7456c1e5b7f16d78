"""A table of text: columns that shrink on a narrow terminal, and characters that take two cells."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import click
from rich.cells import cell_len, set_cell_size  # all of rich that a list needs: the rest of it takes 50 ms to load

_BETWEEN = "  "
_CUT = "…"


@dataclass(frozen=True, slots=True)
class Column:
    """A title, to which side the column's text keeps, and how narrow it may become (None: as wide as its text)."""

    title: str
    right: bool = False
    least: int | None = None


def table(columns: Sequence[Column], rows: Sequence[Sequence[str]], *, width: int | None, bold: bool = False) -> str:
    """The rows under their titles, each on one line of at most `width` cells; None: as wide as they are."""
    everything = [[column.title for column in columns], *rows]
    if width is None and all("".join(row).isascii() for row in everything):
        titles, *lines = _ascii(columns, everything)
        return "\n".join([click.style(titles, bold=True) if bold else titles, *lines])
    widths = [max(map(cells, texts)) for texts in zip(*everything, strict=True)]
    if width is not None:
        _shrink(columns, widths, width - len(_BETWEEN) * (len(columns) - 1))
    titles, *lines = [_line(columns, widths, row, width) for row in everything]
    return "\n".join([click.style(titles, bold=True) if bold else titles, *lines])


def _ascii(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> list[str]:
    """The lines of what may be as wide as it is, and takes one cell a character: a list of 20,000 is not to be waited for."""
    widths = [max(map(len, texts)) for texts in zip(*rows, strict=True)]
    form = _BETWEEN.join(f"{{:{'>' if column.right else '<'}{wide}}}" for column, wide in zip(columns, widths, strict=True))
    return [form.format(*row).rstrip() for row in rows]


def cells(text: str) -> int:
    """How many cells a text takes."""
    return len(text) if text.isascii() else cell_len(text)


def _shrink(columns: Sequence[Column], widths: list[int], room: int) -> None:
    """Take from the widest of the columns that may become narrower, cell by cell."""
    for _ in range(sum(widths) - room):
        free = [at for at, column in enumerate(columns) if column.least is not None and widths[at] > column.least]
        if not free:
            return
        widths[max(free, key=widths.__getitem__)] -= 1


def _line(columns: Sequence[Column], widths: Sequence[int], texts: Sequence[str], width: int | None) -> str:
    cells = [_cell(text, wide, right=column.right) for column, wide, text in zip(columns, widths, texts, strict=True)]
    line = _BETWEEN.join(cells).rstrip()
    return line if width is None else cut(line, width)


def _cell(text: str, wide: int, *, right: bool) -> str:
    if (taken := cells(text)) > wide:
        text = cut(text, wide)
        taken = cells(text)
    padding = " " * (wide - taken)
    return padding + text if right else text + padding


def cut(text: str, wide: int) -> str:
    """As much of a text as so many cells hold."""
    if cells(text) <= wide:
        return text
    return set_cell_size(text, max(wide - 1, 0)).rstrip() + _CUT
