"""`coldtrail events`: what happened in a session."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator
from dataclasses import dataclass

import click

from coldtrail import Event, EventType, Gap, Session, UsageError
from coldtrail.format import lines
from coldtrail.model import Elsewhere, Relation, instant_text
from coldtrail.tail import TAKEN_BACK
from coldtraild.cli import say
from coldtraild.cli.asked import Asked, as_json, epilog, one_id, pass_asked
from coldtraild.cli.ending import PIPE_CLOSED
from coldtraild.cli.gist import gist
from coldtraild.cli.table import cut

_EXITS = {
    0: "every event asked for was read",
    1: "some bytes of our copy could not be read; what is intact was printed",
    2: "a moment, or a type, that there is not",
    3: "no such session, stream, position or id, or several",
    5: "not all is told: the agent has made its file again and that is not captured yet, or the session goes on in another one",
}

_BEGUN = {
    Relation.CONTINUES: "the agent made the log again, and goes on with it",
    Relation.REPLACES: "the log was rewritten, cut or exchanged",
    Relation.RESTORED: "the log was put back",
}


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which events of which stream."""

    types: tuple[str, ...]
    since: str | None
    until: str | None
    after: str | None
    limit: int | None
    stream: str | None

    @property
    def is_everything(self) -> bool:
        """Whether the whole of a stream is."""
        return not self.types and (self.since, self.until, self.after, self.limit) == (None, None, None, None)


@click.command(
    "events",
    epilog=epilog(
        "coldtrail events ae3d54a6 --type tool_completed --since 2h",
        "coldtrail events ae3d54a6 --after 0:1200.0 --limit 20 --json",
        "coldtrail events ae3d54a6 --raw > copy.jsonl",
        "coldtrail events ae3d54a6 --follow --type tool_completed",
        exits=_EXITS,
    ),
)
@one_id
@click.option(
    "--type",
    "types",
    metavar="TYPE",
    multiple=True,
    type=click.Choice([each.value for each in EventType]),
    help=f"Only this type; can be said more than once. One of {', '.join(EventType)}.",
)
@click.option("--since", metavar="WHEN", help="Not before this moment.")
@click.option("--until", metavar="WHEN", help="Not after this moment.")
@click.option("--after", metavar="WHERE", help="Only what comes behind this position or the agent's id.")
@click.option("--limit", metavar="N", type=click.IntRange(min=1), help="At most so many events; with --raw, records.")
@click.option(
    "--stream", metavar="STREAM", help="Another file of the session than its main log: its stream's id, path or name, as `show` tells it."
)
@click.option(
    "--follow", is_flag=True, help="Then go on with what is written, until Ctrl-C; with --json, one object a line, each printed at once."
)
@click.option("--raw", is_flag=True, help="The records' own bytes, damaged ones too; without any choice, the whole log byte for byte.")
@as_json
@pass_asked
def command(asked: Asked, name: str, *, follow: bool, raw: bool, as_json: bool, **wanted: object) -> int:
    """Print what happened in a session.

    A line for each event, in the order of the log: its position, its local time, its type, and how it begins. What is sealed,
    what was captured since, and what the agent has written since then are read as one.

    WHEN is a time (2026-01-31T12:00Z, or a date), a span back (2h, 3d), a position, the agent's id of a record, or #N for the Nth
    record; inclusive.

    With --follow a log that its agent makes again, or rewrites, goes on in its next generation: positions begin with its number.
    """
    if raw and as_json:
        raise UsageError("--raw and --json: one at a time")
    chosen = Wanted(**wanted)  # type: ignore[arg-type]  # click's parameters are named as its fields are
    if follow and (raw or chosen.until is not None):
        raise UsageError("--follow has no end, and prints events: neither --until nor --raw goes with it")
    with asked.trail() as trail:
        session = trail.session(name)
        if follow:
            return _follow(session, chosen, as_json=as_json)
        if raw:
            _print_raw(session, chosen)
        elif as_json:
            say.document_of_many(_head(session), "events", map(_document, _events(session, chosen)), lambda: _tail(session))
        else:
            _print_lines(session, chosen)
    return _told(session.gaps)


