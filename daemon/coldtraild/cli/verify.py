"""`coldtrail verify`: whether what is kept is what was captured; and repair, where it is not."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import asdict, dataclass, field, replace

import click

from coldtrail import Trail, UsageError
from coldtrail.home import Home
from coldtrail.sessions import find_manifest
from coldtrail.stage import stopped
from coldtrail.stage.repair import Lost, Repaired, repair
from coldtrail.stage.sample import Sample
from coldtrail.stage.stopped import Stopped
from coldtrail.stage.verify import ALL, Effort, Finding, Spot, Verdict, verify, verify_generation
from coldtrail.units import parse_span, span_text
from coldtraild.cli import say
from coldtraild.cli.asked import Asked, any_ids, as_json, epilog, pass_asked
from coldtraild.cli.ending import Ending
from coldtraild.cli.progress import progress

_CODES = {"ok": 0, "bad": 1, "unverifiable": 5}
_EXITS = {
    0: "ok, as far as it was read",
    1: "bad: our copy is damaged, and was not repaired",
    2: "usage error",
    3: "no such session, or several",
    5: "unverifiable: neither proven right nor wrong",
}


@click.command(
    "verify",
    epilog=epilog(
        "coldtrail verify",
        "coldtrail verify ae3d54a6 --json",
        "coldtrail verify --sample 5%",
        "coldtrail verify --budget 10m --resume   # night after night: all of it, bit by bit",
        "coldtrail verify --repair",
        exits=_EXITS,
    ),
)
@any_ids
@click.option("--sample", metavar="SHARE", help="Decode only a share of the data, such as 5%, chosen by chance; 0%: only the structure.")
@click.option("--seed", metavar="N", type=click.IntRange(min=0), help="Choose as the run did that named this seed.")
@click.option("--budget", metavar="SPAN", help="Stop decoding after so long, such as 10m.")
@click.option("--resume", is_flag=True, help="Go on where the last one stopped that was over the same sessions and share; else begin.")
@click.option("--repair", "wants_repair", is_flag=True, help="Make damaged segments again from another copy that is proven to be right.")
@as_json
@pass_asked
def command(
    asked: Asked,
    names: tuple[str, ...],
    sample: str | None,
    seed: int | None,
    budget: str | None,
    *,
    resume: bool,
    wants_repair: bool,
    as_json: bool,
) -> int:
    """Check everything that is kept against its hashes.

    Or what is kept of some sessions. The structure is checked always: names, footers, indexes, manifests, order, and that nothing
    is missing; the data is all decoded, unless --sample or --budget say less. Prints each damaged place with what to do about it,
    then the verdict and how much was read. Damage in the agent's own bytes is not looked for here: `ls` and `show` count it.

    Nothing is changed without --repair. With it a damaged or missing segment is made again, from the agent's file, another segment
    or another generation, whichever has the bytes whose hashes were noted when it was sealed; what cannot be is named.
    """
    ending, done = Ending(), Done()
    wish = Effort(_percent(sample), secrets.randbits(32) if seed is None else seed, _clock(budget))
    with asked.trail() as trail:
        keys = _keys(trail, names, ending) if names else None
        if keys != []:  # else no name was a session's
            done = _verified(trail, keys, _resumed(trail.home, keys, wish) if resume else wish)
            if wants_repair:
                _repair(trail.home, done)
            ending.note(_CODES[done.verdict.word])
    if as_json:
        say.document(_document(done, ending))
    elif done.effort is not None:
        click.echo("\n".join(_lines(done, budget)))
    return ending.code


@dataclass(slots=True)
class Done:
    """What was done."""

    verdict: Verdict = field(default_factory=Verdict)
    effort: Effort | None = None  # None: nothing was verified
    repaired: list[Repaired] = field(default_factory=list)
    lost: list[Lost] = field(default_factory=list)


def _percent(sample: str | None) -> float | None:
    if sample is None:
        return None
    try:
        found = Sample.parse(sample)
    except ValueError as error:
        raise UsageError(f"--sample: {error}") from error
    if found.percent is None:
        raise UsageError(f"--sample: {sample!r} is no share", hint="say how many per cent of the data to decode, such as 5%")
    return None if found.percent == 100 else found.percent


def _clock(budget: str | None) -> Callable[[], bool]:
    """Tells when the time is up, counted from now."""
    if budget is None:
        return lambda: False
    try:
        end_s = time.monotonic() + parse_span(budget) / 1000
    except ValueError as error:
        raise UsageError(f"--budget: {error}") from error
    return lambda: time.monotonic() >= end_s


def _resumed(home: Home, keys: Collection[str] | None, wish: Effort) -> Effort:
    last = Stopped.load(home)
    if last is None or not last.is_of(keys, wish.percent):
        return wish
    return replace(wish, seed=last.seed, begin=last.next, again=frozenset(last.damaged))


def _keys(trail: Trail, names: tuple[str, ...], ending: Ending) -> list[str]:
    keys = []
    for name in names:
        with ending.go_on(name):
            keys.append(trail.session(name).key)
    return list(dict.fromkeys(keys))


def _verified(trail: Trail, keys: list[str] | None, effort: Effort) -> Done:
    catalog = trail.home.catalog
    total = len(catalog.stream_ids()) if keys is None else sum(len(catalog.streams_of(key)) for key in keys)
    with progress("verifying", total) as done:
        verdict = verify(trail.home, keys, lambda verdict: done(verdict.streams), effort)
    if verdict.next is not None or effort.begin is not None or (keys is None and effort == replace(ALL, seed=effort.seed)):
        stopped.keep(trail.home, keys, effort, verdict)
    return Done(verdict, effort)


# ---- repair -------------------------------------------------------------------------------------------------------------


def _repair(home: Home, done: Done) -> None:
    """Repair what was found, and judge those generations anew."""
    spots = done.verdict.damaged
    for each in repair(home, spots):
        if isinstance(each, Repaired):
            done.repaired.append(each)
        else:
            done.lost.append(each)
    mended = {replace(each.spot, offset=0) for each in done.repaired}
    done.verdict.findings = [each for each in done.verdict.findings if not _is_of(each, mended)]
    for spot in sorted(mended):
        done.verdict.findings += _looked_again(home, spot)


def _is_of(finding: Finding, mended: Collection[Spot]) -> bool:
    if finding.spot is None:
        return finding.is_left_by_repair
    return replace(finding.spot, offset=0) in mended


def _looked_again(home: Home, spot: Spot) -> list[Finding]:
    meta = home.store.meta(spot.stream)
    if meta is None:
        return []
    return verify_generation(home, meta, spot.generation, find_manifest(home, meta.source, meta.session, meta.host), Verdict())


# ---- telling ------------------------------------------------------------------------------------------------------------


def _document(done: Done, ending: Ending) -> dict[str, object]:
    verdict, effort = done.verdict, done.effort
    bad = [{**_finding(finding), "verdict": "bad"} for finding in verdict.findings]
    unknown = [{**_finding(finding), "verdict": "unverifiable"} for finding in verdict.unverifiable]
    checked = {
        "sessions": verdict.sessions,
        "streams": verdict.streams,
        "segments": verdict.segments,
        "frames": verdict.frames,
        "frames_there": verdict.frames_there,
        "bytes": verdict.plain_bytes,
        "stored_bytes": verdict.stored_bytes,
    }
    sampled = None if effort is None or effort.percent is None else {"percent": effort.percent, "seed": effort.seed}
    return {
        "verdict": "unverifiable" if effort is None else verdict.word,
        "checked": checked,
        "findings": bad + unknown,
        "sampled": sampled,
        "complete": effort is not None and verdict.next is None,
        "next": None if verdict.next is None else asdict(verdict.next),
        "repaired": [{"path": each.name, "bytes": each.bytes, "from": list(each.origins)} for each in done.repaired],
        "lost": [_lost_document(each) for each in done.lost],
        "errors": ending.errors,
    }


def _lost_document(lost: Lost) -> dict[str, object]:
    unread = [{"start": gap.start, "end": gap.end} for gap in lost.unread]
    return {"path": lost.name, "start": lost.start, "end": lost.end, "what": lost.why, "unread": unread, "session": lost.spot.session}


def _finding(finding: Finding) -> dict[str, object]:
    return {"path": finding.path, "offset": finding.offset, "what": finding.what, "hint": finding.hint}


def _lines(done: Done, budget: str | None) -> Iterator[str]:
    verdict, effort = done.verdict, done.effort or ALL
    yield from (f"repaired: {say.printable(each.name)}, {say.size(each.bytes)}, from {_from(each)}" for each in done.repaired)
    for finding in verdict.findings + verdict.unverifiable:
        yield f"{say.printable(finding.path)}: at byte {finding.offset}: {say.printable(finding.what)}"
        if finding.hint:
            yield f"  {say.printable(finding.hint)}"
    for each in done.lost:
        unread = sum(gap.end - gap.start for gap in each.unread)
        yield f"{say.printable(each.name)}: not repaired: {say.printable(each.why)}"
        yield f"  of its {each.end - each.start} bytes {unread} cannot be read; `coldtrail events {each.spot.session}` reads the rest"
    counts = ((verdict.sessions, "session"), (verdict.streams, "stream"), (verdict.segments, "segment"))
    looked = ", ".join(say.counted(number, word) for number, word in counts)
    so_far = "" if verdict.next is None else " so far"
    yield f"{verdict.word}{so_far}: {looked}, {say.size(verdict.plain_bytes)} read from {say.size(verdict.stored_bytes)}"
    if effort.percent is not None:
        chosen = f"{verdict.frames} of {verdict.frames_there} frames"
        yield f"sample: {chosen}, {effort.percent:g} % by chance; --seed {effort.seed} chooses the same"
    if verdict.next is not None:
        yield f"stopped after {span_text(parse_span(budget or '1s'))}: the same with --resume goes on"


def _from(repaired: Repaired) -> str:
    return say.printable(", ".join(repaired.origins))
