"""A log that names its own state: every `checkpoint` event that a writer puts into it is what a replay finds."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import coldtrail
from coldtrail.format.lines import LineSplitter
from coldtrail.stage.scan import Scanner
from coldtrail.writer import Writer


@pytest.fixture
def trail(tmp_path: Path) -> Iterator[coldtrail.Trail]:
    """A home with one source, whose logs name their state every 5 events."""
    yield from opened(tmp_path)


def opened(folder: Path) -> Iterator[coldtrail.Trail]:
    config = folder / "config.toml"
    source = f'[[source]]\nname = "mine"\nagent = "event-log"\nroot = "{folder}/logs"\n'
    config.write_text(f"discover = false\n[checkpoint]\nevery_events = 5\n{source}")
    with coldtrail.open(home=folder / "home", config=config) as trail:
        yield trail


def named(log: Writer) -> list[int]:
    """How many events each checkpoint names that is in a log."""
    records = [record.value for record in LineSplitter(0).feed(log.path.read_bytes()) if isinstance(record.value, dict)]
    assert all(len(record["state_hash"]) == 16 for record in records if record["type"] == "checkpoint")
    return [record["event_count"] for record in records if record["type"] == "checkpoint"]


def proven(trail: coldtrail.Trail) -> bool:
    """Whether a replay finds all that the log says of itself."""
    Scanner(trail.home).scan(list(trail.settings.sources))
    (session,) = trail.sessions()
    recovered = session.recover(verify=True)
    assert recovered.recovery.notes == []
    return recovered.recovery.verified is True


def test_every_five_events_the_state_is_named_and_a_replay_finds_the_same(trail: coldtrail.Trail) -> None:
    with trail.writer("mine", checkpoints=True) as log:
        for n in range(12):
            log.append("message_added", role="user", content=f"é {n}")
            log.append("tool_invoked", tool_name="t", input={"n": n}, invocation_id=f"i-{n}")
            log.append("tool_completed", invocation_id=f"i-{n - n % 2}", output=n)
        assert len(named(log)) >= 5
        assert named(log)[0] == 5
    assert proven(trail)


def test_a_state_that_is_not_so_is_found(trail: coldtrail.Trail) -> None:
    with trail.writer("mine", checkpoints=True) as log:
        for n in range(6):
            log.append("message_added", role="user", content=str(n))
    data = log.path.read_bytes()
    log.path.write_bytes(data.replace(b'"content":"2"', b'"content":"3"'))
    Scanner(trail.home).scan(list(trail.settings.sources))
    (session,) = trail.sessions()
    assert session.recover(verify=True).recovery.verified is False


def test_who_did_not_ask_for_it_gets_none(trail: coldtrail.Trail) -> None:
    with trail.writer("mine") as log:
        log.append_many([{"type": "session_end"}] * 50)
        assert named(log) == []


def test_a_checkpoint_never_comes_between_an_event_and_who_expects_it(trail: coldtrail.Trail) -> None:
    with trail.writer("mine", checkpoints=True) as log:
        last = log.last_event_id
        for n in range(20):
            told = log.append("message_added", role="user", content=n, expected_last=last, event_id=f"m-{n}")
            assert json.loads(log.path.read_bytes()[told.offset :])["content"] == n
            last = told.event_id
        size = log.path.stat().st_size
        assert not log.append("session_end", event_id="m-3").is_new
        assert log.path.stat().st_size == size
    assert proven(trail)


def test_others_events_count_and_what_was_there_before(trail: coldtrail.Trail) -> None:
    """Events of another writer, of a process before, without ids, twice, out of order, and torn ones."""
    with trail.writer("mine", session="s1") as log:
        log.append_many([{"type": "message_added", "role": "user", "content": n, "event_id": f"z-{9 - n}"} for n in range(4)])
        with log.path.open("ab") as file:
            file.write(
                b'{"type":"message_added","role":"user","content":"again","event_id":"z-7"}\n{"type":"session_end"}\n{"torn":{"a":1}'
            )
        with trail.writer("mine", session="s1", checkpoints=True) as naming:
            for n in range(12):
                log.append("decision_made", kind="reasoning", text=n, event_id=f"a-{n}")
                naming.append("message_added", role="user", content=n, event_id=f"b-{n}")
                with log.path.open("ab") as file:
                    file.write(b'{"type":"session_end","event_id":"b-0"}\n')
        assert len(named(log)) >= 3
    assert proven(trail)


def test_a_log_without_its_head_is_not_named_the_state_of(trail: coldtrail.Trail) -> None:
    with trail.writer("mine", checkpoints=True) as log:
        log.append("session_end")
        log.path.unlink()
        for n in range(20):
            log.append("message_added", role="user", content=n)
        assert named(log) == []


def test_a_long_log_is_named_seldom(trail: coldtrail.Trail) -> None:
    """What is hashed for it is a small multiple of the log, however long it gets."""
    with trail.writer("mine", checkpoints=True) as log:
        for n in range(1500):
            log.append("message_added", role="user", content=n)
        counts = named(log)
    assert counts[0] == 5
    assert sum(counts) < 40 * 1500
    assert proven(trail)


EVENT = st.one_of(
    st.fixed_dictionaries(
        {"type": st.just("message_added"), "role": st.sampled_from(("user", "assistant")), "content": st.text(max_size=5)}
    ),
    st.fixed_dictionaries({"type": st.sampled_from(("tool_invoked", "tool_completed")), "invocation_id": st.sampled_from("abc")}),
    st.fixed_dictionaries({"type": st.just("context_summarized"), "summary": st.text(max_size=5)}),
    st.fixed_dictionaries({"type": st.just("decision_made"), "kind": st.just("rollback"), "count": st.integers(0, 3)}),
    st.fixed_dictionaries({"type": st.just("environment_changed"), "cwd": st.text(max_size=5)}),
    st.fixed_dictionaries({"type": st.just("metadata_changed"), "title": st.text(max_size=5)}),
)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(EVENT, st.booleans()), min_size=6, max_size=40))
def test_whatever_happens_a_replay_finds_what_was_named(
    tmp_path_factory: pytest.TempPathFactory, events: list[tuple[dict[str, object], bool]]
) -> None:
    for trail in opened(tmp_path_factory.mktemp("any")):
        log = trail.writer("mine", session="s1", checkpoints=True)
        for event, reopens in events:
            if reopens:
                log.close()
                log = trail.writer("mine", session="s1", checkpoints=True)
            log.append_many([event])
        log.close()
        assert named(log)
        assert proven(trail)
