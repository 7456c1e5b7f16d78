"""`coldtrail state`: what holds in a session at a moment."""

from __future__ import annotations

from collections.abc import Iterator

import click

from coldtrail import Recovered, UnverifiableError
from coldtrail.model import Elsewhere
from coldtraild.cli import say
from coldtraild.cli.asked import Asked, as_json, epilog, one_id, pass_asked
from coldtraild.cli.gist import content_gist

_EXITS = {
    0: "shown",
    1: "a whole replay gave another state than the checkpoint, or than the log itself names",
    3: "no such session or moment",
    5: "a range of the log could not be read, so not all is known",
}
_GAPS_TOLD = 3
_WHEN = "A time, a span back (2h), a position, an id, or #N (the Nth record)"


@click.command("state", epilog=epilog("coldtrail state ae3d54a6", "coldtrail state ae3d54a6 --at 2h --verify", exits=_EXITS))
@one_id
@click.option("--at", metavar="WHEN", help=f"{_WHEN}, inclusive; else the end.")
@click.option("--before", metavar="WHEN", help=f"{_WHEN}, exclusive.")
@click.option("--stream", metavar="S", help="A sub-agent's log, by stream id, path or file name; else the main log.")
@click.option("--verify", is_flag=True, help="Replay the whole log too, and compare.")
@as_json
@pass_asked
def command(asked: Asked, name: str, *, at: str | None, before: str | None, stream: str | None, verify: bool, as_json: bool) -> int:
    """Show the state of a session at a moment: conversation, tools, environment.

    Begins at the nearest checkpoint and replays the rest. A tool under "pending" was begun and not heard of since: what it was to
    do may have happened.
    """
    with asked.trail() as trail:
        session = trail.session(name)
        found = session.recover(at, before=before, verify=verify, stream=stream)
        if as_json:
            say.document(found.to_json())
        else:
            click.echo("\n".join(_lines(found, session.title or "")))
    if found.gaps:
        told = "; ".join(f"{gap.generation}:{gap.start} to {gap.end}, {gap.what}" for gap in found.gaps[:_GAPS_TOLD])
        hint = "" if all(isinstance(gap, Elsewhere) for gap in found.gaps) else "run `coldtrail verify`"
        raise UnverifiableError(f"{len(found.gaps)} ranges of the log could not be read: {told}", hint=hint)
    return 1 if found.recovery.verified is False else 0


def _lines(found: Recovered, title: str) -> Iterator[str]:
    state, messages = found.state, found.state.messages()  # first: where the log is damaged, what else is told changes with them
    began = f"checkpoint {found.checkpoint}" if found.checkpoint else "the start of the log"
    yield f"session     {found.key}  {say.printable(title)}"
    yield f"position    {found.position}  ({state.event_count} events)"
    yield f"recovered   from {began}, {found.replayed} records replayed"
    proof = {None: "", True: "  verified by a whole replay", False: "  NOT what a whole replay gives"}[found.recovery.verified]
    yield f"state hash  {found.state_hash}{proof}"
    for key, value in sorted(state.environment.items()):
        yield f"{say.printable(key):<11} {say.printable(str(value))}"
    yield f"tools       {state.completed.count} completed, {len(state.pending)} pending"
    for invocation, tool in state.pending.items():
        yield f"  pending   {say.printable(str(tool.tool_name))}  {say.printable(invocation)}"
    for note in found.recovery.notes:
        yield f"note        {say.printable(note)}"
    yield f"messages    {len(messages)}"
    for message in messages:
        yield f"  {say.printable(message.role):<9} {say.printable(content_gist(message.content))}"
