"""One run on one home: it is held by a lock, says what it will do, and then makes one pass or becomes the daemon."""

from __future__ import annotations

import faulthandler
import logging
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace

from coldtrail import sweeps
from coldtrail.errors import LockedError, StoreFullError
from coldtrail.home import Home
from coldtrail.settings import Settings, alone, now_ms, open_home
from coldtrail.stage.scan import Scanner, Tally
from coldtraild import health, jobs, keeping, report
from coldtraild.log import NAME, setup
from coldtraild.runs import Runs

LOCK_PATIENCE_S = 5.0  # `follow` and `wait_captured` hold it while they capture, `status` for a moment; a daemon for good
_LOCK_WAIT_S = 0.05

log = logging.getLogger(NAME)


def run(found: Settings, *, once: bool, verbose: bool, reread: Callable[[], Settings] | None = None) -> int:
    """Run the daemon in the foreground until SIGTERM or SIGINT, or make one full pass; gives the exit code.

    `reread` finds the settings again, for a reload. LockedError where another one runs on this home.
    """
    for_people = sys.stderr.isatty() or (once and "JOURNAL_STREAM" not in found.env)
    setup(sys.stderr, json=not for_people, verbose=verbose)
    with only_one(found):
        _introduce(found)
        if once:
            return _once(found)
        from coldtraild.daemon import Daemon  # noqa: PLC0415 - one pass does without the packages that this loads

        faulthandler.enable()  # the watchdog ends a hang by SIGABRT: then each thread says where it is
        return Daemon(found, Told().progress, reread or (lambda: found)).run()


@contextmanager
def only_one(
    found: Settings, *, clock_s: Callable[[], float] = time.monotonic, sleep: Callable[[float], None] = time.sleep
) -> Iterator[None]:
    """Hold the home's lock; LockedError where somebody else has it for longer than LOCK_PATIENCE_S."""
    with ExitStack() as held:
        end_s = clock_s() + LOCK_PATIENCE_S
        while not _taken(found, held):
            if clock_s() >= end_s:
                hint = "`coldtrail status` tells whether it is a daemon; one a home is enough"
                raise LockedError(f"{found.layout.home}: another coldtrail is at work here", hint=hint)
            sleep(_LOCK_WAIT_S)
        yield


def _taken(found: Settings, held: ExitStack) -> bool:
    try:
        held.enter_context(alone(found))
    except LockedError:
        return False
    return True


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
    """One full pass: capture everything there is, then compact what is due, then remove what the config lets go."""
    with open_home(found) as home:
        jobs.prepare(home, found)
        tally = _captured(home, found)
        jobs.checkpoint(home, found, lambda: False)
        done = jobs.compact(home, found, lambda: False)
        _retain(home, found)
        keeping.reclaim(home, found, lambda: False)
        _write_down(home, found)
        _sum_up(tally, done)
        for fault in home.catalog.faults():
            log.warning("%(place)s: %(what)s (%(hint)s)", {"place": os.fsdecode(fault.place), "what": fault.what, "hint": fault.hint})
        return 1 if tally.failed or tally.unreadable or done.failed else 0


def _captured(home: Home, found: Settings) -> Tally:
    """Capture everything there is; on a full disk once more, when retention has let go what it may."""
    scanner = Scanner(home, Told().progress, faults=(Exception,))
    try:
        return scanner.scan(found.sources, whole=True)
    except StoreFullError as error:
        log.warning("%(what)s: what retention lets go goes first", {"what": error})
        _retain(home, found)
        return scanner.scan(found.sources, whole=True)


def _retain(home: Home, found: Settings) -> None:
    """A pass of retention, if the last one is a day ago."""
    runs, now = Runs(home.layout.schedule), home.now_ms()
    last = runs.last("retain")
    if last.success_ms is None or not 0 <= now - last.success_ms < keeping.RETAIN_EVERY_S * 1000:
        keeping.retain(home, found, lambda: False)
        runs.note("retain", replace(last, start_ms=now, success_ms=home.now_ms()))


def _write_down(home: Home, found: Settings) -> None:
    """For `status`: that everything was looked at, and when."""
    outlook = report.outlook(sweeps.look(home, found.sources), home.now_ms())
    with suppress(OSError, StoreFullError):
        health.write(home.layout.state, report.alone(home, found, outlook, mode="once", looked_ms=home.now_ms()))


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
