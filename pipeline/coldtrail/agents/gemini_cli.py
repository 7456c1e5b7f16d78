"""Gemini CLI: `tmp/<project>/chats/session-<minute>-<8 of id>.jsonl`; swept after 30 days by the time inside."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path, PurePosixPath

from coldtrail.agents.base import HEAD_BYTES, Agent, Fork, Place, RestoreAdvice
from coldtrail.agents.reading import DAY_MS, command, fields_of, first_text, present, session_id_in, setting, time_ms, unknown, word
from coldtrail.model import EventType, Ids, Meaning, Reading, Role, instant_text

_SWEEP = "30d"
_SWEEP_LEAST = "1d"
_SPAN = re.compile(r"([1-9]\d{0,6})([hdwm])")
_UNIT_DAYS = {"h": 1 / 24, "d": 1.0, "w": 7.0, "m": 30.0}

_UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_SHORT_ID = re.compile(r"session-.+-([A-Za-z0-9_-]{8})")
_LOG_NAME = re.compile(r"(session-.+-)[A-Za-z0-9_-]{8}\.jsonl")
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_-]")  # the program writes `_` for these
_LOG_SUFFIXES = (".jsonl", ".json")
_LOG = re.compile(r"session-(.+)\.jsonl")
_UNREADABLE = re.compile(r"(.+\.jsonl)\.unreadable-\d+")  # a log the program could not load and set aside

_SPEAKERS = {"user": "user", "gemini": "assistant", "info": "system", "warning": "system", "error": "system"}
_IN_CALLS = frozenset({"functionCall", "functionResponse"})
_SURROUNDINGS = "<session_context>"
_WORKSPACE = re.compile(r"\*\*Workspace Directories:\*\*\s+- (\S[^\n]*)")


class GeminiCli:
    """A session is a log in `chats/`, its sub-agents' in a folder of its id, and what tools wrote elsewhere in the project's folder."""

    name = "gemini-cli"
    folders = ("tmp",)
    ids = Ids.RESTATED

    def roots(self, env: Mapping[str, str], home: Path) -> Sequence[Path]:
        """`.gemini` in GEMINI_CLI_HOME, which stands for the whole home, or in home; under macOS's sandbox in home's `.cache`."""
        base = Path(env["GEMINI_CLI_HOME"]) if env.get("GEMINI_CLI_HOME") else home
        return [base / ".gemini", base / ".cache" / ".gemini"]

    def place(self, path: PurePosixPath, head: Callable[[], bytes]) -> Place | None:
        """Told by the path, but for the main logs, whose names hold only eight characters of the id."""
        if any(part.startswith(".") for part in path.parts):
            return None
        match path.parts:
            case ("tmp", project, "chats", name):
                return _chat(project, name, head)
            case ("tmp", project, "chats", parent, _) if path.suffix in _LOG_SUFFIXES:
                return Place(parent, project, Role.CHILD)
            case ("tmp", project, *below) if (owner := _owner(below)) is not None:
                return Place(owner, project, Role.COMPANION)
        return None

    def log_id(self, path: PurePosixPath) -> str | None:
        """None: each log holds its whole history."""
        return None

    def plain_path(self, path: PurePosixPath) -> PurePosixPath | None:
        """None: it compresses nothing."""
        return None

    def read(self, value: object) -> Reading:
        """What a line means: the header, a message (which a later one of the same id replaces), `$set` or `$rewindTo`.

        An old session is one JSON document: a header with all its messages.
        """
        if not isinstance(value, dict):
            return Reading((unknown(value),))
        if "$set" in value:
            return _set(fields_of(value["$set"]), value)
        if word(target := value.get("$rewindTo")) is not None:
            return Reading((Meaning(EventType.DECISION_MADE, {"kind": "rollback", "target": target}),))
        if word(value.get("id")) is not None and word(value.get("type")) in _SPEAKERS:
            return Reading(tuple(_message(value)), time_ms(value.get("timestamp")), word(value["id"]), cwd=_folder_said(value))
        if word(value.get("sessionId")) is not None:
            return _header(value)
        return Reading((unknown(value),), time_ms(value.get("timestamp")), word(value.get("id")))

    def continues(self, first: Sequence[Reading], held: Callable[[str], bool]) -> bool:
        """Whether it begins without the header that every new file and every rewritten one has."""
        return bool(first) and first[0].events[0].type not in (EventType.SESSION_START, EventType.UNKNOWN)

    def ordinal(self, value: object) -> int | None:
        """None: its records have ids."""
        return None

    def sweep_days(self, root: Path) -> float | None:
        """`general.sessionRetention.maxAge`, 30 days where nothing is said; None where the sweep is off, or its settings invalid."""
        said = fields_of(setting(root / "settings.json", "general", "sessionRetention"))
        if not said.get("enabled", True):
            return None
        least = _span_days(said.get("minRetention", _SWEEP_LEAST)) or _span_days(_SWEEP_LEAST)
        days = _span_days(said.get("maxAge", _SWEEP))
        return None if days is None or least is None or days < least else days

    def sweep_key_is_mtime(self) -> bool:
        """False: it goes by `lastUpdated` in the file."""
        return False

    def advise(self, root: Path, mtime_ns: int, last_ms: int | None, now_ns: int) -> RestoreAdvice:
        """The original mtime, with a warning where the time inside is past the sweep's, for no mtime helps then."""
        days, count = self.sweep_days(root), _sweep_count(root)
        why = []
        if days is not None and last_ms is not None and now_ns // 1_000_000 - last_ms > days * DAY_MS:
            last = (instant_text(last_ms) or "")[:10]
            why.append(
                f"its last change ({last}) is past the {days:g} days Gemini CLI keeps sessions: it will delete this one at its next start"
            )
        if count is not None:
            why.append(
                f"Gemini CLI keeps the {count} newest sessions of a project: if this is none of them, it will delete it at its next start"
            )
        switch = f", unless you first set general.sessionRetention.enabled to false in {root / 'settings.json'}"
        return RestoreAdvice(mtime_ns, "; ".join(why) + switch if why else "")

    def busy(self, root: Path, session_id: str) -> str | None:
        """None: it leaves no mark while it runs."""
        return None

    def fork(self, path: PurePosixPath, fresh: str) -> Fork | None:
        """Under the same minute; an old session is one document, of which no part is one."""
        name = _LOG_NAME.fullmatch(path.name)
        return Fork(fresh, path.with_name(f"{name[1]}{fresh[:8]}.jsonl"), _said_owner) if name else None

    def resume(self, session_id: str, cwd: str | None) -> str | None:
        """By the whole id, from the session's own folder: only its own project's sessions are looked at."""
        return command("gemini", "--resume", session_id, cwd=cwd)


