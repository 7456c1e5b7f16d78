"""Any log of any agent's: strategies with few ids, so that everything meets everything."""

from __future__ import annotations

from hypothesis import strategies as st

from pipeline.state.folding import Line, boundary, called, gave, hook, line, summary

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
