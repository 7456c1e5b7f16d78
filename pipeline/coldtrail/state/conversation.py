"""The live conversation: which records count, in which order, by the file's order or by their parents."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Protocol

from coldtrail.model import EventType, Ids, Meaning, Reading
from coldtrail.state.nodes import begins_anew, nodes_of
from coldtrail.state.values import Node, Ref, State

_ANCESTORS_MAX = 100_000
_LEFT_MAX = 64  # records left behind whose parent may still come


class Past(Protocol):
    """The records before the one that is folded, read again where the fold must look back."""

    def find(self, record_id: str, before: Ref) -> tuple[Ref, Reading] | None:
        """The last record of that id before `before`; None where there is none."""

    def at(self, ref: Ref) -> Reading | None:
        """The record at a place; None where it cannot be read."""


class Conversation:
    """Places records in a state's `live`."""

    def __init__(self, ids: Ids, past: Past, state: State) -> None:
        self._ids, self._past, self._state = ids, past, state
        self._known: set[str | None] = set()  # the live records' ids: most that are asked for are not among them
        self._awaited: set[str | None] = set()  # the parents that loose ones among them wait for
        self._missed: set[str | None] = set()  # the parents that those left behind wait for
        self._behind = Ref(0, 0, 0)  # the place behind the record that is placed now
        self._learn()

    def take(self, ref: Ref, reading: Reading) -> None:
        """Place the next record, if it has a place."""
        nodes = nodes_of(ref, reading, self._ids)
        self._behind = Ref(ref.generation, ref.offset + ref.length, 0)
        if self._ids is Ids.CHAINED and reading.id is not None:
            if not self._is_aside(reading.events):
                self._take_chained(nodes[0], reading.events)
            return
        before = self._state.live
        if begins_anew(reading.events):
            self._replace([])
        for node in nodes:
            self._append(node, before)

    def find(self, record_id: str | None) -> int | None:
        """Where the last live record of that id is: most looks back are short."""
        live = self._state.live
        if record_id is not None and record_id in self._known:
            for at in range(len(live) - 1, -1, -1):
                if live[at].id == record_id:
                    return at
        return None

    def roll_back(self, data: Mapping[str, object]) -> None:
        """Drop the last turns, or all from a record on."""
        live, target, count = self._state.live, data.get("target"), data.get("count")
        cut: int | None = None
        if isinstance(target, str):
            cut = self.find(target)
            if cut is None and self._ids is Ids.RESTATED:  # of such logs nothing is left where that record is not there
                cut = 0
        elif isinstance(count, int) and count > 0:
            turns = [at for at, node in enumerate(live) if any(each.role == "user" and not each.meta for each in node.messages)]
            cut = turns[max(0, len(turns) - count)] if turns else None
        if cut is not None:
            self._state.apart = True
            self._replace(live[:cut])

    def _learn(self) -> None:
        self._known = {node.id for node in self._state.live}
        self._awaited = {node.parent for node in self._state.live if node.loose}
        self._missed = {node.parent for node in self._state.left if node.loose}

    def _replace(self, live: list[Node]) -> None:
        """Another conversation is live."""
        self._state.live = live
        self._learn()

    def _leave_for(self, live: list[Node]) -> None:
        """Another branch is live; of the one left behind is kept what may still turn out to belong to this one."""
        state = self._state
        if self._awaited or state.left:
            stays = {id(node) for node in live} | {id(node) for node in state.left}
            gone = [node for node in state.live if id(node) not in stays]
            begin = next((at for at, node in enumerate(gone) if node.loose), len(gone))
            ids = {node.id for node in live}
            state.left = [node for node in [*state.left, *gone[begin:]] if node.id not in ids][-_LEFT_MAX:]
        self._replace(live)

    def _add(self, node: Node) -> None:
        self._state.live.append(node)
        self._known.add(node.id)
        if node.loose:
            self._awaited.add(node.parent)

    def _append(self, node: Node, before: list[Node]) -> None:
        """Place a record in the file's order; one that is said again in the first one's place. `before`: what was live."""
        at = self.find(node.id) if self._ids is Ids.RESTATED else None
        if at is not None:
            self._state.live[at] = node
            return
        if self._ids is Ids.RESTATED and node.part is not None:  # said anew without its tools, which hold
            told = next((each.told for each in reversed(before) if each.id is not None and each.id == node.id), None)
            node = replace(node, told=told)
        elif self._ids in (Ids.LOOSE, Ids.UNIQUE):
            node = replace(node, follows=True) if self._is_next(node) else node
            self._state.apart = False
        self._add(node)

    def _is_next(self, node: Node) -> bool:
        """Whether all that lies between the last live record and this one has no place in the conversation."""
        last = self._state.live[-1] if self._state.live else None
        if last is None or self._state.apart or node.part is not None or last.part is not None:
            return False
        return last.ref.generation == node.ref.generation

    def _is_aside(self, events: tuple[Meaning, ...]) -> bool:
        """Whether the record is of a side conversation inside another one."""
        state, aside = self._state, _is_side(events)
        speaks = any(meaning.type is EventType.MESSAGE_ADDED for meaning in events)
        if speaks and state.sidechain is None:
            state.sidechain = aside
        elif speaks and state.sidechain and not aside:  # the one that the log began with was such a one
            state.sidechain = False
            self._replace([])
        return aside and state.sidechain is False

    def _take_chained(self, node: Node, events: tuple[Meaning, ...]) -> None:
        live = self._state.live
        if (at := self.find(node.id)) is not None:  # written twice
            live[at] = replace(node, loose=live[at].loose)
            self._learn()
        elif node.begins:
            self._begin(node, events)
        elif node.id in self._awaited:
            self._put_before(node)
        elif node.id in self._missed:
            self._join(node)
        else:
            self._hang(node)

    def _hang(self, node: Node) -> None:
        """Place a record by its parent: on the leaf, on an earlier one (a branch), or, where that is unknown, in the file's order."""
        live = self._state.live
        if node.parent is None:
            self._leave_for([node])
        elif live and live[-1].id == node.parent:
            self._add(node)
        elif (at := self.find(node.parent)) is not None:
            self._branch_at(at, node)
            self._add(node)
        else:
            self._hang_elsewhere(node)

    def _begin(self, node: Node, events: tuple[Meaning, ...]) -> None:
        """A compaction: nothing before it counts but what it keeps. Its summary comes as a second record, behind the first."""
        live = self._state.live
        if node.messages and self._is_open(live) and self.find(node.parent) is not None:
            since = [each for each in live if each.ref >= live[0].ref]
            self._replace([*since, node, *(each for each in live if each.ref < live[0].ref)])
        else:
            lost = node.parent is not None and self.find(node.parent) is None and self._past.find(node.parent, self._behind) is None
            self._state.loose += lost
            self._state.left = []
            self._replace([replace(node, loose=lost), *self._kept(events)])

    @staticmethod
    def _is_open(live: list[Node]) -> bool:
        """Whether a compaction's summary is still to come: what it keeps is older, and may begin with an earlier one's."""
        return bool(live) and live[0].begins and not live[0].messages and not any(each.begins and each.ref > live[0].ref for each in live)

    def _kept(self, events: tuple[Meaning, ...]) -> list[Node]:
        """The live records that a compaction keeps: those it names, or all from one to another."""
        live = self._state.live
        data = next(meaning.data for meaning in events if meaning.type is EventType.CONTEXT_SUMMARIZED)
        match data.get("kept"):
            case list() as named:
                ids = {each for each in named if isinstance(each, str)}
                return [each for each in live if each.id in ids]
            case {"from": str(head), "to": str(tail)} if (at := self.find(head)) is not None and (to := self.find(tail)) is not None:
                return live[at : to + 1]
        return []

    def _put_before(self, node: Node) -> None:
        """A record on which one hangs that came before it: put in front of that, as if it had come in time."""
        state = self._state
        at = next(at for at, each in enumerate(state.live) if each.loose and each.parent == node.id)
        if state.live[at].begins:  # what it hangs on no longer counts
            state.live[at], state.loose = replace(state.live[at], loose=False), state.loose - 1
            self._learn()
            return
        late = state.live[at:]
        self._replace(state.live[:at])
        self._hang_first(node, late)
        self._met(node.id)

    def _join(self, node: Node) -> None:
        """A record on which one hangs that was left behind: it is not, if the first one goes on with the live conversation."""
        state, hung_on = self._state, self.find(node.parent)
        at = next(at for at, each in enumerate(state.left) if each.loose and each.parent == node.id)
        if node.parent is None or hung_on == len(state.live) - 1:
            late, state.left = state.left[at:], state.left[:at]
            self._hang_first(node, late)
        elif hung_on is None:
            self._wait_with(node, at)
        self._met(node.id)

    def _wait_with(self, node: Node, at: int) -> None:
        """The record on which the one left behind at `at` hangs waits too: behind its parent there, or for one not met."""
        left = self._state.left
        end = next((at for at in range(at + 1, len(left)) if left[at].loose), len(left))
        others = [*left[:at], *left[end:]]
        behind = next((place for place, each in enumerate(others, 1) if each.id == node.parent), None)
        if behind is not None or not self._ancestors(node):
            place = at if behind is None else behind
            late = [replace(node, loose=behind is None), replace(left[at], loose=False), *left[at + 1 : end]]
            self._state.left = [*others[:place], *late, *others[place:]][-_LEFT_MAX:]
            self._state.loose -= behind is not None

    def _met(self, record_id: str | None) -> None:
        """No record that was left behind waits for this one any more."""
        waited, left = False, list[Node]()
        for each in self._state.left:
            waited = each.parent == record_id if each.loose else waited
            self._state.loose -= each.loose and waited
            if not waited:
                left.append(each)
        self._state.left = left
        self._learn()

    def _hang_first(self, node: Node, late: list[Node]) -> None:
        """Place a record, and then those that came before it, though they hang on it."""
        self._hang(node)
        loose = self._state.loose - sum(each.loose and each.parent == node.id for each in late)
        for each in late:
            if each.id is None:
                self._add(each)
            elif self.find(each.id) is None:
                self._hang(replace(each, loose=False))
        self._state.loose = loose  # the others were counted when they came

    def _branch_at(self, at: int, node: Node) -> None:
        """Leave behind what follows the record at `at`, unless it belongs to the same answer, or says nothing."""
        live = self._state.live
        hung_on = live[at]
        answers = {hung_on.answer, node.answer} - {None}
        kept, others = list[Node](), list[Node]()
        for each in live[at + 1 :]:  # what is older was kept by a compaction, and belongs to it
            (kept if hung_on.begins and each.ref < hung_on.ref else others).append(each)
        if any(each.messages and each.answer not in answers for each in others):
            self._state.branches += 1
            self._leave_for([*live[: at + 1], *kept])

    def _hang_elsewhere(self, node: Node) -> None:
        """The parent is not live: it was left behind by a branch, or is not in the log."""
        live, trail = self._state.live, self._ancestors(node)
        if not trail:
            self._state.loose += 1
            self._add(replace(node, loose=True))
            return
        top = trail[0]
        if top.parent is None or top.begins:
            base = []
        elif (at := self.find(top.parent)) is not None:
            base = live[: at + 1]
        else:  # in the file's order, as when it came
            base, trail[0] = [each for each in live if each.ref < top.ref], replace(top, loose=True)
        self._state.branches += 1
        self._leave_for([*base, *trail, node])

    def _ancestors(self, node: Node) -> list[Node]:
        """The records above `node` that are not live, the topmost first; none where its parent is nowhere."""
        trail: list[Node] = []
        wanted, met = node.parent, {node.id}
        while wanted is not None and wanted not in met and self.find(wanted) is None and len(trail) < _ANCESTORS_MAX:
            met.add(wanted)
            found = self._past.find(wanted, self._behind)
            if found is None or (self._state.sidechain is False and _is_side(found[1].events)):
                break
            above = nodes_of(*found, self._ids)[0]
            trail.append(above)
            wanted = None if above.begins else above.parent
        return trail[::-1]


def _is_side(events: tuple[Meaning, ...]) -> bool:
    return any(meaning.data.get("sidechain") for meaning in events)
