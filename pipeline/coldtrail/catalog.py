"""The catalog: a SQLite cache of what store and archive hold. Everything in it can be made again from them."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Self, TypeVar

from coldtrail import durable
from coldtrail.errors import ColdtrailError, StoreFullError
from coldtrail.format import lines

VERSION = 4
WAIT_MAX_MS = 3_600_000  # what fails is tried again after so long at the latest
_BUSY_MS = 30_000


class StreamRow(NamedTuple):
    """What capture needs to know of a stream without opening a file."""

    stream: str
    session: str
    source: str
    agent: str
    role: str
    is_log: int
    path: bytes  # os.fsencode of the current path
    session_id: str
    scope: str
    generation: int = 0
    held: int = 0  # plain bytes captured of the newest generation
    open_bytes: int = 0  # length of the newest open segment's file when `held` was true; 0: there is none
    identity: str = ""  # device:inode of the agent's file
    size: int = -1
    mtime_ns: int = 0
    ctime_ns: int = 0
    head_length: int = 0
    head: bytes = b""  # digest of the first bytes
    window_length: int = 0
    window: bytes = b""  # digest of the last bytes held
    pending: int = 0  # where the record begins that is not complete yet
    facts: str = "{}"  # of the newest chain's complete records
    tail: str = "{}"  # of the unfinished record, if it is whole but for its newline
    plain_bytes: int = 0  # of the newest chain
    stored_bytes: int = 0  # of every generation's segments
    grew_ms: int = 0  # when growth was last seen
    gone_ms: int | None = None
    check_due: int = 0  # the file changed without growing: compare it whole
    rolled: int = 0  # open segments that will not grow any more wait to be sealed
    settled: int = 0  # compaction found nothing left to do
    checkpointed: int = 0  # where the checkpoint stage has come to
    folded_by: int = 0  # the version of the fold by which it has


class SessionRow(NamedTuple):
    """What `ls` shows of a session."""

    key: str
    id: str
    agent: str
    source: str
    host: str
    project: str | None
    title: str | None
    first_ms: int | None
    last_ms: int | None
    records: int
    damaged: int
    bytes: int
    stored_bytes: int
    state: str
    pinned: int
    tags: str  # JSON list
    paths: str  # JSON list
    parents: str  # JSON list of agents' ids
    orphan: int  # no main log was ever seen
    grew_ms: int
    held_until_ms: int | None = None  # until then nothing of it is removed
    mark: str = ""  # JSON of a Mark that holds for what is held now; then `state` is "expiring"


class GraveRow(NamedTuple):
    """What is remembered of a stream that was removed, so that its file is not captured anew."""

    stream: str
    session: str
    host: str
    source: str
    name: str  # see wishes.name_digest
    whose: str  # see wishes.Tombstone
    act: str  # a wishes.Act
    at_ms: int
    held: int
    head_length: int
    head: bytes
    window_length: int
    window: bytes
    cleared: int = 0  # 1: its files are gone; 2, where it was purged: this file was scrubbed too
    size: int = -1  # how the agent's file looked when it was last found to be the same; see StreamRow
    mtime_ns: int = 0
    ctime_ns: int = 0
    identity: str = ""


class FaultRow(NamedTuple):
    """Something that could not be done, and when it is tried again."""

    place: bytes
    what: str
    hint: str
    since_ms: int
    tries: int
    next_ms: int

    def waits(self, now_ms: int) -> bool:
        """Whether it is not tried again yet; who would have to wait longer than anybody does was noted by a wrong clock."""
        return now_ms < self.next_ms <= now_ms + WAIT_MAX_MS


Row = StreamRow | SessionRow | FaultRow | GraveRow
_Row = TypeVar("_Row", StreamRow, SessionRow, FaultRow, GraveRow)
_KEYS: dict[type[Row], str] = {StreamRow: "stream", SessionRow: "key", FaultRow: "place", GraveRow: "stream"}
_TABLES: dict[type[Row], str] = {StreamRow: "streams", SessionRow: "sessions", FaultRow: "faults", GraveRow: "graves"}
_INDEXES = (
    "CREATE INDEX IF NOT EXISTS streams_path ON streams(path)",
    "CREATE INDEX IF NOT EXISTS streams_identity ON streams(identity)",
    "CREATE INDEX IF NOT EXISTS streams_session ON streams(session)",
    "CREATE INDEX IF NOT EXISTS streams_agent_id ON streams(session_id)",
    "CREATE INDEX IF NOT EXISTS sessions_id ON sessions(id)",
    "CREATE INDEX IF NOT EXISTS graves_name ON graves(name)",
    "CREATE INDEX IF NOT EXISTS graves_whose ON graves(whose)",
)


class Catalog:
    """One thread's connection. Reading works beside any writer; a removed catalog.db is noticed and made anew."""

    def __init__(self, path: Path) -> None:
        self._path = path
        durable.make_folder(path.parent)
        self._db = self._connect()

    def _connect(self) -> sqlite3.Connection:
        old_mask = os.umask(0o077)
        try:
            db = sqlite3.connect(self._path, isolation_level=None, timeout=_BUSY_MS / 1000)
        finally:
            os.umask(old_mask)
        try:
            self._prepare(db)
        except sqlite3.DatabaseError as error:
            db.close()
            raise _told(self._path, error) from error
        self._identity = _identity(self._path)
        return db

    def _prepare(self, db: sqlite3.Connection) -> None:
        try:
            db.execute("PRAGMA journal_mode=WAL")
        except sqlite3.OperationalError:  # who makes it at the same time is waited for by a transaction alone
            db.execute("BEGIN EXCLUSIVE")
            db.execute("COMMIT")
            db.execute("PRAGMA journal_mode=WAL")
        db.execute("PRAGMA synchronous=NORMAL")
        if _is_current(db):
            return
        db.execute("BEGIN IMMEDIATE")  # of those who open it at once the first makes it
        if not _is_current(db):
            for kind, table in _TABLES.items():
                db.execute(f"DROP TABLE IF EXISTS {table}")  # an older one is a cache all the same: it is made again
                columns = ", ".join(name + " PRIMARY KEY" * (name == _KEYS[kind]) for name in kind._fields)
                db.execute(f"CREATE TABLE {table} ({columns}) WITHOUT ROWID")
            for index in _INDEXES:
                db.execute(index)
            db.execute(f"PRAGMA user_version={VERSION}")
        db.execute("COMMIT")

    def fresh(self) -> bool:
        """Whether the file under this connection is still the one in place; connects to the new one if not."""
        if _identity(self._path) == self._identity:
            return True
        self._db.close()
        self._db = self._connect()
        return False

    def close(self) -> None:
        """Let the connection go."""
        self._db.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        """All or nothing of what the block writes."""
        with self._full_disk_told():
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._db.execute("COMMIT")
            except BaseException:
                if self._db.in_transaction:  # on a full disk SQLite may have rolled it back already
                    self._db.execute("ROLLBACK")
                raise

    @contextlib.contextmanager
    def _full_disk_told(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.OperationalError as error:
            if _is_full(self._path, error):
                raise StoreFullError(self._path) from error
            raise

    def put(self, row: Row) -> None:
        """Add a row, or take the place of the one with its key."""
        question = f"INSERT OR REPLACE INTO {_TABLES[type(row)]} ({', '.join(row._fields)}) VALUES ({', '.join('?' * len(row))})"
        with self._full_disk_told():
            self._db.execute(question, row)

    def stream(self, stream: str) -> StreamRow | None:
        """The stream of that id."""
        return next(iter(self._rows(StreamRow, "stream = ?", stream)), None)

    def stream_at(self, path: bytes) -> StreamRow | None:
        """The stream whose current path is `path`; of several the one that is not gone."""
        return min(self._rows(StreamRow, "path = ?", path), key=lambda row: (row.gone_ms is not None, -row.grew_ms), default=None)

    def streams_of(self, session: str) -> list[StreamRow]:
        """A session's streams, the main log first, then by path."""
        return in_order(self._rows(StreamRow, "session = ?", session))

    def streams_with(self, *, identity: str = "", session_id: str = "", source: str = "") -> list[StreamRow]:
        """The streams with that inode, or of that agent's id in that source."""
        by_id = "session_id = ? AND source = ?", session_id, source
        return self._rows(StreamRow, "identity = ?", identity) if identity else self._rows(StreamRow, *by_id)

    def all_streams(self) -> Iterator[StreamRow]:
        """Every stream."""
        return iter(self._rows(StreamRow, "1 = ?", 1))

    def streams_below(self, folder: bytes) -> list[StreamRow]:
        """The streams whose path begins with `folder`, which ends in a slash."""
        return self._rows(StreamRow, "path >= ? AND path < ?", folder, folder[:-1] + b"0")

    def streams_to_check(self) -> list[StreamRow]:
        """The streams whose file changed without growing, and is there."""
        return [row for row in self._rows(StreamRow, "check_due = ?", 1) if row.gone_ms is None]

    def streams_if(self, condition: str, *values: int) -> list[StreamRow]:
        """The streams for which a condition of `sums` holds."""
        return self._rows(StreamRow, condition, *values)

    def is_empty(self) -> bool:
        """Whether it knows no stream at all, nor of any that was removed."""
        return self._db.execute("SELECT 1 FROM streams UNION ALL SELECT 1 FROM graves LIMIT 1").fetchone() is None

    def stream_ids(self) -> set[str]:
        """The id of every stream."""
        return {stream for (stream,) in self._db.execute("SELECT stream FROM streams")}

    def _rows(self, kind: type[_Row], where: str, *values: object) -> list[_Row]:
        question = f"SELECT {', '.join(kind._fields)} FROM {_TABLES[kind]} WHERE {where}"
        return list(map(kind._make, self._db.execute(question, values)))

    def ask(self, question: str, *values: object) -> list[tuple[Any, ...]]:
        """The answer to a question of `sums`."""
        return self._db.execute(question, values).fetchall()

    def wrong(self) -> str:
        """What SQLite's quick check finds wrong with the file first; empty: nothing."""
        try:
            return str(self.ask("PRAGMA quick_check")[0][0]).removeprefix("ok")
        except sqlite3.DatabaseError as error:
            return str(error)

    def session(self, key: str) -> SessionRow | None:
        """The session of that key."""
        return next(iter(self._rows(SessionRow, "key = ?", key)), None)

    def sessions(self) -> list[SessionRow]:
        """Every session, the latest first."""
        return sorted(self._rows(SessionRow, "1 = ?", 1), key=lambda row: (-(row.last_ms or 0), row.key))

    def sessions_with_id(self, agent_id: str) -> list[SessionRow]:
        """The sessions that their agent knows by that id."""
        return self._rows(SessionRow, "id = ?", agent_id)

    def drop(self, sessions: set[str], streams: set[str]) -> None:
        """Drop the rows of these sessions and streams, in the caller's transaction."""
        self._db.executemany("DELETE FROM sessions WHERE key = ?", [(key,) for key in sessions])
        self._db.executemany("DELETE FROM streams WHERE stream = ?", [(stream,) for stream in streams])

    def graves(self, *, name: str = "", whose: str = "", session: str = "", stream: str = "") -> list[GraveRow]:
        """What is remembered of the removed streams of that name, of that session, or of that one; else of all."""
        asked = {"name": name, "whose": whose, "session": session, "stream": stream}
        where, value = next(((f"{column} = ?", value) for column, value in asked.items() if value), ("'' = ?", ""))
        return self._rows(GraveRow, where, value)

    def forget_graves(self, session: str) -> None:
        """Drop what is remembered of a removed session."""
        with self._full_disk_told():
            self._db.execute("DELETE FROM graves WHERE session = ?", (session,))

    def fault(self, place: bytes) -> FaultRow | None:
        """What is wrong with a path, if something is."""
        return next(iter(self._rows(FaultRow, "place = ?", place)), None)

    def faults(self) -> list[FaultRow]:
        """Everything that is wrong now, the oldest first."""
        return sorted(self._rows(FaultRow, "1 = ?", 1), key=lambda row: (row.since_ms, row.place))

    def note_fault(self, place: bytes, what: str, hint: str, now_ms: int, back_off_ms: int) -> FaultRow:
        """Remember that something failed; each further failure doubles the wait, up to an hour."""
        old = self.fault(place)
        tries = old.tries + 1 if old else 1
        wait_ms = min(back_off_ms * 2 ** min(tries - 1, 20), WAIT_MAX_MS)
        row = FaultRow(place, what, hint, old.since_ms if old else now_ms, tries, now_ms + wait_ms)
        self.put(row)
        return row

    def clear_fault(self, place: bytes, *, below: bool = False) -> None:
        """Forget a fault: it is mended; `below`: and those of all that was in that folder."""
        where, end = "place = ?" + " OR (place >= ? AND place < ?)" * below, (place + b"/", place + b"0") * below
        with self._full_disk_told():
            self._db.execute(f"DELETE FROM faults WHERE {where}", (place, *end))

    def scrub(self) -> bool:
        """Leave nothing in the file, nor in its log, of rows that are gone; False where others were at it for too long."""
        try:
            with self._full_disk_told():
                self._db.execute("PRAGMA secure_delete=ON")
                self._db.execute("VACUUM")
                busy, _, _ = self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF not in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
                raise
            return False
        return not busy


def in_order(streams: Iterable[StreamRow]) -> list[StreamRow]:
    """A session's streams, the main log first, then by path."""
    order = {"main": 0, "child": 1, "companion": 2}
    return sorted(streams, key=lambda row: (order[row.role], row.path))


def changed(row: StreamRow, **values: object) -> StreamRow:
    """A stream's row with some values changed."""
    return row._replace(**values)  # type: ignore[arg-type]


def text_facts(value: Mapping[str, object]) -> str:
    """Facts as a row holds them."""
    return lines.dumps(value, sort=True).decode()


def _is_current(db: sqlite3.Connection) -> bool:
    (version,) = db.execute("PRAGMA user_version").fetchone()
    if version > VERSION:
        raise sqlite3.DatabaseError(f"version {version}; this coldtrail reads version {VERSION}")
    return bool(version == VERSION)


def _told(path: Path, error: sqlite3.DatabaseError) -> ColdtrailError:
    """Why a catalog cannot be opened: only of a damaged one may be said that it had better be removed."""
    if _is_full(path, error):
        return StoreFullError(path)
    if isinstance(error, sqlite3.OperationalError):
        return ColdtrailError(f"{path}: the catalog cannot be opened ({error})", hint="see to its folder's rights and space, and try again")
    hint = "remove catalog.db* and run `coldtrail rebuild`; no session is lost by it"
    return ColdtrailError(f"{path}: the catalog is damaged ({error})", hint=hint)


def _is_full(path: Path, error: sqlite3.DatabaseError) -> bool:
    """Whether the disk is full, which SQLite calls an I/O error where it is about its shared memory."""
    code = getattr(error, "sqlite_errorcode", 0)
    return code == sqlite3.SQLITE_FULL or (code & 0xFF == sqlite3.SQLITE_IOERR and os.statvfs(path.parent).f_bavail == 0)


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino
