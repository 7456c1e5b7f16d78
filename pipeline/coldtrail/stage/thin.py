"""Thin: of a companion, which its agent rewrites whole, only the newest versions stay where the user wants no more."""

from __future__ import annotations

import contextlib
import shutil
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial

from coldtrail import durable
from coldtrail.catalog import SessionRow, StreamRow, changed
from coldtrail.errors import ColdtrailError, LockedError, StoreFullError
from coldtrail.format.manifest import StreamMeta
from coldtrail.home import Home
from coldtrail.journal import Act
from coldtrail.model import Relation, Role
from coldtrail.retention import Version
from coldtrail.sessions import find_manifest, refresh, write_manifest
from coldtrail.stage import mend, wish
from coldtrail.stage.rebuild import stored_bytes


@dataclass(frozen=True, slots=True)
class Thinned:
    """What became of the older versions in one session."""

    session: str
    versions: int  # that are gone
    freed: int  # bytes
    passed: str = ""  # why none is; the next pass decides anew


def thin(home: Home, keep: int, note: Callable[[Thinned], None] = lambda _: None, *, present: Collection[str] | None = None) -> int:
    """Leave of each companion the newest `keep` versions; gives the bytes freed, and tells `note` of each session. See `plan`."""
    freed = 0
    for done in carry_out(home, plan(home, keep, present), keep):
        freed += done.freed
        note(done)
    return freed


def plan(home: Home, keep: int, present: Collection[str] | None = None, going: Collection[str] = ()) -> tuple[Version, ...]:
    """The versions that would go now; reads no segment, and metadata only of companions with more than `keep`. Changes nothing.

    `present`: the sources whose folders are there, None for all; `going`: sessions that are removed whole. What is pinned, or held
    because it was restored, is left alone.
    """
    sessions = {row.key: row for row in home.catalog.sessions() if _is_free(home, row) and row.key not in going}
    found: list[Version] = []
    for row in home.catalog.all_streams():
        if row.session in sessions and _may_have_more(row, keep) and (present is None or row.source in present):
            with contextlib.suppress(ColdtrailError):  # by what is damaged nothing is removed
                meta = home.store.meta(row.stream)
                found += [] if meta is None else list(_surplus_of(home, meta, keep))
    return tuple(sorted(found))


def _is_free(home: Home, row: SessionRow) -> bool:
    held = row.held_until_ms is not None and row.held_until_ms > home.now_ms()
    return row.host == home.host and not row.pinned and not held


def _may_have_more(row: StreamRow, keep: int) -> bool:
    return row.role == Role.COMPANION and not row.is_log and row.generation >= keep


def _surplus_of(home: Home, meta: StreamMeta, keep: int) -> Iterator[Version]:
    """Those that its meta.json has beside what is to stay, and those that a pass cut short has left behind."""
    if meta.aside is not None and meta.aside.removed_ms is None:
        return
    there = set(mend.numbers(home, meta))
    sizes = {number: _stored(home, meta, number) for number in there | {each.number for each in meta.generations}}
    kept = staying(meta, keep, {number for number, size in sizes.items() if size})
    for number, size in sorted(sizes.items()):
        if number not in kept and number < meta.newest.number:
            yield Version(meta.session, meta.stream, number, size)


def staying(meta: StreamMeta, keep: int, holding: Collection[int]) -> set[int]:
    """The generations that stay: the newest `keep` of those that hold bytes, the newest of all, and what these rest on. Pure."""
    newest_first = [each.number for each in reversed(meta.generations)]
    wanted = [*newest_first[:1], *[number for number in newest_first if number in holding][:keep]]
    kept: set[int] = set()
    while wanted:
        each = meta.generation(wanted.pop())
        if each.number in kept:
            continue
        kept.add(each.number)
        wanted += [] if each.continues is None else [each.continues]
        wanted += [number for number in newest_first if number < each.number][:1] if each.relation is Relation.RESTORED else []
    return kept


def _stored(home: Home, meta: StreamMeta, number: int) -> int:
    size = 0
    for piece in home.plain(meta, number).pieces():
        with contextlib.suppress(FileNotFoundError):
            size += piece.stored_bytes()
    return size


def carry_out(home: Home, versions: Iterable[Version], keep: int) -> Iterator[Thinned]:
    """Remove versions that were planned, session by session, as far as they are still surplus; each act is noted in the journal."""
    wanted: dict[str, dict[str, set[int]]] = defaultdict(lambda: defaultdict(set))
    for each in versions:
        wanted[each.session][each.stream].add(each.generation)
    for session, streams in wanted.items():
        try:
            yield _thin(home, session, streams, keep)
        except StoreFullError:
            raise
        except ColdtrailError as error:
            yield Thinned(session, 0, 0, str(error))


def _thin(home: Home, session: str, wanted: dict[str, set[int]], keep: int) -> Thinned:
    with contextlib.ExitStack() as stack:
        try:
            home.spending(lambda: stack.enter_context(durable.locked(home.layout.compact_lock(session), wait=False)))
        except LockedError:
            return Thinned(session, 0, 0, "it is being compacted")
        stack.enter_context(home.changing(session))
        row = home.catalog.session(session)
        if row is None or not _is_free(home, row):
            return Thinned(session, 0, 0, "it is not kept any more, or is to be left alone")
        wish.manifest_of(home, row)  # an archive that is not there, or a damaged manifest: nothing is removed
        metas = [meta for stream in wanted if (meta := home.store.meta(stream)) is not None]
        going = [each for meta in metas for each in _surplus_of(home, meta, keep) if each.generation in wanted[meta.stream]]
        freed = sum(each.bytes for each in going)
        if going:
            wish.note(home, row, Act.THINNED, f"companion_versions = {keep}", freed)
            for meta in metas:
                home.spending(partial(_thin_stream, home, meta, {each.generation for each in going if each.stream == meta.stream}))
        return Thinned(session, len(going), freed)


def _thin_stream(home: Home, meta: StreamMeta, numbers: set[int]) -> None:
    """First nobody knows of them any more, then they go: whatever stops us, doing it again ends it."""
    fresh = replace(meta, generations=tuple(each for each in meta.generations if each.number not in numbers))
    if fresh != meta:
        home.store.write_meta(fresh)
    _forget(home, fresh, numbers)
    row = home.catalog.stream(meta.stream)
    if row is not None:
        with home.catalog.transaction():
            home.catalog.put(changed(row, stored_bytes=stored_bytes(home, fresh)))
            refresh(home, meta.session)
    for number in sorted(numbers):
        _clear(home, fresh, number)


def _forget(home: Home, fresh: StreamMeta, numbers: set[int]) -> None:
    """Let the manifest promise them no more."""
    manifest = find_manifest(home, fresh.source, fresh.session, fresh.host)
    if manifest is None:
        return
    streams = tuple(fresh if each.stream == fresh.stream else each for each in manifest.streams)
    sealed = tuple((stream, held) for stream, held in manifest.sealed if stream != fresh.stream or held.generation not in numbers)
    if (streams, sealed) != (manifest.streams, manifest.sealed):
        write_manifest(home, fresh.source, replace(manifest, streams=streams, sealed=sealed), fresh.host)


def _clear(home: Home, meta: StreamMeta, number: int) -> None:
    folder, key = home.layout.generation(meta.stream, number), home.layout.generation_key(meta.host, meta.source, meta.stream, number)
    if folder.is_dir():
        durable.step("remove", folder)
        shutil.rmtree(folder)
        durable.sync_folder(folder.parent)
    for name in home.archive.names(key):
        home.archive.remove(f"{key}/{name}")
    home.archive.remove_folder(key)
