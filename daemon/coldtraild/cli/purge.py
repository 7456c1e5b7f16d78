"""`coldtrail purge`: remove a session from everything that is ours."""

from __future__ import annotations

import click

from coldtrail import Trail
from coldtrail.errors import ColdtrailError, RefusedError
from coldtrail.stage.purge import Purged, forget, needed_by, purge
from coldtraild.cli import say
from coldtraild.cli.asked import Asked, as_json, epilog, one_id, pass_asked

_EXITS = {
    0: "done, and proven",
    1: "some of it is still found: see the message",
    3: "no such session, or several",
    4: "refused: nothing was done",
}


@click.command("purge", epilog=epilog("coldtrail purge ae3d54a6 --yes", "coldtrail purge ae3d54a6 --yes --live", exits=_EXITS))
@one_id
@click.option("--yes", is_flag=True, help="Do it; without, what would go is shown and nothing else.")
@click.option("--live", is_flag=True, help="Remove the agent's own files of it too.")
@click.option("--force", is_flag=True, help="Even one that others go on from, or that another machine has captured.")
@click.option("--forget", "forgets", is_flag=True, help="Of a purged session (ID: its key): let it be captured again.")
@as_json
@pass_asked
def command(asked: Asked, name: str, *, yes: bool, live: bool, force: bool, forgets: bool, as_json: bool) -> None:
    """Remove a session everywhere we keep it, at once and for good.

    Segments, index, checkpoints, manifest, catalog: everything; then all files that are left are searched for its text, and the
    result is said. What stays is a note by which its file is known, so that it is not captured again. There is no grace, and
    no way back but the agent's own file, which stays unless --live is given.
    """
    with asked.trail() as trail:
        if forgets:
            forget(trail.home, name)
            say.message(f"{name}: it may be captured again")
            return
        session = trail.session(name)
        if not yes:
            _show(trail, session.key, live=live)
            raise RefusedError("nothing was done", hint="say --yes to remove it for good")
        done = purge(trail.home, session.row, "asked for", live=live, force=force)
    if as_json:
        say.document(_document(session.key, done))
    else:
        click.echo(f"purged  {session.key}  {say.size(done.freed)} freed")
        for path in done.live:
            click.echo(f"removed {say.printable(str(path))}")
        click.echo(
            f"searched {say.counted(done.scanned_files, 'file')}, {say.size(done.scanned_bytes)}: nothing of it was found"
            * (not done.found_in)
        )
    if not done.scrubbed:
        what = f"others are reading {asked.settings().layout.catalog}, or its disk is full: what is gone may be read from that file yet"
        raise ColdtrailError(what, hint="`coldtrail prune --yes` and the daemon's next start make an end of it")
    if done.found_in:
        raise ColdtrailError(
            f"its text is still in {', '.join(map(str, done.found_in))}", hint="see what these files are, and remove them by hand"
        )


def _show(trail: Trail, key: str, *, live: bool) -> None:
    session = trail.session(key)
    click.echo(f"{session.key}  {say.printable(session.title or '-')}  {say.size(session.row.stored_bytes)} kept")
    for other in needed_by(trail.home, session.row):
        click.echo(f"needed  by {other.key}  {say.printable(other.title or '-')}, which goes on from it")
    if live:
        for row in trail.home.catalog.streams_of(key):
            if row.gone_ms is None:
                click.echo(f"live    {say.printable(row.path.decode('utf-8', 'replace'))}")


def _document(key: str, done: Purged) -> dict[str, object]:
    return {
        "key": key,
        "freed": done.freed,
        "removed": [str(path) for path in done.live],
        "searched": {"files": done.scanned_files, "bytes": done.scanned_bytes},
        "scrubbed": done.scrubbed,
        "found_in": [str(path) for path in done.found_in],
    }
