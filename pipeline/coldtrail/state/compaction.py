"""Compactions: what one keeps of the conversation before it, and how one stands whose records did not come in order."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence

from coldtrail.state.values import Keeps, Node, Ref

_BETWEEN_MAX = 100  # records looked through between a summary and its boundary: agents write both at once
_ABOVE_MAX = 100_000  # records looked through above one
_NESTED_MAX = 16  # compactions, each of which keeps some of what the one before it kept

NodeOf = Callable[[str | None], Node | None]  # the record of an id; None where it has not been met


def named(boundary: Node, live: Sequence[Node]) -> list[Node]:
    """Those of a conversation that a compaction keeps, in order: those that it names, or all from one to another.

    These are the latter's line of parents and what hangs beside it; where that is broken, all that stand between.
    """
    keeps = boundary.keeps
    if isinstance(keeps, frozenset):
        return [each for each in live if each.id in keeps]
    ids = [each.id for each in live] if keeps is not None else []
    if keeps is None or not all(each in ids for each in keeps):
        return []
    between = live[ids.index(keeps[0]) : ids.index(keeps[1]) + 1]
    above = _line(keeps[1], between)
    if keeps[0] not in above:
        return list(between)
    return [each for each in between if each.id in above or each.parent in above]


def _line(record_id: str | None, nodes: Sequence[Node]) -> set[str | None]:
    """Of some records one, and those on which it hangs."""
    by_id, found = {each.id: each for each in nodes}, set[str | None]()
    while record_id in by_id and record_id not in found:
        found.add(record_id)
        record_id = by_id[record_id].parent
    return found


def kept(live: Sequence[Node]) -> set[Ref]:
    """Where those stand that the compaction keeps with which a conversation begins."""
    return {each.ref for each in named(live[0], live[1:])} if live and live[0].keeps else set()


def surely_kept(live: Sequence[Node]) -> set[Ref]:
    """The same without those of which only their place tells it: between a run's ends may stand what waits for its parent."""
    keeps = live[0].keeps if live else None
    if not isinstance(keeps, tuple):
        return kept(live)
    sure = _line(keeps[1], live[1:])
    return {each.ref for each in named(live[0], live[1:]) if each.id in sure}


def is_open(live: Sequence[Node]) -> bool:
    """Whether a conversation begins with a compaction whose summary is still to come; what it keeps may begin with an earlier one's."""
    if not live or not live[0].begins or live[0].messages:
        return False
    of_before = kept(live)
    return not any(each.begins and each.ref not in of_before for each in live[1:])


def restored(live: list[Node], node_of: NodeOf, nested: int = 0) -> list[Node]:
    """A conversation with all the records of the compaction that it begins with, as far as they have been met."""
    opening = _opening(live[0], node_of) if live and live[0].begins and live[0].messages else []
    above = {each.ref for each in opening}
    whole = [*opening, *(each for each in live if each.ref not in above)]
    if not whole or not whole[0].keeps or nested > _NESTED_MAX:
        return whole
    there = named(whole[0], whole[1:])
    before = _with_siblings(named(whole[0], _led_to(whole[0], node_of, nested)), there, whole[0].keeps)
    ids, refs, between = {each.id for each in whole}, {each.ref for each in before}, {each.ref for each in there}
    own = [each for each in whole if each.ref not in refs and (each.ref not in between or each.loose or each.parent in ids)]
    summary = next((at for at, each in enumerate(own) if each.begins and each.messages), 0)
    return [*own[: summary + 1], *before, *own[summary + 1 :]]


def _opening(summary: Node, node_of: NodeOf) -> list[Node]:
    """From a summary's boundary on what stands before the summary; nothing where it has none, or not yet."""
    found: list[Node] = []
    for above in itertools.islice(_above(summary, node_of), _BETWEEN_MAX):
        if above.begins and above.messages:
            break
        found.append(above)
        if above.begins:
            return found[::-1]
    return []


def _with_siblings(path: list[Node], there: list[Node], keeps: Keeps) -> list[Node]:
    """What is kept of a path, with those of what is there that hang beside it, each behind the one that it stands behind."""
    held, on_path, ids = {each.ref: each for each in there}, {each.ref for each in path}, {each.id for each in path}
    behind: dict[Ref | None, list[Node]] = {}
    last: Ref | None = None
    for each in there:
        if each.ref in on_path:
            last = each.ref
        elif not path or isinstance(keeps, frozenset) or each.parent in ids:
            behind.setdefault(last, []).append(each)
    found = list(behind.get(None, ()))
    for each in path:
        found += [held.get(each.ref, each), *behind.get(each.ref, ())]
    return found


def _led_to(boundary: Node, node_of: NodeOf, nested: int) -> list[Node]:
    """The conversation that a compaction closed: back to where all is that it keeps, or else to where it began."""
    keeps, found = set(boundary.keeps or ()), list[Node]()
    for above in _above(boundary, node_of):
        found.append(above)
        keeps.discard(str(above.id))
        if not keeps:
            return found[::-1]
        if above.begins:
            return restored(found[::-1], node_of, nested + 1)
    return found[::-1]


def _above(node: Node, node_of: NodeOf) -> Iterator[Node]:
    """The records above one, the nearest first, as far as they have been met."""
    met, above = {node.id}, node_of(node.parent)
    while above is not None and above.id not in met and len(met) < _ABOVE_MAX:
        met.add(above.id)
        yield above
        above = node_of(above.parent)
