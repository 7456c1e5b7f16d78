"""The API: a home opened as the command line finds it, its sessions, their events. The one place that looks at the environment."""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Self

from coldtrail.agents import agents
from coldtrail.agents.sources import sources
from coldtrail.agents.walk import Source
from coldtrail.catalog import SessionRow
from coldtrail.config import Config, load_file
from coldtrail.errors import AmbiguousError, ColdtrailError, NotFoundError, UsageError
from coldtrail.format import lines
from coldtrail.format.index import mask_of
from coldtrail.format.manifest import StreamMeta
from coldtrail.home import Home
from coldtrail.layout import Layout
from coldtrail.model import Event, EventType, Gap, Position, Role, instant_text
from coldtrail.moments import Instant, Moment, read_moment
from coldtrail.recover import Placed, Selection, StreamReader
from coldtrail.stage import pin
from coldtrail.stage.rebuild import rebuild
from coldtrail.stage.restore import Mtime, Passed, Restored, RestorePlan, Wish, carry_out, plan_restore
from coldtrail.stage.verify import Verdict, verify

When = str | int | datetime  # as the command line takes it; milliseconds since 1970 UTC; a time (naive: UTC)
_PREFIX_MIN_CHARS = 4
_WHOLE_RECORD = 1 << 62  # behind any event of a record


@dataclass(frozen=True, slots=True)
class Settings:
    """Where the home is and what holds in it."""

    config: Config
    layout: Layout
    sources: tuple[Source, ...]
    config_file: Path | None  # None: there is none, the defaults hold


def settings(home: str | Path | None = None, config: str | Path | None = None, *, env: Mapping[str, str] | None = None) -> Settings:
    """Find the home and its config: argument, then environment, then config file, then default. ConfigError."""
    env = os.environ if env is None else env
    user_home = Path(env.get("HOME") or Path.home())
    file = _config_file(config, env, user_home)
    data_home = Path(env["XDG_DATA_HOME"]) if env.get("XDG_DATA_HOME") else None
    said = home or env.get("COLDTRAIL_HOME")
    named = Path(said).expanduser().absolute() if said else None
    if file is not None:
        found = load_file(file, user_home=user_home, data_home=data_home, home=named, agents=tuple(agents()))
    else:
        found = Config.defaults(user_home=user_home, data_home=data_home, home=named)
    layout = Layout.at(found.home, found.archive.folder)
    return Settings(found, layout, tuple(sources(found.sources, env if found.discover else None, user_home)), file)


def find_sources(found: Settings, env: Mapping[str, str] | None = None) -> list[Source]:
    """The sources as of now: an agent may have been installed since."""
    env = os.environ if env is None else env
    return sources(found.config.sources, env if found.config.discover else None, Path(env.get("HOME") or Path.home()))


def open_home(found: Settings) -> Home:
    """The home of these settings, for one thread."""
    return Home.open(found.layout, agents(), now_ms)


def _config_file(config: str | Path | None, env: Mapping[str, str], user_home: Path) -> Path | None:
    said = config or env.get("COLDTRAIL_CONFIG")
    if said:
        return Path(said).expanduser()
    usual = Path(env.get("XDG_CONFIG_HOME") or user_home / ".config") / "coldtrail" / "config.toml"
    return usual if usual.exists() else None


def now_ms() -> int:
    """The clock that everything below is given."""
    return time.time_ns() // 1_000_000


def open(home: str | Path | None = None, config: str | Path | None = None) -> Trail:  # noqa: A001 - the face's word: coldtrail.open()
    """Open a coldtrail home for reading and restoring; no daemon is needed.

    `home` and `config` are found as the command line finds them: argument, COLDTRAIL_HOME and COLDTRAIL_CONFIG, the
    config file, the default. A missing catalog is made again from store and archive. ConfigError, ColdtrailError.

        with coldtrail.open() as trail:
            for session in trail.sessions():
                print(session.key, session.title)
    """
    return Trail(settings(home, config))


