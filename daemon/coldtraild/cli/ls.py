"""`coldtrail ls`: the sessions that are kept."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from itertools import islice
from pathlib import Path

import click

from coldtrail import Session
from coldtrail.agents import agent as agent_named
from coldtrail.client import now_ms
from coldtraild.cli import say
from coldtraild.cli.asked import Asked, as_json, epilog, pass_asked
from coldtraild.cli.table import Column, table

_KEY_CHARS = 8
_KEY = 16


@click.command("ls", epilog=epilog("coldtrail ls", "coldtrail ls --agent codex --state gone", "coldtrail ls --project '~/work/*' --json"))
@click.option("--agent", metavar="NAME", help="Only this agent's, such as claude-code.")
@click.option("--state", type=click.Choice(["live", "gone"]), help="Only those whose log the agent still has, or has no longer.")
@click.option("--project", metavar="GLOB", help="Only those whose project's folder fits; without a slash: whose folder's name does.")
@click.option("--limit", metavar="N", type=click.IntRange(min=1), help="At most so many.")
@as_json
@pass_asked
def command(asked: Asked, agent: str | None, state: str | None, project: str | None, limit: int | None, *, as_json: bool) -> None:
    """List the sessions, the latest first.

    Prints a line for each: the beginning of its key that is enough to name it, its title, its project, its agent, its last
    activity as its own records tell, its size, and whether the agent still has its log.
    """
    if agent is not None:
        agent_named(agent)  # a name that no agent has is an error, not an empty list
    with asked.trail() as trail:
        everything = list(trail.sessions())
    chosen = list(islice((session for session in everything if _is_wanted(session, agent, state, project)), limit))
    if as_json:
        say.document({"sessions": [session.to_json() for session in chosen]})
    elif chosen:
        click.echo(_listed(chosen, _enough(everything)))
    elif everything:
        say.message("no session fits")
    else:
        say.message("nothing is kept yet", hint="`coldtrail run --once` captures what there is")


def _is_wanted(session: Session, agent: str | None, state: str | None, project: str | None) -> bool:
    return agent in (None, session.agent) and state in (None, session.state) and (project is None or _fits(session.project, project))


def _fits(project: str | None, glob: str) -> bool:
    if glob == "~" or glob.startswith("~/"):
        glob = str(Path.home()) + glob[1:]
    return project is not None and fnmatchcase(project if "/" in glob else Path(project).name, glob)


def _enough(sessions: Sequence[Session]) -> int:
    """How many characters of a key name its session alone, be it by key or by the agent's id."""
    for length in range(_KEY_CHARS, _KEY):
        named = {session.key[:length]: session for session in sessions}
        if len(named) == len(sessions) and all(named.get(session.id[:length], session) is session for session in sessions):
            return length
    return _KEY


def _listed(sessions: Sequence[Session], key_chars: int) -> str:
    columns = [
        Column("KEY"),
        Column("TITLE", least=12),
        Column("PROJECT", least=8),
        Column("AGENT", least=5),
        Column("LAST ACTIVITY", least=10),
        Column("SIZE", right=True),
        Column("STATE"),
    ]
    clock_ms = now_ms()
    rows = [_row(session, key_chars, clock_ms) for session in sessions]
    if any(session.row.damaged for session in sessions):
        columns.append(Column("DAMAGED", right=True))
        rows = [[*row, str(session.row.damaged or "")] for row, session in zip(rows, sessions, strict=True)]
    return table(columns, rows, width=say.width(), bold=say.in_colour())


def _row(session: Session, key_chars: int, clock_ms: int) -> list[str]:
    return [
        session.key[:key_chars],
        say.printable(session.title or "-"),
        say.folder(session.project),
        session.agent,
        say.ago(session.row.last_ms, clock_ms),
        say.size(session.row.bytes),
        session.state + (", pinned" if session.row.pinned else ""),
    ]
