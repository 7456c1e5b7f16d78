"""`coldtrail verify`: whether what is kept is what was captured."""

from __future__ import annotations

from collections.abc import Iterator

import click

from coldtrail import Trail
from coldtrail.stage.verify import Finding, Verdict, verify
from coldtraild.cli import say
from coldtraild.cli.asked import Asked, any_ids, as_json, epilog, pass_asked
from coldtraild.cli.ending import Ending
from coldtraild.cli.progress import progress

_CODES = {"ok": 0, "bad": 1, "unverifiable": 5}
_EXITS = {0: "ok", 1: "bad: our copy is damaged", 3: "no such session, or several", 5: "unverifiable: neither proven right nor wrong"}


@click.command("verify", epilog=epilog("coldtrail verify", "coldtrail verify ae3d54a6 --json", exits=_EXITS))
@any_ids
@as_json
@pass_asked
def command(asked: Asked, names: tuple[str, ...], *, as_json: bool) -> int:
    """Check everything that is kept against its hashes.

    Or what is kept of some sessions. Reads all of it and changes nothing. Prints each damaged place with what to do about it,
    then the verdict and how much was read. Damage in the agent's own bytes is not looked for here: `ls` and `show` count it.
    """
    ending = Ending()
    with asked.trail() as trail:
        verdict = _verified(trail, _keys(trail, names, ending) if names else None)
    if verdict is not None:
        ending.note(_CODES[verdict.word])
    if as_json:
        say.document(_document(verdict or Verdict(), "unverifiable" if verdict is None else verdict.word, ending))
    elif verdict is not None:
        click.echo("\n".join(_lines(verdict)))
    return ending.code


def _keys(trail: Trail, names: tuple[str, ...], ending: Ending) -> list[str]:
    keys = []
    for name in names:
        with ending.go_on(name):
            keys.append(trail.session(name).key)
    return list(dict.fromkeys(keys))


def _verified(trail: Trail, keys: list[str] | None) -> Verdict | None:
    """None where there is nothing to verify: no name was a session's."""
    if keys == []:
        return None
    catalog = trail.home.catalog
    total = len(catalog.stream_ids()) if keys is None else sum(len(catalog.streams_of(key)) for key in keys)
    with progress("verifying", total) as done:
        return verify(trail.home, keys, lambda verdict: done(verdict.streams))


def _document(verdict: Verdict, word: str, ending: Ending) -> dict[str, object]:
    bad = [{**_finding(finding), "verdict": "bad"} for finding in verdict.findings]
    unknown = [{**_finding(finding), "verdict": "unverifiable"} for finding in verdict.unverifiable]
    checked = {
        "sessions": verdict.sessions,
        "streams": verdict.streams,
        "segments": verdict.segments,
        "bytes": verdict.plain_bytes,
        "stored_bytes": verdict.stored_bytes,
    }
    return {"verdict": word, "checked": checked, "findings": bad + unknown, "errors": ending.errors}


def _finding(finding: Finding) -> dict[str, object]:
    return {"path": finding.path, "offset": finding.offset, "what": finding.what, "hint": finding.hint}


def _lines(verdict: Verdict) -> Iterator[str]:
    for finding in verdict.findings + verdict.unverifiable:
        yield f"{say.printable(finding.path)}: at byte {finding.offset}: {say.printable(finding.what)}"
        if finding.hint:
            yield f"  {say.printable(finding.hint)}"
    counts = ((verdict.sessions, "session"), (verdict.streams, "stream"), (verdict.segments, "segment"))
    looked = ", ".join(say.counted(number, word) for number, word in counts)
    yield f"{verdict.word}: {looked}, {say.size(verdict.plain_bytes)} read from {say.size(verdict.stored_bytes)}"
