"""The API: a home opened as the command line finds it, its sessions, their events."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Self

from coldtrail import steady
from coldtrail.agents import agents
from coldtrail.agents.event_log import AGENT as EVENT_LOG
from coldtrail.catalog import SessionRow
from coldtrail.errors import AmbiguousError, ColdtrailError, LockedError, NotFoundError, UnverifiableError, UsageError
from coldtrail.follow import Surroundings
from coldtrail.format.wishes import name_digest
from coldtrail.home import Home
from coldtrail.retention import Plan
from coldtrail.retention.plan import Verdict as Becomes
from coldtrail.session import Session
from coldtrail.settings import Settings, alone, find_sources, now_ms, open_home, settings, uptime
from coldtrail.stage import barrier, prune, thin
from coldtrail.stage.adopt import adopt
from coldtrail.stage.rebuild import rebuild
from coldtrail.stage.verify import Verdict, verify
from coldtrail.writer import SortableIds, Writer, log_path, state_of

_PREFIX_MIN_CHARS = 4
_BARRIER_POLL_S = 0.05


def plan(home: Home, found: Settings, *, force: bool = False) -> Plan:
    """What these settings' retention would do now; changes nothing. `force`: mark more than a pass may."""
    present = prune.present(home, find_sources(found))
    suspended = steady.suspended(found.layout.clock, home.now_ms(), uptime())
    made = prune.plan(home, found.config.retention, present, suspended=suspended, force=force)
    keep = found.config.retention.companion_versions
    if keep is None or suspended:
        return made
    return replace(made, thin=thin.plan(home, keep, present, {each.key for each in made.of(Becomes.REMOVE)}))


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
        self._around = Surroundings(time.sleep, self._capture_session)
        if self._home.owes_rebuild():
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
        """Every session, the latest first; only an agent's, only those `live`, `gone` or `expiring`."""
        for row in self._home.catalog.sessions():
            if agent in (None, row.agent) and state in (None, row.state):
                yield Session(self._home, row, self._around)

    def session(self, name: str | Path) -> Session:
        """One session by key, the agent's own id, a unique beginning of either (4 characters or more), or the path of a file.

        NotFoundError; AmbiguousError lists the keys that fit.
        """
        text = str(name)
        rows = self._exact(text) or self._beginning(text)
        if not rows:
            raise self._not_found(text)
        if len(rows) > 1:
            raise AmbiguousError(f"{text}: {len(rows)} sessions fit", [row.key for row in rows], hint="name one by its key")
        return Session(self._home, rows[0], self._around)

    def _not_found(self, text: str) -> NotFoundError:
        """Of one that was removed it is told where that stands."""
        whose = (name_digest(agent, text) for agent in agents())
        graves = [*self._home.catalog.graves(session=text), *(row for each in whose for row in self._home.catalog.graves(whose=each))]
        if text and graves:
            hint = f"`coldtrail journal --session {graves[0].session}` tells when and why"
            return NotFoundError(f"{text}: this session was {graves[0].act}, and is not kept any more", hint=hint)
        return NotFoundError(f"{text}: no session has this key, id or path", hint="`coldtrail ls` shows what there is")

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

    def writer(
        self,
        source: str = "",
        *,
        session: str | None = None,
        root: str | Path | None = None,
        fsync: str = "interval",
        start: Mapping[str, object] | None = None,
        checkpoints: bool = False,
    ) -> Writer:
        """Open the log of one of your own agent's sessions for appending; a new one, unless `session` names one that is there.

        `source` is the name of a configured source whose agent is `event-log`; `root` names the folder instead (coldtrail takes
        up what is written there once a source has that root). The log is `<session>.jsonl` in it, 0600, and begins with a
        `session_start` that has the fields of `start`. `fsync` is "always", "interval" (once a second at most, by whoever
        appends) or "never". With `checkpoints` the log itself names its state every so many events (`every_events` in the config):
        the whole of it is kept in memory for that. Close the writer, or use it in a `with`. UsageError, SourceError, StoreFullError.

            with trail.writer("my-agent", start={"model": "m-1"}) as log:
                log.append("message_added", role="user", content="Hello")
        """
        folder = Path(root).expanduser() if root is not None else self._log_root(source)
        path = log_path(folder.resolve(), session if session is not None else SortableIds().next(now_ms()))
        every = self.settings.config.checkpoint.every_events if checkpoints else None
        return Writer(path, now_ms, state_of=partial(state_of, self._home), fsync=fsync, start=start, checkpoint_every=every)

    def _log_root(self, name: str) -> Path:
        """The folder of a source that may be written."""
        found = next((each for each in self.settings.sources if each.name == name), None)
        if found is not None and found.agent.name == EVENT_LOG.name:
            return found.root
        source = f'[[source]]\nname = "{name or "my-agent"}"\nagent = "{EVENT_LOG.name}"\nroot = "~/agents/logs"'
        hint = f"add to {self.settings.config_file or 'your config.toml'}, or say root=DIR:\n{source}"
        if found is not None:
            raise UsageError(f"the source {name!r} has the logs of {found.agent.name}, which nobody else writes", hint=hint)
        raise UsageError(f"no source is named {name!r}" if name else "neither a source nor a root is named", hint=hint)

    def wait_captured(self, session: Session | str | Path, timeout_s: float = 10.0) -> None:
        """Wait until everything that was written to a session's files up to now is in the store, synced; unfinished lines too.

        `session` is one, or what `session()` takes, or the path of a log that coldtrail has not met yet; sub-agents' new files
        count. Where no daemon runs it is captured by this call. UnverifiableError tells what is missing after `timeout_s`
        seconds, and at once what an agent took back before anybody had captured it, when all that is there now is safe;
        NotFoundError, AmbiguousError, StoreFullError.

            trail.wait_captured(session)
        """
        self._wait(self._barrier(session), timeout_s)

    def wait_all_captured(self, timeout_s: float = 60.0) -> None:
        """The same for all that every agent has written up to now.

        trail.wait_all_captured()
        """
        self._wait(barrier.Barrier.everywhere(self._home, find_sources(self.settings)), timeout_s)

    def _wait(self, mark: barrier.Barrier, timeout_s: float) -> None:
        end_s = time.monotonic() + timeout_s
        while mark.missing(self._home):
            self._capture(mark.capture)
            missing = mark.missing(self._home)
            if missing and time.monotonic() >= end_s:
                hint = "`coldtrail status` tells whether the daemon is at work, and what is wrong with a file"
                raise UnverifiableError(f"not everything is safe after {timeout_s:g} s: {'; '.join(missing)}", hint=hint)
            if missing:
                time.sleep(_BARRIER_POLL_S)

    async def await_captured(self, session: Session | str | Path, timeout_s: float = 10.0) -> None:
        """The same for asyncio, in a thread of its own, with a home of its own."""
        from asyncio import to_thread  # noqa: PLC0415 - most who import the library do without

        name = session.key if isinstance(session, Session) else session
        await to_thread(self._wait_elsewhere, name, timeout_s)

    def _wait_elsewhere(self, name: str | Path, timeout_s: float) -> None:
        with Trail(self.settings) as other:
            other.wait_captured(name, timeout_s)

    def _barrier(self, session: Session | str | Path) -> barrier.Barrier:
        sources = find_sources(self.settings)
        try:
            key = session.key if isinstance(session, Session) else self.session(session).key
        except NotFoundError:
            path = Path(os.path.abspath(str(session)))
            if not path.is_file():
                raise
            return barrier.Barrier.at(self._home, sources, path)
        return barrier.Barrier.over(self._home, sources, key)

    def _capture_session(self, session: str) -> bool:
        """Capture a session as far as its lines are finished, if nobody else is at it."""
        return self._capture(lambda home: barrier.catch_up(home, find_sources(self.settings), session))

    def _capture(self, work: Callable[[Home], None]) -> bool:
        """Do what only one at a time may do, with a home of its own; False where somebody else does."""
        try:
            with (
                alone(self.settings),
                open_home(self.settings) as home,
            ):
                adopt(home)
                work(home)
        except LockedError:
            return False
        return True

    def verify(self, sessions: Collection[str] | None = None) -> Verdict:
        """Read everything kept (of these sessions' keys) and check it; changes nothing."""
        return verify(self._home, sessions)

    def rebuild(self) -> list[ColdtrailError]:
        """Make the catalog again from store and archive; gives what could not be read."""
        return rebuild(self._home)
