"""The control socket: private, quick, and whatever is said to it does no harm."""

from __future__ import annotations

import os
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from coldtrail.errors import ColdtrailError, RefusedError, UsageError
from coldtraild import control as room
from coldtraild.control import Control, SilentError, address_of, ask, peer_uid


def handle(request: Mapping[str, object]) -> Mapping[str, object]:
    """A handler for every case."""
    match request.get("verb"):
        case "echo":
            return {"got": request}
        case "refuse":
            raise RefusedError("not now", hint="later")
        case "break":
            raise ZeroDivisionError("the words of somebody's session")
        case "deny":
            raise PermissionError(13, "Permission denied", "/x")
    raise UsageError("there is no such verb")


@pytest.fixture
def path(tmp_path: Path) -> Iterator[Path]:
    control = Control(tmp_path / "control", handle, faults=(Exception,))
    control.start()
    yield tmp_path / "control"
    control.stop()
    assert not (tmp_path / "control").exists()


def raw(path: Path, data: bytes, *, end: bool = True) -> bytes:
    """What is answered to these bytes."""
    with socket.socket(socket.AF_UNIX) as channel:
        channel.settimeout(10)
        channel.connect(str(path))
        try:
            channel.sendall(data)
            if end:
                channel.shutdown(socket.SHUT_WR)
            return channel.recv(1 << 20)
        except (BrokenPipeError, ConnectionResetError):
            return b""


def test_a_question_is_answered_and_the_socket_is_private(path: Path) -> None:
    assert ask(path, {"verb": "echo", "text": "a\nb\u2028"})["got"] == {"verb": "echo", "text": "a\nb\u2028"}
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_what_is_refused_comes_back_as_an_error_with_its_hint_and_its_exit_code(path: Path) -> None:
    for verb, code, said, hint in (
        ("refuse", 4, "not now", "later"),
        ("?", 2, "there is no such verb", ""),
        ("deny", 1, "PermissionError", ""),
        ("break", 1, "ZeroDivisionError at test_control.py", ""),
    ):
        with pytest.raises(ColdtrailError, match=said) as raised:
            ask(path, {"verb": verb})
        assert (raised.value.exit_code, raised.value.hint) == (code, hint)
        assert "somebody" not in str(raised.value)


@pytest.mark.parametrize(
    "data",
    [
        b"\n",
        b"nonsense\n",
        b"\xff\xfe\x00\n",
        b"[]\n",
        b"1\n",
        b'{"verb": 1}\n',
        b"[" * 100_000 + b"\n",
        b'{"verb": "echo"',
        b"",
        b"GET / HTTP/1.1\r\n\r\n",
    ],
    ids=["empty", "words", "no text", "a list", "a number", "no word", "deep", "torn", "nothing", "http"],
)
def test_bad_input_harms_nobody(path: Path, data: bytes) -> None:
    answer = raw(path, data)
    assert answer == b"" or b'"ok": false' in answer
    assert ask(path, {"verb": "echo"})["ok"]


def test_a_line_without_an_end_is_not_read_for_ever(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "REQUEST_MAX_BYTES", 1000)
    assert raw(path, b"x" * 5_000_000, end=False) == b""
    assert ask(path, {"verb": "echo"})["ok"]


def test_who_says_nothing_keeps_the_others_waiting_for_a_moment_only(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "PATIENCE_S", 0.2)
    silent = [socket.socket(socket.AF_UNIX) for _ in range(3)]
    for each in silent:
        each.connect(str(path))
    silent[0].send(b'{"verb"')
    assert ask(path, {"verb": "echo"})["ok"]
    for each in silent:
        each.close()


