"""`coldtrail resume`: the end of a pause."""

from __future__ import annotations

import click

from coldtraild.cli import say
from coldtraild.cli.asked import Asked, as_json, epilog, pass_asked
from coldtraild.control import ask


@click.command("resume", epilog=epilog("coldtrail resume", exits={0: "done, or there was no pause", 3: "no daemon runs here"}))
@as_json
@pass_asked
def command(asked: Asked, *, as_json: bool) -> None:
    """Have the daemon go on with what `coldtrail pause` has stopped, at once; what was written meanwhile is captured first."""
    was_paused = bool(ask(asked.settings().layout.control, {"verb": "resume"})["was_paused"])
    if as_json:
        say.document({"was_paused": was_paused})
    else:
        click.echo("the work goes on" if was_paused else "nothing was paused")
