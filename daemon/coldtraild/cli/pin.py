"""`coldtrail pin`: sessions that retention may never touch."""

from __future__ import annotations

import click

from coldtraild.cli import say
from coldtraild.cli.asked import Asked, epilog, pass_asked, some_ids
from coldtraild.cli.ending import Ending

EXITS = {0: "done, now or before", 3: "no such session, or several"}


@click.command("pin", epilog=epilog("coldtrail pin ae3d54a6", exits=EXITS))
@some_ids
@pass_asked
def command(asked: Asked, names: tuple[str, ...]) -> int:
    """Never let retention touch these sessions.

    Prints a line for each. The pin stands in the session's manifest, so it outlives the catalog. Nothing expires yet in this
    version: a pin holds as soon as it does.
    """
    return set_pins(asked, names, pinned=True)


def set_pins(asked: Asked, names: tuple[str, ...], *, pinned: bool) -> int:
    """Pin sessions, or lift their pins; gives the exit code."""
    ending = Ending()
    with asked.trail() as trail:
        for name in names:
            with ending.go_on(name):
                session = trail.session(name)
                session.pin(pinned=pinned)
                click.echo(f"{'pinned' if pinned else 'unpinned'}  {session.key}  {say.printable(session.title or '-')}")
    return ending.code