def test_who_goes_away_before_the_answer_harms_nobody(path: Path) -> None:
    for _ in range(20):
        with socket.socket(socket.AF_UNIX) as channel:
            channel.connect(str(path))
            channel.sendall(b'{"verb": "echo"}\n')
    assert ask(path, {"verb": "echo"})["ok"]


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a full queue looks as if nobody listened")
def test_who_finds_the_queue_full_asks_again_until_there_is_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    address, waits_s = str(tmp_path / "control"), list[float]()
    with socket.socket(socket.AF_UNIX) as busy, socket.socket(socket.AF_UNIX) as before, socket.socket(socket.AF_UNIX) as asker:
        busy.bind(address)
        busy.listen(0)
        before.connect(address)  # for one there is room all the same

        def hear_one(wait_s: float) -> None:
            waits_s.append(wait_s)
            busy.accept()[0].close()

        monkeypatch.setattr(time, "sleep", hear_one)
        asker.settimeout(5)
        room._connect(asker, address, time.monotonic() + 5)
        assert len(waits_s) == 1
        with socket.socket(socket.AF_UNIX) as late:
            late.settimeout(5)
            with pytest.raises(BlockingIOError):
                room._connect(late, address, time.monotonic())


def test_where_nobody_listens_that_is_told_at_once(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for name in ("none", "file"):
        with pytest.raises(SilentError, match="no daemon answers") as raised:
            ask(tmp_path / name, {"verb": "ping"})
        assert raised.value.exit_code == 3


def test_a_daemon_that_hangs_is_waited_for_no_longer_than_said(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as deaf:
        deaf.bind(str(tmp_path / "control"))
        deaf.listen(1)
        begin_s = time.monotonic()
        with pytest.raises(SilentError):
            ask(tmp_path / "control", {"verb": "ping"}, timeout_s=0.3)
        assert time.monotonic() - begin_s < 5


def test_a_socket_that_a_killed_daemon_left_is_taken_over(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(tmp_path / "control"))
    control = Control(tmp_path / "control", handle)
    control.start()
    assert ask(tmp_path / "control", {"verb": "echo"})["ok"]
    control.stop()


@pytest.mark.skipif(sys.platform != "linux", reason="the way round is Linux's")
def test_a_home_with_a_name_too_long_for_a_socket_has_one_all_the_same(tmp_path: Path) -> None:
    deep = tmp_path / ("long" * 20) / ("er" * 40)
    deep.mkdir(parents=True)
    control = Control(deep / "control", handle)
    control.start()
    assert ask(deep / "control", {"verb": "echo"})["ok"]
    control.stop()


def test_where_there_is_no_way_round_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "_BY_FD", str(tmp_path / "none"))
    with pytest.raises(OSError, match="too long a name"), address_of(tmp_path / ("x" * 200)):
        raise AssertionError("it has an address")


def test_the_other_end_is_known_by_the_kernel() -> None:
    one, other = socket.socketpair(socket.AF_UNIX)
    with one, other:
        assert peer_uid(one) == os.geteuid()


def test_another_user_is_not_answered(path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(room, "peer_uid", lambda _channel: 65534)
    assert raw(path, b'{"verb": "echo"}\n') == b""
    assert "user 65534 is not answered" in caplog.text


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_a_process_of_another_user_gets_nothing_even_through_an_open_door(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    for folder in tmp_path.parents:
        if folder.stat().st_uid == 0 and len(folder.parts) > 2:
            folder.chmod(0o755)
    control = Control(tmp_path / "control", handle)
    control.start()
    (tmp_path / "control").chmod(0o777)
    code = f"""
import os, socket
os.setuid(65534)
channel = socket.socket(socket.AF_UNIX)
channel.connect({str(tmp_path / "control")!r})
try:
    channel.sendall(b'{{"verb":"echo"}}\\n')
    print(channel.recv(100))
except OSError:
    print(b"")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=False)
    control.stop()
    assert done.stdout == "b''\n", done.stderr


def test_many_ask_at_once_and_each_gets_its_own_answer(path: Path) -> None:
    got: dict[int, Any] = {}

    def asking(number: int) -> None:
        got[number] = ask(path, {"verb": "echo", "number": number})["got"]

    threads = [threading.Thread(target=asking, args=(number,)) for number in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert got == {number: {"verb": "echo", "number": number} for number in range(12)}