class Trail:
    """A home, open. One thread's alone; close it, or use it in a `with`."""

    def __init__(self, found: Settings) -> None:
        self.settings = found
        self._home = open_home(found)
        if self._home.catalog.is_empty() and next(self._home.store.streams(), None):
            rebuild(self._home)

    def close(self) -> None:
        """Let every file go."""
        self._home.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    @property
    def home(self) -> Home:
        """What the stages work on."""
        return self._home

    def sessions(self, *, agent: str | None = None, state: str | None = None) -> Iterator[Session]:
        """Every session, the latest first; only an agent's, only those `live` or `gone`."""
        for row in self._home.catalog.sessions():
            if agent in (None, row.agent) and state in (None, row.state):
                yield Session(self._home, row)

    def session(self, name: str | Path) -> Session:
        """One session by key, the agent's own id, a unique beginning of either (4 characters or more), or the path of a file.

        NotFoundError; AmbiguousError lists the keys that fit.
        """
        text = str(name)
        rows = self._exact(text) or self._beginning(text)
        if not rows:
            raise NotFoundError(f"{text}: no session has this key, id or path", hint="`coldtrail ls` shows what there is")
        if len(rows) > 1:
            raise AmbiguousError(f"{text}: {len(rows)} sessions fit", [row.key for row in rows], hint="name one by its key")
        return Session(self._home, rows[0])

    def _exact(self, text: str) -> list[SessionRow]:
        catalog = self._home.catalog
        by_key = catalog.session(text)
        if by_key is not None:
            return [by_key]
        stream = catalog.stream_at(os.fsencode(os.path.abspath(text)))
        by_path = catalog.session(stream.session) if stream else None
        return catalog.sessions_with_id(text) or ([by_path] if by_path else [])

    def _beginning(self, text: str) -> list[SessionRow]:
        if len(text) < _PREFIX_MIN_CHARS:
            return []
        return [row for row in self._home.catalog.sessions() if row.key.startswith(text) or row.id.startswith(text)]

    def verify(self, sessions: Collection[str] | None = None) -> Verdict:
        """Read everything kept (of these sessions' keys) and check it; changes nothing."""
        return verify(self._home, sessions)

    def rebuild(self) -> list[ColdtrailError]:
        """Make the catalog again from store and archive; gives what could not be read."""
        return rebuild(self._home)


