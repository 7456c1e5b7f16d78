"""A session of one's own agent, 8 MB in 10,000 events: beside `eventsourcing` and LangGraph's checkpointer, both on SQLite.

These two are installed for the comparison alone (`pip install eventsourcing langgraph-checkpoint-sqlite`); without them it is skipped.
"""

from __future__ import annotations

import importlib
import itertools
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import coldtrail
from bench.measuring import needs_corpus, real_logs, show
from coldtrail.format.lines import LineSplitter

pytestmark = [pytest.mark.bench, needs_corpus]

EVENTS = 10_000
EVENT_BYTES = 800
LANGGRAPH_EVENTS = 2_000  # of them: it writes the whole state at each step
Events = list[dict[str, Any]]


def texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            yield from texts(each)


def pieces() -> Iterator[str]:
    """What was said in real sessions, in pieces of very different lengths."""
    lengths = itertools.cycle((180, 480, 3900, 110, 1500, 560, 90, 2300))
    for path in real_logs():
        for record in LineSplitter(0).feed(path.read_bytes()):
            message = record.value.get("message") if isinstance(record.value, dict) else None
            for text in texts(message.get("content") if isinstance(message, dict) else None):
                at = 0
                while at + 40 < len(text):
                    length = next(lengths)
                    yield text[at : at + length]
                    at += length


