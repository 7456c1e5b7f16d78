"""One coldtrail home, opened: what every stage works on."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Self, TypeVar

from coldtrail import durable, reserve
from coldtrail.agents.base import Agent
from coldtrail.archive.base import Archive
from coldtrail.archive.local import LocalArchive
from coldtrail.catalog import Catalog
from coldtrail.errors import ColdtrailError
from coldtrail.format.frames import Work
from coldtrail.format.manifest import StreamMeta
from coldtrail.journal import Journal
from coldtrail.layout import Layout, check_id, is_id
from coldtrail.plain import Plain
from coldtrail.store import Store

_Made = TypeVar("_Made")


def new_id() -> str:
    """A fresh id of a stream or a session: 16 hex digits."""
    return secrets.token_hex(8)


@dataclass(frozen=True, slots=True)
class Home:
    """Layout, archive, store and catalog of one home, the agents known, and the clock. One thread's alone."""

    layout: Layout
    archive: Archive
    store: Store
    catalog: Catalog
    host: str
    agents: Mapping[str, Agent]
    now_ms: Callable[[], int]
    work: Work

    @classmethod
    def open(cls, layout: Layout, agents: Mapping[str, Agent], now_ms: Callable[[], int]) -> Self:
        """Open a home, making it where it is not there yet."""
        _make_home(layout)
        work = Work()
        archive, host = LocalArchive(layout.archive, work), host_id(layout)
        catalog = reserve.spend(layout, lambda: Catalog(layout.catalog))  # it needs some space even to be read
        return cls(layout, archive, Store(layout), catalog, host, agents, now_ms, work)

    def close(self) -> None:
        """Let the catalog go, and hold back the space it needed, if that was short."""
        self.catalog.close()
        reserve.refill(self.layout)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    @property
    def journal(self) -> Journal:
        """Where everything that is done to a session is noted."""
        return Journal(self.layout.journal, self.now_ms)

    def plain(self, meta: StreamMeta, generation: int) -> Plain:
        """The bytes of one of a stream's generations."""
        return self.plain_of(meta.source, meta.stream, generation, meta.host)

    def plain_of(self, source: str, stream: str, generation: int, host: str = "") -> Plain:
        """The same, for who has no meta.json at hand; `host` empty: this one."""
        key = self.layout.generation_key(host or self.host, source, stream, generation)
        return Plain(self.layout, self.archive, key, stream, generation, self.work)

    def newest_chain(self, meta: StreamMeta) -> tuple[int, ...]:
        """The generations to read a stream by, oldest first: the newest chain that holds bytes.

        A rewrite that was cut short, by a crash or a full disk, has begun a generation that holds none.
        """
        for generation in reversed(meta.generations):
            chain = tuple(each.number for each in meta.chain(generation.number))
            if any(self.plain(meta, number).end() for number in chain):
                return chain
        return tuple(each.number for each in meta.chain())

    def owes_rebuild(self) -> bool:
        """Whether the catalog knows nothing though there is something to know."""
        return self.catalog.is_empty() and (next(self.store.streams(), None) or next(self.archive.walk(), None)) is not None

    def spending(self, work: Callable[[], _Made]) -> _Made:
        """Do what removes, or keeps from being removed, with the reserve if the disk is full: see `reserve.spend`."""
        return reserve.spend(self.layout, work)

    def changing(self, session: str) -> contextlib.AbstractContextManager[None]:
        """Hold the lock of a session: whoever changes its files does."""
        return durable.locked(self.layout.session_lock(session))


def _make_home(layout: Layout) -> None:
    hint = "name another folder with --home, COLDTRAIL_HOME, or `home` in the config file"
    try:
        durable.make_folder(layout.home)
    except OSError as error:
        raise ColdtrailError(f"{layout.home}: cannot be made to keep sessions in: {error.strerror}", hint=hint) from error
    if not (layout.home.is_dir() and os.access(layout.home, os.R_OK | os.X_OK)):
        why = "may not be looked into" if layout.home.is_dir() else "is not a folder"
        raise ColdtrailError(f"{layout.home}: {why}, so that no sessions can be kept there", hint=hint)


def host_id(layout: Layout) -> str:
    """This machine's name in the archive: read, or found again where the file was lost, or made once.

    ColdtrailError where it is damaged, or lost, and what is kept does not tell it for certain.
    """
    try:
        return check_id(layout.host_id.read_text("ascii").strip())
    except FileNotFoundError:
        return _kept(layout, _host_of_what_is_kept(layout) or new_id())
    except ValueError as error:
        found = _host_of_what_is_kept(layout)
        if found is None:
            hint = "nothing kept here tells it: write the name of this machine's folder in the archive there; has it none, remove the file"
            raise ColdtrailError(f"{layout.host_id}: damaged: not a host id (16 hex digits)", hint=hint) from error
        durable.replace(layout.host_id, found.encode() + b"\n")
        return found


def _kept(layout: Layout, host: str) -> str:
    """The file is made, unless another process was first: then its name holds."""
    with durable.unfinished(layout.host_id) as (fd, temp):
        durable.write_all(fd, host.encode() + b"\n", temp)
        durable.sync_fd(fd, temp)
        with contextlib.suppress(FileExistsError):
            durable.publish(temp, layout.host_id)
    temp.unlink(missing_ok=True)
    return host_id(layout)


def _host_of_what_is_kept(layout: Layout) -> str | None:
    """Whose the streams in the store are, else whose the archive in our home is; None where nothing is kept.

    ColdtrailError where it is of several.
    """
    found = _hosts_of_store(layout)
    if not found and layout.archive.is_relative_to(layout.home):  # one that lies elsewhere may be another machine's
        found = _hosts_of_archive(layout)
    if len(found) > 1:
        raise ColdtrailError(
            f"{layout.host_id}: lost or damaged, and what is kept is of several hosts: {', '.join(sorted(found))}",
            hint="write the one of them into that file that is this machine's",
        )
    return next(iter(found), None)


def _hosts_of_store(layout: Layout) -> set[str]:
    store, found = Store(layout), set[str]()
    for stream in store.streams():
        with contextlib.suppress(ColdtrailError, ValueError):  # one that is damaged tells nothing
            meta = store.meta(stream)
            found |= set() if meta is None else {check_id(meta.host)}
    return found


def _hosts_of_archive(layout: Layout) -> set[str]:
    found = set[str]()
    with contextlib.suppress(FileNotFoundError), os.scandir(layout.archive) as entries:
        found = {entry.name for entry in entries if is_id(entry.name)}
    return found
