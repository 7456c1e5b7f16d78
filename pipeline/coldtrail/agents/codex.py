"""Codex CLI: one `rollout-<time>-<uuid>.jsonl` a thread, or its `.zst` twin; nothing is swept."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path, PurePosixPath

from coldtrail.agents.base import Agent, Fork, Place, RestoreAdvice
from coldtrail.agents.reading import command, fields_of, first_text, number, present, time_ms, unknown, word
from coldtrail.liveness import is_locked
from coldtrail.model import EventType, Ids, Meaning, Reading, Role

_UUID = r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
_IDS = re.compile(rf"({_UUID})(?:_({_UUID}))?$")  # the thread's and, where it was reverted, the rollout's own
_ROLLOUT = re.compile(rf"(rollout-(\d{{4}})-(\d\d)-(\d\d)T[0-9-]+-){_UUID}(?:_{_UUID})?")
_CALLS = frozenset({
    "function_call", "custom_tool_call", "local_shell_call", "web_search_call", "tool_search_call", "image_generation_call",
})  # fmt: skip
_OUTPUTS = frozenset({"function_call_output", "custom_tool_call_output", "tool_search_output"})
_NOTED = frozenset({  # what the service is told beside the conversation; of a compaction, the `compacted` line is the event
    "additional_tools", "compaction", "compaction_summary", "compaction_trigger", "configuration_update", "context_compaction",
})  # fmt: skip
_ONE_SIDED = frozenset({"web_search_call", "image_generation_call"})  # done by the service: no output follows

# How texts begin that stand in the user's role without being typed: instructions, surroundings, what the program says.
_NOT_TYPED = (
    "<environment_context>", "<user_instructions>", "<INSTRUCTIONS>", "# AGENTS.md instructions", "<permissions instructions>", "<skill>",
    "<turn_aborted>", "<subagent_notification>", "<user_shell_command>", "<collaboration_mode>",
)  # fmt: skip

# What the screen showed. The conversation itself stands in the response items, so of these only a few fields are told.
_SHOWN = frozenset({
    "agent_message", "agent_reasoning", "agent_reasoning_raw_content", "agent_reasoning_section_break", "apply_patch_approval_request",
    "auth_recovery_completed", "auth_recovery_started", "background_event", "collab_agent_interaction_begin",
    "collab_agent_interaction_end", "collab_agent_spawn_begin", "collab_agent_spawn_end", "collab_close_begin", "collab_close_end",
    "collab_resume_begin", "collab_resume_end", "collab_waiting_begin", "collab_waiting_end", "context_compacted", "deprecation_notice",
    "dynamic_tool_call_request", "dynamic_tool_call_response", "elicitation_abandoned", "elicitation_request", "entered_review_mode",
    "environment_connected", "environment_disconnected", "error", "exec_approval_request", "exec_command_begin", "exec_command_end",
    "exec_command_output_delta", "exited_review_mode", "guardian_assessment", "guardian_warning", "hook_completed", "hook_started",
    "image_generation_begin", "image_generation_end", "item_completed", "item_started", "mcp_startup_complete", "mcp_startup_update",
    "mcp_tool_call_begin", "mcp_tool_call_end", "model_reroute", "model_verification", "patch_apply_begin", "patch_apply_end",
    "patch_apply_updated", "plan_update", "realtime_conversation_closed", "realtime_conversation_realtime", "realtime_conversation_sdp",
    "realtime_conversation_started", "request_permissions", "request_user_input", "safety_buffering", "session_configured",
    "stream_error", "sub_agent_activity", "task_complete", "task_started", "terminal_interaction", "thread_goal_updated",
    "thread_queue_changed", "thread_settings_applied", "turn_aborted", "turn_complete", "turn_diff", "turn_moderation_metadata",
    "turn_started", "undo_completed", "undo_started", "user_message", "view_image_tool_call", "warning", "web_search_begin",
    "web_search_end",
})  # fmt: skip
_TOLD = ("reason", "status", "exit_code", "success", "new_thread_id")
_COMPLAINTS = frozenset({"error", "stream_error", "warning"})


class Codex:
    """A thread is one file, and a further one each time it is reverted; each may go on from a part of another one, which it names."""

    name = "codex"
    folders = ("sessions", "archived_sessions")
    ids = Ids.LOOSE

    def roots(self, env: Mapping[str, str], home: Path) -> Sequence[Path]:
        """CODEX_HOME, or `~/.codex`."""
        return [Path(env["CODEX_HOME"]) if env.get("CODEX_HOME") else home / ".codex"]

    def place(self, path: PurePosixPath, head: Callable[[], bytes]) -> Place | None:
        """Told by the name; archiving a thread moves its file, so the folder keeps nothing apart."""
        plain = self.plain_path(path) or path
        if plain.suffix != ".jsonl" or path.parts[0] not in self.folders or any(part.startswith(".") for part in path.parts):
            return None
        ids = _IDS.search(plain.stem)
        return Place(ids[1].lower() if ids else plain.stem, "", Role.MAIN)

    def log_id(self, path: PurePosixPath) -> str | None:
        """The rollout's own id: of a thread's first rollout it is the thread's, and those of later ones are greater."""
        ids = _IDS.search((self.plain_path(path) or path).stem)
        return (ids[2] or ids[1]).lower() if ids else None

    def plain_path(self, path: PurePosixPath) -> PurePosixPath | None:
        """Without `.zst`: Codex compresses its own cold rollouts, and turns them back when it resumes one."""
        return path.with_suffix("") if path.name.endswith(".jsonl.zst") else None

    def read(self, value: object) -> Reading:
        """What a line means: `{timestamp, type, payload}`, or in old files the bare item.

        A call's record has its `call_id` for an id, any other item its own.
        """
        if not isinstance(value, dict):
            return Reading((unknown(value),))
        payload = value.get("payload")
        if isinstance(payload, dict):
            kind = value.get("type")
            reader = _LINES.get(kind) if isinstance(kind, str) else None
        else:
            payload, reader = value, _bare
        events = reader(payload) if reader is not None else []
        own_id = None
        if reader is _item or reader is _bare:
            own_id = word(payload.get("call_id" if word(payload.get("type")) in _CALLS else "id"))
        cwd = word(payload.get("cwd")) if reader is _meta or reader is _turn else None
        return Reading(tuple(events) or (unknown(value),), time_ms(value.get("timestamp")), own_id, cwd=cwd)

    def continues(self, first: Sequence[Reading], held: Callable[[str], bool]) -> bool:
        """Whether a file that does not begin as one holds the output of a call that only the lost one has."""
        if not first or first[0].events[0].type is EventType.SESSION_START:
            return False
        here = {reading.id for reading in first}
        outputs = (each for reading in first for each in reading.events if each.type is EventType.TOOL_COMPLETED)
        ids = (word(each.data.get("invocation_id")) for each in outputs)
        return any(each is not None and each not in here and held(each) for each in ids)

    def ordinal(self, value: object) -> int | None:
        """Newer rollouts number their lines, behind those of what they go on from."""
        return number(fields_of(value).get("ordinal"))

    def sweep_days(self, root: Path) -> float | None:
        """None: it deletes nothing by itself."""
        return None

    def sweep_key_is_mtime(self) -> bool:
        """True, of no weight where nothing is swept."""
        return True

    def advise(self, root: Path, mtime_ns: int, last_ms: int | None, now_ns: int) -> RestoreAdvice:
        """The original mtime: the list of threads shows it as their last change."""
        return RestoreAdvice(mtime_ns)

    def busy(self, root: Path, session_id: str) -> str | None:
        """Told by the lock that a running program has on the thread's file in `thread-writer-locks`, which goes with it."""
        lock = root / "thread-writer-locks" / f"{session_id}.lock"
        return f"busy: {lock.name} is locked" if is_locked(lock) else None

    def fork(self, path: PurePosixPath, fresh: str) -> Fork | None:
        """Under the same time, which must stand in the name; of an archived thread, among those that can be resumed."""
        name = _ROLLOUT.fullmatch(path.stem)
        if name is None:
            return None
        folder = PurePosixPath("sessions", name[2], name[3], name[4]) if path.parts[0] == "archived_sessions" else path.parent
        return Fork(fresh, folder / f"{name[1]}{fresh}.jsonl", _owner)

    def resume(self, session_id: str, cwd: str | None) -> str | None:
        """By id, from anywhere: the rollout names its own folder."""
        return command("codex", "resume", session_id)


