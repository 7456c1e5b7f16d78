"""`coldtrail doctor`: what is wrong here, what that means, and what to do about it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import click

from coldtrail import ConfigError
from coldtrail.errors import ColdtrailError
from coldtrail.settings import Settings, find_sources, now_ms, open_home, uptime
from coldtrail.stage import doctor, surroundings
from coldtrail.stage.doctor import Finding, Severity
from coldtrail.steady import seems_suspended
from coldtraild.cli import say
from coldtraild.cli.asked import Asked, as_json, epilog, pass_asked
from coldtraild.cli.doctor import machine
from coldtraild.cli.doctor.mending import Mended, mend

_EXITS = {
    0: "nothing is wrong that costs sessions; there may be warnings",
    1: "something is, and was not mended",
    2: "usage error",
    4: "the bundle's file is there already",
}
_ORDER = {Severity.ERROR: 0, Severity.WARNING: 1, Severity.NOTE: 2}


@dataclass(slots=True)
class Examined:
    """What was found."""

    settings: Settings | None  # None: the config is wrong
    findings: list[Finding] = field(default_factory=list)
    mended: list[Mended] = field(default_factory=list)

    def count(self, severity: Severity) -> int:
        """How many of that kind."""
        return sum(each.severity is severity for each in self.findings)

    @property
    def word(self) -> str:
        """ok, or the gravest there is."""
        return next((each.value for each in (Severity.ERROR, Severity.WARNING) if self.count(each)), "ok")


@click.command(
    "doctor", epilog=epilog("coldtrail doctor", "coldtrail doctor --fix", "coldtrail doctor --bundle coldtrail-report.tar.gz", exits=_EXITS)
)
@click.option("--fix", "wants_mending", is_flag=True, help="Mend what can be mended without losing anything; each is told.")
@click.option("--bundle", metavar="FILE", help="Write a tar.gz for who helps you: counts, sizes, faults; no text, title, id or name.")
@as_json
@pass_asked
def command(asked: Asked, *, wants_mending: bool, bundle: str | None, as_json: bool) -> int:
    """Look for what is wrong: with what is kept, with the agents' folders, and with this machine.

    Rights, the catalog, small files that are damaged, faults, what waits to be archived, what the agents delete soon, free space,
    watch limits, network disks, the clock, the service. Changes nothing without --fix. Prints each finding, what it means and what
    to do about it. It decodes no session: `coldtrail verify` does.

    --fix takes rights from others and gives us ours, removes unfinished files of interrupted runs, writes damaged small files anew
    from what else is known, and makes a broken catalog again. The bundle has no private text in it: look into it before you send
    it. It names sessions by coldtrail's own keys, and files by their place, each name of yours replaced by a number.
    """
    found = _examined(asked)
    if wants_mending and found.settings is not None:
        mended = mend(found.settings, found.findings)
        found = _examined(asked)
        found.mended = mended
    if bundle is not None:
        from coldtraild.cli.doctor.bundle import write

        write(Path(bundle).expanduser(), found.settings, found.findings)
    if as_json:
        say.document(_document(found))
    else:
        click.echo("\n".join(_lines(found, bundle)))
    return 1 if found.count(Severity.ERROR) else 0


def _examined(asked: Asked) -> Examined:
    try:
        settings = asked.settings()
    except ConfigError as error:
        means = "nothing is captured, and nothing deleted, until it is mended"
        wrong = Finding(
            Severity.ERROR, error.file or "config", str(error).removeprefix(f"{error.file}:"), means, error.hint or "coldtrail config check"
        )
        return Examined(None, [wrong, *machine.of_python()])
    findings = [*_of_ours(settings), *_of_sources(settings), *machine.of_machine(settings)]
    return Examined(settings, sorted(findings, key=lambda each: _ORDER[each.severity]))


def _of_ours(settings: Settings) -> Iterator[Finding]:
    layout = settings.layout
    found = list(doctor.of_folder(layout, os.geteuid(), now_ms()))
    yield from found
    if not doctor.can_be_opened(layout, found):
        return
    try:
        with open_home(settings) as home:
            yield from doctor.of_home(home, find_sources(settings), settings.config.compact.after_ms)
    except ColdtrailError as error:
        yield doctor.damaged_catalog(layout, str(error)) if "catalog is damaged" in str(error) else _unopened(layout.home, error)
    if why := seems_suspended(layout.clock, now_ms(), uptime()):
        means = "retention and reclaim wait for a day, for a wrong clock makes everything look old; capture goes on"
        yield Finding(Severity.WARNING, "clock", why, means, "see that it is right: timedatectl")


def _unopened(place: Path, error: ColdtrailError) -> Finding:
    return Finding(Severity.ERROR, str(place), f"cannot be opened: {error}", "nothing is captured", error.hint)


def _of_sources(settings: Settings) -> Iterator[Finding]:
    yield from surroundings.of_sources(find_sources(settings), [each.name for each in settings.config.sources])
    yield from surroundings.of_disks(settings.layout)


# ---- telling ------------------------------------------------------------------------------------------------------------


def _document(found: Examined) -> dict[str, object]:
    return {
        "verdict": found.word,
        "findings": [_finding(each) for each in found.findings],
        "mended": [{"what": each.what, "done": each.done} for each in found.mended],
        "sources": [] if found.settings is None else _sources(found.settings),
        "versions": machine.versions(),
    }


def _sources(settings: Settings) -> list[dict[str, object]]:
    return [{"name": s.name, "agent": s.agent.name, "root": str(s.root), "there": s.root.is_dir()} for s in find_sources(settings)]


def _finding(found: Finding) -> dict[str, object]:
    return {
        "severity": found.severity.value,
        "place": found.place,
        "what": found.what,
        "means": found.means,
        "fix": found.fix,
        "mendable": found.mend is not None,
    }


def _lines(found: Examined, bundle: str | None) -> Iterator[str]:
    for mended in found.mended:
        yield f"{'mended' if mended.done else 'NOT mended'}: {say.printable(mended.what)}"
    for each in found.findings:
        yield f"{each.severity.value:<8} {say.folder(each.place)}: {say.printable(each.what)}"
        yield from (f"         {say.printable(text)}" for text in (each.means, f"do: {each.fix}" if each.fix else "") if text)
    if bundle is not None:
        yield f"bundle   {say.printable(bundle)}: no text of any session is in it; look into it before you send it"
    yield _sum(found)


def _sum(found: Examined) -> str:
    counted = ", ".join(say.counted(found.count(each), each.value) for each in Severity if found.count(each))
    mendable = _mendable(found.findings)
    way = f"; `{doctor.DOCTOR_FIX}` mends {mendable}" if mendable else ""
    head = "ok: nothing is wrong" if found.word == "ok" else found.word
    return head + (f"; {counted}" if counted and found.word == "ok" else f": {counted}" if counted else "") + way


def _mendable(findings: Sequence[Finding]) -> int:
    return sum(each.mend is not None for each in findings)
