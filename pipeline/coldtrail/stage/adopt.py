"""Adopt: what a start owes to the run before it, which may have been killed at any step."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import TypeVar

from coldtrail import durable
from coldtrail.catalog import SessionRow, StreamRow, changed
from coldtrail.errors import ColdtrailError
from coldtrail.home import Home
from coldtrail.layout import RESTORE_TEMP_PREFIX, TEMP_PREFIX
from coldtrail.sessions import find_manifest, refresh, take_wishes
from coldtrail.stage import expire
from coldtrail.stage.rebuild import remade_row, stored_bytes

_Item = TypeVar("_Item")


def adopt(home: Home) -> list[ColdtrailError]:
    """Take up what the store has and the catalog does not know, of a stream or of all of it: a crash came between the two."""
    errors = _for_each(home.store.streams(), partial(_adopt_stream, home))
    return errors + _for_each(home.catalog.streams_if("rolled = ?", 1), partial(_adopt_size, home))


def adopt_wishes(home: Home) -> list[ColdtrailError]:
    """Take up the pins and tags that stand in manifests and not in the catalog: a crash came between the two."""
    return _for_each(home.catalog.sessions(), partial(_adopt_wishes, home))


def tidy(home: Home, older_than_ms: int) -> int:
    """Remove what interrupted writes have left, once it is so old that nobody can be at it; gives how many files."""
    before_ms = home.now_ms() - older_than_ms
    return sum(_tidy_below(folder, before_ms) for folder in (home.layout.home, home.layout.archive))


def _for_each(items: Iterable[_Item], work: Callable[[_Item], None]) -> list[ColdtrailError]:
    """Do some work with each; gives what went wrong, of which the others know nothing."""
    errors: list[ColdtrailError] = []
    for item in items:
        try:
            work(item)
        except ColdtrailError as error:
            errors.append(error)
    return errors


def _adopt_stream(home: Home, stream: str) -> None:
    row = home.catalog.stream(stream)
    if is_settled(home, row) if row is not None else home.catalog.graves(stream=stream):
        return
    meta = home.store.meta(stream)
    if meta is not None:
        with home.changing(meta.session), home.catalog.transaction():
            home.catalog.put(remade_row(home, meta, home.catalog.stream(stream)))
            refresh(home, meta.session)


def is_settled(home: Home, row: StreamRow) -> bool:
    """Whether the row is that of the store's newest generation and of all its bytes, told by names and lengths alone."""
    if home.layout.generation(row.stream, row.generation + 1).exists():
        return False
    names = home.store.open_names(row.stream, row.generation)
    folder = home.layout.generation(row.stream, row.generation)
    with contextlib.suppress(FileNotFoundError):  # removed meanwhile: who prunes needs no daemon
        return row.open_bytes == ((folder / str(names[-1])).stat().st_size if names else 0)
    return False


def _adopt_size(home: Home, row: StreamRow) -> None:
    """What is stored of a stream that a compaction may have been at."""
    with home.changing(row.session):
        fresh, meta = home.catalog.stream(row.stream), home.store.meta(row.stream)
        if fresh is None or meta is None or fresh.stored_bytes == (size := stored_bytes(home, meta)):
            return
        with home.catalog.transaction():
            home.catalog.put(changed(fresh, stored_bytes=size))
            refresh(home, row.session)


def _adopt_wishes(home: Home, row: SessionRow) -> None:
    with home.changing(row.key):
        manifest = find_manifest(home, row.source, row.key, row.host)
        if manifest is not None and manifest.tombstone is not None:
            expire.resume(home, row, manifest)
        elif manifest is not None:  # an archive that is not mounted says nothing
            take_wishes(home, row.key, manifest)


def _tidy_below(folder: Path, before_ms: int) -> int:
    count = 0
    for path in durable.files_below(folder, TEMP_PREFIX):
        if path.name.startswith(RESTORE_TEMP_PREFIX):  # its mtime says nothing: see placing.tidy
            continue
        with contextlib.suppress(FileNotFoundError):
            if path.is_file() and path.stat().st_mtime_ns // 1_000_000 < before_ms:
                durable.remove(path)
                count += 1
    return count
