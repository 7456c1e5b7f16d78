"""The figures for Prometheus: in its own form, in a file or on a port of this machine alone."""

from __future__ import annotations

import re
import socket
import stat
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from coldtrail.config import Endpoint
from coldtrail.settings import open_home
from coldtraild import report
from coldtraild.metrics import Metrics, text
from daemon.cli.desk import Desk

_LINE = re.compile(r'coldtrail_[a-z_]+(\{[a-z]+="(?:[^"\\\n]|\\["\\n])*"\})? -?[0-9.e+-]+')


@pytest.fixture
def document(tmp_path: Path) -> Iterator[dict[str, object]]:
    desk = Desk(tmp_path / "desk")
    desk.captured()
    with open_home(desk.settings()) as home:
        yield report.alone(home, desk.settings(), report.no_outlook(), mode="daemon", looked_ms=home.now_ms())


def test_every_line_is_in_the_form_that_prometheus_reads(document: dict[str, object]) -> None:
    document["sources"] = [{**document["sources"][0], "name": 'odd "name"\\\n'}]  # type: ignore[index]
    document["findings"] = [{"state": "fault"}, {"state": "fault"}, {"state": "clock"}]
    lines = text(document).splitlines()
    assert [line for line in lines if not line.startswith("# ") and not _LINE.fullmatch(line)] == []
    helped = {line.split()[2] for line in lines if line.startswith("# HELP ")}
    assert helped == {line.split()[2] for line in lines if line.startswith("# TYPE ")}
    assert {re.split("[{ ]", line)[0] for line in lines if not line.startswith("#")} <= helped
    assert 'coldtrail_source_fresh{source="odd \\"name\\"\\\\\\n"} 1' in lines
    assert 'coldtrail_findings{state="fault"} 2' in lines
    assert 'coldtrail_sessions{state="live"} 1' in lines
    assert "coldtrail_up 1" in lines


def test_no_text_and_no_path_of_a_session_is_in_it(document: dict[str, object]) -> None:
    for private in ("list the files", "/somebody", "ae3d54a6", ".jsonl"):
        assert private not in text(document)


def test_a_file_is_replaced_whole_and_readable_by_who_collects(document: dict[str, object], tmp_path: Path) -> None:
    path = tmp_path / "collected" / "coldtrail.prom"
    path.parent.mkdir()
    metrics = Metrics(path)
    for _ in range(3):
        metrics.show(document)
    metrics.close()
    assert path.read_text() == text(document)
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    assert [each.name for each in path.parent.iterdir()] == ["coldtrail.prom"]


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def test_a_port_answers_with_the_latest_and_is_given_back(document: dict[str, object]) -> None:
    port = free_port()
    metrics = Metrics(Endpoint("127.0.0.1", port))
    metrics.show(document)
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        assert answer.read().decode() == text(document)
        assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
    with pytest.raises(urllib.error.HTTPError, match="404") as raised:
        urllib.request.urlopen(f"http://127.0.0.1:{port}/etc/passwd", timeout=10)
    raised.value.close()
    metrics.close()
    Metrics(Endpoint("127.0.0.1", port)).close()


def test_a_port_that_is_taken_is_an_error_that_the_caller_gets() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(OSError, match="in use"):
            Metrics(Endpoint("127.0.0.1", int(taken.getsockname()[1])))


def test_nowhere_is_nothing(document: dict[str, object]) -> None:
    metrics = Metrics(None)
    metrics.show(document)
    metrics.close()
