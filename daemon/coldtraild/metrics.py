"""The service's figures for Prometheus: a file that is replaced, or a port that only this machine reaches.

The text form is a name, labels and a number on a line: a dozen lines of our own, where the client library would add a package,
a registry of the whole process and a server with threads of its own.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from coldtrail import durable
from coldtrail.config import Endpoint

READABLE_MODE = 0o644  # of the file: who collects is another user, and there are only counts in it
_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_REQUEST_S = 5.0

Sample = tuple[str, Mapping[str, str], float]


def text(document: Mapping[str, Any]) -> str:
    """The document's figures, each with what it is."""
    lines = []
    for name, what, samples in _figures(document):
        lines += [f"# HELP coldtrail_{name} {what}", f"# TYPE coldtrail_{name} gauge"]
        lines += [f"coldtrail_{name}{_labels(labels)} {number:.17g}" for labels, number in samples]
    return "\n".join(lines) + "\n"


def _figures(document: Mapping[str, Any]) -> Iterator[tuple[str, str, list[tuple[Mapping[str, str], float]]]]:
    sources, jobs, sessions = document["sources"], document["jobs"], document["sessions"]
    yield "up", "Whether the daemon runs.", [({}, float(document["stopped_ms"] is None))]
    yield "written_timestamp_seconds", "When these figures were taken.", [({}, document["written_ms"] / 1000)]
    yield "findings", "What is not well, by kind.", _counted(document["findings"])
    yield "sessions", "Sessions that are kept.", [({"state": name}, sessions[name]) for name in ("live", "gone", "expiring")]
    yield "records", "Records of all sessions.", [({}, sessions["records"])]
    yield "captured_bytes", "Plain bytes of all sessions.", [({}, sessions["bytes"])]
    places = ("store", "archive", "catalog", "wal")
    yield "stored_bytes", "What they take.", [({"where": name}, document[f"{name}_bytes"]) for name in places]
    yield "disk_free_bytes", "Free on the disk of a folder of ours.", [({"of": of}, disk["free_bytes"]) for of, disk in _disks(document)]
    yield "queue_marks", "Paths that were touched and wait.", [({}, document["queue"]["marks"])]
    yield "source_fresh", "Whether what the agent has written is captured.", [_of(each, each["freshness"] == "fresh") for each in sources]
    yield "source_lag_seconds", "For how long something waits to be captured.", [_of(each, each["lag_s"]) for each in sources]
    yield "source_uncaptured_bytes", "What waits to be captured.", [_of(each, each["uncaptured_bytes"]) for each in sources]
    yield "source_polled", "Whether a folder of it is polled, for want of events.", [_of(each, _polled(each)) for each in sources]
    yield "job_running", "Whether a job runs.", [_of(each, each["running"], "job") for each in jobs]
    yield (
        "job_success_timestamp_seconds",
        "When a job was last done.",
        [_of(each, each["last_success_ms"] / 1000, "job") for each in jobs if each["last_success_ms"] is not None],
    )
    yield "paused", "Whether somebody has paused the work.", [({}, float(document["paused"] is not None))]


def _of(each: Mapping[str, Any], number: float, label: str = "source") -> tuple[Mapping[str, str], float]:
    return {label: str(each["name"])}, float(number)


def _counted(findings: list[Mapping[str, Any]]) -> list[tuple[Mapping[str, str], float]]:
    states = [str(each["state"]) for each in findings]
    return [({"state": state}, float(states.count(state))) for state in sorted(set(states))]


def _disks(document: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    return zip(("home", "archive"), document["disks"], strict=False)


def _polled(source: Mapping[str, Any]) -> bool:
    return any(each["mode"] == "polling" for each in source["watch"])


def _labels(labels: Mapping[str, str]) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items()) + "}"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


class Metrics:
    """Shows the figures where the config says; OSError where that cannot be."""

    def __init__(self, place: Endpoint | Path | None) -> None:
        self._place, self._server = place, None if not isinstance(place, Endpoint) else _Server(place)

    def show(self, document: Mapping[str, Any]) -> None:
        """Replace what is shown."""
        if self._server is not None:
            self._server.body = text(document).encode()
        elif isinstance(self._place, Path):
            durable.replace_unsynced(self._place, text(document).encode(), READABLE_MODE)

    def close(self) -> None:
        """Show them no more on a port; a file stays, and its time tells how old it is."""
        if self._server is not None:
            self._server.close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, place: Endpoint) -> None:
        self.body = b""
        self.address_family = socket.AF_INET6 if ":" in place.host else socket.AF_INET
        super().__init__((place.host, place.port), _Handler)
        self._thread = threading.Thread(target=self.serve_forever, name="coldtrail-metrics", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self.shutdown()
        self.server_close()
        self._thread.join()

    def server_bind(self) -> None:
        """As its base's, without looking up the name of the machine, which may take its time."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])

    def handle_error(self, request: Any, client_address: Any) -> None:
        """An asker that goes away is no fault of ours."""


class _Handler(BaseHTTPRequestHandler):
    timeout = _REQUEST_S

    def do_GET(self) -> None:
        """Answer with the figures, whoever asks on this machine."""
        found = self.path.partition("?")[0] in ("/", "/metrics")
        body = self.server.body if found and isinstance(self.server, _Server) else b"only /metrics is here\n"
        self.send_response(200 if found else 404)
        self.send_header("Content-Type", _TYPE)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - its base's name for it
        """Who asks is not logged."""
