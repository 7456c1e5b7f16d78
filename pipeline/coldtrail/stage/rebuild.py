"""Make the catalog again from what store and archive hold."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path

from coldtrail import durable, indexes
from coldtrail.catalog import SessionRow, StreamRow, changed, in_order, text_facts
from coldtrail.errors import ColdtrailError, CorruptionError
from coldtrail.facts import Facts
from coldtrail.format import lines
from coldtrail.format.manifest import Manifest, StreamMeta
from coldtrail.home import Home
from coldtrail.indexer import DOCUMENT_MAX_BYTES, Indexer, document_facts
from coldtrail.layout import TEMP_PREFIX
from coldtrail.model import Relation, Role
from coldtrail.sessions import describe, refresh
from coldtrail.stage import prove
from coldtrail.stage.identify import row_of


def remade_row(home: Home, meta: StreamMeta, known: StreamRow | None = None) -> StreamRow:
    """A stream's row, made from its segments; how the agent's file looked last is taken from `known`."""
    row = row_of(meta)
    if known is not None and known.generation == row.generation:
        row = changed(
            row, identity=known.identity, size=known.size, mtime_ns=known.mtime_ns, ctime_ns=known.ctime_ns, check_due=known.check_due
        )
    plain = home.plain(meta, row.generation)
    held = plain.end()
    names = home.store.open_names(meta.stream, row.generation)
    stamp = home.store.last_stamp(meta, row.generation)
    row = changed(
        row,
        held=held,
        open_bytes=(home.layout.generation(meta.stream, row.generation) / str(names[-1])).stat().st_size if names else 0,
        plain_bytes=sum(home.plain(meta, each.number).end() for each in meta.chain()),
        stored_bytes=stored_bytes(home, meta),
        grew_ms=min(stamp.at_ms, stamp.mtime_ns // 1_000_000),
        rolled=1,  # the next compaction looks for itself
    )
    return _with_facts(home, meta, _with_ends(home, meta, row))


def stored_bytes(home: Home, meta: StreamMeta) -> int:
    """The length of every segment of a stream, in store and archive."""
    total = 0
    for generation in meta.generations:
        for piece in home.plain(meta, generation.number).pieces():
            with contextlib.suppress(FileNotFoundError):
                total += piece.stored_bytes()
    return total


def _with_ends(home: Home, meta: StreamMeta, row: StreamRow) -> StreamRow:
    """The digests by which growth is proven, from our own bytes; where these are damaged no file is taken for theirs."""
    plain = home.plain(meta, row.generation)
    try:
        head = b"".join(data for _, data in plain.read(0, min(prove.HEAD_BYTES, row.held)))
        window = b"".join(data for _, data in plain.read(max(0, row.held - prove.WINDOW_BYTES), row.held))
    except CorruptionError:
        return changed(row, head=b"", head_length=0, window=b"", window_length=0)
    return changed(row, head=prove.digest(head), head_length=len(head), window=prove.digest(window), window_length=len(window))


def _with_facts(home: Home, meta: StreamMeta, row: StreamRow) -> StreamRow:
    """Facts and the place of the unfinished record, from footers where they are sealed, else from the bytes."""
    agent = home.agents[meta.agent]
    if not meta.is_log:
        return _with_document_facts(home, meta, row)
    facts, pending, tail = Facts(), 0, Facts()
    for generation in meta.chain():
        plain = home.plain(meta, generation.number)
        runs = indexes.of_generation(plain, agent, gaps=[])
        for run in runs:
            facts.merge(run.facts)
        pending = _pending(runs, meta.generation(generation.number).relation)
        tail = _tail_facts(home, meta, generation.number, pending, plain.end())
    return changed(row, pending=pending, facts=text_facts(facts.to_json()), tail=text_facts(tail.to_json()))


def _pending(runs: list[indexes.Indexed], _relation: Relation | None) -> int:
    """Behind the last complete record."""
    for run in reversed(runs):
        if len(run.index):
            last = run.index.row(len(run.index) - 1)
            return last.offset + last.length
    return 0


def _tail_facts(home: Home, meta: StreamMeta, generation: int, pending: int, end: int) -> Facts:
    indexer = Indexer(home.agents[meta.agent], pending)
    for _, data in home.plain(meta, generation).read(pending, end, gaps=[]):
        indexer.feed(data)
    return indexer.tail_facts()


def _with_document_facts(home: Home, meta: StreamMeta, row: StreamRow) -> StreamRow:
    if meta.role is not Role.MAIN or row.held > DOCUMENT_MAX_BYTES:
        return row
    data = b"".join(part for _, part in home.plain(meta, row.generation).read(0, row.held, gaps=[]))
    return changed(row, facts=text_facts(document_facts(home.agents[meta.agent], data).to_json()))


def rebuild(home: Home, progress: Callable[[str], None] = lambda _: None) -> list[ColdtrailError]:
    """Make every row of the catalog again, session by session, also beside a running daemon; gives what could not be read."""
    old = _Known.of(home)
    sessions, manifests, errors = _found(home, write_back=True)
    for session, metas in sorted(sessions.items()):
        try:
            _rebuild_session(home, old, session, metas, manifests.get(session))
        except ColdtrailError as error:
            errors.append(error)
        progress(session)
    home.catalog.forget(old.sessions - set(sessions), old.streams - _streams_of(sessions))
    return errors


@dataclass(frozen=True, slots=True)
class Difference:
    """A value in the catalog that is not what the files say."""

    session: str
    stream: str  # "" where it is the session's own row
    field: str  # "" where one of the two has no such row at all
    catalog: object
    files: object


def differences(home: Home, progress: Callable[[str], None] = lambda _: None) -> tuple[list[Difference], list[ColdtrailError]]:
    """What a rebuild would change in the catalog, and what could not be read; changes nothing, also beside a running daemon."""
    old = _Known.of(home)
    sessions, manifests, errors = _found(home, write_back=False)
    found: list[Difference] = []
    for session, metas in sorted(sessions.items()):
        try:
            found += _session_differences(home, old, session, metas, manifests.get(session))
        except ColdtrailError as error:
            errors.append(error)
        progress(session)
    found += [Difference(session, "", "", "a session", None) for session in sorted(old.sessions - set(sessions))]
    for stream in sorted(old.streams - _streams_of(sessions)):
        row = home.catalog.stream(stream)
        found.append(Difference(row.session if row else "", stream, "", "a stream", None))
    return found, errors


@dataclass(frozen=True, slots=True)
class _Known:
    """What the catalog knows before the files are listed: only of this may be said that it has no files, for a daemon goes on."""

    sessions: set[str]
    streams: set[str]

    @classmethod
    def of(cls, home: Home) -> _Known:
        return cls({row.key for row in home.catalog.sessions()}, home.catalog.stream_ids())


def _found(home: Home, *, write_back: bool) -> tuple[dict[str, list[StreamMeta]], dict[str, Manifest], list[ColdtrailError]]:
    """The sessions that store and archive hold, by their streams; the manifests; what could not be read."""
    errors: list[ColdtrailError] = []
    sessions: dict[str, list[StreamMeta]] = {}
    manifests = {manifest.session: manifest for manifest in _manifests(home, errors)}
    for meta in _metas(home, manifests, errors, write_back=write_back):
        sessions.setdefault(meta.session, []).append(meta)
    return sessions, manifests, errors


def _streams_of(sessions: Mapping[str, list[StreamMeta]]) -> set[str]:
    return {meta.stream for metas in sessions.values() for meta in metas}


def is_owed(home: Home) -> bool:
    """Whether the catalog knows nothing though there is something to know."""
    return home.catalog.is_empty() and (next(home.store.streams(), None) or next(home.archive.walk(), None)) is not None


def adopt(home: Home) -> list[ColdtrailError]:
    """Take up what the store has and the catalog does not know, of a stream or of all of it: a crash came between the two."""
    errors: list[ColdtrailError] = []
    for stream in home.store.streams():
        row = home.catalog.stream(stream)
        if row is not None and is_settled(home, row):
            continue
        try:
            meta = home.store.meta(stream)
            if meta is not None:
                with home.changing(meta.session), home.catalog.transaction():
                    home.catalog.put(remade_row(home, meta, home.catalog.stream(stream)))
                    refresh(home, meta.session)
        except ColdtrailError as error:
            errors.append(error)
    return errors


def is_settled(home: Home, row: StreamRow) -> bool:
    """Whether the row is that of the store's newest generation and of all its bytes, told by names and lengths alone."""
    if home.layout.generation(row.stream, row.generation + 1).exists():
        return False
    names = home.store.open_names(row.stream, row.generation)
    folder = home.layout.generation(row.stream, row.generation)
    return row.open_bytes == ((folder / str(names[-1])).stat().st_size if names else 0)


