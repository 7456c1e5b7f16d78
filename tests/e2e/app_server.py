"""Codex's app server, spoken to as editors do: threads are begun, forked and reverted there, which `codex exec` cannot do."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from e2e.processes import STOP_S, Process, wait_until
from e2e.world import World

_START_S = 60.0

Fields = dict[str, Any]


class AppServer:
    """One running app server: requests by JSON lines on its standard input, answers and news on its standard output."""

    def __init__(self, process: Process) -> None:
        self._process, self._count, self._read = process, 0, 0
        self._news: list[Fields] = []
        client = {"name": "coldtrail-tests", "version": "1"}
        self.ask("initialize", clientInfo=client, capabilities={"experimentalApi": True})
        self._send({"method": "initialized"})

    def ask(self, method: str, **parameters: object) -> Fields:
        """The result of one request, which must go well."""
        self._count += 1
        number = self._count
        self._send({"id": number, "method": method, "params": parameters})
        answer = self._wait(f"an answer to {method}", lambda said: said.get("id") == number and "method" not in said)
        assert "error" not in answer, (method, answer)
        result: Fields = answer["result"]
        return result

    def begin(self, project: str) -> str:
        """A new thread's id."""
        started = self.ask("thread/start", cwd=project, approvalPolicy="never", sandbox="danger-full-access")
        return str(started["thread"]["id"])

    def fork(self, thread: str, **until: str) -> str:
        """A new thread that goes on from another one, up to a turn if one is named; gives its id."""
        forked = self.ask("thread/fork", threadId=thread, excludeTurns=True, approvalPolicy="never", sandbox="danger-full-access", **until)
        return str(forked["thread"]["id"])

    def turn(self, thread: str, prompt: str) -> str:
        """One whole turn; gives its id."""
        said = [{"type": "text", "text": prompt, "text_elements": []}]
        turn = str(self.ask("turn/start", threadId=thread, input=said)["turn"]["id"])
        done = self._wait(
            f"the end of {prompt}", lambda said: said.get("method") == "turn/completed" and said["params"]["turn"]["id"] == turn
        )
        assert done["params"]["turn"]["status"] == "completed", done
        return turn

    def _send(self, message: Fields) -> None:
        pipe = self._process.popen.stdin
        assert pipe
        pipe.write(json.dumps(message).encode() + b"\n")
        pipe.flush()

    def _said(self) -> Iterator[Fields]:
        """What is new on its standard output."""
        lines = self._process.stdout.read_bytes().split(b"\n")[:-1]
        for line in lines[self._read :]:
            self._read += 1
            yield json.loads(line)

    def _wait(self, what: str, fits: Any) -> Fields:
        found: list[Fields] = []

        def has_come() -> bool:
            assert self._process.popen.poll() is None, self._process.stderr.read_text()
            self._news += self._said()
            found.extend(said for said in self._news if fits(said))
            return bool(found)

        wait_until(what, has_come, _START_S)
        return found[0]


@contextmanager
def app_server(world: World) -> Iterator[AppServer]:
    """A server during the block; after it, it has ended and has written everything."""
    process = world.start_agent("app-server", talks=True)
    yield AppServer(process)
    assert process.popen.stdin
    process.popen.stdin.close()
    process.wait(STOP_S)
