"""What restarts us for ever is not given a loop of errors, nor a log without end."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from coldtraild import supervised
from daemon.cli.desk import Desk


def test_a_lasting_error_is_told_and_waited_out_and_keeps_its_code(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    desk.configure("colour = 1\n")
    no_wait = "import coldtraild.supervised as s, time; s.wait_out.__defaults__ = (lambda s: print('waits', s),)"
    told = desk.start("run", "--supervised", before=no_wait)
    assert (told.returncode, told.stdout) == (2, "waits 600.0\n")
    assert "colour" in told.stderr
    assert "ending in 10 minutes" in told.stderr


def test_other_errors_and_good_ends_are_not_waited_for(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    desk.converse()
    told = desk.start("run", "--once", "--supervised", before="import coldtraild.supervised as s; s.wait_out = None")
    assert told.returncode == 0


@pytest.mark.parametrize(("size", "flags", "cut"), [(11, os.O_APPEND, True), (10, os.O_APPEND, False), (11, 0, False)])
def test_a_log_file_that_nobody_else_cuts_is_cut(tmp_path: Path, size: int, flags: int, cut: bool) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"x" * size)
    fd = os.open(path, os.O_WRONLY | flags)
    assert supervised.cut_log(fd, 10) is cut
    os.close(fd)
    assert path.stat().st_size == (0 if cut else size)


def test_a_pipe_is_left_alone() -> None:
    read, write = os.pipe()
    assert supervised.cut_log(write, 0) is False
    os.close(read)
    os.close(write)
