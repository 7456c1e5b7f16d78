"""Prune: what retention decides from the catalog is carried out, session by session, each act noted in the journal."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass

from coldtrail.agents.walk import Source
from coldtrail.catalog import SessionRow, StreamRow
from coldtrail.config import Retention
from coldtrail.errors import ColdtrailError, StoreFullError
from coldtrail.format.wishes import Act
from coldtrail.home import Home
from coldtrail.retention import Candidate, Decision, Length, Mark, Plan, Verdict, decide
from coldtrail.sessions import by_session, ends_of, is_live, parents_of, tags_of, wishes_of
from coldtrail.stage import expire


def plan(home: Home, policy: Retention, present: Collection[str], *, suspended: str = "", force: bool = False) -> Plan:
    """What this policy would do now; reads the catalog alone and changes nothing.

    `present`: the sources whose folders are there; `suspended`: why nothing may be removed by its age (see `steady`), else empty;
    `force`: mark more than a pass may.
    """
    streams = by_session(home.catalog.all_streams())
    candidates = [_candidate(row, streams[row.key]) for row in home.catalog.sessions() if row.host == home.host]
    away = {each.source for each in candidates} - set(present)
    return decide(candidates, policy, home.now_ms(), free_bytes=_free_bytes(home), away=away, suspended=suspended, force=force)


def _candidate(row: SessionRow, streams: list[StreamRow]) -> Candidate:
    mark = wishes_of(row).mark
    return Candidate(
        key=row.key,
        id=row.id,
        agent=row.agent,
        source=row.source,
        project=row.project,
        tags=tags_of(row),
        live=is_live(streams),
        bytes=row.stored_bytes,
        last_ms=row.last_ms,
        grew_ms=row.grew_ms,
        pinned=bool(row.pinned),
        held_until_ms=row.held_until_ms,
        mark=None if mark is None else Mark(mark.at_ms, tuple(Length(*end) for end in mark.ends)),
        parents=parents_of(row),
        lengths=tuple(Length(*end) for end in ends_of(streams)),
    )


def present(home: Home, sources: Iterable[Source]) -> set[str]:
    """The names of the sources that are there: an empty folder is what an unmounted disk leaves."""
    live: dict[str, list[bytes]] = defaultdict(list)
    for row in home.catalog.all_streams():
        if row.gone_ms is None:
            live[row.source].append(row.path)
    return {source.name for source in sources if source.root.is_dir() and _has_any(live[source.name])}


def _has_any(paths: list[bytes]) -> bool:
    """Whether one of the files that should be there is, or none should be."""
    return not paths or any(map(os.path.lexists, paths))


def _free_bytes(home: Home) -> int | None:
    """Of the disk that holds the archive, for who is not root."""
    try:
        found = os.statvfs(home.layout.archive if home.layout.archive.is_dir() else home.layout.home)
    except OSError:
        return None
    return found.f_bavail * found.f_frsize


@dataclass(frozen=True, slots=True)
class Done:
    """What became of a decision."""

    decision: Decision
    freed: int = 0  # bytes
    passed: str = ""  # why it was not carried out; the next pass decides anew


def carry_out(home: Home, found: Plan) -> Iterator[Done]:
    """Do what a plan says, after what an earlier pass was kept from ending; a session that has changed since is passed over.

    So is one whose files say no; StoreFullError and an unwritable journal end it all.
    """
    expire.finish(home)
    acts: dict[Verdict, _Act] = {Verdict.LIFT: _lift, Verdict.REMOVE: _remove, Verdict.EXPIRE: _mark}
    for verdict, act in acts.items():
        for decision in found.of(verdict):
            row = home.catalog.session(decision.key)
            yield Done(decision, passed="it is not kept any more") if row is None else _tried(home, row, decision, act)


_Act = Callable[[Home, SessionRow, Decision], Done]


def _tried(home: Home, row: SessionRow, decision: Decision, act: _Act) -> Done:
    """What is wrong with one session keeps nothing from the others."""
    try:
        return act(home, row, decision)
    except StoreFullError:
        raise
    except ColdtrailError as error:
        return Done(decision, passed=str(error))


def _mark(home: Home, row: SessionRow, decision: Decision) -> Done:
    if not expire.mark(home, row, decision.reason, tuple((each.stream, each.generation, each.bytes) for each in decision.lengths)):
        return Done(decision, passed="it has grown meanwhile")
    return Done(decision)


def _lift(home: Home, row: SessionRow, decision: Decision) -> Done:
    expire.lift(home, row, decision.reason)
    return Done(decision)


def _remove(home: Home, row: SessionRow, decision: Decision) -> Done:
    freed = expire.remove(home, row, Act.EXPIRED, decision.reason)
    if freed is None:
        return Done(decision, passed="it has changed meanwhile, or is being compacted")
    return Done(decision, freed)