def _sweep_count(root: Path) -> int | None:
    """How many sessions its sweep leaves; None where it is off, or does not count them."""
    said = fields_of(setting(root / "settings.json", "general", "sessionRetention"))
    count = said.get("maxCount")
    return count if said.get("enabled", True) and isinstance(count, int) and not isinstance(count, bool) and count > 0 else None


def _chat(project: str, name: str, head: Callable[[], bytes]) -> Place | None:
    """A file in `chats/`: a session, or one that was set aside."""
    aside = _UNREADABLE.fullmatch(name)
    path = PurePosixPath(aside[1] if aside else name)
    if path.suffix not in _LOG_SUFFIXES:
        return None
    short = _SHORT_ID.fullmatch(path.stem)
    start = head()
    said = session_id_in(start)
    if said is not None and (short is None or short[1] in _NOT_IN_NAMES.sub("_", said)):
        return Place(said, project, Role.COMPANION if aside else Role.MAIN)
    if not start or (path.suffix == ".jsonl" and b"\n" not in start and len(start) < HEAD_BYTES):
        return None  # a first line still being written will say it
    return Place(short[1] if short else path.stem, project, Role.COMPANION if aside else Role.MAIN)


def _owner(below: list[str]) -> str | None:
    """The session to which a file in a project's folder belongs, by the names of the folders on its way."""
    match below:
        case ("logs", name) if (log := _LOG.fullmatch(name)) is not None:
            return log[1]
        case ("tool-outputs", folder, _, *_) if folder.startswith("session-"):
            return folder.removeprefix("session-")
        case (session, _, *_) if _UUID.fullmatch(session) is not None:
            return session
    return None


def _span_days(text: object) -> float | None:
    """A retention span such as `30d`; None where the program would reject it."""
    parts = _SPAN.fullmatch(text) if isinstance(text, str) else None
    return int(parts[1]) * _UNIT_DAYS[parts[2]] if parts else None


Fields = dict[str, object]


def _said_owner(value: object) -> tuple[str, ...]:
    """Where a line says whose log it is: the last one to do so counts, and its sweep goes by the first."""
    fields = fields_of(value)
    if "sessionId" in fields_of(fields.get("$set")):
        return ("$set", "sessionId")
    return ("sessionId",) if "sessionId" in fields and "id" not in fields else ()


def _header(value: Fields) -> Reading:
    """The session's first line; an old session's document holds everything else too."""
    cwd = _first_folder(value)
    about = present(session_id=value["sessionId"], cwd=cwd, kind=word(value.get("kind")))
    events = [Meaning(EventType.SESSION_START, about), *_titled(value)]
    messages = value.get("messages")
    if not isinstance(messages, list) or not messages:
        started = time_ms(value.get("startTime"))
        return Reading(tuple(events), time_ms(value.get("lastUpdated")) if started is None else started, cwd=cwd)
    for message in messages:
        events += _message(message) if isinstance(message, dict) else [unknown(message)]
    return Reading(tuple(events), time_ms(value.get("lastUpdated")), cwd=cwd or _folder_in(messages))