@pytest.fixture(scope="module")
def events() -> Events:
    """Turns of a user's message, a call, its result and an answer."""
    found: Events = []
    source = pieces()
    for turn in range(EVENTS // 4):
        call = f"call-{turn}"
        found.append({"type": "message_added", "role": "user", "content": next(source)})
        found.append({"type": "tool_invoked", "tool_name": "Bash", "input": {"command": next(source)}, "invocation_id": call})
        found.append({"type": "tool_completed", "invocation_id": call, "output": next(source), "duration_ms": turn % 900})
        found.append({"type": "message_added", "role": "assistant", "content": next(source)})
    return found


def size_of(folder: Path, pattern: str = "*") -> int:
    return sum(path.stat().st_size for path in folder.rglob(pattern) if path.is_file())


def seconds(work: Callable[[], object], times: int = 1, clock: Callable[[], float] = time.perf_counter) -> float:
    """How long it takes, the median of several times."""
    took = []
    for _ in range(times):
        began = clock()
        work()
        took.append(clock() - began)
    return statistics.median(took)


def passed(home: Path, config: Path) -> None:
    """What the service does in its passes, until the session is cold and archived."""
    command = [sys.executable, "-m", "coldtraild.cli", "--home", str(home), "--config", str(config), "run", "--once"]
    subprocess.run(command, check=True, capture_output=True)


def ours(events: Events, folder: Path) -> dict[str, float]:
    config, home = folder / "config.toml", folder / "home"
    config.write_text(
        f'discover = false\n[compact]\nafter = "0s"\n[[source]]\nname = "mine"\nagent = "event-log"\nroot = "{folder}/logs"\n'
    )
    with coldtrail.open(home=home, config=config) as trail, trail.writer("mine", session="s1") as log:
        append = seconds(lambda: [log.append(event["type"], **{key: event[key] for key in event if key != "type"}) for event in events])
        size = log.path.stat().st_size
    passed(home, config)
    with coldtrail.open(home=home, config=config) as trail:
        session = trail.session("s1")
        middle = list(itertools.islice((event.position for event in session.events()), EVENTS // 2 + 1))[-1]
        whole = session.recover(verify=True)
        assert whole.recovery.verified
        assert len(whole.state.messages()) == EVENTS // 2
        assert len(session.recover(at=middle).state.messages()) == EVENTS // 4
        return {
            "append": len(events) / append,
            "log_bytes": size,
            "bytes": size_of(home / "archive"),
            "last": seconds(session.recover, 15),
            "middle": seconds(lambda: session.recover(at=middle), 15),
            "last_cpu": seconds(session.recover, 15, time.process_time),
            "middle_cpu": seconds(lambda: session.recover(at=middle), 15, time.process_time),
            "messages_cpu": seconds(lambda: len(session.recover().state.messages()), 5, time.process_time),
            "replayed": session.recover().replayed,
        }


def eventsourced(events: Events, folder: Path) -> dict[str, float]:
    domain = pytest.importorskip("eventsourcing.domain", reason="the eventsourcing library is not installed")
    application = importlib.import_module("eventsourcing.application")

    class Conversation(domain.Aggregate):  # type: ignore[misc,name-defined] # only there for the comparison
        def __init__(self) -> None:
            self.messages: Events = []
            self.pending: dict[str, object] = {}
            self.completed: Events = []

        @domain.event("Happened")  # type: ignore[untyped-decorator]
        def happen(self, what: dict[str, Any]) -> None:
            if what["type"] == "message_added":
                self.messages.append(what)
            elif what["type"] == "tool_invoked":
                self.pending[what["invocation_id"]] = what
            else:
                self.pending.pop(what["invocation_id"], None)
                self.completed.append(what)

    env = {"PERSISTENCE_MODULE": "eventsourcing.sqlite", "SQLITE_DBNAME": str(folder / "events.db")}
    app = application.Application(env)
    conversation = Conversation()
    app.save(conversation)

    def append() -> None:
        for event in events:
            conversation.happen(event)
            app.save(conversation)

    took = seconds(append)
    name, get = conversation.id, app.repository.get
    assert len(get(name).messages) == EVENTS // 2
    assert len(get(name, version=1 + EVENTS // 2).messages) == EVENTS // 4
    figures = {
        "append": len(events) / took,
        "last": seconds(lambda: get(name), 5),
        "middle": seconds(lambda: get(name, version=1 + EVENTS // 2), 5),
    }
    app.close()
    return {**figures, "bytes": size_of(folder)}


def langgraph(events: Events, folder: Path) -> dict[str, float]:
    sqlite = pytest.importorskip("langgraph.checkpoint.sqlite", reason="langgraph-checkpoint-sqlite is not installed")
    base = importlib.import_module("langgraph.checkpoint.base")
    steps: list[Any] = []
    with sqlite.SqliteSaver.from_conn_string(str(folder / "langgraph.db")) as saver:
        state: Events = []

        def append() -> None:
            config: Any = {"configurable": {"thread_id": "s1", "checkpoint_ns": ""}}
            for step, event in enumerate(events[:LANGGRAPH_EVENTS]):
                state.append(event)
                checkpoint = base.empty_checkpoint() | {"channel_values": {"events": state}, "channel_versions": {"events": step}}
                config = saver.put(config, checkpoint, {"source": "loop", "step": step, "parents": {}}, {"events": step})
                steps.append(config)

        took = seconds(append)
        middle = steps[LANGGRAPH_EVENTS // 2 - 1]
        assert len(saver.get_tuple(middle).checkpoint["channel_values"]["events"]) == LANGGRAPH_EVENTS // 2
        latest = {"configurable": {"thread_id": "s1", "checkpoint_ns": ""}}
        return {
            "append": LANGGRAPH_EVENTS / took,
            "last": seconds(lambda: saver.get_tuple(latest), 5),
            "middle": seconds(lambda: saver.get_tuple(middle), 5),
            "bytes": size_of(folder),
        }


def told(name: str, figures: dict[str, float]) -> None:
    if "messages_cpu" in figures:  # the others read everything at once
        show(
            f"{name}, milliseconds of CPU; of a state the messages are read when they are asked for",
            last=figures["last_cpu"] * 1e3, middle=figures["middle_cpu"] * 1e3, last_with_all_messages=figures["messages_cpu"] * 1e3,
        )  # fmt: skip
    show(
        name,
        events_a_second=figures["append"],
        MB=figures["bytes"] / 1e6,
        last_state_ms=figures["last"] * 1e3,
        middle_ms=figures["middle"] * 1e3,
        **{key: value for key, value in figures.items() if key in ("log_bytes", "replayed")},
    )


@pytest.fixture(scope="module")
def mine(events: Events, tmp_path_factory: pytest.TempPathFactory) -> dict[str, float]:
    figures = ours(events, tmp_path_factory.mktemp("ours"))
    told("coldtrail, once cold", figures)
    return figures


def test_a_session_of_8_mb_is_small_once_cold_and_its_states_are_at_hand(mine: dict[str, float]) -> None:
    assert 0.8 < mine["log_bytes"] / (EVENTS * EVENT_BYTES) < 1.3
    assert mine["bytes"] < 2e6
    assert max(mine["last_cpu"], mine["middle_cpu"]) < 0.015  # on a machine that has nothing else to do that is what they take


def test_appending_is_ten_times_as_fast_as_with_eventsourcing(mine: dict[str, float], events: Events, tmp_path: Path) -> None:
    theirs = eventsourced(events, tmp_path)
    told("eventsourcing", theirs)
    assert mine["append"] > 10 * theirs["append"]


def test_all_of_it_takes_a_hundredth_of_what_langgraph_writes_for_a_fifth(mine: dict[str, float], events: Events, tmp_path: Path) -> None:
    theirs = langgraph(events, tmp_path)
    told(f"LangGraph, the first {LANGGRAPH_EVENTS} events", theirs)
    assert mine["bytes"] < theirs["bytes"] / 100
    assert mine["append"] > 50 * theirs["append"]


def test_a_writer_on_this_machine_appends_35_000_events_a_second(tmp_path: Path) -> None:
    with coldtrail.open(home=tmp_path / "home") as trail, trail.writer(root=tmp_path / "logs") as log:
        text = "x" * 650

        def many() -> None:
            for _ in range(20_000):
                log.append("message_added", role="user", content=text)

        took, cpu = [], []
        for _ in range(5):
            began = time.process_time()
            took.append(seconds(many))
            cpu.append(time.process_time() - began)
        mean = log.path.stat().st_size / 100_000
    show("append, fsync=interval", events_a_second=20_000 / min(took), a_second_of_cpu=20_000 / min(cpu), bytes_each=mean)
    assert min(cpu) < 20_000 / 35_000  # on a machine that has nothing else to do these are the same
