"""The fold can be split anywhere: through a checkpoint and back it gives the same state, whatever the log."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coldtrail.state import Fold, State
from pipeline.state.folding import CORPUS, Line, Log, boundary, called, gave, hook, line, summary

# --- any log: few ids, so that everything meets everything ---

NAMES = st.sampled_from([f"u{n}" for n in range(9)])
PARENTS = st.one_of(st.none(), NAMES, st.just("lost"))
TOOLS = st.sampled_from(["t0", "t1", "t2"])
ANSWERS = st.sampled_from([None, "m0", "m1"])
WORDS = st.sampled_from(["a", "b", "é\u2028"])
USAGE = st.dictionaries(st.sampled_from(["input", "output"]), st.integers(0, 9), max_size=2)
TIMES = st.integers(1_767_225_600, 1_767_225_700)


@st.composite
def claude_lines(draw: st.DrawFn) -> Line:
    uuid, parent = draw(NAMES), draw(PARENTS)
    match draw(st.integers(0, 9)):
        case 0:
            return boundary(uuid, parent, preservedMessages={"uuids": draw(st.lists(NAMES, max_size=3))})
        case 1:
            return summary(uuid, parent)
        case 2:
            return hook(uuid, parent)
        case 3 | 4:
            return called(uuid, parent, draw(TOOLS), answer=draw(ANSWERS), text=draw(st.sampled_from(["", "x"])))
        case 5:
            return gave(uuid, parent, draw(TOOLS), draw(WORDS))
        case 6:
            return {"type": "file-history-snapshot", "snapshot": draw(WORDS)}
        case 7:
            return {**line(uuid, parent, content=draw(WORDS)), "isSidechain": True}
    each = line(uuid, parent, kind=draw(st.sampled_from(["user", "assistant"])), content=draw(WORDS), answer=draw(ANSWERS))
    each["message"]["usage"] = draw(USAGE)  # type: ignore[index]
    return {**each, "timestamp": draw(TIMES)}


@st.composite
def codex_lines(draw: st.DrawFn) -> Line:
    def said() -> Line:
        return {"type": "message", "role": draw(st.sampled_from(["user", "assistant", "developer"])), "content": draw(WORDS)}

    match draw(st.integers(0, 7)):
        case 0:
            payload = {"message": draw(WORDS), "replacement_history": [said() for _ in range(draw(st.integers(0, 3)))]}
            return {"type": "compacted", "payload": payload}
        case 1:
            return {"type": "event_msg", "payload": {"type": "thread_rolled_back", "num_turns": draw(st.integers(0, 3))}}
        case 2:
            return {"type": "response_item", "payload": {"type": "function_call", "name": "sh", "call_id": draw(TOOLS)}}
        case 3:
            return {"type": "response_item", "payload": {"type": "function_call_output", "call_id": draw(TOOLS), "output": draw(WORDS)}}
        case 4:
            return {"type": "session_meta", "payload": {"id": draw(st.sampled_from(["s0", "s1"])), "cwd": draw(WORDS)}}
        case 5:
            usage = {"total_token_usage": draw(USAGE)}
            return {"type": "event_msg", "payload": {"type": "token_count", "info": usage}}
    return {"timestamp": draw(TIMES), "type": "response_item", "payload": said()}


@st.composite
def gemini_messages(draw: st.DrawFn) -> Line:
    name = draw(st.sampled_from(["m0", "m1", "m2", "m3"]))
    if draw(st.booleans()):
        return {"id": name, "type": "user", "content": draw(WORDS)}
    calls = [{"id": tool, "name": "t", **({"result": draw(WORDS)} if draw(st.booleans()) else {})} for tool in draw(st.sets(TOOLS))]
    return {"id": name, "type": "gemini", "content": draw(WORDS), "tokens": draw(USAGE), "toolCalls": calls, "thoughts": [{"subject": "s"}]}


@st.composite
def gemini_lines(draw: st.DrawFn) -> Line:
    match draw(st.integers(0, 6)):
        case 0:
            return {"$set": {"messages": draw(st.lists(gemini_messages(), max_size=3)), "lastUpdated": draw(TIMES)}}
        case 1:
            return {"$rewindTo": draw(st.sampled_from(["m0", "m1", "m2", "lost"]))}
        case 2:
            return {"sessionId": draw(st.sampled_from(["s0", "s1"])), "messages": draw(st.lists(gemini_messages(), max_size=2))}
    return draw(gemini_messages())


@st.composite
def events(draw: st.DrawFn) -> Line:
    own = draw(st.one_of(st.none(), NAMES))
    named = {} if own is None else {"event_id": own}
    match draw(st.integers(0, 7)):
        case 0:
            kept = [{"role": "user", "content": each, "id": each} for each in draw(st.lists(WORDS, max_size=2))]
            return {"type": "context_summarized", **named, **draw(st.sampled_from([{"summary": "s"}, {"summarized_messages": kept}]))}
        case 1:
            target = draw(st.sampled_from([{"count": 1}, {"count": 2}, {"target": "u1"}, {"target": "a"}]))
            return {"type": "decision_made", "kind": "rollback", **named, **target}
        case 2:
            return {"type": "tool_invoked", "tool_name": "t", "input": draw(WORDS), "invocation_id": draw(TOOLS), **named}
        case 3:
            return {"type": "tool_completed", "output": draw(WORDS), "invocation_id": draw(TOOLS), **named}
        case 4:
            return {"type": "environment_changed", "cwd": draw(WORDS), "snapshot": draw(WORDS), **named}
    answer = draw(ANSWERS)
    more = {} if answer is None else {"message_id": answer}
    return {"type": "message_added", "role": "user", "content": draw(WORDS), "usage": draw(USAGE), "timestamp": draw(TIMES), **named, **more}


AGENTS = {"claude-code": claude_lines(), "codex": codex_lines(), "gemini-cli": gemini_lines(), "event-log": events()}
each_agent = pytest.mark.parametrize("name", AGENTS)


@each_agent
@given(data=st.data())
def test_a_fold_through_a_checkpoint_after_every_record_gives_the_same_state(name: str, data: st.DataObject) -> None:
    """Not only what the state says, but all of it, so that nothing that comes after can tell."""
    log = Log(name, data.draw(st.lists(AGENTS[name], min_size=1, max_size=25)))
    straight = Fold(log.agent.ids, log)
    state = State()
    for count, (ref, reading) in enumerate(log.records, 1):
        straight.apply(ref, reading)
        fold = Fold(log.agent.ids, log, state)
        fold.apply(ref, reading)
        state = log.frozen(fold.state, count)
        assert state == straight.state, count
        assert list(state.answers) == list(straight.state.answers)
        assert state.hash() == straight.state.hash()


@each_agent
@given(data=st.data())
def test_what_grows_is_proven_by_count_and_sum_and_can_be_had_whole(name: str, data: st.DataObject) -> None:
    log = Log(name, data.draw(st.lists(AGENTS[name], min_size=1, max_size=25)))
    state, whole = log.fold(), log.fold(state=State.whole())
    assert whole.hash() == state.hash()
    document = whole.document()
    for listed, grown in (("completed_tools", state.completed), ("decisions", state.decisions), ("snapshots", state.snapshots)):
        values = document[listed]
        assert isinstance(values, list)
        assert len(values) == grown.count >= 0


@each_agent
@given(data=st.data())
def test_the_state_of_the_same_records_elsewhere_has_the_same_hash(name: str, data: st.DataObject) -> None:
    values = data.draw(st.lists(AGENTS[name], min_size=1, max_size=20))
    here, there = Log(name, values), Log(name, values, generation=7, start=123_456)
    assert here.fold().hash() == there.fold().hash()
    assert here.fold(state=State.whole()).document() == there.fold(state=State.whole()).document()
    spaced = Log(name, b"".join(json.dumps(each, indent=None, separators=(" ,  ", " : ")).encode() + b"\r\n\n" for each in values))
    assert spaced.fold().hash() == here.fold().hash()


# --- real logs ---

FOLDERS = {"claude": "claude-code", "codex": "codex", "gemini": "gemini-cli"}
SAMPLE = 40  # of the files of a folder
SPLITS = 4  # of a file


def real_logs(folder: str) -> list[Path]:
    found = [path for path in sorted((CORPUS / folder).rglob("*.json*")) if path.is_file() and path.stat().st_size]
    return random.Random(folder).sample(found, min(SAMPLE, len(found)))


@pytest.mark.skipif(not CORPUS.is_dir(), reason=f"the real logs are missing: {CORPUS}")
@pytest.mark.parametrize("folder", FOLDERS)
def test_real_logs_split_anywhere_give_the_same_state(folder: str) -> None:
    checked = 0
    for path in real_logs(folder):
        log = Log(FOLDERS[folder], path.read_bytes())
        chance, count = random.Random(path.name), len(log.records)
        cuts = sorted(chance.randrange(1, count + 1) for _ in range(SPLITS)) if count else []
        straight, state, begin = Fold(log.agent.ids, log), State(), 0
        for cut in cuts:
            for ref, reading in log.records[begin:cut]:
                straight.apply(ref, reading)
            state = log.frozen(log.fold(cut, state=state, begin=begin), cut)
            assert state == straight.state, (path, cut)
            begin, checked = cut, checked + 1
        assert log.fold(state=state, begin=begin).hash() == log.fold().hash(), path
    assert checked > 50 or folder == "gemini"


@pytest.mark.skipif(not CORPUS.is_dir(), reason=f"the real logs are missing: {CORPUS}")
@pytest.mark.parametrize("folder", FOLDERS)
def test_usage_of_real_logs_is_that_of_each_answer_once(folder: str) -> None:
    """However many answers have gone by: told with a table of all of them."""
    for path in real_logs(folder):
        log = Log(FOLDERS[folder], path.read_bytes())
        totals: dict[str, dict[str, int]] = {}
        for _, reading in log.records:
            for meaning in reading.events:
                usage, answer = meaning.data.get("usage"), meaning.data.get("message_id")
                if isinstance(usage, dict) and isinstance(answer, str):
                    known = totals.setdefault(answer, {})
                    for key, value in usage.items():
                        if isinstance(value, int) and not isinstance(value, bool):
                            known[key] = max(known.get(key, 0), value)
        wanted: dict[str, int] = {}
        for known in totals.values():
            for key, value in known.items():
                wanted[key] = wanted.get(key, 0) + value
        if totals:
            assert log.fold().usage == wanted, path
