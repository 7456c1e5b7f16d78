"""One coldtrail home, opened: what every stage works on."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Self

from coldtrail import durable
from coldtrail.agents.base import Agent
from coldtrail.archive.base import Archive
from coldtrail.archive.local import LocalArchive
from coldtrail.catalog import Catalog
from coldtrail.errors import ColdtrailError
from coldtrail.format.frames import Work
from coldtrail.format.manifest import StreamMeta
from coldtrail.layout import Layout, check_id
from coldtrail.plain import Plain
from coldtrail.store import Store


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
        durable.make_folder(layout.home)
        work = Work()
        archive = LocalArchive(layout.archive, work)
        return cls(layout, archive, Store(layout), Catalog(layout.catalog), host_id(layout), agents, now_ms, work)

    def close(self) -> None:
        """Let the catalog go."""
        self.catalog.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

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

    def changing(self, session: str) -> contextlib.AbstractContextManager[None]:
        """Hold the lock of a session: whoever changes its files does."""
        return durable.locked(self.layout.session_lock(session))


def host_id(layout: Layout) -> str:
    """This machine's name in the archive: read, or made once."""
    try:
        return check_id(layout.host_id.read_text("ascii").strip())
    except ValueError as error:
        raise ColdtrailError(
            f"{layout.host_id}: not a host id", hint="put back the name of the folder in the archive that is this machine's"
        ) from error
    except FileNotFoundError:
        with durable.unfinished(layout.host_id) as (fd, temp):
            durable.write_all(fd, new_id().encode() + b"\n", temp)
            durable.sync_fd(fd, temp)
            with contextlib.suppress(FileExistsError):  # another process was first: its name holds
                durable.publish(temp, layout.host_id)
        layout.host_id.with_name(temp.name).unlink(missing_ok=True)
        return host_id(layout)