def _events(session: Session, wanted: Wanted) -> Iterator[Event]:
    return session.events(
        types=wanted.types, since=wanted.since, until=wanted.until, after=wanted.after, stream=wanted.stream, limit=wanted.limit
    )


def _print_lines(session: Session, wanted: Wanted) -> None:
    for event in _events(session, wanted):
        _print_line(event, say.width())


def _print_line(event: Event, wide: int | None) -> None:
    text = f"{event.position!s:<12}  {say.local(event.time_ms):<19}  {event.type.value:<19}  {say.printable(gist(event))}"
    sys.stdout.write((text if wide is None else cut(text, wide)).rstrip() + "\n")


def _follow(session: Session, wanted: Wanted, *, as_json: bool) -> int:
    """Print what there is and what comes; ends by a signal, with the limit, or when nobody reads any more."""
    told, generation = 0, None

    def pause() -> bool:
        nonlocal told
        _told(session.gaps[told:])
        told = len(session.gaps)
        sys.stdout.flush()
        return say.is_unread()

    events = session.follow(types=wanted.types, since=wanted.since, after=wanted.after, stream=wanted.stream, stop=pause)
    for event in itertools.islice(events, wanted.limit):
        if generation not in (None, event.position.generation):
            say.message(_begun(session, wanted.stream, event.position.generation))
        generation = event.position.generation
        if as_json:
            say.write(lines.dumps(_document(event)) + b"\n")
        else:
            _print_line(event, say.width())
    return PIPE_CLOSED if pause() else _damage(session.gaps)


def _begun(session: Session, stream: str | None, generation: int) -> str:
    with session.reader(stream) as reader:
        relation = reader.meta.generation(generation).relation
    how = _BEGUN[relation] if relation in _BEGUN else str(relation)
    return f"generation {generation} begins: {how}"


def _print_raw(session: Session, wanted: Wanted) -> None:
    for data in session.raw(wanted.stream) if wanted.is_everything else _raw_records(session, wanted):
        say.write(data)


def _raw_records(session: Session, wanted: Wanted) -> Iterator[bytes]:
    records = session.records(types=wanted.types, since=wanted.since, until=wanted.until, after=wanted.after, stream=wanted.stream)
    return (placed.raw for placed in itertools.islice(records, wanted.limit))


def _head(session: Session) -> dict[str, object]:
    return {"key": session.key, "id": session.id}


def _document(event: Event) -> dict[str, object]:
    return {
        "position": str(event.position),
        "type": event.type.value,
        "time": instant_text(event.time_ms),
        "id": event.id,
        "data": dict(event.data),
    }


def _tail(session: Session) -> dict[str, object]:
    gaps = dict.fromkeys(session.gaps)
    return {"gaps": [{"generation": gap.generation, "start": gap.start, "end": gap.end, "what": gap.what} for gap in gaps]}


def _told(gaps: list[Gap]) -> int:
    for gap in dict.fromkeys(gaps):  # a range may be met for the index and for the record
        where = f"bytes {gap.start} to {gap.end} of generation {gap.generation} cannot be read: "
        hint = "run `coldtrail verify`" if _damage([gap]) == 1 else ""
        say.message(gap.what if isinstance(gap, Elsewhere) else where + gap.what, hint=hint)
    return _damage(gaps)


def _damage(gaps: list[Gap]) -> int:
    """1 where something of our copy is damaged, 5 where it only lacks the newest; what its agent took back is no failure of ours."""
    failures = [gap for gap in gaps if gap.what != TAKEN_BACK]
    late = all(isinstance(gap, Elsewhere) for gap in failures)
    return (5 if late else 1) if failures else 0
