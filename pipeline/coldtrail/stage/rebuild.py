"""Make the catalog again from what store and archive hold."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import PurePosixPath

from coldtrail import indexes
from coldtrail.agents.base import Agent
from coldtrail.catalog import SessionRow, StreamRow, changed, in_order, text_facts
from coldtrail.errors import ColdtrailError, CorruptionError
from coldtrail.facts import Facts
from coldtrail.format.frames import FrameError
from coldtrail.format.manifest import Manifest, OtherVersionError, StreamMeta, has_checksum
from coldtrail.format.wishes import Tombstone
from coldtrail.home import Home
from coldtrail.indexer import DOCUMENT_MAX_BYTES, Indexer, document_facts
from coldtrail.layout import is_id
from coldtrail.model import Role
from coldtrail.plain import Plain
from coldtrail.sessions import describe, manifest_label
from coldtrail.stage import expire, mend, prove
from coldtrail.stage.identify import row_of
from coldtrail.store import NEWER

_STEP_BYTES = 64 << 10  # of log at a time: a line may have two bytes, and each is a record
_RESOLVE_MAX = 50  # how often a segment may vanish under a reader before it gives up


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
    if not row.held:  # there is nothing to prove growth by, and capture notes nothing
        return row
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
    facts, indexer = Facts(), Indexer(agent)
    for generation in meta.chain():
        told, indexer = _facts_of(home.plain(meta, generation.number), agent)
        facts.merge(told)
    tail = indexer.tail_facts()
    return changed(row, pending=indexer.pending, facts=text_facts(facts.to_json()), tail=text_facts(tail.to_json()))


def _facts_of(plain: Plain, agent: Agent) -> tuple[Facts, Indexer]:
    """The facts of a generation, and what has been fed with its unfinished record; no index is held, however long it is."""
    for _ in range(_RESOLVE_MAX):
        with contextlib.suppress(FileNotFoundError):  # compacted since it was listed: what took its place is looked for
            return _read_facts(plain, agent)
    raise CorruptionError(f"stream {plain.stream}, generation {plain.generation}", 0, "its segments keep vanishing")


def _read_facts(plain: Plain, agent: Agent) -> tuple[Facts, Indexer]:
    facts, indexer = Facts(), Indexer(agent)
    for piece in itertools.takewhile(lambda piece: not piece.name.is_open, indexes.cover(plain)):
        try:
            with closing(plain.segment(piece)) as segment:
                about = segment.footer().meta
            facts.merge(Facts.from_json(about.facts))
            indexer = Indexer(agent, about.end - about.tail_bytes)
        except (CorruptionError, ValueError):
            indexer = _fed(indexer, plain, agent, piece.end or 0, facts)
    return facts, _fed(indexer, plain, agent, plain.end(), facts)


def _fed(indexer: Indexer, plain: Plain, agent: Agent, end: int, facts: Facts) -> Indexer:
    """Feed the bytes up to `end`; behind a gap a new line is waited for."""
    for offset, data in plain.read(indexer.end, end, gaps=[]):
        if offset != indexer.end:
            indexer = Indexer(agent, offset)
        for at in range(0, len(data), _STEP_BYTES):
            indexer.feed(data[at : at + _STEP_BYTES])
            facts.merge(indexer.take_facts())
    return indexer


def _with_document_facts(home: Home, meta: StreamMeta, row: StreamRow) -> StreamRow:
    if meta.role is not Role.MAIN or row.held > DOCUMENT_MAX_BYTES:
        return row
    data = b"".join(part for _, part in home.plain(meta, row.generation).read(0, row.held, gaps=[]))
    return changed(row, facts=text_facts(document_facts(home.agents[meta.agent], data).to_json()))


def rebuild(
    home: Home, progress: Callable[[str], None] = lambda _: None, mended: Callable[[str], None] = lambda _: None
) -> list[ColdtrailError]:
    """Make every row of the catalog again, session by session, also beside a running daemon; gives what could not be read.

    A damaged meta.json or manifest is written anew from what else is known, and its name given to `mended`.
    """
    old = _Known.of(home)
    sessions, manifests, errors = _found(home, mended)
    for session, tombstone in _removed(home, sessions, manifests).items():
        del sessions[session]
        expire.relearn(home, session, tombstone)
    for session, metas in sorted(sessions.items()):
        try:
            _rebuild_session(home, old, session, metas, manifests.get(session))
        except ColdtrailError as error:
            errors.append(error)
        progress(session)
    with home.catalog.transaction():
        home.catalog.drop(old.sessions - set(sessions), old.streams - _streams_of(sessions))
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
    sessions, manifests, errors = _found(home, None)
    for session in _removed(home, sessions, manifests):
        del sessions[session]
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


Mended = Callable[[str], None]


def _found(home: Home, mended: Mended | None) -> tuple[dict[str, list[StreamMeta]], dict[str, Manifest], list[ColdtrailError]]:
    """The sessions that store and archive hold, by their streams; the manifests; what could not be read.

    What is damaged is written anew, and told to `mended`, unless that is None: then nothing is written.
    """
    errors: list[ColdtrailError] = []
    sessions: dict[str, list[StreamMeta]] = {}
    manifests, damaged = _manifests(home, errors)
    for meta in _metas(home, manifests, errors, mended):
        sessions.setdefault(meta.session, []).append(meta)
    for session, error in damaged.items():
        metas = sessions.get(session)
        if mended is None or not metas:
            errors += [error] if error is not None else []
            continue
        manifests[session] = mend.rewrite_manifest(home, metas)
        mended(manifest_label(home, metas[0].source, session, metas[0].host))
    return sessions, manifests, errors


def _removed(home: Home, sessions: dict[str, list[StreamMeta]], manifests: Mapping[str, Manifest]) -> dict[str, Tombstone]:
    """The tombstones of the sessions that were removed, and have not gone on since; `sessions` has each of them then."""
    stones = {session: manifest.tombstone for session, manifest in manifests.items() if manifest.tombstone is not None}
    return {session: stone for session, stone in stones.items() if expire.is_removed(home, stone, sessions.setdefault(session, []))}


def _streams_of(sessions: Mapping[str, list[StreamMeta]]) -> set[str]:
    return {meta.stream for metas in sessions.values() for meta in metas}


def _rebuild_session(home: Home, old: _Known, session: str, metas: list[StreamMeta], manifest: Manifest | None) -> None:
    with home.changing(session):
        metas = [meta for meta in metas if not home.catalog.graves(stream=meta.stream)]  # the others were removed since they were listed
        if not metas:
            return
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
    return rows, describe(in_order([*rows, *newer]), metas[0].host, manifest.wishes)


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
    for name, ours, theirs in zip(new._fields, old, new, strict=True):
        if ours != theirs and name not in _HINTS:
            yield Difference(session, stream, name, ours, theirs)


def _metas(home: Home, manifests: Mapping[str, Manifest], errors: list[ColdtrailError], mended: Mended | None) -> Iterator[StreamMeta]:
    """Every stream's metadata: the store's, else (a store that was lost, or is damaged) what else is known of it."""
    copies = {meta.stream: meta for manifest in manifests.values() for meta in manifest.streams}
    known = set()
    for stream in sorted(home.store.streams()):
        meta = _meta(home, stream, copies, errors, mended)
        if meta is not None:
            yield meta
        if meta is not None or home.layout.meta(stream).exists():  # a damaged one has been told of
            known.add(stream)
    for stream, meta in copies.items():
        if stream not in known:
            yield meta if mended is None else mend.rewrite_meta(home, meta)


def _meta(
    home: Home, stream: str, copies: Mapping[str, StreamMeta], errors: list[ColdtrailError], mended: Mended | None
) -> StreamMeta | None:
    try:
        meta = home.store.meta(stream)
        if mended is None or (meta is not None and home.store.meta_has_checksum(stream)):
            return meta
        meta = meta or (None if home.catalog.graves(stream=stream) else mend.meta_of(home, stream, copies))
        if meta is None:
            return None
    except ColdtrailError as error:
        meta = None if mended is None or mend.is_newer(error) else mend.meta_of(home, stream, copies)
        if meta is None or mended is None:
            errors.append(error)
            return None
    mended(str(home.layout.meta(stream)))
    return mend.rewrite_meta(home, meta)


def _manifests(home: Home, errors: list[ColdtrailError]) -> tuple[dict[str, Manifest], dict[str, ColdtrailError | None]]:
    """Those that can be read, by session; and those to be written anew, with why: damaged, or (None) they have no checksum."""
    whole: dict[str, Manifest] = {}
    damaged: dict[str, ColdtrailError | None] = {}
    for key in home.archive.walk():
        session = PurePosixPath(key).stem
        if not key.endswith(".json") or not is_id(session):
            continue
        try:
            with closing(home.archive.open(key)) as opened:
                data = opened.read_at(0, opened.size)
            whole[session] = Manifest.decode(data)
            if not has_checksum(data):
                damaged[session] = None
        except FileNotFoundError:  # it was lifted since the names were listed: its session comes back
            continue
        except OtherVersionError as error:
            errors.append(ColdtrailError(f"archive/{key}: {error}", hint=NEWER))
        except (ValueError, FrameError) as error:
            damaged[session] = ColdtrailError(f"archive/{key}: {error}", hint="run `coldtrail rebuild`: it writes it anew")
    return whole, damaged
