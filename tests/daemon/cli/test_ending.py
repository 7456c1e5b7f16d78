"""How commands end: codes, messages, hints, closed pipes, interrupts, faults of our own."""

from __future__ import annotations

import signal
import subprocess

import pytest

from coldtrail.errors import ColdtrailError, CorruptionError, LockedError, NotFoundError, UnverifiableError, UsageError
from coldtraild.cli.ending import Ending, ended
from daemon.cli.desk import FIRST, Desk


def raising(error: BaseException) -> object:
    raise error


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ColdtrailError("it failed"), 1),
        (CorruptionError("file", 3, "damaged"), 1),
        (UsageError("no such thing"), 2),
        (NotFoundError("nowhere"), 3),
        (LockedError("held"), 4),
        (UnverifiableError("who knows"), 5),
        (PermissionError(13, "Permission denied", "/a"), 1),
        (KeyboardInterrupt(), 130),
    ],
)
def test_each_way_to_fail_has_its_code(error: BaseException, code: int) -> None:
    assert ended(lambda: raising(error)) == code


def test_a_message_is_one_line_and_the_hint_another(capsys: pytest.CaptureFixture[str]) -> None:
    ended(lambda: raising(ColdtrailError("a\nb\x1b[2J", hint="do\x07 this")))
    assert capsys.readouterr() == ("", "coldtrail: a\\nb\\x1b[2J\nhint: do\\x07 this\n")


def test_an_error_of_the_system_names_the_file(capsys: pytest.CaptureFixture[str]) -> None:
    ended(lambda: raising(PermissionError(13, "Permission denied", b"/a\xff")))
    assert capsys.readouterr().err == "coldtrail: /a\\udcff: Permission denied\nhint: give the user that runs coldtrail the right to it\n"


@pytest.mark.parametrize(("codes", "worst"), [([], 0), ([0, 5], 5), ([5, 3], 3), ([3, 4, 0], 4), ([4, 1, 3], 1), ([1, 5], 1)])
def test_of_several_things_the_worst_counts(codes: list[int], worst: int) -> None:
    ending = Ending()
    for code in codes:
        ending.note(code)
    assert ending.code == worst


def test_a_closed_pipe_ends_all_of_them() -> None:
    with pytest.raises(BrokenPipeError), Ending().go_on("the first"):
        raise BrokenPipeError


@pytest.mark.parametrize("arguments", [["no-such-command"], ["ls", "--no-such-option"], ["show"], []])
def test_a_wrong_call_is_a_2_and_says_so_on_stderr(desk: Desk, arguments: list[str]) -> None:
    result = desk.run(*arguments, code=2)
    assert result.stdout == ""
    assert "Usage: coldtrail" in result.stderr


def test_a_traceback_comes_only_when_it_is_asked_for(desk: Desk) -> None:
    assert "Traceback" not in desk.start("show", "nothing").stderr
    told = desk.start("show", "nothing", COLDTRAIL_DEBUG="1")
    assert told.returncode == 3
    assert "Traceback" in told.stderr
    assert told.stderr.endswith("coldtrail: nothing: no session has this key, id or path\nhint: `coldtrail ls` shows what there is\n")


BUG = "import coldtrail.catalog\ncoldtrail.catalog.Catalog.sessions = lambda *_, **__: {}['secret words']"


def test_a_fault_of_our_own_is_one_line_without_any_words_of_a_session(desk: Desk) -> None:
    told = desk.start("ls", before=BUG)
    assert told.returncode == 1
    assert told.stderr.startswith("coldtrail: a fault of coldtrail's own: KeyError at ")
    assert "secret words" not in told.stderr
    assert told.stderr.count("\n") == 2


def test_a_fault_of_our_own_shows_where_it_comes_from_when_asked(desk: Desk) -> None:
    told = desk.start("ls", before=BUG, COLDTRAIL_DEBUG="1")
    assert told.returncode == 1
    assert "Traceback" in told.stderr


@pytest.mark.parametrize("buffering", ["", "1"], ids=["buffered", "unbuffered"])
def test_a_reader_that_goes_away_is_no_error(desk: Desk, buffering: str) -> None:
    desk.write(desk.converse(), *[{"type": "user", "message": {"role": "user", "content": "x" * 100}}] * 3000)
    desk.capture()
    for form in ([], ["--json"], ["--raw"]):
        env = desk.process_env(PYTHONUNBUFFERED=buffering)
        process = subprocess.Popen(desk.argv("events", FIRST, *form), env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        assert process.stdout is not None
        process.stdout.read(10)
        process.stdout.close()
        _, told = process.communicate(timeout=60)
        assert (told, process.returncode) == (b"", 141), form


def test_a_reader_that_was_never_there_is_no_error(desk: Desk) -> None:
    desk.captured()
    process = subprocess.Popen(desk.argv("ls"), env=desk.process_env(), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.close()
    _, told = process.communicate(timeout=60)
    assert (told, process.returncode) == (b"", 141)


def test_an_interrupt_is_a_130_without_a_traceback(desk: Desk) -> None:
    desk.captured()
    interrupted = "import coldtrail.client, os, signal\ncoldtrail.client.Trail.session = lambda *_: os.kill(os.getpid(), signal.SIGINT)"
    told = desk.start("show", FIRST, before=interrupted)
    assert (told.returncode, told.stdout, told.stderr) == (128 + signal.SIGINT, "", "")


def test_a_terminal_that_lacks_a_character_gets_it_escaped(desk: Desk) -> None:
    desk.converse(said="日本")
    desk.capture()
    told = desk.start("ls", PYTHONIOENCODING="latin-1")
    assert (told.returncode, told.stderr) == (0, "")
    assert "\\u65e5\\u672c" in told.stdout


def test_the_version_is_told(desk: Desk) -> None:
    assert desk.run("--version").stdout.startswith("coldtrail ")


def test_the_module_can_be_run_too(desk: Desk) -> None:
    done = subprocess.run(
        [desk.argv()[0], "-m", "coldtraild.cli", "ls", "--json"],
        env=desk.process_env(),
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert '"sessions": []' in done.stdout