def tidy(home: Home, older_than_ms: int) -> int:
    """Remove what interrupted writes have left, once it is so old that nobody can be at it; gives how many files."""
    before_ms = home.now_ms() - older_than_ms
    return sum(_tidy_below(folder, before_ms) for folder in (home.layout.home, home.layout.archive))


def _tidy_below(folder: Path, before_ms: int) -> int:
    count = 0
    for path in folder.rglob(f"{TEMP_PREFIX}*"):
        with contextlib.suppress(FileNotFoundError):
            if path.is_file() and path.stat().st_mtime_ns // 1_000_000 < before_ms:
                durable.remove(path)
                count += 1
    return count


def _rebuild_session(home: Home, old: _Known, session: str, metas: list[StreamMeta], manifest: Manifest | None) -> None:
    with home.changing(session):
        rows, described = _remade_session(home, old, metas, manifest or Manifest(session))
        with home.catalog.transaction():
            for row in rows:
                home.catalog.put(row)
            home.catalog.put(described)


def _remade_session(home: Home, old: _Known, metas: list[StreamMeta], manifest: Manifest) -> tuple[list[StreamRow], SessionRow]:
    """A session's rows as its files have them; the caller holds its lock."""
    rows = [remade_row(home, home.store.meta(meta.stream) or meta, home.catalog.stream(meta.stream)) for meta in metas]
    here = {meta.stream for meta in metas} | old.streams
    newer = [row for row in home.catalog.streams_of(manifest.session) if row.stream not in here]  # begun by a daemon meanwhile
    tags = lines.dumps(list(manifest.tags)).decode()
    return rows, describe(in_order([*rows, *newer]), metas[0].host, int(manifest.pinned), tags)


