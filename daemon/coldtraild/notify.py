"""Tell the service manager how we are: systemd's datagrams to $NOTIFY_SOCKET; without a manager nothing is sent."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Manager:
    """Where the service manager listens (empty: there is none), and how often it wants a sign of life (0: never).

    >>> Manager().ready("captured 3 files")  # nobody listens
    """

    address: str = ""
    watchdog_s: float = 0.0

    @classmethod
    def of(cls, env: Mapping[str, str], pid: int) -> Manager:
        """The one that started this process, by its environment."""
        wanted = env.get("WATCHDOG_USEC", "")
        for_us = env.get("WATCHDOG_PID", str(pid)) == str(pid)
        return cls(env.get("NOTIFY_SOCKET", ""), int(wanted) / 1e6 if wanted.isdigit() and for_us else 0.0)

    def starting(self, status: str, more_s: float) -> None:
        """The start goes on; it may take `more_s` seconds more, whatever the manager had allowed."""
        self._send(EXTEND_TIMEOUT_USEC=int(more_s * 1e6), STATUS=status)

    def ready(self, status: str) -> None:
        """The start, or a reload, is over."""
        self._send(READY=1, STATUS=status)

    def status(self, text: str) -> None:
        """What we are at, for `systemctl status`."""
        self._send(STATUS=text)

    def alive(self) -> None:
        """Everything that must move still does; to be said at least every half of `watchdog_s`."""
        self._send(WATCHDOG=1)

    def reloading(self) -> None:
        """The config is being read again; `ready` ends it."""
        self._send(RELOADING=1, MONOTONIC_USEC=time.monotonic_ns() // 1_000)

    def stopping(self) -> None:
        """The end has begun."""
        self._send(STOPPING=1, STATUS="stopping")

    def _send(self, **words: object) -> None:
        """A manager that does not listen is no fault of ours."""
        if not self.address:
            return
        address = "\0" + self.address[1:] if self.address.startswith("@") else self.address
        data = "".join(f"{name}={str(value).replace(os.linesep, ' ')}\n" for name, value in words.items()).encode()
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | getattr(socket, "SOCK_CLOEXEC", 0)) as channel:
            channel.connect(address)
            channel.send(data)
