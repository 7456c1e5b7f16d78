"""`coldtrail ls`: the sessions that are kept."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from itertools import islice
from pathlib import Path

import click

from coldtrail import sweeps
from coldtrail.agents import agent as agent_named
from coldtrail.catalog import SessionRow
from coldtrail.errors import UsageError
from coldtrail.model import instant_text
from coldtrail.sessions import as_json as session_json
from coldtrail.settings import find_sources, now_ms
from coldtrail.sweeps import Outlook
from coldtrail.units import parse_span
from coldtraild.cli import say
from coldtraild.cli.asked import Asked, as_json, epilog, pass_asked, whole_home
from coldtraild.cli.table import Column, table

NOBODY_ASKED = Outlook({}, ())
_KEY_CHARS = 8
_KEY = 16


_EXAMPLES = (
    "coldtrail ls",
    "coldtrail ls --agent codex --state gone",
    "coldtrail ls --project '~/work/*' --json",
    "coldtrail ls --expiring --within 14d",
)


@click.command("ls", epilog=epilog(*_EXAMPLES))
@click.option("--agent", metavar="NAME", help="Only this agent's, such as claude-code.")
@click.option(
    "--state",
    type=click.Choice(["live", "gone", "expiring"]),
    help="Only those whose log the agent still has, or has no longer, or which retention has marked to go from here.",
)
@click.option("--project", metavar="GLOB", help="Only those whose project's folder fits; without a slash: whose folder's name does.")
@click.option("--limit", metavar="N", type=click.IntRange(min=1), help="At most so many.")
@click.option("--expiring", is_flag=True, help="Only those whose log the agent itself will delete soon, the first one first.")
@click.option("--within", metavar="SPAN", help="How soon, with --expiring (7d).")
@as_json
@pass_asked
def command(
    asked: Asked,
    agent: str | None,
    state: str | None,
    project: str | None,
    limit: int | None,
    within: str | None,
    *,
    expiring: bool,
    as_json: bool,
) -> None:
    """List the sessions, the latest first.

    Prints a line for each: the beginning of its key that is enough to name it, its title, its project, its agent, its last
    activity as its own records tell, its size, and whether the agent still has its log. With --expiring: from when on the agent
    deletes that log, as its settings and the log tell, and whether coldtrail holds all of it.
    """
    if agent is not None:
        agent_named(agent)  # a name that no agent has is an error, not an empty list
    span_ms = _span_ms(within, expiring=expiring)
    found = asked.settings()
    with whole_home(found) as home:
        everything = home.catalog.sessions()
        outlook = sweeps.look(home, find_sources(found), everything) if as_json or expiring else NOBODY_ASKED
    ordered = _expiring(everything, outlook, span_ms) if expiring else everything
    chosen = list(islice((session for session in ordered if _is_wanted(session, agent, state, project)), limit))
    if as_json:
        say.document({"sessions": [listed(session, outlook) for session in chosen]})
    elif chosen:
        key_chars = _enough(everything)
        click.echo(_doomed(chosen, outlook, key_chars) if expiring else _listed(chosen, key_chars))
    elif expiring and everything:
        say.message(f"no agent deletes a log that is wanted here within {within or '7d'}")
    elif everything:
        say.message("no session fits")
    else:
        say.message("nothing is kept yet", hint="`coldtrail run --once` captures what there is")


def _span_ms(within: str | None, *, expiring: bool) -> int:
    if within is not None and not expiring:
        raise UsageError("--within is about --expiring")
    try:
        return parse_span(within or "7d")
    except ValueError as error:
        raise UsageError(f"--within: {error}") from error


def _expiring(sessions: Sequence[SessionRow], outlook: Outlook, span_ms: int) -> list[SessionRow]:
    by_key = {session.key: session for session in sessions}
    return [by_key[key] for key, _ in outlook.within(now_ms(), span_ms) if key in by_key]


def listed(row: SessionRow, outlook: Outlook) -> dict[str, object]:
    """A session as JSON shows it."""
    fate = outlook.fates.get(row.key)
    deletes_ms = None if fate is None else fate.deletes_ms
    return {**session_json(row), "agent_deletes": instant_text(deletes_ms), "kept": fate is not None and fate.kept}


def _doomed(sessions: Sequence[SessionRow], outlook: Outlook, key_chars: int) -> str:
    """What the agents will delete, and whether that matters."""
    names = (Column("KEY"), Column("TITLE", least=12), Column("PROJECT", least=8), Column("SIZE", right=True))
    rows = []
    for session in sessions:
        fate = outlook.fates[session.key]
        told = f"deleted by {session.agent} on {say.local(fate.deletes_ms)[:10]}, {'kept' if fate.kept else 'NOT KEPT'}"
        size = say.size(session.bytes)
        rows.append([session.key[:key_chars], say.printable(session.title or "-"), say.folder(session.project), size, told])
    return table([*names, Column("THE AGENT'S OWN FILE")], rows, width=say.width(), bold=say.in_colour())


def _is_wanted(row: SessionRow, agent: str | None, state: str | None, project: str | None) -> bool:
    return agent in (None, row.agent) and state in (None, row.state) and (project is None or _fits(row.project, project))


def _fits(project: str | None, glob: str) -> bool:
    if glob == "~" or glob.startswith("~/"):
        glob = str(Path.home()) + glob[1:]
    return project is not None and fnmatchcase(project if "/" in glob else Path(project).name, glob)


def _enough(sessions: Sequence[SessionRow]) -> int:
    """How many characters of a key name its session alone, be it by key or by the agent's id."""
    for length in range(_KEY_CHARS, _KEY):
        named = {session.key[:length]: session for session in sessions}
        if len(named) == len(sessions) and all(named.get(session.id[:length], session) is session for session in sessions):
            return length
    return _KEY


def _listed(sessions: Sequence[SessionRow], key_chars: int) -> str:
    columns = [
        Column("KEY"),
        Column("TITLE", least=12),
        Column("PROJECT", least=8),
        Column("AGENT", least=5),
        Column("LAST ACTIVITY", least=10),
        Column("SIZE", right=True),
        Column("STATE"),
    ]
    clock_ms, folders = now_ms(), {project: say.folder(project) for project in {session.project for session in sessions}}
    rows = [_row(session, key_chars, folders[session.project], clock_ms) for session in sessions]
    if any(session.damaged for session in sessions):
        columns.append(Column("DAMAGED", right=True))
        rows = [[*row, str(session.damaged or "")] for row, session in zip(rows, sessions, strict=True)]
    return table(columns, rows, width=say.width(), bold=say.in_colour())


def _row(row: SessionRow, key_chars: int, project: str, clock_ms: int) -> list[str]:
    return [
        row.key[:key_chars],
        say.printable(row.title or "-"),
        project,
        row.agent,
        say.ago(row.last_ms, clock_ms),
        say.size(row.bytes),
        row.state + (", pinned" if row.pinned else ""),
    ]
