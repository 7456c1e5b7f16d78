"""`coldtrail plan`: what retention would remove, and why; and the same plan, said for `prune`."""

from __future__ import annotations

from collections.abc import Iterator

import click

from coldtrail.client import plan as planned
from coldtrail.model import instant_text
from coldtrail.retention import Decision, Plan, Verdict
from coldtrail.settings import now_ms
from coldtraild.cli import say
from coldtraild.cli.asked import Asked, as_json, epilog, force, pass_asked

_TITLES = {
    Verdict.REMOVE: "would be removed: their grace is over",
    Verdict.EXPIRE: "would be marked, and removed once their grace is over",
    Verdict.EXPIRING: "are marked, and wait for their grace to end",
    Verdict.LIFT: "are marked, and would be kept after all",
}


@click.command("plan", epilog=epilog("coldtrail plan", "coldtrail plan --all", "coldtrail plan --json"))
@click.option("--all", "everything", is_flag=True, help="Show what stays too, each with what keeps it.")
@force
@as_json
@pass_asked
def command(asked: Asked, *, everything: bool, force: bool, as_json: bool) -> None:
    """Show what retention would do now. Changes nothing.

    Prints each session that would go, with its size and the rule that decided; then the totals, and the fingerprint by which
    `coldtrail prune` carries out just this plan. It is decided from the catalog and the config's [retention]: no rule and no
    budget means that everything is kept for ever.
    """
    with asked.trail() as trail:
        plan = planned(trail.home, trail.settings, force=force)
    if as_json:
        say.document(plan.to_json())
    else:
        click.echo("\n".join(lines_of(plan, everything=everything)))


def lines_of(plan: Plan, *, everything: bool = False) -> Iterator[str]:
    """A plan for people."""
    for verdict, title in _TITLES.items():
        yield from _part(plan.of(verdict), title)
    if everything:
        yield from _part(plan.of(Verdict.KEEP), "stay")
    if plan.thin:
        thinned = plan.thinned
        versions = f"{say.counted(thinned['versions'], 'older version')} of companions in {say.counted(thinned['sessions'], 'session')}"
        yield f"{versions} would go (companion_versions): {say.size(thinned['bytes'])}"
    yield from (f"note: {say.printable(note)}" for note in plan.notes)
    parts = ((verdict.value, plan.totals[verdict.value]) for verdict in (*_TITLES, Verdict.KEEP))
    yield ", ".join(f"{name} {total['sessions']} ({say.size(total['bytes'])})" for name, total in parts)
    yield f"fingerprint {plan.fingerprint}"


def _part(decisions: tuple[Decision, ...], title: str) -> Iterator[str]:
    if not decisions:
        return
    yield f"{say.counted(len(decisions), 'session')}: {title}"
    clock_ms = now_ms()
    for each in decisions:
        until = f"; goes {say.local(each.goes_ms)[:16]}" if each.goes_ms is not None and each.goes_ms > clock_ms else ""
        yield f"  {each.key}  {say.size(each.bytes):>8}  {say.printable(each.reason)}{until}"


def to_json(decision: Decision) -> dict[str, object]:
    """A decision in a document about what was done."""
    return {**decision.to_json(), "verdict": decision.verdict.value, "goes": instant_text(decision.goes_ms)}
