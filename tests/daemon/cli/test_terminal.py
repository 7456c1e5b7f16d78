"""On a terminal: lists fit its width, however narrow it is and however wide the characters."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import subprocess
import termios

import pytest
from rich.cells import cell_len

from coldtraild.cli.table import Column, cut, table
from daemon.cli.desk import FIRST, SECOND, Desk

COLUMNS = [Column("KEY"), Column("TITLE", least=4), Column("SIZE", right=True)]
ROWS = [["a1", "a long title of a session", "12 KiB"], ["b2", "日本語のタイトルです", "3 B"]]


def test_a_table_is_as_wide_as_it_is_without_a_width() -> None:
    assert table(COLUMNS, ROWS, width=None).splitlines() == [
        "KEY  TITLE                        SIZE",
        "a1   a long title of a session  12 KiB",
        "b2   日本語のタイトルです          3 B",
    ]


@pytest.mark.parametrize("width", range(1, 50))
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    lines = table(COLUMNS, ROWS, width=width).splitlines()
    assert len(lines) == 3
    assert max(map(cell_len, lines)) <= width


def test_only_columns_that_may_are_narrowed() -> None:
    assert table(COLUMNS, ROWS, width=24).splitlines() == [
        "KEY  TITLE          SIZE",
        "a1   a long tit…  12 KiB",
        "b2   日本語のタ…     3 B",
    ]


def test_a_character_of_two_cells_is_not_cut_in_half() -> None:
    assert cut("日本語", 4) == "日…"
    assert cut("日本語", 5) == "日本…"
    assert cut("日本語", 6) == "日本語"


def on_terminal(desk: Desk, *arguments: str, columns: int, **env: str) -> list[str]:
    """What a terminal of so many columns gets to see, line by line."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    process = subprocess.Popen(desk.argv(*arguments), env=desk.process_env(TERM="xterm", **env), stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    seen = b""
    try:
        while data := os.read(ours, 65536):
            seen += data
    except OSError:  # Linux says so that the other side is closed
        pass
    os.close(ours)
    assert process.wait(60) == 0, seen
    return seen.decode().replace("\r\n", "\n").removesuffix("\n").split("\n")


@pytest.fixture
def listed(desk: Desk) -> Desk:
    """Two sessions with long and wide titles."""
    desk.converse(said="a long title of a session that goes on and on and on")
    desk.converse(SECOND, project="/somebody/else", said="日本語の" * 20)
    desk.capture()
    return desk


@pytest.mark.parametrize("columns", [20, 60, 100])
def test_the_list_fits_the_terminal(listed: Desk, columns: int) -> None:
    lines = on_terminal(listed, "ls", columns=columns, NO_COLOR="1")
    assert len(lines) == 3
    assert max(map(cell_len, lines)) <= columns


def test_events_fit_the_terminal(listed: Desk) -> None:
    lines = on_terminal(listed, "events", FIRST, columns=70)
    assert len(lines) == 6
    assert max(map(cell_len, lines)) <= 70


def test_titles_are_bold_on_a_terminal_that_may_have_colour(listed: Desk) -> None:
    assert on_terminal(listed, "ls", columns=100)[0].startswith("\x1b[1mKEY")
    assert on_terminal(listed, "ls", columns=100, NO_COLOR="1")[0].startswith("KEY")


def test_verify_ends_with_its_verdict_behind_the_progress(listed: Desk) -> None:
    assert on_terminal(listed, "verify", columns=100)[-1].rpartition("\x1b[2K")[2].startswith("ok: 2 sessions")
