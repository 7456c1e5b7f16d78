"""`coldtrail rebuild`: the catalog is made again from the files."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator, Sequence

import click

from coldtrail.settings import open_home
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

    Also beside a running daemon. What is damaged of the small files, a meta.json or a manifest, is written anew from what else is
    known. Prints each such file, and how much there is. With --check it prints each difference instead: the session, the
    stream where it is one's, the field, what the catalog says, and what the files say.
    """
    ending, mended = Ending(), list[str]()
    with open_home(asked.settings()) as home:
        with progress("reading sessions", len(home.catalog.sessions())) as done:
            count = itertools.count(1)
            if check:
                wrong, errors = differences(home, lambda _session: done(next(count)))
            else:
                wrong, errors = [], rebuild(home, lambda _session: done(next(count)), mended.append)
        sums = {"sessions": len(home.catalog.sessions()), "streams": len(home.catalog.stream_ids())}
    for error in errors:
        ending.fail(None, error)
    if wrong:
        ending.note(1)
    if as_json:
        say.document({**sums, "differences": [_document(each) for each in wrong], "mended": mended, "errors": ending.errors})
    else:
        click.echo("\n".join(_difference_lines(wrong, ending.errors) if check else _lines(sums, mended)))
    return ending.code


def _lines(sums: dict[str, int], mended: Sequence[str]) -> Iterator[str]:
    yield from (f"mended: {say.printable(path)} was damaged, or had no checksum, and is written anew" for path in mended)
    yield f"rebuilt: {say.counted(sums['sessions'], 'session')}, {say.counted(sums['streams'], 'stream')}"


def _difference_lines(wrong: Sequence[Difference], errors: Sequence[object]) -> Iterator[str]:
    for each in wrong:
        place = f"{each.session} {each.stream}".strip() + (f" {each.field}" if each.field else "")
        yield f"{place}: the catalog has {_text(each.catalog)}, the files {_text(each.files)}"
    if wrong:
        yield "differs: `coldtrail rebuild` mends it"
    elif not errors:
        yield "ok: the catalog is what the files say"


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
