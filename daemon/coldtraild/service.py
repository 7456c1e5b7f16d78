"""One run on one home: it is held by a lock, says what it will do, and then makes one pass or becomes the daemon."""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from coldtrail import durable
from coldtrail.client import Settings, now_ms, open_home
from coldtrail.errors import LockedError
from coldtrail.stage.scan import Scanner, Tally
from coldtraild import jobs
from coldtraild.log import NAME, setup

_LOCK_TRIES = 3
_LOCK_WAIT_S = 0.1

log = logging.getLogger(NAME)


def run(found: Settings, *, once: bool, verbose: bool) -> int:
    """Run the daemon in the foreground until SIGTERM or SIGINT, or make one full pass; gives the exit code.

    LockedError where another one runs on this home.
    """
    setup(sys.stderr, json=not sys.stderr.isatty() and "JOURNAL_STREAM" in os.environ, verbose=verbose)
    with _only_one(found):
        _introduce(found)
        if once:
            return _once(found)
        from coldtraild.daemon import Daemon  # noqa: PLC0415 - one pass does without the packages that this loads

        return Daemon(found, Told().progress).run()


@contextmanager
def _only_one(found: Settings) -> Iterator[None]:
    """Hold the home's lock, or say who does."""
    with ExitStack() as held:
        for left in reversed(range(_LOCK_TRIES)):  # `coldtrail status` takes it for a moment, to see whether it is free
            try:
                held.enter_context(durable.locked(found.layout.daemon_lock, wait=False, note=f"{os.getpid()}\n".encode()))
                break
            except LockedError as error:
                if not left:
                    hint = "`coldtrail status` tells; one daemon a home is enough"
                    raise LockedError(f"{found.layout.home}: another coldtrail is at work here", hint=hint) from error
                time.sleep(_LOCK_WAIT_S)
        yield


def _introduce(found: Settings) -> None:
    """What is watched, and where it goes."""
    log.info("keeping sessions in %(home)s", {"home": found.layout.home})
    if found.config.archive.folder is not None:
        log.info("sealed segments rest in %(archive)s", {"archive": found.layout.archive})
    log.info("config: %(file)s", {"file": found.config_file or "none, the defaults hold"})
    there = [source for source in found.sources if source.root.is_dir()]
    for source in there:
        log.info("source %(name)s: %(agent)s in %(root)s", {"name": source.name, "agent": source.agent.name, "root": source.root})
    for source in found.sources:
        if source not in there:
            log.info("looking out for %(name)s: %(root)s is not there yet", {"name": source.name, "root": source.root})
    if not there:
        log.warning("no agent was found on this machine: run one, or name a folder with [[source]] in the config")


def _once(found: Settings) -> int:
    """One full pass: capture everything there is, then compact what is due."""
    with open_home(found) as home:
        jobs.prepare(home)
        tally = Scanner(home, Told().progress, faults=(Exception,)).scan(found.sources, whole=True)
        jobs.checkpoint(home, found, lambda: False)
        done = jobs.compact(home, found, lambda: False)
        _sum_up(tally, done)
        for fault in home.catalog.faults():
            log.warning("%(place)s: %(what)s (%(hint)s)", {"place": os.fsdecode(fault.place), "what": fault.what, "hint": fault.hint})
        return 1 if tally.failed or done.failed else 0


def _sum_up(tally: Tally, done: jobs.Compaction) -> None:
    log.info(
        "looked at %(found)d files: captured %(bytes)d bytes of %(files)d; %(gone)d gone, %(failed)d failed",
        {"found": tally.found, "bytes": tally.new_bytes, "files": tally.captured, "gone": tally.gone, "failed": tally.failed},
    )
    log.info(
        "compacted %(bytes)d bytes of %(streams)d streams into %(segments)d segments",
        {"bytes": done.plain_bytes, "streams": done.streams, "segments": done.segments},
    )


class Told:
    """Says every two seconds how far a pass is."""

    def __init__(self) -> None:
        self._told_ms = now_ms()

    def progress(self, tally: Tally) -> None:
        """Called after each file."""
        if now_ms() - self._told_ms >= jobs.TOLD_EVERY_MS:
            self._told_ms = now_ms()
            log.info(
                "%(done)d of %(all)d files looked at, %(bytes)d bytes captured",
                {"done": tally.looked, "all": tally.found, "bytes": tally.new_bytes},
            )