Fields = dict[str, object]


def _owner(value: object) -> tuple[str, ...]:
    """Where a line says whose thread it is; the program does not open a rollout of which that and the name differ."""
    return ("payload", "id") if fields_of(value).get("type") == "session_meta" else ()


def _meta(payload: Fields) -> list[Meaning]:
    """A thread begins; a forked one's file holds its parent's line too, so each says whose it is."""
    session, git = word(payload.get("id")) or word(payload.get("session_id")), fields_of(payload.get("git"))
    where = present(cwd=word(payload.get("cwd")), version=word(payload.get("cli_version")))
    events = [Meaning(EventType.SESSION_START, present(session_id=session, base=_base(payload), **where))]
    if (branch := word(git.get("branch"))) is not None:
        events.append(Meaning(EventType.ENVIRONMENT_CHANGED, present(git_branch=branch, git_commit=word(git.get("commit_hash")), **where)))
    if parents := _parents(payload, session):
        who = present(agent_name=word(payload.get("agent_nickname")), agent_role=word(payload.get("agent_role")))
        events.append(Meaning(EventType.METADATA_CHANGED, present(parents=parents, session_id=session, **who)))
    return events


def _base(payload: Fields) -> Fields | None:
    """The part of another rollout that stands before this one; its records are not copied.

    What a sub-agent's rollout says of where its own history starts (`subagent_history_start_ordinal`) is of no weight: the lines
    before that are copied, and the model has been told them too.
    """
    said = fields_of(payload.get("history_base"))
    log, size = word(said.get("thread_id")), number(said.get("end_byte_offset"))  # what is called a thread's id is the rollout's
    return present(log=log.lower(), bytes=size, records=number(said.get("end_ordinal_exclusive"))) if log and size else None