class Session:
    """One conversation: what is known of it, its events, its way back."""

    def __init__(self, home: Home, row: SessionRow) -> None:
        self._home, self._row = home, row
        self.gaps: list[Gap] = []  # damaged ranges that reading has met

    @property
    def key(self) -> str:
        """Unique in this home."""
        return self._row.key

    @property
    def id(self) -> str:
        """The agent's own id; two sessions may share one."""
        return self._row.id

    @property
    def agent(self) -> str:
        """Whose session it is."""
        return self._row.agent

    @property
    def title(self) -> str | None:
        """What it is about: the title it was given, or how its first prompt begins."""
        return self._row.title

    @property
    def project(self) -> str | None:
        """The folder that it was in, as it says itself."""
        return self._row.project

    @property
    def state(self) -> str:
        """`live` while the agent's file is there, then `gone`."""
        return self._row.state

    @property
    def row(self) -> SessionRow:
        """Everything that the catalog has of it."""
        return self._row

    def to_json(self) -> dict[str, object]:
        """As `ls --json` shows it."""
        row = self._row
        return {
            "key": row.key,
            "id": row.id,
            "agent": row.agent,
            "project": row.project,
            "title": row.title,
            "first_activity": instant_text(row.first_ms),
            "last_activity": instant_text(row.last_ms),
            "records": row.records,
            "damaged": row.damaged,
            "bytes": row.bytes,
            "stored_bytes": row.stored_bytes,
            "state": row.state,
            "pinned": bool(row.pinned),
            "tags": lines.loads(row.tags.encode()),
            "paths": lines.loads(row.paths.encode()),
            "host": row.host,
            "source": row.source,
            "orphan": bool(row.orphan),
        }

    def streams(self) -> list[StreamMeta]:
        """Its files, the main log first: paths, generations, modes, times."""
        metas = [self._home.store.meta(row.stream) for row in self._home.catalog.streams_of(self.key)]
        return [meta for meta in metas if meta is not None]

    def events(
        self,
        *,
        types: Collection[str] | None = None,
        since: When | None = None,
        until: When | None = None,
        after: Position | str | None = None,
        stream: str | None = None,
        limit: int | None = None,
    ) -> Iterator[Event]:
        """Its events in byte order, archived and live as one, lazily; frames outside the range are not decoded.

        `types` are words of EventType; `since` and `until` are inclusive; `after` is a position or one of the agent's
        ids, exclusive; `stream` is a child's stream id or path, else the main log is read. Damaged ranges are left out
        and noted in `gaps`. UsageError, NotFoundError, AmbiguousError.

            for event in session.events(types={"tool_completed"}, since="2h"):
                print(event.position, event.data["output"])
        """
        wanted_types = _types(types)
        with self.reader(stream) as reader:
            self.gaps = reader.gaps
            selection = self._selection(reader, wanted_types or frozenset(EventType), since, until, after)  # bytes that hold no event are not read
            left = limit
            for placed in reader.placed(selection):
                for event in placed.events():
                    if left is not None and left <= 0:
                        return
                    if (not wanted_types or event.type in wanted_types) and selection.has(event.position):
                        yield event
                        left = None if left is None else left - 1

    def records(
        self,
        *,
        types: Collection[str] | None = None,
        since: When | None = None,
        until: When | None = None,
        after: Position | str | None = None,
        stream: str | None = None,
    ) -> Iterator[Placed]:
        """Its records with their bytes, chosen as events are; damaged ones too, unless only some `types` are wanted."""
        with self.reader(stream) as reader:
            self.gaps = reader.gaps
            selection = self._selection(reader, _types(types), since, until, after)
            for placed in reader.placed(selection):
                if selection.after is None or placed.position > selection.after:
                    yield placed

    def raw(self, stream: str | None = None) -> Iterator[bytes]:
        """The bytes of its main log, or of another stream; CorruptionError at a damaged place."""
        with self.reader(stream) as reader:
            yield from reader.raw()

    def reader(self, stream: str | None = None) -> StreamReader:
        """Its main log (or another stream, by id or path), open for reading. Close it after use."""
        return StreamReader(self._home, self._stream(stream))

    def _stream(self, name: str | None) -> StreamMeta:
        metas = self.streams()
        if name is None:
            mains = [meta for meta in metas if meta.role is Role.MAIN]
            chosen = sorted(mains or metas, key=lambda meta: (meta.gone_ms is not None, not meta.is_log))
        else:
            chosen = [meta for meta in metas if name == meta.stream or meta.path == os.path.abspath(name) or Path(meta.path).name == name]
        if not chosen:
            raise NotFoundError(f"{name or self.key}: no such stream in this session", hint=f"`coldtrail show {self.key}` lists them")
        if name is not None and len(chosen) > 1:
            raise AmbiguousError(f"{name}: {len(chosen)} streams fit", [meta.stream for meta in chosen])
        return chosen[0]

    def _selection(
        self, reader: StreamReader, types: frozenset[EventType], since: When | None, until: When | None, after: Position | str | None
    ) -> Selection:
        lower, upper = _moment(since, self._home.now_ms()), _moment(until, self._home.now_ms())
        behind = read_moment(after, self._home.now_ms()) if isinstance(after, str) else after
        ends = _last_event(reader, upper) if upper is not None and not isinstance(upper, Instant) else None
        begins = reader.locate(lower) if lower is not None and not isinstance(lower, Instant) else None
        return Selection(
            mask=mask_of(types) if types else None,
            since_ms=lower.ms if isinstance(lower, Instant) else None,
            until_ms=upper.ms if isinstance(upper, Instant) else None,
            begin=begins,
            after=None if behind is None else _last_event(reader, behind),
            until=ends,
        )

    def plan_restore(self, wish: Wish | None = None) -> RestorePlan:
        """What `restore` would do, file by file. RefusedError where something is in the way."""
        return plan_restore(self._home, self._row, wish or Wish())

    def restore(
        self, to: str | Path | None = None, *, overwrite: bool = False, mtime: str = "auto", generation: int | None = None
    ) -> list[Restored | Passed]:
        """Put its files back to where the agent looks for them (or below `to`); doing it twice changes nothing.

        RefusedError where bytes would be lost, CorruptionError where our copy is damaged; nothing is half written.
        """
        try:
            wish = Wish(Path(to).absolute() if to is not None else None, overwrite, Mtime(mtime), generation)
        except ValueError as error:
            raise UsageError(f"mtime={mtime!r}: one of auto, keep, now") from error
        return list(carry_out(self._home, self.plan_restore(wish)))

    def pin(self, *, pinned: bool = True) -> None:
        """Keep it whatever retention says; `pinned=False` lifts that."""
        self._row = pin.set_pin(self._home, self._row, pinned=pinned)


def _types(types: Collection[str] | None) -> frozenset[EventType]:
    try:
        return frozenset(EventType(each) for each in types or ())
    except ValueError as error:
        raise UsageError(str(error), hint=f"the types are {', '.join(EventType)}") from error


def _last_event(reader: StreamReader, moment: Moment) -> Position:
    """The last event that a moment includes: a position is one event's, any other moment is a whole record."""
    found = reader.locate(moment)
    return found if isinstance(moment, Position) else replace(found, k=_WHOLE_RECORD)


def _moment(when: When | None, clock_ms: int) -> Moment | None:
    if when is None or isinstance(when, str):
        return None if when is None else read_moment(when, clock_ms)
    if isinstance(when, int):
        return Instant(when)
    return read_moment(when.isoformat(), clock_ms)
