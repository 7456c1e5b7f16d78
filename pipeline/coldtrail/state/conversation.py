"""The live conversation: which records count, in which order, by the file's order or by their parents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, Self

from coldtrail.model import EventType, Ids, Meaning, Reading
from coldtrail.state import compaction
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
        self._is_late = False  # while what came before its parent is put in order

    def take(self, ref: Ref, reading: Reading) -> None:
        """Place the next record, if it has a place."""
        nodes = nodes_of(ref, reading, self._ids)
        self._behind = Ref(ref.generation, ref.offset + ref.length, 0)
        if self._ids is Ids.CHAINED and reading.id is not None:
            if not self._is_aside(reading.events):
                loose = self._state.loose
                self._take_chained(nodes[0])
                if self._state.loose > loose and self._state.since is None:
                    self._state.since = ref
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
        if self._is_late or self._known.awaited or state.roots:
            stays, hung_on = {node.ref for node in live}, {node.parent for node in (*before, *live)}
            gone = [node for node in before if node.ref not in stays]
            state.roots = [*state.roots, *((node.parent, node.ref) for node in gone if node.loose)]
            state.left = [*state.left, *(node.ref for node in gone if node.id not in hung_on)]
            self._bound(stays)
        self._replace(live)

    def _bound(self, live: set[Ref]) -> None:
        """Of those left behind none is live, and they are not too many."""
        state = self._state
        roots = [each for each in dict.fromkeys(state.roots) if each[1] not in live]
        left = [each for each in dict.fromkeys(state.left) if each not in live]
        state.forgotten += max(0, len(roots) - _WAITING_MAX) + max(0, len(left) - _WAITING_MAX)
        state.roots, state.left = roots[-_WAITING_MAX:], left[-_WAITING_MAX:]

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
            state.sidechain, state.left, state.roots, state.since = False, [], [], None
            self._replace([])
        return aside and state.sidechain is False

    def _take_chained(self, node: Node) -> None:
        if (at := self.find(node.id)) is not None:  # written twice
            self._put(at, replace(node, loose=self._state.live[at].loose))
        elif node.id in self._known.awaited or node.id in self._known.missed:
            self._come_late(node)
        else:
            self._take_next(node)

    def _take_next(self, node: Node) -> None:
        if node.begins:
            self._begin(node)
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

    def _begin(self, node: Node) -> None:
        """A compaction: nothing before it counts but what it keeps. Its summary comes as a second record, behind the first."""
        live = self._state.live.nodes
        if node.messages and compaction.is_open(live) and self.find(node.parent) is not None:
            kept = compaction.kept(live)
            self._replace([*(each for each in live if each.ref not in kept), node, *(each for each in live if each.ref in kept)])
        else:
            lost, is_elsewhere = self._is_lost(node), node.parent is not None and self.find(node.parent) is None
            self._state.loose += lost
            begun = [replace(node, loose=lost), *compaction.named(node, live)]
            self._leave_for(self._with_compaction(begun) if is_elsewhere and not lost else begun)

    def _is_lost(self, node: Node) -> bool:
        """Whether the record that it hangs on has not been met."""
        return node.parent is not None and self.find(node.parent) is None and self._past.find(node.parent, self._behind) is None

    def _come_late(self, node: Node) -> None:
        """A record on which one hangs that came before it: the conversation is as if it had come in time."""
        state, live = self._state, self._state.live.nodes
        waited = [at for at, each in enumerate(live) if each.loose and each.parent == node.id]
        met = {each for each in state.roots if each[0] == node.id}
        loose, branches = state.loose - len(waited) - len(met), state.branches
        self._is_late = True
        self._place_above(waited, node)
        state.roots = [each for each in state.roots if each not in met]
        loose += any(ref == node.ref for _, ref in state.roots) or any(each.loose and each.ref == node.ref for each in state.live)
        self._learned = None
        self._end_with_latest(node)
        self._complete()
        self._is_late = False
        state.loose, state.branches = loose, branches  # the others were counted when they came
        if not self._known.awaited and not state.roots:  # in which order all that came before was written is of no interest now
            state.left, state.since = [], None

    def _place_above(self, waited: list[int], node: Node) -> None:
        """Place a record above the live ones that waited for it, but for those that begin a compaction, or are kept by one."""
        state, live = self._state, self._state.live.nodes
        kept, at = compaction.surely_kept(live), None
        for each in waited[::-1]:
            if live[each].begins or live[each].ref in kept:
                self._put(each, replace(live[each], loose=False))
            else:
                at = each
        if at is None:
            if self._is_lost(node):
                state.roots = [*state.roots, (node.parent, node.ref)]
            return
        late = live[at:]
        state.roots = [*state.roots, *((each.parent, each.ref) for each in late if each.loose and each.parent != node.id)]
        self._replace(live[:at])
        self._take_first(node, late)

    def _complete(self) -> None:
        """Of the compaction that the conversation begins with some record may have come now."""
        live = self._state.live.nodes
        if live and live[0].begins:
            self._replace(self._with_compaction(live))
        if self._state.left or self._state.roots:
            self._bound({each.ref for each in self._state.live})

    def _end_with_latest(self, late: Node) -> None:
        """Let the conversation lead to the latest record on which none hangs: by the one that came late some may hang on others now."""
        state = self._state
        if not state.live or not (state.left or state.roots or self._known.awaited):
            return
        ends = self._ends()
        above = self._above(ends) | {late.id}
        latest = max((each for each in ends if each.id not in above), key=lambda each: each.ref, default=ends[-1])
        if latest.ref != ends[-1].ref and (at := self.find(latest.id)) is not None:
            self._branch_at(at, latest)
        elif latest.ref != ends[-1].ref and latest.begins:
            self._leave_for(self._with_compaction([latest]))
        elif latest.ref != ends[-1].ref:
            self._hang(latest)
        passed = {each.ref for each in ends if each.id in above}
        state.left = [each for each in state.left if each not in passed]

    def _ends(self) -> list[Node]:
        """Records on which none hangs as far as it was seen: of those left behind, and of the live ones, whose last comes last."""
        live = self._state.live.nodes
        kept = compaction.kept(live)
        own = [each for each in live if each.ref not in kept] if kept else live
        left = [node for ref in self._state.left if (node := self._read(ref)) is not None and self.find(node.id) is None]
        hung_on = {each.parent for each in own}
        return [*left, *(each for each in own[:-1] if each.id not in hung_on), *own[-1:]]

    def _above(self, ends: list[Node]) -> set[str | None]:
        """All on which these hang, but for what came before the first disorder: there parents stand before their children."""
        passed, live = set[str | None](), {node.id: node for node in self._state.live}
        oldest = min(each.ref for each in ends)
        oldest = oldest if self._state.since is None else min(oldest, self._state.since)
        for end in ends:
            node: Node | None = end
            while node is not None and node.ref >= oldest and node.parent not in passed and len(passed) < _ANCESTORS_MAX:
                passed.add(node.parent)
                node = live.get(node.parent) or self._node(node.parent)
        return passed

    def _node(self, record_id: str | None) -> Node | None:
        """The last record of that id, wherever it is."""
        found = None if record_id is None else self._past.find(record_id, self._behind)
        return None if found is None else nodes_of(*found, self._ids)[0]

    def _read(self, ref: Ref) -> Node | None:
        reading = self._past.at(ref)
        return None if reading is None else nodes_of(ref, reading, self._ids)[0]

    def _take_first(self, node: Node, late: list[Node]) -> None:
        """Place a record, and then those that came before it, though they hang on it."""
        self._take_next(node)
        for each in late:
            if each.id is None:
                self._add(each)
            elif self.find(each.id) is None:
                self._hang(replace(each, loose=False))

    def _with_compaction(self, nodes: list[Node]) -> list[Node]:
        """A conversation with all of the compaction that it begins with, whose records may have been left behind or have come late."""
        waiting = {ref for _, ref in self._state.roots} | {each.ref for each in self._state.live if each.loose}
        by_id = {each.id: each for each in nodes}
        restored = compaction.restored(nodes, lambda record_id: by_id.get(record_id) or self._node(record_id))
        return [replace(each, loose=True) if each.ref in waiting else each for each in restored]

    def _branch_at(self, at: int, node: Node) -> None:
        """Leave behind what follows the record at `at`, unless it belongs to the same answer, or says nothing."""
        live = self._state.live.nodes
        hung_on = live[at]
        answers = {hung_on.answer, node.answer} - {None}
        belong = compaction.kept(live) if hung_on.begins else set[Ref]()
        kept, others = list[Node](), list[Node]()
        for each in live[at + 1 :]:
            (kept if each.ref in belong else others).append(each)
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
        led = [*base, *trail, node]
        self._leave_for(self._with_compaction(led) if led[0].begins else led)

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
        if at is not None and live[0].keeps and node.ref < live[0].ref and live[at].ref in compaction.kept(live.nodes):
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
