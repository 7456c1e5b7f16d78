"""`coldtrail pause`: the daemon lets the disk, the processor and all files alone for a while."""

from __future__ import annotations

import click

from coldtrail.errors import UsageError
from coldtrail.units import parse_span
from coldtraild.cli import say
from coldtraild.cli.asked import Asked, as_json, epilog, pass_asked
from coldtraild.cli.status import told
from coldtraild.control import ask

_EXITS = {0: "done", 2: "a span that is none, or over a year", 3: "no daemon runs here"}


@click.command("pause", epilog=epilog("coldtrail pause --for 2h", "coldtrail pause --capture --for 10m", exits=_EXITS))
@click.option("--for", "span", metavar="SPAN", help="Go on by itself after so long; else at `coldtrail resume`.")
@click.option("--capture", is_flag=True, help="Capture nothing either. What an agent deletes meanwhile is lost.")
@as_json
@pass_asked
def command(asked: Asked, span: str | None, *, capture: bool, as_json: bool) -> None:
    """Have the daemon stop its work: compaction, checkpoints, retention, reclaim and drills. Capture goes on, unless --capture is said.

    What is under way stops at its next step. A pause outlives a restart, and `status` ends with 1 while it lasts.
    """
    try:
        for_ms = None if span is None else parse_span(span)
    except ValueError as error:
        raise UsageError(f"--for: {error}") from error
    answer = ask(asked.settings().layout.control, {"verb": "pause", "for_ms": for_ms, "capture": capture})
    if as_json:
        say.document({"paused": told(answer["paused"])})
    else:
        what = "everything, capture too," if capture else "all work but capture"
        click.echo(f"paused: {what} for {span}" if span else f"paused: {what} until `coldtrail resume`")
