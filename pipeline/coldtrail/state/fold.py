"""The fold: records into a state, in the order of the log; it can be split anywhere and gives the same."""

from __future__ import annotations

from collections.abc import Mapping

from coldtrail.model import EventType, Ids, Meaning, Position, Reading
from coldtrail.state.conversation import Conversation, Past
from coldtrail.state.values import Early, Node, Ref, State, Tool, completed_tool, digest

VERSION = 1  # of what the fold does: a checkpoint of another version is passed over
_EARLY_MAX = 64  # completions whose invocation may still come
_ANSWERS_MAX = 4  # answers whose usage may still be told again
_NOT_ENVIRONMENT = frozenset({"kind", "message_id", "snapshot", "session_id"})


class Fold:
    """Folds records into a state; `past` is asked only where a record refers to what is not live."""

    def __init__(self, ids: Ids, past: Past, state: State | None = None) -> None:
        self.state = state or State()
        self._ids, self._past = ids, past
        self._conversation = Conversation(ids, past, self.state)

    def apply(self, ref: Ref, reading: Reading) -> None:
        """Take the next record."""
        if self._is_repeat(ref, reading):
            return
        state = self.state
        if self._ids in (Ids.RESTATED, Ids.CHAINED) and (at := self._conversation.find(reading.id)) is not None:
            self._undo_tools(state.live[at])
        state.event_count += len(reading.events)
        if reading.events:
            state.last_event = Position(ref.generation, ref.offset, len(reading.events) - 1)
        self._note_time(reading)
        for meaning in reading.events:
            self._note(ref, reading, meaning)
        self._conversation.take(ref, reading)

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
        if reading.cwd:
            state.environment["cwd"] = reading.cwd

    def _note(self, ref: Ref, reading: Reading, meaning: Meaning) -> None:
        data = meaning.data
        match meaning.type:
            case EventType.TOOL_INVOKED:
                self._invoked(Tool(ref, data.get("tool_name"), data.get("input"), reading.time_ms), str(data.get("invocation_id")))
            case EventType.TOOL_COMPLETED:
                self._completed(ref, data)
            case EventType.ENVIRONMENT_CHANGED | EventType.SESSION_START:
                self._environment(data)
            case EventType.DECISION_MADE:
                self.state.decisions.add(digest(data))
                if data.get("kind") == "rollback":
                    self._conversation.roll_back(data)
            case EventType.METADATA_CHANGED:
                self._metadata(data)
            case EventType.MESSAGE_ADDED:
                self._usage(data, adds=True)
                self._environment({key: data[key] for key in ("model",) if key in data})
            case EventType.CONTEXT_SUMMARIZED:
                self.state.summary_applied_ms = reading.time_ms

    def _invoked(self, tool: Tool, invocation: str) -> None:
        done = self.state.early.pop(invocation, None)
        if done is None:
            self.state.pending[invocation] = tool
            return
        self.state.completed.remove(digest(completed_tool(None, done.data)))
        self.state.completed.add(digest(completed_tool(tool, done.data)))

    def _completed(self, ref: Ref, data: Mapping[str, object]) -> None:
        invocation = str(data.get("invocation_id"))
        tool = self.state.pending.pop(invocation, None)
        self.state.completed.add(digest(completed_tool(tool, data)))
        if tool is None:
            self.state.early[invocation] = Early(ref, data)
            while len(self.state.early) > _EARLY_MAX:
                del self.state.early[next(iter(self.state.early))]

    def _undo_tools(self, node: Node) -> None:
        """A record that is said again says its tools again."""
        invoked: dict[str, Tool] = {}
        for meaning in node.tools:
            invocation, data = str(meaning.data.get("invocation_id")), meaning.data
            if meaning.type is EventType.TOOL_INVOKED:
                invoked[invocation] = Tool(node.ref, data.get("tool_name"), data.get("input"), None)
                self.state.pending.pop(invocation, None)
            else:
                self.state.completed.remove(digest(completed_tool(invoked.get(invocation), data)))
                self.state.early.pop(invocation, None)

    def _environment(self, data: Mapping[str, object]) -> None:
        if "snapshot" in data:
            self.state.snapshots.add(digest(data))
        for key, value in data.items():
            if key not in _NOT_ENVIRONMENT and isinstance(value, str | int | float):
                self.state.environment[key] = value

    def _metadata(self, data: Mapping[str, object]) -> None:
        title, rank = data.get("title"), data.get("title_rank")
        if isinstance(title, str) and isinstance(rank, int) and rank >= self.state.title_rank:
            self.state.title, self.state.title_rank = title, rank
        self._usage(data, adds=False)

    def _usage(self, data: Mapping[str, object], *, adds: bool) -> None:
        """Usage counts once an answer, its largest figures; where no answer is named it adds up, or is the whole so far."""
        said = data.get("usage")
        if not isinstance(said, Mapping):
            return
        figures = {key: value for key, value in said.items() if isinstance(value, int) and not isinstance(value, bool)}
        answer = data.get("message_id")
        if not isinstance(answer, str):
            self.state.usage = self._added(figures) if adds else figures
            return
        before = self.state.answers.pop(answer, {})
        larger = {key: max(figures.get(key, 0), before.get(key, 0)) for key in figures.keys() | before.keys()}
        self.state.usage = self._added({key: value - before.get(key, 0) for key, value in larger.items()})
        self.state.answers[answer] = larger
        while len(self.state.answers) > _ANSWERS_MAX:
            del self.state.answers[next(iter(self.state.answers))]

    def _added(self, figures: Mapping[str, int]) -> dict[str, int]:
        usage = self.state.usage
        return {key: usage.get(key, 0) + figures.get(key, 0) for key in usage.keys() | figures.keys()}
