"""The log: lines for people and for machines, no floods, and nothing that a session said."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator

import pytest

from coldtrail.errors import SourceError
from coldtraild.log import BURST, error_text, setup
from daemon.waiting import Clock

SECRET = "the words of somebody's session"


class Log:
    """A log that writes to memory."""

    def __init__(self, *, as_json: bool, verbose: bool = False) -> None:
        self.stream, self.clock = io.StringIO(), Clock()
        self.log = setup(self.stream, json=as_json, verbose=verbose, clock=self.clock)

    @property
    def lines(self) -> list[str]:
        return self.stream.getvalue().split("\n")[:-1]


@pytest.fixture(autouse=True)
def loggers_as_they_were() -> Iterator[None]:
    everything = logging.getLogger()
    handlers, level = list(everything.handlers), everything.level
    yield
    for handler in [each for each in everything.handlers if each not in handlers]:
        everything.removeHandler(handler)
        handler.close()
    everything.setLevel(level)


def test_a_line_for_people_has_time_level_and_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.time", lambda: 0.25)
    monkeypatch.setattr("time.time_ns", lambda: 250_000_000)
    log = Log(as_json=False)
    log.log.warning("%(path)s: gone", {"path": "/logs/a.jsonl"})
    assert log.lines == ["1970-01-01T00:00:00.250Z warning  /logs/a.jsonl: gone"]


def test_a_line_for_machines_is_one_object_with_the_named_values(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.time", lambda: 0.25)
    monkeypatch.setattr("time.time_ns", lambda: 250_000_000)
    log = Log(as_json=True)
    log.log.info("captured %(bytes)d bytes of %(stream)s", {"bytes": 12, "stream": "00ab"})
    log.log.error("plain")
    assert [json.loads(line) for line in log.lines] == [
        {
            "time": "1970-01-01T00:00:00.250Z",
            "level": "info",
            "message": "captured 12 bytes of 00ab",
            "fields": {"bytes": 12, "stream": "00ab"},
        },
        {"time": "1970-01-01T00:00:00.250Z", "level": "error", "message": "plain"},
    ]


def test_debug_lines_are_for_the_verbose() -> None:
    quiet = Log(as_json=False)
    quiet.log.debug("detail")
    assert quiet.lines == []
    loud = Log(as_json=False, verbose=True)
    loud.log.debug("detail")
    assert len(loud.lines) == 1


def test_other_packages_are_heard_from_their_warnings_on() -> None:
    log = Log(as_json=False, verbose=True)
    logging.getLogger("some.package").info("hello")
    logging.getLogger("some.package").warning("careful")
    assert [line.split()[-1] for line in log.lines] == ["careful"]


def test_set_up_again_it_writes_to_the_new_stream_alone() -> None:
    old = Log(as_json=False)
    new = Log(as_json=False)
    new.log.warning("here")
    assert (len(old.lines), len(new.lines)) == (0, 1)


@pytest.mark.parametrize("as_json", [False, True])
@pytest.mark.parametrize("name", ["a\nerror forged", "a\x1b[2Jb", "a\u2028b", "a\udce9b", "a\rb"])
def test_no_path_can_break_a_line_or_command_a_terminal(name: str, as_json: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    log = Log(as_json=as_json)
    everything = logging.getLogger()  # what no terminal takes, the report that pytest makes of a test does not take either
    monkeypatch.setattr(everything, "handlers", [each for each in everything.handlers if getattr(each, "stream", None) is log.stream])
    log.log.warning("%(path)s: gone", {"path": name})
    (line,) = log.lines
    assert line.isprintable()
    if as_json:
        assert json.loads(line)["fields"]["path"] == name


# No floods


@pytest.mark.parametrize("as_json", [False, True])
def test_of_a_kind_five_a_minute_are_written_and_then_one_line_counts_the_rest(as_json: bool) -> None:
    log = Log(as_json=as_json)
    for number in range(105):
        log.log.warning("%(path)s: unreadable", {"path": f"/logs/{number}"})
    assert len(log.lines) == BURST == 5
    log.clock.now_s += 61
    log.log.info("another kind")
    assert len(log.lines) == 7
    assert "100 more of these were held back, the last of them: /logs/104: unreadable" in log.lines[5]
    assert "another kind" in log.lines[6]
    if as_json:
        assert json.loads(log.lines[5])["fields"] == {"count": 100, "last": "/logs/104: unreadable"}


@pytest.mark.parametrize("as_json", [False, True])
def test_of_what_is_held_back_an_unexpected_exceptions_words_are_not_written_either(as_json: bool) -> None:
    log = Log(as_json=as_json)
    for _ in range(BURST + 1):
        try:
            raise KeyError(SECRET)
        except KeyError:
            log.log.exception("%(path)s: failed", {"path": "/logs/a.jsonl"})
    log.clock.now_s += 61
    log.log.info("another kind")
    assert "1 more of these were held back, the last of them: /logs/a.jsonl: failed: KeyError at test_log.py:" in log.lines[BURST]
    assert "somebody" not in "".join(log.lines)


def test_what_does_not_fit_its_template_is_held_back_like_any_other_and_ends_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("logging.raiseExceptions", False)
    log = Log(as_json=False)
    everything = logging.getLogger()  # pytest's own handler raises what any other keeps to itself
    monkeypatch.setattr(everything, "handlers", [each for each in everything.handlers if getattr(each, "stream", None) is log.stream])
    for _ in range(BURST + 1):
        log.log.warning("%(path)s: gone", {"other": 1})
    log.clock.now_s += 61
    log.log.info("another kind")
    assert "1 more of these were held back, the last of them: %(path)s: gone" in log.lines[0]


def test_after_its_minute_a_kind_is_written_again() -> None:
    log = Log(as_json=False)
    for _ in range(6):
        log.log.warning("again")
    log.clock.now_s += 61
    for _ in range(6):
        log.log.warning("again")
    assert [line.split("  ")[-1] for line in log.lines] == ["again"] * 5 + ["1 more of these were held back, the last of them: again"] + [
        "again"
    ] * 5


def test_kinds_do_not_hold_each_other_back() -> None:
    log = Log(as_json=False)
    for _ in range(9):
        log.log.warning("one")
        log.log.warning("two")
        log.log.info("one")
    assert len(log.lines) == 15


def test_slow_repetition_is_never_held_back() -> None:
    log = Log(as_json=False)
    for _ in range(50):
        log.log.warning("every quarter minute")
        log.clock.now_s += 15
    assert len(log.lines) == 50


def test_what_was_held_back_is_told_at_the_end_too() -> None:
    log = Log(as_json=False)
    for _ in range(8):
        log.log.warning("again")
    Log(as_json=False)
    assert log.lines[-1].endswith("3 more of these were held back, the last of them: again")


# Nothing private


@pytest.mark.parametrize("as_json", [False, True])
def test_of_an_unexpected_exception_type_and_place_are_written_but_not_its_words(as_json: bool) -> None:
    log = Log(as_json=as_json)
    try:
        json.loads(f'{{"content": "{SECRET}",}}')
        pytest.fail("that was no JSON")
    except ValueError as cause:
        try:
            raise KeyError(SECRET) from cause
        except KeyError:
            log.log.exception("%(path)s: failed", {"path": "/logs/a.jsonl"})
    (line,) = log.lines
    assert "/logs/a.jsonl: failed: KeyError at test_log.py:" in line
    assert "somebody" not in line


def test_our_own_errors_and_the_systems_are_written_with_their_words() -> None:
    ours = SourceError("/logs/a.jsonl", "cannot be read", hint="look at its mode")
    assert error_text(ours) == "/logs/a.jsonl: cannot be read (look at its mode)"
    systems = PermissionError(13, "Permission denied", "/logs/a.jsonl")
    assert error_text(systems) == "PermissionError: [Errno 13] Permission denied: '/logs/a.jsonl'"


def test_an_exception_that_was_never_raised_has_its_type() -> None:
    assert error_text(ValueError(SECRET)) == "ValueError"