def _parents(payload: Fields, session: str | None) -> list[str]:
    """The threads that this one was made from, each once: restored, it may need their bytes."""
    spawned = fields_of(fields_of(fields_of(payload.get("source")).get("subagent")).get("thread_spawn"))
    based = fields_of(payload.get("history_base"))
    named = (payload.get("forked_from_id"), based.get("thread_id"), payload.get("parent_thread_id"), spawned.get("parent_thread_id"))
    return list(dict.fromkeys(each for each in map(word, named) if each is not None and each != session))


def _turn(payload: Fields) -> list[Meaning]:
    sandbox = fields_of(payload.get("sandbox_policy"))
    fields = present(
        cwd=word(payload.get("cwd")),
        model=word(payload.get("model")),
        effort=word(payload.get("effort")),
        approval_policy=word(payload.get("approval_policy")),
        sandbox=word(sandbox.get("type")) or word(sandbox.get("mode")),
    )
    return [Meaning(EventType.ENVIRONMENT_CHANGED, fields)]


def _compacted(payload: Fields) -> list[Meaning]:
    """The history so far is replaced; old versions told the summary alone."""
    history = payload.get("replacement_history")
    replacement = [_put_in(item) for item in history] if isinstance(history, list) else None
    return [Meaning(EventType.CONTEXT_SUMMARIZED, present(summary=word(payload.get("message")), replacement=replacement))]


def _put_in(item: object) -> object:
    """An item that stands for the history so far; a message's role in the words that all agents share."""
    said = _message(fields_of(item))
    return {**fields_of(item), **said[0].data} if said else item


def _usage(payload: Fields) -> list[Meaning]:
    """What the whole thread has used so far."""
    usage = payload.get("thread_token_usage")
    return [Meaning(EventType.METADATA_CHANGED, present(kind="token_usage_record", usage=usage if isinstance(usage, dict) else None))]


def _world(payload: Fields) -> list[Meaning]:
    state = fields_of(payload.get("state"))
    return [Meaning(EventType.ENVIRONMENT_CHANGED, present(kind="world_state", model=word(state.get("model"))))]


def _between_agents(payload: Fields) -> list[Meaning]:
    """What another agent says to this one."""
    content = payload.get("content")
    if not isinstance(content, (str, list)):
        return _note("inter_agent_communication", payload)
    fields = present(role="user", content=content, meta=True, author=word(payload.get("author")))
    return [Meaning(EventType.MESSAGE_ADDED, fields)]


def _note(kind: str, _: Fields) -> list[Meaning]:
    """Of some lines it is enough to know that they were there."""
    return [Meaning(EventType.METADATA_CHANGED, {"kind": kind})]


def _item(payload: Fields) -> list[Meaning]:
    """A response item: what the model is sent, and what it answers."""
    kind = word(payload.get("type")) or ("message" if "role" in payload else "")
    if kind in _CALLS:
        return _call(payload, kind)
    if kind in _OUTPUTS:
        return [Meaning(EventType.TOOL_COMPLETED, _output(payload))]
    if kind in _NOTED:
        return _note(kind, payload)
    reader = _ITEMS.get(kind)
    return reader(payload) if reader is not None else []


def _message(payload: Fields) -> list[Meaning]:
    content, role = payload.get("content"), word(payload.get("role"))
    if role is None or not isinstance(content, (str, list)):
        return []
    data: Fields = {"role": "system" if role == "developer" else role, "content": content}
    if role == "user" and first_text(content).startswith(_NOT_TYPED):
        data["meta"] = True
    return [Meaning(EventType.MESSAGE_ADDED, data)]


