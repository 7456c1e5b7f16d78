"""The live conversation: which records count, in which order, by the file's order or by their parents."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, Self

from coldtrail.model import EventType, Ids, Meaning, Reading
from coldtrail.state.live import Live
from coldtrail.state.nodes import begins_anew, nodes_of
from coldtrail.state.state import State
from coldtrail.state.values import Node, Ref

_ANCESTORS_MAX = 100_000
_WAITING_MAX = 128  # of those left behind: so many whose parent may still come, and so many with which a branch ends


class Past(Protocol):
    """The records before the one that is folded, read again where the fold must look back."""

    def find(self, record_id: str, before: Ref) -> tuple[Ref, Reading] | None:
        """The last record of that id before `before`, which has that id too or is of length 0: a place; None where there is none."""

    def at(self, ref: Ref) -> Reading | None:
        """The record at a place; None where it cannot be read."""


@dataclass(frozen=True, slots=True)
class _Known:
    """What is asked of a conversation for each of its records, so that it is not looked through for each."""

    ids: set[str | None]  # the live records': most that are asked for are not among them
    awaited: set[str | None]  # the parents that loose ones among them wait for
    missed: set[str | None]  # the parents that those left behind wait for

    @classmethod
    def of(cls, state: State) -> Self:
        live = state.live.nodes
        awaited = {node.parent for node in live if node.loose}
        return cls({node.id for node in live}, awaited, {parent for parent, _ in state.roots})


class Conversation:
    """Places records in a state's `live`."""

    def __init__(self, ids: Ids, past: Past, state: State) -> None:
        self._ids, self._past, self._state = ids, past, state
        self._learned: _Known | None = None  # of a log in which nothing is looked for nothing is
        self._behind = Ref(0, 0, 0)  # the place behind the record that is placed now

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
        if record_id is not None and record_id in self._known.ids:
            live = self._state.live.nodes
            for at in range(len(live) - 1, -1, -1):
                if live[at].id == record_id:
                    return at
        return None

    def roll_back(self, data: Mapping[str, object]) -> None:
        """Drop the last turns, or all from a record on."""
        live, target, count = self._state.live.nodes, data.get("target"), data.get("count")
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

    @property
    def _known(self) -> _Known:
        if self._learned is None:
            self._learned = _Known.of(self._state)
        return self._learned

    def _replace(self, live: list[Node]) -> None:
        """Another conversation is live."""
        self._state.live = Live(live)
        self._learned = None

    def _put(self, at: int, node: Node) -> None:
        """A live record is another."""
        self._state.live.put(at, node)
        self._learned = None

    def _leave_for(self, live: list[Node]) -> None:
        """Another branch is live; while parents may still come it is kept where the one left behind begins and ends."""
        state, before = self._state, self._state.live.nodes
        if self._known.awaited or state.roots:
            stays, hung_on = {node.ref for node in live}, {node.parent for node in (*before, *live)}
            gone = [node for node in before if node.ref not in stays]
            state.roots = [*state.roots, *((node.parent, node.ref) for node in gone if node.loose)]
            state.left = [*state.left, *(node.ref for node in gone if node.id not in hung_on)]
            self._bound(stays)
        self._replace(live)

    def _bound(self, live: set[Ref]) -> None:
        """Of those left behind none is live, and they are not too many."""
        state = self._state
        state.roots = [each for each in state.roots if each[1] not in live][-_WAITING_MAX:]
        state.left = [each for each in dict.fromkeys(state.left) if each not in live][-_WAITING_MAX:]

    def _add(self, node: Node) -> None:
        self._state.live.append(node)
        if self._learned is not None:
            self._learned.ids.add(node.id)
            if node.loose:
                self._learned.awaited.add(node.parent)

    def _append(self, node: Node, before: Sequence[Node]) -> None:
        """Place a record in the file's order; one that is said again in the first one's place. `before`: what was live."""
        at = self.find(node.id) if self._ids is Ids.RESTATED else None
        if at is not None:
            self._put(at, node)
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
        return not self._state.apart and node.part is None and self._state.live.last == (node.ref.generation, False)

    def _is_aside(self, events: tuple[Meaning, ...]) -> bool:
        """Whether the record is of a side conversation inside another one."""
        state, aside = self._state, _is_side(events)
        speaks = any(meaning.type is EventType.MESSAGE_ADDED for meaning in events)
        if speaks and state.sidechain is None:
            state.sidechain = aside
        elif speaks and state.sidechain and not aside:  # the one that the log began with was such a one
            state.sidechain, state.left, state.roots = False, [], []
            self._replace([])
        return aside and state.sidechain is False

    def _take_chained(self, node: Node, events: tuple[Meaning, ...]) -> None:
        if (at := self.find(node.id)) is not None:  # written twice
            self._put(at, replace(node, loose=self._state.live[at].loose))
        elif node.id in self._known.awaited or node.id in self._known.missed:
            self._come_late(node, events)
        else:
            self._take_next(node, events)

    def _take_next(self, node: Node, events: tuple[Meaning, ...]) -> None:
        if node.begins:
            self._begin(node, events)
        else:
            self._hang(node)

    def _hang(self, node: Node) -> None:
        """Place a record by its parent: on the leaf, on an earlier one (a branch), or, where that is unknown, in the file's order."""
        live = self._state.live.nodes
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
        live = self._state.live.nodes
        if node.messages and self._is_open(live) and self.find(node.parent) is not None:
            since = [each for each in live if each.ref >= live[0].ref]
            self._replace([*since, node, *(each for each in live if each.ref < live[0].ref)])
        else:
            lost = node.parent is not None and self.find(node.parent) is None and self._past.find(node.parent, self._behind) is None
            self._state.loose += lost
            self._leave_for([replace(node, loose=lost), *self._kept(events)])

    @staticmethod
    def _is_open(live: list[Node]) -> bool:
        """Whether a compaction's summary is still to come: what it keeps is older, and may begin with an earlier one's."""
        return bool(live) and live[0].begins and not live[0].messages and not any(each.begins and each.ref > live[0].ref for each in live)

    def _kept(self, events: tuple[Meaning, ...]) -> list[Node]:
        """The live records that a compaction keeps: those it names, or all from one to another."""
        live = self._state.live.nodes
        data = next(meaning.data for meaning in events if meaning.type is EventType.CONTEXT_SUMMARIZED)
        match data.get("kept"):
            case list() as named:
                ids = {each for each in named if isinstance(each, str)}
                return [each for each in live if each.id in ids]
            case {"from": str(head), "to": str(tail)} if (at := self.find(head)) is not None and (to := self.find(tail)) is not None:
                return live[at : to + 1]
        return []

    def _come_late(self, node: Node, events: tuple[Meaning, ...]) -> None:
        """A record on which one hangs that came before it: the conversation is as if it had come in time."""
        state, live = self._state, self._state.live.nodes
        at = next((at for at, each in enumerate(live) if each.loose and each.parent == node.id), None)
        if at is not None and live[at].begins:  # what it hangs on no longer counts
            self._wait(node)
            self._put(at, replace(live[at], loose=False))
            state.loose -= 1
        elif at is not None:
            late = live[at:]
            self._replace(live[:at])
            self._take_first(node, events, late)
        elif live and live[-1].id == node.parent:
            self._take_next(node, events)
        else:
            self._wait(node)
        met = [each for each in state.roots if each[0] == node.id]
        state.loose, state.roots = state.loose - len(met), [each for each in state.roots if each not in met]
        self._learned = None
        if state.left:
            self._end_with_latest()

    def _wait(self, node: Node) -> None:
        """A record that is not live, nor the last of its branch: perhaps it is the first."""
        if node.parent is not None and self.find(node.parent) is None and self._past.find(node.parent, self._behind) is None:
            self._state.roots = [*self._state.roots, (node.parent, node.ref)][-_WAITING_MAX:]
            self._state.loose += 1

    def _end_with_latest(self) -> None:
        """Take up the latest record that was left behind and on which none hangs, if it is later than the conversation's last."""
        state = self._state
        leaves, is_hung_on = self._leaves()
        latest = max(leaves, key=lambda leaf: leaf.ref, default=None)
        if latest is not None and (at := self.find(latest.id)) is not None:
            self._leave_for(state.live[: at + 1])
        elif latest is not None and (is_hung_on or latest.ref > state.live[-1].ref):
            loose = state.loose  # it was counted when it came
            self._hang(latest)
            state.loose = loose
        self._bound({node.ref for node in state.live})
        self._learned = None
        if not self._known.awaited and not state.roots:
            state.left = []

    def _leaves(self) -> tuple[list[Node], bool]:
        """The records on which none hangs, of those left behind; and whether one of these hangs on the live conversation's end.

        Where that is so they are those too that stand in the live one before a loose one.
        """
        live, passed, is_hung_on = self._state.live.nodes, set[str | None](), not self._state.live
        leaves = [node for ref in self._state.left if (node := self._read(ref)) is not None and self.find(node.id) is None]
        for leaf in leaves:
            at = self._climb(leaf, passed)
            is_hung_on = is_hung_on or (at is not None and at == len(live) - 1)
        if is_hung_on:
            for node in live[:1]:  # where a compaction begins it there is more above it
                self._climb(node, passed, min(self._state.left))
            passed |= {node.parent for node in live}
            leaves += [node for node, behind in itertools.pairwise(live) if behind.loose]
        return [leaf for leaf in leaves if leaf.id not in passed], is_hung_on

    def _climb(self, node: Node, passed: set[str | None], oldest: Ref | None = None) -> int | None:
        """Pass all above a record, up to a live one, whose place it gives; None where it comes first to one passed before or too old."""
        wanted = node.parent
        while wanted is not None and wanted not in passed and len(passed) < _ANCESTORS_MAX:
            passed.add(wanted)
            if (at := self.find(wanted)) is not None:
                return at
            found = self._past.find(wanted, self._behind)
            wanted = None if found is None or (oldest and found[0] < oldest) else nodes_of(*found, self._ids)[0].parent
        return None

    def _read(self, ref: Ref) -> Node | None:
        reading = self._past.at(ref)
        return None if reading is None else nodes_of(ref, reading, self._ids)[0]

    def _take_first(self, node: Node, events: tuple[Meaning, ...], late: list[Node]) -> None:
        """Place a record, and then those that came before it, though they hang on it."""
        self._take_next(node, events)
        loose = self._state.loose - sum(each.loose and each.parent == node.id for each in late)
        for each in late:
            if each.id is None:
                self._add(each)
            elif self.find(each.id) is None:
                self._hang(replace(each, loose=False))
        self._state.loose = loose  # the others were counted when they came

    def _branch_at(self, at: int, node: Node) -> None:
        """Leave behind what follows the record at `at`, unless it belongs to the same answer, or says nothing."""
        live = self._state.live.nodes
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
        live, trail = self._state.live.nodes, self._ancestors(node)
        if not trail:
            self._state.loose += 1
            self._add(replace(node, loose=True))
            return
        top = trail[0]
        if top.parent is None or top.begins:
            base, trail[0] = [], replace(top, loose=any(top.ref == ref for _, ref in self._state.roots))
        elif (at := self._standing(top.parent, top)) is not None:
            base = live[: at + 1]
        else:
            base, trail[0] = self._as_before(top), replace(top, loose=True)
        self._state.branches += 1
        self._leave_for([*base, *trail, node])

    def _as_before(self, node: Node) -> list[Node]:
        """What was live when a record came, in the file's order, with what that hangs on, though it came later."""
        base, hung_on = list[Node](), set[str | None]()
        for each in reversed(self._state.live):
            if each.ref < node.ref or each.id in hung_on:
                base.append(each)
                hung_on.add(each.parent)
        return base[::-1]

    def _standing(self, record_id: str | None, node: Node) -> int | None:
        """Where the live record of that id is on which `node` hangs; what a compaction keeps is on older ones' way, but not behind it."""
        at, live = self.find(record_id), self._state.live
        if at is not None and live[0].begins and live[at].ref < live[0].ref and node.ref < live[0].ref:
            return None
        return at

    def _ancestors(self, node: Node) -> list[Node]:
        """The records above `node` that are not live, the topmost first; none where its parent is nowhere."""
        trail: list[Node] = []
        wanted, met, below = node.parent, {node.id}, node
        while wanted is not None and wanted not in met and self._standing(wanted, below) is None and len(trail) < _ANCESTORS_MAX:
            met.add(wanted)
            found = self._past.find(wanted, self._behind)
            if found is None or (self._state.sidechain is False and _is_side(found[1].events)):
                break
            below = nodes_of(*found, self._ids)[0]
            trail.append(below)
            wanted = None if below.begins else below.parent
        return trail[::-1]


def _is_side(events: tuple[Meaning, ...]) -> bool:
    return any(meaning.data.get("sidechain") for meaning in events)
