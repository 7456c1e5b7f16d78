"""`coldtrail rebuild`: the catalog is made again from the files."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator, Sequence

import click

from coldtrail.client import open_home
from coldtrail.stage.rebuild import Difference, differences, rebuild
from coldtraild.cli import say
from coldtraild.cli.asked import Asked, as_json, epilog, pass_asked
from coldtraild.cli.ending import Ending
from coldtraild.cli.progress import progress

_EXITS = {0: "done; with --check: the catalog is what the files say", 1: "a file could not be read; with --check: or they differ"}


@click.command("rebuild", epilog=epilog("coldtrail rebuild", "coldtrail rebuild --check", exits=_EXITS))
@click.option("--check", is_flag=True, help="Change nothing; say where the catalog differs from what the files say.")
@as_json
@pass_asked
def command(asked: Asked, *, check: bool, as_json: bool) -> int:
    """Make the catalog again from archive and store alone.

    Also beside a running daemon. Prints how much there is. With --check it prints each difference instead: the session, the
    stream where it is one's, the field, what the catalog says, and what the files say.
    """
    ending = Ending()
    with open_home(asked.settings()) as home:
        with progress("reading sessions", len(home.catalog.sessions())) as done:
            count = itertools.count(1)
            if check:
                wrong, errors = differences(home, lambda _session: done(next(count)))
            else:
                wrong, errors = [], rebuild(home, lambda _session: done(next(count)))
        sums = {"sessions": len(home.catalog.sessions()), "streams": len(home.catalog.stream_ids())}
    for error in errors:
        ending.fail(None, error)
    if wrong:
        ending.note(1)
    if as_json:
        say.document({**sums, "differences": [_document(each) for each in wrong], "errors": ending.errors})
    else:
        click.echo("\n".join(_difference_lines(wrong) if check else _lines(sums)))
    return ending.code


def _lines(sums: dict[str, int]) -> Iterator[str]:
    yield f"rebuilt: {say.counted(sums['sessions'], 'session')}, {say.counted(sums['streams'], 'stream')}"


def _difference_lines(wrong: Sequence[Difference]) -> Iterator[str]:
    for each in wrong:
        place = f"{each.session} {each.stream}".strip() + (f" {each.field}" if each.field else "")
        yield f"{place}: the catalog has {_text(each.catalog)}, the files {_text(each.files)}"
    yield "differs: `coldtrail rebuild` mends it" if wrong else "ok: the catalog is what the files say"


def _text(value: object) -> str:
    return "nothing" if value is None else say.printable(str(_value(value)))


def _value(value: object) -> object:
    return os.fsdecode(value) if isinstance(value, bytes) else value


def _document(each: Difference) -> dict[str, object]:
    return {
        "session": each.session,
        "stream": each.stream or None,
        "field": each.field or None,
        "catalog": _value(each.catalog),
        "files": _value(each.files),
    }
