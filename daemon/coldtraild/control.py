"""The daemon's ear: a private socket, one line of JSON for a request and one for its answer; who else asks is not heard.

A request is `{"verb": "ping"}` with what that verb takes; an answer is `{"ok": true, ...}`, or `{"ok": false, "error": ..., "hint": ...,
"exit_code": ...}`. Each is answered at once: whoever wants to wait for what a request sets off looks for himself.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from coldtrail import durable
from coldtrail.errors import ColdtrailError, NotFoundError, UsageError
from coldtraild.log import NAME, error_text

REQUEST_MAX_BYTES = 1 << 20
PATIENCE_S = 1.0  # for a request to come whole, and for its answer to be taken: whoever is slower keeps the others waiting
ANSWER_S = 5.0  # an asker waits for so long
_QUEUE = 128  # askers that may wait until they are heard
_FULL_QUEUE_S = 0.01
_PATH_MAX_BYTES = 100  # of a socket's address; 103 on macOS, 107 on Linux
_BY_FD = "/proc/self/fd"  # by which an address that is too long becomes a short one
_ROOT = 0
_LOCAL_PEERCRED = 1  # of macOS, whose name for it Python does not know

log = logging.getLogger(NAME)

Answer = Mapping[str, object]
Handler = Callable[[Mapping[str, object]], Answer]


class SilentError(NotFoundError):
    """No daemon answers on this home."""


class Control:
    """Listens on a home's socket, on a thread of its own; `handler` answers, and what it raises of ours goes to the asker."""

    def __init__(
        self, path: Path, handler: Handler, answered: Callable[[], object] = lambda: None, *, faults: tuple[type[Exception], ...] = ()
    ) -> None:
        """`answered` is called after each request.

        `faults` are the exceptions, besides ours and the system's, that an answer tells of; the service gives all there are.
        """
        self._path, self._handler, self._answered = path, handler, answered
        self._faults: tuple[type[Exception], ...] = (ColdtrailError, OSError, *faults)
        self._socket: socket.socket | None = None
        self._thread = threading.Thread(target=self._serve, name="coldtrail-control", daemon=True)

    def start(self) -> None:
        """Begin to listen; the caller holds the home's lock, so that a socket that is there is nobody's. OSError."""
        self._path.unlink(missing_ok=True)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            with address_of(self._path) as address:
                listener.bind(address)
            os.chmod(self._path, durable.FILE_MODE)  # its folder has kept others out so far
            listener.listen(_QUEUE)
        except OSError:
            listener.close()
            raise
        self._socket = listener
        self._thread.start()

    def stop(self) -> None:
        """Listen no more."""
        if self._socket is None:
            return
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # wakes the thread
        self._socket.close()
        self._path.unlink(missing_ok=True)
        self._thread.join(PATIENCE_S)

    def _serve(self) -> None:
        listener = self._socket
        while listener is not None:
            try:
                channel, _ = listener.accept()
            except OSError:
                if listener.fileno() < 0:
                    return
                time.sleep(0.1)  # such as too many files open
                continue
            with channel, contextlib.suppress(OSError):  # an asker that goes away is no fault of ours
                self._answer(channel)

    def _answer(self, channel: socket.socket) -> None:
        who = peer_uid(channel)
        if who not in (os.geteuid(), _ROOT):
            log.warning("a request of user %(uid)s is not answered", {"uid": who})
            return
        line = read_line(channel, time.monotonic() + PATIENCE_S)
        channel.settimeout(PATIENCE_S)
        channel.sendall(json.dumps(self._handled(line)).encode() + b"\n")

    def _handled(self, line: bytes) -> Answer:
        try:
            try:
                request = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise UsageError("a request is one line of JSON") from error
            if not isinstance(request, dict):
                raise UsageError("a request is a JSON object")
            answer = self._handler(request)
        except self._faults as error:
            code = error.exit_code if isinstance(error, ColdtrailError) else 1
            said = str(error) if isinstance(error, ColdtrailError) else error_text(error)
            return {"ok": False, "error": said, "hint": getattr(error, "hint", ""), "exit_code": code}
        self._answered()
        return {"ok": True, **answer}


@contextlib.contextmanager
def address_of(path: Path) -> Iterator[str]:
    """How a socket is addressed, for the block: a path that is too long goes through its folder's descriptor where the system can.

    OSError where it cannot.
    """
    if len(os.fsencode(path)) <= _PATH_MAX_BYTES:
        yield str(path)
        return
    if not os.path.isdir(_BY_FD):
        raise OSError(f"{path}: too long a name for a socket: put the home in a folder with a shorter one")
    fd = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"{_BY_FD}/{fd}/{path.name}"
    finally:
        os.close(fd)


def peer_uid(channel: socket.socket) -> int | None:
    """Who is at the other end, as the kernel knows; None where it does not tell."""
    if hasattr(socket, "SO_PEERCRED"):
        _, uid, _ = struct.unpack("3i", channel.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")))
        return int(uid)
    with contextlib.suppress(OSError, struct.error):
        return int(struct.unpack("2I", channel.getsockopt(0, _LOCAL_PEERCRED, 76)[:8])[1])
    return None


def read_line(channel: socket.socket, end_s: float) -> bytes:
    """What comes up to a newline; TimeoutError where it takes longer than until `end_s`, OSError where it is too long or torn."""
    data = b""
    while b"\n" not in data:
        channel.settimeout(max(end_s - time.monotonic(), 0.001))
        part = channel.recv(65536)
        data += part
        if not part or len(data) > REQUEST_MAX_BYTES:
            raise OSError("a line that does not end")
    return data.partition(b"\n")[0]


def ask(path: Path, request: Mapping[str, object], *, timeout_s: float = ANSWER_S) -> dict[str, object]:
    """Ask the daemon of a home; gives its answer. SilentError where none answers, ColdtrailError for what it refuses."""
    end_s = time.monotonic() + timeout_s
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as channel:
            channel.settimeout(timeout_s)
            with address_of(path) as address:
                _connect(channel, address, end_s)
            channel.sendall(json.dumps(request).encode() + b"\n")
            answer = json.loads(_whole(channel, end_s))
    except (OSError, ValueError) as error:
        hint = "`coldtrail status` tells whether one runs; `coldtrail run` starts one"
        raise SilentError(f"no daemon answers on {path.parent}", hint=hint) from error
    if not answer.get("ok"):
        refused = ColdtrailError(str(answer.get("error")), hint=str(answer.get("hint", "")))
        refused.exit_code = int(answer.get("exit_code", 1))
        raise refused
    return dict(answer)


def _connect(channel: socket.socket, address: str, end_s: float) -> None:
    """Connect, in a moment where more ask at once than may wait: of them the kernel tells at once, whatever the time-out."""
    while True:
        try:
            channel.connect(address)
        except BlockingIOError:
            if time.monotonic() >= end_s:
                raise
            time.sleep(_FULL_QUEUE_S)
        else:
            return


def _whole(channel: socket.socket, end_s: float) -> bytes:
    """An answer, however long: it ends with the connection."""
    parts: list[bytes] = []
    while True:
        channel.settimeout(max(end_s - time.monotonic(), 0.001))
        part = channel.recv(65536)
        if not part:
            return b"".join(parts)
        parts.append(part)
