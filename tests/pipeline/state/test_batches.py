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
def spoken(draw: st.DrawFn) -> Line:
    kind, answer = draw(st.sampled_from(["user", "assistant"])), draw(ANSWERS)
    each = line(draw(NAMES), draw(PARENTS), kind=kind, content=draw(WORDS), answer=answer, timestamp=draw(TIMES))
    each["message"]["usage"] = draw(USAGE)  # type: ignore[index]
    return each


CLAUDE = st.one_of(
    spoken(),
    spoken(),
    spoken().map(lambda each: {**each, "isSidechain": True}),
    st.builds(
        lambda uuid, after, kept: boundary(uuid, after, preservedMessages={"uuids": kept}), NAMES, PARENTS, st.lists(NAMES, max_size=3)
    ),
    st.builds(summary, NAMES, PARENTS),
    st.builds(hook, NAMES, PARENTS),
    st.builds(called, NAMES, PARENTS, TOOLS, answer=ANSWERS, text=st.sampled_from(["", "x"])),
    st.builds(gave, NAMES, PARENTS, TOOLS, WORDS),
    st.builds(lambda word: {"type": "file-history-snapshot", "snapshot": word}, WORDS),
)

ITEM = st.fixed_dictionaries({"type": st.just("message"), "role": st.sampled_from(["user", "assistant", "developer"]), "content": WORDS})
PAYLOADS = {
    "compacted": st.fixed_dictionaries({"message": WORDS, "replacement_history": st.lists(ITEM, max_size=3)}),
    "session_meta": st.fixed_dictionaries({"id": st.sampled_from(["s0", "s1"]), "cwd": WORDS}),
    "event_msg": st.one_of(
        st.fixed_dictionaries({"type": st.just("thread_rolled_back"), "num_turns": st.integers(0, 3)}),
        st.fixed_dictionaries({"type": st.just("token_count"), "info": st.fixed_dictionaries({"total_token_usage": USAGE})}),
    ),
    "response_item": st.one_of(
        ITEM,
        ITEM,
        st.fixed_dictionaries({"type": st.just("function_call"), "name": st.just("sh"), "call_id": TOOLS}),
        st.fixed_dictionaries({"type": st.just("function_call_output"), "call_id": TOOLS, "output": WORDS}),
    ),
}
CODEX = st.sampled_from(sorted(PAYLOADS)).flatmap(
    lambda kind: st.fixed_dictionaries({"type": st.just(kind), "payload": PAYLOADS[kind], "timestamp": TIMES})
)


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
            left: Line = {"summarized_messages": kept} if draw(st.booleans()) else {"summary": "s"}
            return {"type": "context_summarized", **named, **left}
        case 1:
            target: Line = draw(st.sampled_from([{"count": 1}, {"count": 2}, {"target": "u1"}, {"target": "a"}]))
            return {"type": "decision_made", "kind": "rollback", **named, **target}
        case 2:
            return {"type": "tool_invoked", "tool_name": "t", "input": draw(WORDS), "invocation_id": draw(TOOLS), **named}
        case 3:
            return {"type": "tool_completed", "output": draw(WORDS), "invocation_id": draw(TOOLS), **named}
        case 4:
            return {"type": "environment_changed", "cwd": draw(WORDS), "snapshot": draw(WORDS), **named}
    answer = draw(ANSWERS)
    more = {} if answer is None else {"message_id": answer}
    said = {"type": "message_added", "role": "user", "content": draw(WORDS), "usage": draw(USAGE), "timestamp": draw(TIMES)}
    return {**said, **named, **more}


AGENTS = {"claude-code": CLAUDE, "codex": CODEX, "gemini-cli": gemini_lines(), "event-log": events()}
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