def _set(fields: Fields, value: Fields) -> Reading:
    """Metadata changes; `messages` among them are the whole conversation anew: what was said is told again, tools' results are not."""
    events = _titled(fields)
    messages = fields.get("messages")
    if isinstance(messages, list):
        events.append(Meaning(EventType.CONTEXT_SUMMARIZED, {"replacement": []}))
        events += [_said(message) for message in _objects(messages) if _speaks(message)]
    cwd = _first_folder(fields) or _folder_in(messages)
    if isinstance(fields.get("directories"), list):
        events.append(Meaning(EventType.ENVIRONMENT_CHANGED, present(cwd=cwd, directories=fields["directories"])))
    if not events:
        known = isinstance(value["$set"], dict)
        events.append(Meaning(EventType.METADATA_CHANGED, {"kind": "$set", "keys": sorted(fields)}) if known else unknown(value))
    return Reading(tuple(events), time_ms(fields.get("lastUpdated")), cwd=cwd)


def _titled(fields: Fields) -> list[Meaning]:
    title = word(fields.get("summary"))
    return [Meaning(EventType.METADATA_CHANGED, {"title": title, "title_rank": 1})] if title else []


def _message(message: Fields) -> list[Meaning]:
    """What a message holds, in order: thoughts, words, tool calls with their results."""
    kind = word(message.get("type"))
    if kind not in _SPEAKERS:
        return [unknown(message)]
    content = message.get("content")
    if kind != "gemini":
        if _is_of_tools(content):  # the call that it answers has told it
            return [Meaning(EventType.METADATA_CHANGED, present(kind="functionResponse", message_id=word(message.get("id"))))]
        return [_said(message)]
    events = [_thought(each, message) for each in _objects(message.get("thoughts"))]
    if content and not _is_of_tools(content):
        events.append(_said(message))
    elif answered := _answered(message):
        events.append(Meaning(EventType.METADATA_CHANGED, answered))
    for place, call in enumerate(_objects(message.get("toolCalls"))):
        events += _tool_call(call, word(call.get("id")) or f"{message.get('id')}#{place}")
    return events or [_said(message)]


def _objects(value: object) -> list[Fields]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def _speaks(message: Fields) -> bool:
    content = message.get("content")
    return word(message.get("type")) in _SPEAKERS and bool(content) and not _is_of_tools(content)


def _is_of_tools(content: object) -> bool:
    """Whether a message is nothing but calls of tools, or what they gave back."""
    return (
        isinstance(content, list) and bool(content) and all(isinstance(part, dict) and not _IN_CALLS.isdisjoint(part) for part in content)
    )


def _said(message: Fields) -> Meaning:
    """What somebody says; the later one of two with one `message_id` counts."""
    content = message.get("content")
    role = _SPEAKERS[str(message["type"])]
    data = {"role": role, "content": content if isinstance(content, (str, list)) else "", **_answered(message)}
    if role == "user" and first_text(content).startswith(_SURROUNDINGS):
        data["meta"] = True
    return Meaning(EventType.MESSAGE_ADDED, data)


def _answered(message: Fields) -> Fields:
    tokens = message.get("tokens")
    usage = tokens if isinstance(tokens, dict) else None
    return present(message_id=word(message.get("id")), model=word(message.get("model")), usage=usage)


def _thought(thought: Fields, message: Fields) -> Meaning:
    text = ": ".join(each for each in (word(thought.get("subject")), word(thought.get("description"))) if each)
    return Meaning(EventType.DECISION_MADE, present(kind="reasoning", text=text, message_id=word(message.get("id"))))


def _tool_call(call: Fields, invocation: str) -> list[Meaning]:
    name = word(call.get("name"))
    events = [Meaning(EventType.TOOL_INVOKED, {"tool_name": name, "input": call.get("args"), "invocation_id": invocation})]
    status = word(call.get("status"))
    if status in ("success", "error", "cancelled") or call.get("result") is not None:
        done = {"invocation_id": invocation, "output": call.get("result", call.get("resultDisplay")), "tool_name": name}
        if status == "error":
            done["is_error"] = True
        events.append(Meaning(EventType.TOOL_COMPLETED, done))
    return events


def _first_folder(fields: Fields) -> str | None:
    folders = fields.get("directories")
    return word(folders[0]) if isinstance(folders, list) and folders else None


def _folder_in(messages: object) -> str | None:
    """The folder that the surroundings say, which come before the first prompt."""
    return next((folder for message in _objects(messages)[:2] if (folder := _folder_said(message)) is not None), None)


def _folder_said(message: Fields) -> str | None:
    text = first_text(message.get("content"))
    found = _WORKSPACE.search(text) if text.startswith(_SURROUNDINGS) else None
    return found[1].strip() if found else None


AGENT: Agent = GeminiCli()
