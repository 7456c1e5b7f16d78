"""The fold: records into a state, in the order of the log; it can be split anywhere and gives the same."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from coldtrail.model import EventType, Ids, Meaning, Position, Reading
from coldtrail.state.conversation import Conversation, Past
from coldtrail.state.state import State
from coldtrail.state.values import Early, Ref, Tool, completed_tool

VERSION = 4  # of what the fold does: a checkpoint of another version is passed over, and made again
_EARLY_MAX = 64  # completions whose invocation may still come
_ANSWERS_MAX = 4  # answers whose usage may still be told again
_NOT_ENVIRONMENT = frozenset({"kind", "message_id", "snapshot", "session_id"})
_TOOLS = (EventType.TOOL_INVOKED, EventType.TOOL_COMPLETED)
_COUNTED = (*_TOOLS, EventType.DECISION_MADE, EventType.ENVIRONMENT_CHANGED)  # each is counted, so must not be twice


class Fold:
    """Folds records into a state; `past` is asked only where a record refers to what is not live."""

    def __init__(self, ids: Ids, past: Past, state: State | None = None) -> None:
        self.state = state or State()
        self._ids, self._past = ids, past
        self._conversation = Conversation(ids, past, self.state)

    def apply(self, ref: Ref, reading: Reading) -> bool:
        """Take the next record; False where it is one that the log has had, which counts once."""
        if self._is_repeat(ref, reading):
            self.state.apart = True
            return False
        state, holds = self.state, self._untell(ref, reading)
        state.event_count += len(reading.events)
        if reading.events:
            state.last_event = Position(ref.generation, ref.offset, len(reading.events) - 1)
        self._note_time(reading)
        for meaning in reading.events:
            if meaning.type not in _TOOLS or _invocation(meaning) not in holds:
                self._note(ref, reading, meaning)
        self._conversation.take(ref, reading)
        return True

    def _is_repeat(self, ref: Ref, reading: Reading) -> bool:
        """Whether a log of unique ids has had this one: then it is counted once."""
        if self._ids is not Ids.UNIQUE or reading.id is None:
            return False
        if reading.id > self.state.newest_id:  # ids that sort by time need no look back
            self.state.newest_id = reading.id
            return False
        return self._past.find(reading.id, ref) is not None

    def _note_time(self, reading: Reading) -> None:
        state, when_ms = self.state, reading.time_ms
        if when_ms is not None:
            state.created_ms = when_ms if state.created_ms is None else min(state.created_ms, when_ms)
            state.updated_ms = when_ms if state.updated_ms is None else max(state.updated_ms, when_ms)
        if reading.cwd and not any(self._is_anothers(meaning) for meaning in reading.events):
            self._environment({"cwd": reading.cwd}, when_ms)

    def _is_anothers(self, meaning: Meaning) -> bool:
        """Whether a session begins here that is not the log's own: a fork's log may have its parent's beginning too.

        Of a log that goes on from another one the own beginning comes behind the other's, and says so.
        """
        said = meaning.data.get("session_id") if meaning.type is EventType.SESSION_START else None
        return said is not None and self.state.session not in (None, said) and "base" not in meaning.data

    def _note(self, ref: Ref, reading: Reading, meaning: Meaning) -> None:
        data = meaning.data
        match meaning.type:
            case EventType.TOOL_INVOKED:
                self._invoked(_tool(ref, data, reading.time_ms), _invocation(meaning))
            case EventType.TOOL_COMPLETED:
                self._completed(ref, data, _invocation(meaning))
            case EventType.SESSION_START:
                self._started(meaning, reading.time_ms)
            case EventType.ENVIRONMENT_CHANGED:
                self._environment(data, reading.time_ms)
            case EventType.DECISION_MADE:
                self._decided(data)
            case EventType.METADATA_CHANGED:
                self._metadata(data)
            case EventType.MESSAGE_ADDED:
                self._usage(data, adds=True)
                self._environment({key: data[key] for key in ("model",) if key in data}, reading.time_ms)
            case EventType.CONTEXT_SUMMARIZED:
                self._summarized(reading.time_ms)

    def _summarized(self, when_ms: int | None) -> None:
        """Where parents tell the order a compaction is several records, in any order: the latest time that one says."""
        said_ms = [each for each in (self.state.summary_applied_ms, when_ms) if each is not None]
        self.state.summary_applied_ms = max(said_ms, default=None) if self._ids is Ids.CHAINED else when_ms

    def _started(self, meaning: Meaning, when_ms: int | None) -> None:
        if not self._is_anothers(meaning):
            said = meaning.data.get("session_id")
            self.state.session = said if isinstance(said, str) else self.state.session
            self._environment(meaning.data, when_ms)

    def _invoked(self, tool: Tool, invocation: str) -> None:
        done = self.state.early.pop(invocation, None)
        if done is None:
            self.state.pending[invocation] = tool
            return
        self.state.completed.change(completed_tool(None, done.data), completed_tool(tool, done.data))

    def _completed(self, ref: Ref, data: Mapping[str, object], invocation: str) -> None:
        tool = self.state.pending.pop(invocation, None)
        self.state.completed.add(completed_tool(tool, data))
        if tool is None:
            self.state.early[invocation] = Early(ref, data)
            while len(self.state.early) > _EARLY_MAX:
                del self.state.early[next(iter(self.state.early))]
                self.state.forgotten += 1

    def _untell(self, ref: Ref, again: Reading) -> Collection[str]:
        """A record is said again, and tells again what it told: that is undone. Gives the tools of which the first word holds."""
        told, reading = self._told(ref, again)
        if told is None or reading is None:
            return ()
        for meaning in reading.events:
            if meaning.type is EventType.DECISION_MADE and meaning.data.get("kind") != "rollback":
                self.state.decisions.remove(dict(meaning.data))
            elif meaning.type is EventType.ENVIRONMENT_CHANGED and "snapshot" in meaning.data:
                self.state.snapshots.remove(dict(meaning.data))
            self._recall_usage(meaning.data)
        elsewhere = self._untell_tools(told, reading)
        return elsewhere if self._ids is Ids.CHAINED else ()  # a record that takes another's place tells of its tools all there is

    def _told(self, ref: Ref, again: Reading) -> tuple[Ref | None, Reading | None]:
        """The record that told what `again` tells again, where it is one that was said before."""
        at = self._conversation.find(again.id) if self._ids in (Ids.RESTATED, Ids.CHAINED) else None
        if at is not None:
            told = self.state.live[at].told
            return told, None if told is None else self._past.at(told)
        if self._ids is Ids.CHAINED and again.id is not None and self._may_be_old(again):
            return self._past.find(again.id, ref) or (None, None)
        return None, None

    def _may_be_old(self, reading: Reading) -> bool:
        """Whether a record that is not live may be one said again: it keeps its time, and those that are new tell a later one."""
        newest_ms, counts = self.state.updated_ms, any(each.type in _COUNTED for each in reading.events)
        return counts and (reading.time_ms is None or (newest_ms is not None and reading.time_ms <= newest_ms))

    def _untell_tools(self, told: Ref, reading: Reading) -> set[str]:
        """Undo what a record told of tools; gives those of which another record told the other half."""
        state, elsewhere = self.state, set[str]()
        invoked: dict[str, Tool] = {}
        for meaning in reading.events:
            invocation = _invocation(meaning)
            if meaning.type is EventType.TOOL_INVOKED:
                invoked[invocation] = _tool(told, meaning.data, reading.time_ms)
            elif meaning.type is EventType.TOOL_COMPLETED:
                tool = invoked.pop(invocation, None)
                if tool is None:
                    elsewhere.add(invocation)
                else:
                    state.completed.remove(completed_tool(tool, meaning.data))
        for invocation in invoked:
            if state.pending.pop(invocation, None) is None:
                elsewhere.add(invocation)
        return elsewhere

    def _decided(self, data: Mapping[str, object]) -> None:
        self.state.decisions.add(dict(data))
        if data.get("kind") == "rollback":
            self._conversation.roll_back(data)

    def _environment(self, data: Mapping[str, object], when_ms: int | None) -> None:
        if "snapshot" in data:
            self.state.snapshots.add(dict(data))
        for key, value in data.items():
            if key not in _NOT_ENVIRONMENT and isinstance(value, str | int | float) and not self._is_outdated(key, when_ms):
                self.state.environment[key] = value
                if self._ids is Ids.CHAINED and when_ms is not None:
                    self.state.environment_ms[key] = when_ms

    def _is_outdated(self, key: str, when_ms: int | None) -> bool:
        """Whether a later record has told it anew, as the times say: while a parent is awaited the file's order is not theirs."""
        told_ms = self.state.environment_ms.get(key)
        return self.state.since is not None and told_ms is not None and when_ms is not None and when_ms < told_ms

    def _metadata(self, data: Mapping[str, object]) -> None:
        title, rank = data.get("title"), data.get("title_rank")
        if isinstance(title, str) and isinstance(rank, int) and rank >= self.state.title_rank:
            self.state.title, self.state.title_rank = title, rank
        self._usage(data, adds=False)

    def _usage(self, data: Mapping[str, object], *, adds: bool) -> None:
        """Usage counts once an answer, its largest figures; where no answer is named it adds up, or is the whole so far."""
        figures = _figures(data)
        if figures is None:
            return
        answer = data.get("message_id")
        if not isinstance(answer, str):
            self.state.usage = self._added(figures) if adds else figures
            return
        before = self.state.answers.pop(answer, {})
        larger = {key: max(figures.get(key, 0), before.get(key, 0)) for key in figures.keys() | before.keys()}
        self.state.usage = self._added({key: value - before.get(key, 0) for key, value in larger.items()})
        self._remember(answer, larger)

    def _recall_usage(self, data: Mapping[str, object]) -> None:
        """What a record told of its answer, before it is said again, however long ago that was."""
        answer, figures = data.get("message_id"), _figures(data)
        if isinstance(answer, str) and figures is not None and answer not in self.state.answers:
            self._remember(answer, figures)

    def _remember(self, answer: str, figures: dict[str, int]) -> None:
        self.state.answers[answer] = figures
        while len(self.state.answers) > _ANSWERS_MAX:
            del self.state.answers[next(iter(self.state.answers))]

    def _added(self, figures: Mapping[str, int]) -> dict[str, int]:
        usage = self.state.usage
        return {key: usage.get(key, 0) + figures.get(key, 0) for key in usage.keys() | figures.keys()}


def _invocation(meaning: Meaning) -> str:
    return str(meaning.data.get("invocation_id"))


def _tool(ref: Ref, data: Mapping[str, object], started_ms: int | None) -> Tool:
    return Tool(ref, data.get("tool_name"), data.get("input"), started_ms)


def _figures(data: Mapping[str, object]) -> dict[str, int] | None:
    """The whole numbers that a usage tells; None where there is none."""
    said = data.get("usage")
    if not isinstance(said, Mapping):
        return None
    return {key: value for key, value in said.items() if isinstance(value, int) and not isinstance(value, bool)}
