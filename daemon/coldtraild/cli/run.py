"""`coldtrail run`: the daemon in the foreground, or one pass."""

from __future__ import annotations

import gc

import click

from coldtrail import UsageError
from coldtraild.cli.asked import Asked, epilog, pass_asked
from coldtraild.cli.ending import tell
from coldtraild.cli.say import message

_OBJECTS = 50_000  # made before the collector looks: a daemon lives for long, and a scan makes many
_EXTRA = frozenset({"apscheduler", "watchdog"})
_EXITS = {
    0: "it was asked to stop; with --once: the pass is done",
    1: "a file could not be captured, sealed or written",
    2: "usage or config error",
    4: "another coldtrail is at work on this home",
}


@click.command("run", epilog=epilog("coldtrail run", "coldtrail run --once", exits=_EXITS))
@click.option("--once", is_flag=True, help="One full pass over every source and everything that is due, then exit.")
@click.option("--verbose", "-v", is_flag=True, help="Tell more of what is done.")
@click.option("--supervised", is_flag=True, help="End with a 2 or a 4 only after 10 minutes: for what restarts it whatever the code.")
@pass_asked
def command(asked: Asked, *, once: bool, verbose: bool, supervised: bool) -> int:
    """Capture what the agents write, until it is stopped.

    What has gone cold is compacted. Logs to stderr what is watched and what was done; never any text of a session. The first
    start takes everything that is there already. Ctrl-C or SIGTERM stops it, and loses nothing; SIGHUP has it read its config again
    (started from a terminal: that was closed, and it stops). Where stderr is no terminal the log is JSON, one object a line.
    """
    if not supervised:
        return _run(asked, once=once, verbose=verbose)
    from coldtraild.supervised import LASTING, WAIT_S, cut_log, wait_out

    cut_log(2)
    try:
        return _run(asked, once=once, verbose=verbose)
    except LASTING as error:
        code = tell(error)
        message(f"this does not mend itself: ending in {WAIT_S / 60:.0f} minutes, to be started again then")
        wait_out()
        return code


def _run(asked: Asked, *, once: bool, verbose: bool) -> int:
    gc.set_threshold(_OBJECTS)
    try:
        from coldtraild.service import run

        return run(asked.settings(), once=once, verbose=verbose, reread=asked.settings)
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in _EXTRA:
            raise
        raise UsageError(
            f"the package {package} is missing, and without it only `coldtrail run --once` works",
            hint="pip install 'coldtrail[daemon]'",
        ) from error