def _reasoning(payload: Fields) -> list[Meaning]:
    """Its summary, where there is one: the reasoning itself is mostly encrypted."""
    parts = payload.get("summary") or payload.get("content")
    texts = [first_text([part]) for part in parts] if isinstance(parts, list) else []
    return [Meaning(EventType.DECISION_MADE, {"kind": "reasoning", "text": "\n".join(texts)})]


def _call(payload: Fields, kind: str) -> list[Meaning]:
    """A tool is called; `input` stays as it was written, which for functions is JSON text."""
    written = next((payload[field] for field in ("arguments", "input", "action") if field in payload), None)
    invocation = word(payload.get("call_id")) or word(payload.get("id"))
    name = word(payload.get("name")) or kind.removesuffix("_call")
    events = [Meaning(EventType.TOOL_INVOKED, {"tool_name": name, "input": written, "invocation_id": invocation})]
    if kind in _ONE_SIDED:
        events.append(Meaning(EventType.TOOL_COMPLETED, {"invocation_id": invocation, "output": payload.get("result"), "tool_name": name}))
    return events


def _output(payload: Fields) -> Fields:
    output = payload.get("output", payload.get("tools"))
    data: Fields = {"invocation_id": word(payload.get("call_id")), "output": output}
    if fields_of(output).get("success") is False or payload.get("status") == "failed":
        data["is_error"] = True
    return data


def _ghost(payload: Fields) -> list[Meaning]:
    return [Meaning(EventType.ENVIRONMENT_CHANGED, present(kind="ghost_snapshot", snapshot=payload.get("ghost_commit")))]


def _shown(payload: Fields) -> list[Meaning]:
    """A screen event: the few that nothing else tells, and a note of the others."""
    kind = word(payload.get("type")) or ""
    if kind == "token_count":
        usage = fields_of(payload.get("info")).get("total_token_usage")  # of the whole thread so far
        return [Meaning(EventType.METADATA_CHANGED, present(kind=kind, usage=usage if isinstance(usage, dict) else None))]
    if kind == "thread_name_updated":
        title = word(payload.get("thread_name"))
        return [Meaning(EventType.METADATA_CHANGED, present(kind=kind, title=title, title_rank=3 if title else None))]
    if kind == "thread_rolled_back":
        return [Meaning(EventType.DECISION_MADE, present(kind="rollback", count=number(payload.get("num_turns"))))]
    if kind == "shutdown_complete":
        return [Meaning(EventType.SESSION_END)]
    return [Meaning(EventType.METADATA_CHANGED, _step(payload, kind))] if kind in _SHOWN else []


def _step(payload: Fields, kind: str) -> Fields:
    """How something went that the response items tell the content of."""
    item = fields_of(payload.get("item")) or payload  # newer versions wrap what was done
    invocation = payload.get("call_id") or (item.get("id") if "status" in item else None)
    told = {field: each for field in _TOLD if isinstance(each := item.get(field), (str, bool, int))}
    took = fields_of(item.get("duration"))
    seconds = number(took.get("secs"), 1000)
    took_ms = None if seconds is None else seconds + (number(took.get("nanos"), 1e-6) or 0)
    complaint = word(payload.get("message")) if kind in _COMPLAINTS else None
    return present(kind=kind, invocation_id=word(invocation), duration_ms=took_ms, message=complaint, **told)


def _bare(value: Fields) -> list[Meaning]:
    """A line of an old file, which is the item itself; the first one says the session, `record_type` lines only its state."""
    if "record_type" in value:
        return [Meaning(EventType.METADATA_CHANGED, present(kind=word(value["record_type"]) or "state"))]
    if "type" not in value and word(value.get("id")) is not None and "timestamp" in value:
        return _meta(value)
    return _item(value)


_LINES: Mapping[str, Callable[[Fields], list[Meaning]]] = {
    "session_meta": _meta,
    "response_item": _item,
    "event_msg": _shown,
    "turn_context": _turn,
    "compacted": _compacted,
    "world_state": _world,
    "token_usage_record": _usage,
    "inter_agent_communication": _between_agents,
    "inter_agent_communication_metadata": _between_agents,
    **{kind: partial(_note, kind) for kind in ("dynamic_tools_updated", "realtime_item", "security_risk_score")},
}
_ITEMS: Mapping[str, Callable[[Fields], list[Meaning]]] = {
    "message": _message,
    "reasoning": _reasoning,
    "agent_message": _between_agents,
    "ghost_snapshot": _ghost,
}

AGENT: Agent = Codex()
