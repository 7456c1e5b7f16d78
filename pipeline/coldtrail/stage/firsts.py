"""First sight: many small files that nobody has met become streams together, for a disk takes as long to sync one as to sync them all."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, replace
from pathlib import Path

from coldtrail import durable
from coldtrail.agents.base import Place
from coldtrail.agents.walk import Candidate
from coldtrail.catalog import StreamRow
from coldtrail.errors import ColdtrailError
from coldtrail.home import Home, new_id
from coldtrail.layout import TEMP_PREFIX, Layout
from coldtrail.sessions import by_session, refresh
from coldtrail.stage import identify, prove
from coldtrail.stage.append import AGENT_FAULTS
from coldtrail.stage.capture import Capture, Taken
from coldtrail.store import Store

FILE_MAX_BYTES = 1 << 20  # a larger one takes long enough by itself
TOGETHER_FILES = 256
TOGETHER_BYTES = 32 << 20
_FOLDER = f"{TEMP_PREFIX}first"


@dataclass(frozen=True, slots=True)
class _Staging(Layout):
    """The layout of a home whose store is a folder that nobody looks into yet."""

    staging: Path = Path()

    @property
    def store(self) -> Path:
        """Where streams are made."""
        return self.staging


class Firsts:
    """Takes files at first sight, and gives their streams names together. One thread's alone; the caller holds the daemon's lock."""

    def __init__(self, home: Home) -> None:
        self._home = home
        layout = _Staging(home.layout.home, home.layout.archive, home.layout.store / _FOLDER)
        self._aside = replace(home, layout=layout, store=Store(layout))
        self._capture = Capture(self._aside)
        self._staged: list[tuple[Candidate, Taken, StreamRow]] = []

    @property
    def is_full(self) -> bool:
        """Whether it is time to `publish`."""
        return len(self._staged) >= TOGETHER_FILES or sum(row.held for _, _, row in self._staged) >= TOGETHER_BYTES

    def stage(self, found: Candidate, *, whole: bool) -> bool:
        """Read a file into the staging folder; False where it is none for here, and is to be taken by itself."""
        if found.is_twin or not 0 < found.stat.st_size <= FILE_MAX_BYTES or self._is_staged(found):
            return False
        try:
            met = identify.never_met(self._home, found)
        except (ColdtrailError, OSError):
            return False
        return met is not None and self._read(found, *met, whole=whole)

    def _read(self, found: Candidate, place: Place, kin: list[StreamRow], *, whole: bool) -> bool:
        ours = [row for _, _, row in self._staged if (row.session_id, row.source) == (place.session_id, found.source.name)]
        meta = identify.new_meta(self._home, found, place, identify.joined(kin + ours, place) or new_id())
        try:
            with durable.unsynced():
                self._aside.store.write_meta(meta)
                taken = self._capture.first(identify.row_of(meta), found, whole=whole)
        except (ColdtrailError, OSError, *AGENT_FAULTS):  # taken by itself it says what is wrong
            shutil.rmtree(self._aside.layout.stream(meta.stream), ignore_errors=True)
            return False
        if taken.row is not None:
            self._staged.append((found, taken, taken.row))
        return True

    def clear(self) -> None:
        """Remove what a run that was cut short has staged."""
        self._staged = []
        shutil.rmtree(self._aside.layout.store, ignore_errors=True)

    def _is_staged(self, found: Candidate) -> bool:
        """Under another name, which a linked folder gives it."""
        identity = prove.identity(found.stat)
        return any(row.identity == identity for _, _, row in self._staged)

    def publish(self) -> list[tuple[Candidate, Taken]]:
        """Make durable what was staged, and known; gives what became of each file."""
        staged, self._staged = self._staged, []
        if not staged:
            return []
        durable.sync_all(self._aside.layout.store)
        known = set[str]()
        try:
            for _, _, row in staged:
                durable.move_folder(self._aside.layout.stream(row.stream), self._home.layout.stream(row.stream))
            durable.sync_folder(self._home.layout.store)
            self._make_known([row for _, _, row in staged], known)
        except BaseException:
            for _, _, row in staged:  # of a stream that the catalog does not know the next try would begin a second one
                if row.stream not in known:
                    shutil.rmtree(self._home.layout.stream(row.stream), ignore_errors=True)
            raise
        finally:
            self.clear()
        return [(found, taken) for found, taken, _ in staged]

    def _make_known(self, rows: list[StreamRow], known: set[str]) -> None:
        for session, members in by_session(rows).items():
            with self._home.changing(session):
                with self._home.catalog.transaction():
                    for row in members:
                        self._home.catalog.put(row)
                    refresh(self._home, session)
                known |= {row.stream for row in members}
