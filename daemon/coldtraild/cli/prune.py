"""`coldtrail prune`: carry out what `plan` shows."""

from __future__ import annotations

import click

from coldtrail.client import plan as planned
from coldtrail.errors import RefusedError
from coldtrail.retention import Verdict
from coldtrail.stage import thin
from coldtrail.stage.prune import Done, carry_out
from coldtrail.stage.thin import Thinned
from coldtraild.cli import say
from coldtraild.cli.asked import Asked, as_json, epilog, force, pass_asked
from coldtraild.cli.plan import lines_of, to_json

_EXITS = {0: "done, or without --yes: shown", 4: "the plan is not the one that --plan names, and nothing was done"}
_DONE = {Verdict.LIFT: "kept after all", Verdict.REMOVE: "removed", Verdict.EXPIRE: "marked"}


@click.command(
    "prune", epilog=epilog("coldtrail prune", "coldtrail prune --yes", "coldtrail prune --yes --plan 53fe04f70ac25920", exits=_EXITS)
)
@click.option("--yes", is_flag=True, help="Do it; without, the plan is shown and nothing else.")
@click.option("--plan", "wanted", metavar="FINGERPRINT", help="Only if the plan is still this one, as `coldtrail plan` printed it.")
@force
@as_json
@pass_asked
def command(asked: Asked, wanted: str | None, *, yes: bool, force: bool, as_json: bool) -> None:
    """Carry out what `coldtrail plan` shows, once.

    Sessions that expire are marked first and stay where they are for their grace (7 days unless configured): `coldtrail restore`
    brings one back and takes the mark off. What has been marked for so long is removed, from store and archive; never the
    agent's own files. Each act stands in `coldtrail journal` with its reason. The daemon does the same once a day.
    """
    with asked.trail() as trail:
        plan = planned(trail.home, trail.settings, force=force)
        if wanted is not None and wanted != plan.fingerprint:
            raise RefusedError(f"the plan is another one now: {plan.fingerprint}", hint="look at it with `coldtrail plan`")
        if not yes:
            say.document({**plan.to_json(), "done": [], "thinned": []}) if as_json else click.echo("\n".join(lines_of(plan)))
            say.message("nothing was done", hint=f"`coldtrail prune --yes --plan {plan.fingerprint}` does it")
            return
        done = [_told(each, quiet=as_json) for each in carry_out(trail.home, plan)]
        keep = trail.settings.config.retention.companion_versions
        thinned = [_told_thinned(each, quiet=as_json) for each in thin.carry_out(trail.home, plan.thin, keep or 1)]
    if as_json:
        say.document({**plan.to_json(), "done": [_document(each) for each in done], "thinned": [_thin_document(each) for each in thinned]})
    else:
        count, freed = sum(not each.passed for each in done), sum(each.freed for each in done) + sum(each.freed for each in thinned)
        click.echo(f"{say.counted(count, 'session')} dealt with, {say.size(freed)} freed")


def _told(done: Done, *, quiet: bool) -> Done:
    what = f"not {_DONE[done.decision.verdict]}: {done.passed}" if done.passed else _DONE[done.decision.verdict]
    if not quiet:
        click.echo(f"{done.decision.key}  {what}  {say.printable(done.decision.reason)}")
    return done


def _told_thinned(done: Thinned, *, quiet: bool) -> Thinned:
    if not quiet:
        what = f"not thinned: {say.printable(done.passed)}" if done.passed else f"thinned  {say.counted(done.versions, 'older version')}"
        click.echo(f"{done.session}  {what}")
    return done


def _thin_document(done: Thinned) -> dict[str, object]:
    return {"key": done.session, "versions": done.versions, "freed": done.freed, "passed": done.passed or None}


def _document(done: Done) -> dict[str, object]:
    return {**to_json(done.decision), "freed": done.freed, "passed": done.passed or None}
