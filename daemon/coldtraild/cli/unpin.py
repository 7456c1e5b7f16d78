"""`coldtrail unpin`: what `pin` did is lifted."""

from __future__ import annotations

import click

from coldtraild.cli.asked import Asked, epilog, pass_asked, some_ids
from coldtraild.cli.pin import EXITS, set_pins


@click.command("unpin", epilog=epilog("coldtrail unpin ae3d54a6", exits=EXITS))
@some_ids
@pass_asked
def command(asked: Asked, names: tuple[str, ...]) -> int:
    """Let retention treat these sessions like any other.

    Prints a line for each.
    """
    return set_pins(asked, names, pinned=False)
