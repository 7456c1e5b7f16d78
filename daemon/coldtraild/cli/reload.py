"""`coldtrail reload`: the daemon reads its config again."""

from __future__ import annotations

from typing import Any

import click

from coldtraild.cli import say
from coldtraild.cli.asked import Asked, as_json, epilog, pass_asked
from coldtraild.control import ask

_EXITS = {0: "the new config holds", 2: "it is wrong, or wants a restart; the old one goes on to hold", 3: "no daemon runs here"}


@click.command("reload", epilog=epilog("coldtrail reload", exits=_EXITS))
@as_json
@pass_asked
def command(asked: Asked, *, as_json: bool) -> None:
    """Have the daemon read its config again, as SIGHUP does: sources come and go without a restart.

    A config that is wrong is refused by file, line and key, and `status` shows it until a good one is read. Another home or
    archive needs a restart.
    """
    answer: dict[str, Any] = ask(asked.settings().layout.control, {"verb": "reload"}, timeout_s=60.0)
    if as_json:
        say.document({name: answer[name] for name in ("config", "added", "removed")})
        return
    click.echo(f"config: {say.folder(answer['config']) if answer['config'] else 'none, the defaults hold'}")
    for word in ("added", "removed"):
        for name in answer[word]:
            click.echo(f"{word}: {say.printable(name)}")