# A catalog that differs in these is right all the same: the next compaction finds them out by itself, and the files do not tell
# growth from a touch.
_HINTS = frozenset({"rolled", "settled", "grew_ms", "checkpointed", "folded_by"})


def _session_differences(home: Home, old: _Known, session: str, metas: list[StreamMeta], manifest: Manifest | None) -> Iterator[Difference]:
    with home.changing(session):
        rows, described = _remade_session(home, old, metas, manifest or Manifest(session))
        known = [home.catalog.stream(row.stream) for row in rows]
        yield from _row_differences(session, "", home.catalog.session(session), described)
    for row, ours in zip(rows, known, strict=True):
        yield from _row_differences(session, row.stream, ours, row)


def _row_differences(session: str, stream: str, old: StreamRow | SessionRow | None, new: StreamRow | SessionRow) -> Iterator[Difference]:
    if old is None:
        yield Difference(session, stream, "", None, "a stream" if stream else "a session")
        return
    for field in fields(new):
        ours, theirs = getattr(old, field.name), getattr(new, field.name)
        if ours != theirs and field.name not in _HINTS:
            yield Difference(session, stream, field.name, ours, theirs)


def _metas(home: Home, manifests: dict[str, Manifest], errors: list[ColdtrailError], *, write_back: bool) -> Iterator[StreamMeta]:
    """Every stream's metadata: the store's, else (a store that was lost) the copy in the manifest, which may be written back."""
    known = set()
    for stream in sorted(home.store.streams()):
        try:
            meta = home.store.meta(stream)
        except ColdtrailError as error:
            errors.append(error)
            continue
        if meta is not None:
            known.add(stream)
            yield meta
    for manifest in manifests.values():
        for meta in manifest.streams:
            if meta.stream not in known:
                if write_back:
                    home.store.write_meta(meta)
                yield meta


def _manifests(home: Home, errors: list[ColdtrailError]) -> Iterator[Manifest]:
    for key in home.archive.walk():
        if key.endswith(".json"):
            try:
                opened = home.archive.open(key)
                try:
                    yield Manifest.decode(opened.read_at(0, opened.size))
                finally:
                    opened.close()
            except ValueError as error:
                errors.append(ColdtrailError(f"archive/{key}: {error}", hint="run `coldtrail verify`"))
