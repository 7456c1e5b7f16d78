"""`coldtrail drill`: whether the sessions would come back, if they had to."""

from __future__ import annotations

import secrets
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

import click

from coldtrail import UsageError
from coldtrail.stage.drill import Report, Tried, drill
from coldtrail.stage.sample import Sample
from coldtraild.cli import say
from coldtraild.cli.asked import Asked, as_json, epilog, pass_asked
from coldtraild.cli.progress import progress

_CODES = {"ok": 0, "bad": 1, "unverifiable": 5}
_EXITS = {
    0: "every session that was tried came back as it was",
    1: "one did not: our copy is damaged, or a file could not be written",
    2: "usage error",
    5: "of one it could not be told",
}


@click.command(
    "drill", epilog=epilog("coldtrail drill", "coldtrail drill --sample 20", "coldtrail drill --sample 100% --json", exits=_EXITS)
)
@click.option("--sample", metavar="N|SHARE", default="5%", show_default=True, help="How many sessions, chosen by chance: 20, or 5%.")
@click.option("--seed", metavar="N", type=click.IntRange(min=0), help="Choose as the run did that named this seed.")
@as_json
@pass_asked
def command(asked: Asked, sample: str, seed: int | None, *, as_json: bool) -> int:
    """Put some sessions back into a scratch folder, and see whether they are what was captured.

    Each file is read back and compared by SHA-256 with what was sealed, with what is captured, and with the agent's own file where
    that has not changed since; each log's state is recovered with checkpoints and by a full replay. The scratch folder lies in the
    system's for temporary files, only you may look into it, and it is removed. The agents' folders are not touched. Prints each
    session that was not ok, and why; what came of it is kept, and `status` and `doctor` tell.
    """
    try:
        wanted = Sample.parse(sample)
    except ValueError as error:
        raise UsageError(f"--sample: {error}") from error
    seed = secrets.randbits(32) if seed is None else seed
    with asked.trail() as trail, _ends_tidily():
        count = wanted.of(len(trail.home.catalog.sessions()))
        with progress("trying sessions", count) as done:
            scratch = Path(tempfile.gettempdir())
            report = drill(trail.home, wanted, Random(seed), scratch, progress=lambda report: done(len(report.tried)))
    if as_json:
        say.document({**report.sums(), "seed": seed, "results": [each.to_json() for each in report.tried]})
    else:
        click.echo("\n".join(_lines(report, seed)))
    return _CODES[report.word]


@contextmanager
def _ends_tidily() -> Iterator[None]:
    """SIGTERM leaves nothing in the scratch folder either."""

    def end(number: int, _frame: object) -> None:
        sys.exit(128 + number)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _lines(report: Report, seed: int) -> Iterator[str]:
    for each in report.tried:
        if each.word != "ok":
            yield from _session_lines(each)
    if not report.tried:
        yield "ok: there is no session to try" if not report.sessions else "ok: none was to be tried"
        return
    sums = report.sums()
    tried = f"{len(report.tried)} of {say.counted(report.sessions, 'session')} tried"
    ok = f"{report.count('ok')} came back as captured: {say.counted(int(str(sums['files'])), 'file')}, {say.size(int(str(sums['bytes'])))}"
    yield f"{report.word}: {tried}, {ok}"
    yield f"compared with the agent's own file: {sums['live']}; states recovered both ways: {sums['logs']}; --seed {seed} chooses the same"


def _session_lines(tried: Tried) -> Iterator[str]:
    yield f"{tried.word}: session {tried.key} ({tried.agent} {say.printable(tried.id)})"
    for reason in (*tried.bad, *tried.doubts):
        yield f"  {say.printable(reason)}"
    if tried.bad:
        yield f"  `coldtrail verify {tried.key} --repair` looks for another copy"
