"""`coldtrail rebuild`: the catalog is made again from the files."""

from __future__ import annotations

from collections.abc import Iterable

import click

from coldtrail.client import open_home
from coldtrail.errors import ColdtrailError
from coldtrail.home import Home
from coldtrail.stage.rebuild import Difference, differences, rebuild
from coldtraild.cli import say
from coldtraild.cli.asked import Asked, as_json, epilog, pass_asked
from coldtraild.cli.ending import Ending
from coldtraild.cli.progress import progress

_EXITS = {0: "done; with --check: the catalog is what the files say", 1: "a file could not be read; with --check: or they differ"}


@click.command("rebuild", epilog=epilog("coldtrail rebuild", "coldtrail rebuild --check", exits=_EXITS))
@click.option("--check", is_flag=True, help="Change nothing; say where the catalog differs from what the files say.")
@as_json
@pass_asked
def command(asked: Asked, *, check: bool, as_json: bool) -> int:
    """Make the catalog again from archive and store alone; no session is lost by it, and a daemon may go on meanwhile.

    Prints how much there is, or with --check each difference: whose it is, the field, what the catalog says and what the files say.
    """
    found = asked.settings()
    with open_home(found) as home, progress("reading sessions", len(home.catalog.sessions())) as done:
        count = iter(range(1, 1 << 62))
        if check:
            wrong, errors = differences(home, lambda _session: done(next(count)))
        else:
            wrong, errors = [], rebuild(home, lambda _session: done(next(count)))
        sums = {"sessions": len(home.catalog.sessions()), "streams": len(home.catalog.stream_ids())}
    ending = Ending()
    for error in errors:
        with ending.go_on(""):
            raise error
    if wrong:
        ending.note(1)
    if as_json:
        say.document({**sums, "differences": [_document(each) for each in wrong], "errors": ending.errors})
    else:
        _print(sums, wrong, check=check)
    return ending.code
