"""`coldtrail journal`: what was done to which session, and why."""

from __future__ import annotations

from collections import deque

import click

from coldtrail.errors import UsageError
from coldtrail.journal import Act, Entry
from coldtrail.moments import Instant, read_moment
from coldtrail.settings import now_ms
from coldtraild.cli import say
from coldtraild.cli.asked import Asked, as_json, epilog, pass_asked


@click.command(
    "journal",
    epilog=epilog("coldtrail journal", "coldtrail journal --act expired --since 30d", "coldtrail journal --session ae3d54a6 --json"),
)
@click.option("--session", "name", metavar="ID", help="Only of one session: the beginning of its key, or of the agent's id.")
@click.option("--act", type=click.Choice([each.value for each in Act]), help="Only this.")
@click.option("--since", metavar="WHEN", help="Only from then on: a time, or a span back such as 30d.")
@click.option("--limit", metavar="N", type=click.IntRange(min=1), help="Only the last N.")
@as_json
@pass_asked
def command(asked: Asked, name: str | None, act: str | None, since: str | None, limit: int | None, *, as_json: bool) -> None:
    """Show what was done to which session, and why, the oldest first.

    Everything that retention, restore, reclaim and purge have done stands here, of sessions too that are not kept any more: ids,
    times, reasons and sizes, and no text of any session.
    """
    since_ms = None if since is None else _instant_ms(since)
    with asked.trail() as trail:
        journal = trail.home.journal
        wanted = (
            entry
            for entry in journal.read()
            if act in (None, entry.act.value)
            and (since_ms is None or entry.at_ms >= since_ms)
            and (name is None or entry.session.startswith(name) or entry.id.startswith(name))
        )
        entries = list(wanted if limit is None else deque(wanted, limit))
    if journal.damaged:
        say.message(
            f"{say.counted(journal.damaged, 'line')} of {trail.settings.layout.journal} cannot be read and stand for themselves alone"
        )
    if as_json:
        say.document({"entries": [entry.to_json() for entry in entries], "damaged": journal.damaged})
        return
    for entry in entries:
        click.echo(_line(entry))
    if not entries:
        say.message("nothing of that kind was done")


def _line(entry: Entry) -> str:
    freed = f"  {say.size(entry.freed)}" if entry.freed else ""
    who = f"{entry.session or '-':<16}  {say.printable(entry.id or '-')}"
    return f"{say.local(entry.at_ms)}  {entry.act.value:<9}  {who}  {say.printable(entry.reason)}{freed}"


def _instant_ms(since: str) -> int:
    found = read_moment(since, now_ms())
    if not isinstance(found, Instant):
        raise UsageError(f"{since}: not a time", hint="give a time (2026-01-31T12:00Z) or a span back (30d)")
    return found.ms
