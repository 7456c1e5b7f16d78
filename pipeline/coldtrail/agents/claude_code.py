"""Claude Code: `projects/<slug>/<uuid>.jsonl`, its sub-agents and tool results beside it; swept by mtime after 30 days."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path, PurePosixPath

from coldtrail.agents.base import HEAD_BYTES, Agent, Fork, Place, RestoreAdvice
from coldtrail.agents.reading import DAY_NS, command, fields_of, first_text, number, present, session_id_in, setting, time_ms, unknown, word
from coldtrail.liveness import is_alive
from coldtrail.model import EventType, Ids, Meaning, Reading, Role, instant_text

_SWEEP_DAYS = 30.0
_DENIED = frozenset({"memory"})  # beside the sessions' folders in a project's, but no session's

# How texts begin that stand in a user's record without being a prompt: commands, their output, what the program says.
_NOT_TYPED = (
    "<command-", "<local-command-", "<bash-", "<ide_", "<system-reminder>", "<task-notification>", "<session-start-hook>",
    "<user-prompt-submit-hook>", "[Request interrupted", "[SUGGESTION MODE", "Caveat: The messages below",
)  # fmt: skip

# Bookkeeping that is appended beside the conversation, and which of its fields are worth telling.
_BOOKKEEPING: Mapping[str, tuple[str, ...]] = {
    "queue-operation": ("operation",),
    "mode": ("mode",),
    "permission-mode": ("permissionMode",),
    "tag": ("tag",),
    "agent-name": ("agentName",),
    "pr-link": ("prUrl",),
    "started": ("agentId",),
    "result": ("agentId",),
    "last-prompt": (),
    "bridge-session": (),
    "session-id": (),
    "frame-link": (),
    "atis-latch": (),
    "content-replacement": (),
}  # fmt: skip
_TITLES = {"summary": ("summary", 1), "ai-title": ("aiTitle", 2), "custom-title": ("customTitle", 3)}


class ClaudeCode:
    """Sessions are bundles: a main log, a folder of its name, and the files it may rewind to."""

    name = "claude-code"
    folders = ("projects", "file-history")
    ids = Ids.CHAINED

    def roots(self, env: Mapping[str, str], home: Path) -> Sequence[Path]:
        """Every config folder that a version of it has used, the one the environment names first."""
        said = [Path(env["CLAUDE_CONFIG_DIR"])] if env.get("CLAUDE_CONFIG_DIR") else []
        xdg = [Path(env["XDG_CONFIG_HOME"]) / "claude"] if env.get("XDG_CONFIG_HOME") else []
        return [*said, home / ".claude", *xdg, home / ".config" / "claude"]

    def place(self, path: PurePosixPath, head: Callable[[], bytes]) -> Place | None:
        """Told by the path, but for the sub-agents of older versions, which lie beside the sessions."""
        if any(part.startswith(".") for part in path.parts):
            return None
        match path.parts:
            case ("projects", slug, name):
                return _beside(slug, PurePosixPath(name), head)
            case ("projects", slug, session, *below) if session not in _DENIED:
                is_log = len(below) > 1 and below[0] == "subagents" and path.suffix == ".jsonl"
                return Place(session, slug, Role.CHILD if is_log else Role.COMPANION)
            case ("file-history", session, _, *_):
                return Place(session, "", Role.COMPANION)
        return None

    def log_id(self, path: PurePosixPath) -> str | None:
        """None: each log holds its whole history."""
        return None

    def plain_path(self, path: PurePosixPath) -> PurePosixPath | None:
        """None: it compresses nothing."""
        return None

    def read(self, value: object) -> Reading:
        """What a line means; a line of the chain has `uuid`, `parentUuid` and a time, bookkeeping mostly has none."""
        if not isinstance(value, dict):
            return Reading((unknown(value),))
        kind = value.get("type")
        reader = _READERS.get(kind) if isinstance(kind, str) else None
        events = (reader(value) if reader is not None else []) or [unknown(value)]
        if "parentUuid" in value and _is_root(value):
            events.insert(0, _start(value))
        if value.get("isSidechain"):
            events = [_aside(each) for each in events]
        parent = word(value.get("parentUuid")) or word(value.get("logicalParentUuid"))  # a compaction cuts only the former
        return Reading(
            tuple(events),
            time_ms(value.get("timestamp")),
            word(value.get("uuid")),
            parent,
            word(value.get("cwd")),
        )

    def continues(self, first: Sequence[Reading], held: Callable[[str], bool]) -> bool:
        """Whether a record that the lost file does not have hangs on one that only the lost file has."""
        here = {reading.id for reading in first}
        hanging = (reading for reading in first if reading.parent is not None and reading.parent not in here)
        return any(held(reading.parent or "") and not (reading.id and held(reading.id)) for reading in hanging)

    def ordinal(self, value: object) -> int | None:
        """None: its records have ids."""
        return None

    def sweep_days(self, root: Path) -> float | None:
        """`cleanupPeriodDays`; 30 where it is not set, not readable, or a value that the program itself rejects."""
        days = setting(root / "settings.json", "cleanupPeriodDays")
        if isinstance(days, (int, float)) and not isinstance(days, bool) and 1 <= days < 1e9:
            return float(days)
        return _SWEEP_DAYS

    def sweep_key_is_mtime(self) -> bool:
        """True: any file whose mtime is past the period is unlinked soon after a start."""
        return True

    def advise(self, root: Path, mtime_ns: int, last_ms: int | None, now_ns: int) -> RestoreAdvice:
        """The original mtime, unless half of the sweep's period is over: then now."""
        days = self.sweep_days(root) or _SWEEP_DAYS
        if now_ns - mtime_ns <= days / 2 * DAY_NS:
            return RestoreAdvice(mtime_ns)
        original = (instant_text(mtime_ns // 1_000_000) or "")[:10]
        return RestoreAdvice(
            now_ns,
            f"mtime set to now: with the original one ({original}) Claude Code would soon delete it again"
            f" (it keeps {days:g} days; cleanupPeriodDays in {root / 'settings.json'})",
        )

    def busy(self, root: Path, session_id: str) -> str | None:
        """Told by `sessions/<pid>.json`, which a running program keeps, and which outlives it only in a crash."""
        for mark in sorted((root / "sessions").glob("*.json")):
            pid = number(setting(mark, "pid")) or (int(mark.stem) if mark.stem.isdecimal() else None)
            whose = setting(mark, "sessionId")
            if whose in (session_id, None) and (pid is None or is_alive(pid)):
                return f"busy: pid {pid}" if whose else f"{mark} does not say which session is busy"
        return None

    def fork(self, path: PurePosixPath, fresh: str) -> Fork | None:
        """Beside the original: it goes by the file's name, and says the new id in what it appends."""
        return Fork(fresh, path.with_name(f"{fresh}.jsonl"))

    def resume(self, session_id: str, cwd: str | None) -> str | None:
        """From the session's own folder: others find it only where no second project holds that id."""
        return command("claude", "--resume", session_id, cwd=cwd)


def _beside(slug: str, name: PurePosixPath, head: Callable[[], bytes]) -> Place | None:
    """A file right in a project's folder: a session, or an old sub-agent that says whose it is."""
    if name.suffix != ".jsonl":
        return None
    if not name.stem.startswith("agent-"):
        return Place(name.stem, slug, Role.MAIN)
    start = head()
    if (session := session_id_in(start)) is not None:
        return Place(session, slug, Role.CHILD)
    # A first line still being written may name it yet; a whole one that did not never will.
    return Place(name.stem, slug, Role.CHILD) if b"\n" in start or len(start) >= HEAD_BYTES else None


Line = dict[str, object]


def _is_root(line: Line) -> bool:
    """Whether the conversation begins here."""
    return line["parentUuid"] is None and not line.get("isSidechain") and line.get("subtype") != "compact_boundary" and "uuid" in line


def _start(line: Line) -> Meaning:
    origin = fields_of(line.get("forkedFrom"))  # a fork is a copy, and needs nothing of the session that it was copied from
    fields = present(session_id=word(line.get("sessionId")), cwd=word(line.get("cwd")), version=word(line.get("version")))
    return Meaning(EventType.SESSION_START, {**fields, **present(forked_from=word(origin.get("sessionId")))})


def _aside(event: Meaning) -> Meaning:
    """What a side conversation tells, be it said, called or thought."""
    return event if event.type is EventType.UNKNOWN else Meaning(event.type, {**event.data, "sidechain": True})


def _place_changed(line: Line) -> Meaning:
    fields = present(cwd=word(line.get("cwd")), git_branch=word(line.get("gitBranch")), version=word(line.get("version")))
    return Meaning(EventType.ENVIRONMENT_CHANGED, fields)


def _message(line: Line, role: str, content: object, *, message: Line | None = None, meta: bool = False) -> Meaning:
    """What somebody says; `message` is the model's whole answer, `meta` that nobody typed it."""
    data = {"role": role, "content": content}
    if message is not None:
        data.update(_answered(message))
    if meta or line.get("isMeta"):
        data["meta"] = True
    return Meaning(EventType.MESSAGE_ADDED, data)


def _answered(message: Line) -> Line:
    """Which answer of the model a line is part of: the lines of one answer share its id and repeat its usage."""
    usage = message.get("usage")
    return present(message_id=word(message.get("id")), model=word(message.get("model")), usage=usage if isinstance(usage, dict) else None)


def _user(line: Line) -> list[Meaning]:
    """A prompt, tool results, a summary, or what the program says in the user's name."""
    message = line.get("message")
    if not isinstance(message, dict):
        return []
    content = message.get("content")
    if not isinstance(content, (str, list)):
        return []
    if line.get("isCompactSummary"):
        return [Meaning(EventType.CONTEXT_SUMMARIZED, {"summary": first_text(content)})]
    results = [_result(block) for block in content if _is_result(block)] if isinstance(content, list) else []
    if len(results) == 1:
        results[0].update(_besides(line.get("toolUseResult")))
    events = [Meaning(EventType.TOOL_COMPLETED, result) for result in results]
    if isinstance(content, list) and events:
        content = [block for block in content if not _is_result(block)]
        if not content:
            return events
    said = _message(line, word(message.get("role")) or "user", content, meta=first_text(content).startswith(_NOT_TYPED))
    return [*events, _place_changed(line), said]


def _is_result(block: object) -> bool:
    return isinstance(block, dict) and block.get("type") == "tool_result"


def _result(block: Line) -> Line:
    data: Line = {"invocation_id": word(block.get("tool_use_id")), "output": block.get("content")}
    if block.get("is_error") is True:
        data["is_error"] = True
    return data


def _besides(result: object) -> Line:
    """What only the structured copy of a tool's result tells: how long it took, and where the whole of it lies if it was too long."""
    return present(duration_ms=_duration_ms(result), output_path=word(fields_of(result).get("persistedOutputPath")))


def _duration_ms(result: object) -> int | None:
    """How long a tool took, as some of them say in the structured copy of their result."""
    said = fields_of(result)
    for field, unit_ms in (("durationMs", 1), ("totalDurationMs", 1), ("durationSeconds", 1000)):
        if (took := number(said.get(field), unit_ms)) is not None:
            return took
    return None


def _assistant(line: Line) -> list[Meaning]:
    """Its blocks in order: what it thinks, says and calls. Usage is told once, with what it says where it says something."""
    message = line.get("message")
    if not isinstance(message, dict):
        return []
    content, role = message.get("content"), word(message.get("role")) or "assistant"
    if isinstance(content, str):
        return [_message(line, role, content, message=message)]
    if not isinstance(content, list):
        return []
    events: list[Meaning] = []
    said: list[object] = []
    for block in content:
        event = _block(block)
        if event is not None:
            events.append(event)
        else:
            if not said:  # the message stands where its first text does
                events.append(_message(line, role, said, message=message))
            said.append(block)
    if not said and "usage" in (answered := _answered(message)):
        events.append(Meaning(EventType.METADATA_CHANGED, answered))
    return events


def _block(block: object) -> Meaning | None:
    """The event of a block that is no part of what is said; None for one that is."""
    if not isinstance(block, dict):
        return None
    kind = block.get("type")
    if not isinstance(kind, str):
        return None
    if kind.endswith("tool_use"):  # tool_use, server_tool_use, mcp_tool_use
        data = {"tool_name": word(block.get("name")), "input": block.get("input"), "invocation_id": word(block.get("id"))}
        return Meaning(EventType.TOOL_INVOKED, data)
    if kind in ("thinking", "redacted_thinking"):
        return Meaning(EventType.DECISION_MADE, {"kind": "reasoning", "text": word(block.get("thinking")) or ""})
    if kind.endswith("tool_result"):  # what the service's own tools gave back
        return Meaning(EventType.TOOL_COMPLETED, _result(block))
    return None


def _system(line: Line) -> list[Meaning]:
    """The program's own notes: a compaction, a message, or how a turn went."""
    subtype = word(line.get("subtype"))
    if subtype == "compact_boundary":
        about = fields_of(line.get("compactMetadata"))
        fields = present(trigger=word(about.get("trigger")), tokens_before=number(about.get("preTokens")), kept=_kept(about))
        return [Meaning(EventType.CONTEXT_SUMMARIZED, fields)]
    if word(line.get("content")) is not None:
        return [_message(line, "system", line["content"])]
    return [Meaning(EventType.METADATA_CHANGED, present(kind=subtype or "system", duration_ms=number(line.get("durationMs"))))]


def _kept(about: Line) -> object:
    """The ids of earlier lines that go on counting, word for word behind the summary: each, or the first and the last of a run."""
    listed, run = fields_of(about.get("preservedMessages")).get("uuids"), fields_of(about.get("preservedSegment"))
    if isinstance(listed, list):
        return listed
    first, last = word(run.get("headUuid")), word(run.get("tailUuid"))
    return {"from": first, "to": last} if first and last else None


def _attachment(line: Line) -> list[Meaning]:
    """What is put before the model beside the prompt; a prompt typed while it worked comes so too."""
    attached = line.get("attachment")
    if not isinstance(attached, dict):
        return []
    if attached.get("type") == "queued_command" and isinstance(attached.get("prompt"), (str, list)):
        prompt = attached["prompt"]
        return [_message(line, "user", prompt, meta=first_text(prompt).startswith(_NOT_TYPED))]
    return [_message(line, "system", [attached], meta=True)]


def _progress(line: Line) -> list[Meaning]:
    step = word(fields_of(line.get("data")).get("type"))
    fields = present(kind="progress", progress=step, invocation_id=word(line.get("parentToolUseID")))
    return [Meaning(EventType.METADATA_CHANGED, fields)]


def _title(line: Line) -> list[Meaning]:
    field, rank = _TITLES[str(line["type"])]
    fields = present(kind=line["type"], title=word(line.get(field)))
    return [Meaning(EventType.METADATA_CHANGED, {**fields, "title_rank": rank} if "title" in fields else fields)]


def _bookkeeping(line: Line) -> list[Meaning]:
    kind = str(line["type"])
    told = {field: line[field] for field in _BOOKKEEPING[kind] if isinstance(line.get(field), str)}
    return [Meaning(EventType.METADATA_CHANGED, {"kind": kind, **told})]


def _snapshot(line: Line) -> list[Meaning]:
    return [Meaning(EventType.ENVIRONMENT_CHANGED, present(snapshot=line.get("snapshot"), message_id=word(line.get("messageId"))))]


def _relocated(line: Line) -> list[Meaning]:
    return [Meaning(EventType.ENVIRONMENT_CHANGED, present(cwd=word(line.get("relocatedCwd"))))]


def _worktree(line: Line) -> list[Meaning]:
    tree = fields_of(line.get("worktreeSession"))
    fields = present(cwd=word(tree.get("worktreePath")), git_branch=word(tree.get("worktreeBranch")))
    return [Meaning(EventType.ENVIRONMENT_CHANGED, fields)]


_READERS: Mapping[str, Callable[[Line], list[Meaning]]] = {
    "user": _user,
    "assistant": _assistant,
    "system": _system,
    "attachment": _attachment,
    "progress": _progress,
    "file-history-snapshot": _snapshot,
    "relocated": _relocated,
    "worktree-state": _worktree,
    **dict.fromkeys(_TITLES, _title),
    **dict.fromkeys(_BOOKKEEPING, _bookkeeping),
}

AGENT: Agent = ClaudeCode()
