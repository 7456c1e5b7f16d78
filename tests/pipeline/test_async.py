"""The asynchronous twins: the same as the others, without holding up the loop."""

from __future__ import annotations

import asyncio
import json
import threading
from pathlib import Path

import pytest

import coldtrail
from coldtrail.errors import ConflictError, NotFoundError, UsageError
from coldtrail.state import State
from coldtrail.writer import Writer
from world_of import Clock


def opened(path: Path) -> Writer:
    return Writer(path, Clock(), state_of=lambda _: State())


def texts(path: Path) -> list[object]:
    """What was said, in the file's order."""
    return [record["content"] for record in map(json.loads, path.read_bytes().splitlines()) if record["type"] == "message_added"]


def test_events_that_are_awaited_one_by_one_stand_in_that_order(tmp_path: Path) -> None:
    async def write() -> list[int]:
        async with opened(tmp_path / "s.jsonl") as log:
            appended = [await log.aappend("message_added", role="user", content=n) for n in range(50)]
            many = await log.aappend_many({"type": "message_added", "role": "user", "content": n} for n in range(50, 60))
            await log.aflush()
            return [each.offset for each in (*appended, *many)]

    offsets = asyncio.run(write())
    assert offsets == sorted(set(offsets))
    assert texts(tmp_path / "s.jsonl") == list(range(60))


def test_tasks_share_a_writer(tmp_path: Path) -> None:
    async def write() -> None:
        async with opened(tmp_path / "s.jsonl") as log:
            await asyncio.gather(*(log.aappend("message_added", role="user", content=n) for n in range(200)))

    asyncio.run(write())
    assert sorted(texts(tmp_path / "s.jsonl"), key=lambda each: int(str(each))) == list(range(200))


def test_the_twins_of_the_writer_tell_what_is_wrong(tmp_path: Path) -> None:
    async def write() -> None:
        async with opened(tmp_path / "s.jsonl") as log:
            first = await log.aappend("session_end", event_id="e")
            assert (await log.aappend("session_end", event_id="e")) == coldtrail.Appended("e", first.offset, is_new=False)
            with pytest.raises(ConflictError):
                await log.aappend("session_end", expected_last="nobody")
            with pytest.raises(UsageError):
                await log.aappend("nothing")
        with pytest.raises(UsageError, match="closed"):
            await log.aappend("session_end")

    asyncio.run(write())


def test_while_a_disk_is_slow_the_loop_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    waits = threading.Event()

    async def write() -> None:
        async with opened(tmp_path / "s.jsonl") as log:
            with monkeypatch.context() as patched:
                patched.setattr("coldtrail.durable.sync_fd", lambda *_: waits.wait(30) or None)
                log.append("session_end")
                flushing = asyncio.create_task(log.aflush())
                await asyncio.sleep(0)
                assert not flushing.done()
                waits.set()  # by the loop itself, which would never come here if it waited
                await flushing

    asyncio.run(write())


def test_a_session_is_awaited_until_it_is_captured_and_then_followed_and_recovered(tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    config.write_text(f'discover = false\n[[source]]\nname = "mine"\nagent = "event-log"\nroot = "{tmp_path}/logs"\n')

    async def work() -> tuple[list[object], list[object]]:
        with coldtrail.open(home=tmp_path / "home", config=config) as trail:
            async with trail.writer("mine", session="s1") as log:
                await log.aappend_many([{"type": "message_added", "role": "user", "content": n} for n in range(5)])
                await trail.await_captured(log.path)
            session = trail.session("s1")
            followed = [event.data["content"] async for event in session.afollow(types={"message_added"}, stop=lambda: True)]
            recovered = await session.arecover()
            with pytest.raises(NotFoundError):
                await trail.await_captured("nowhere")
        return followed, [message.content for message in recovered.state.messages()]

    assert asyncio.run(work()) == (list(range(5)), list(range(5)))
