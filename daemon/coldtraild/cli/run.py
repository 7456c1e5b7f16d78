"""`coldtrail run`: the daemon in the foreground, or one pass."""

from __future__ import annotations

import click

from coldtrail import UsageError
from coldtraild.cli.asked import Asked, epilog, pass_asked

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
@pass_asked
def command(asked: Asked, *, once: bool, verbose: bool) -> int:
    """Capture what the agents write, until it is stopped.

    What has gone cold is compacted. Logs to stderr what is watched and what was done; never any text of a session. The first
    start takes everything that is there already. Ctrl-C or SIGTERM stops it, and loses nothing.
    """
    try:
        from coldtraild.service import run

        return run(asked.settings(), once=once, verbose=verbose)
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in _EXTRA:
            raise
        raise UsageError(
            f"the package {package} is missing, and without it only `coldtrail run --once` works",
            hint="pip install 'coldtrail[daemon]'",
        ) from error
