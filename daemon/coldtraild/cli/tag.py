"""`coldtrail tag`: words by which retention's rules know sessions."""

from __future__ import annotations

import click

from coldtrail.errors import UsageError
from coldtraild.cli import say
from coldtraild.cli.asked import Asked, epilog, pass_asked
from coldtraild.cli.ending import Ending

_EXITS = {0: "done, now or before", 3: "no such session, or several"}


@click.command("tag", epilog=epilog("coldtrail tag ae3d54a6 --add release", "coldtrail tag ae3d54a6 --remove release", exits=_EXITS))
@click.argument("names", metavar="ID...", nargs=-1, required=True)
@click.option("--add", "added", metavar="TAG", multiple=True, help="Give this tag; may be said several times.")
@click.option("--remove", "removed", metavar="TAG", multiple=True, help="Take this tag away; may be said several times.")
@pass_asked
def command(asked: Asked, names: tuple[str, ...], added: tuple[str, ...], removed: tuple[str, ...]) -> int:
    """Give tags to sessions, or take them away; with neither, show them.

    A rule of [retention] may be about a tag. Tags stand in the session's manifest, so they outlive the catalog.
    """
    for tag in (*added, *removed):
        if not tag.strip() or not tag.isprintable():
            raise UsageError(f"not a tag: {tag!r}", hint="a tag is a printable text")
    ending = Ending()
    with asked.trail() as trail:
        for name in names:
            with ending.go_on(name):
                session = trail.session(name)
                if added or removed:
                    session.tag(add=added, remove=removed)
                click.echo(f"{session.key}  {say.printable(session.title or '-')}  [{', '.join(map(say.printable, session.tags))}]")
    return ending.code
