"""`coldtrail restore`: sessions go back to where their agent looks for them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import click

from coldtrail import Session, Trail, UsageError
from coldtrail.model import Position, instant_text
from coldtrail.stage import fork
from coldtrail.stage.fork import Forked, ForkPlan
from coldtrail.stage.restore import Action, Mtime, Passed, Piece, Restored, Wish, carry_out
from coldtraild.cli import say
from coldtraild.cli.asked import Asked, as_json, epilog, pass_asked, some_ids
from coldtraild.cli.ending import Ending

_EXITS = {
    0: "every file is there, restored now or before",
    1: "a file could not be restored, or our copy of it is damaged",
    3: "no such session, or several",
    4: "refused: something is in the way that would be lost",
}
_WHEN = "A time, a span back (2h), a position, an id, or #N (the Nth record)"


@click.command(
    "restore",
    epilog=epilog(
        "coldtrail restore ae3d54a6 --dry-run",
        "coldtrail restore ae3d54a6",
        "coldtrail restore ae3d54a6 --to ~/looked-at",
        "coldtrail restore ae3d54a6 --before 2026-01-31T12:00Z",
        exits=_EXITS,
    ),
)
@some_ids
@click.option("--to", metavar="DIR", help="Into this folder instead, as below the agent's root.")
@click.option("--at", metavar="WHEN", help=f"The main log up to then, as a new session. {_WHEN}, inclusive.")
@click.option("--before", metavar="WHEN", help="The same, exclusive.")
@click.option("--overwrite", is_flag=True, help="Replace what is there, where every byte of it is held.")
@click.option(
    "--mtime",
    type=click.Choice([each.value for each in Mtime]),
    default=Mtime.AUTO.value,
    show_default=True,
    help="Which mtime the files get: the one that keeps the agent from sweeping them away, the original, or now.",
)
@click.option("--generation", metavar="N", type=click.IntRange(min=0), help="An older generation of the main log, as `show` lists them.")
@click.option("--dry-run", is_flag=True, help="Only say what would be done.")
@as_json
@pass_asked
def command(
    asked: Asked,
    names: tuple[str, ...],
    to: str | None,
    at: str | None,
    before: str | None,
    mtime: str,
    generation: int | None,
    *,
    overwrite: bool,
    dry_run: bool,
    as_json: bool,
) -> int:
    """Put sessions back where their agent looks for them.

    Byte for byte. Prints each file, and how to go on with the session. Nothing is overwritten that coldtrail does not hold, a
    file appears at once and whole, and doing it twice changes nothing. No daemon is needed.

    With --at or --before the session is left as it is, and its main log up to that moment becomes a new session, that the agent
    can go on with. What had to be changed in it for that is told; every other byte is the original's.
    """
    moment = at is not None or before is not None
    if len(names) > 1 and (generation is not None or moment):
        raise UsageError(f"{'--generation' if generation is not None else '--at'} is for one session")
    wish = Wish(None if to is None else Path(to).expanduser().absolute(), overwrite, Mtime(mtime), generation)
    report, ending = Report(dry_run=dry_run, quiet=as_json), Ending()
    with asked.trail() as trail:
        for name in names:
            with ending.go_on(name):
                session = trail.session(name)
                if moment:
                    report.fork(trail, session, session.plan_fork(at, before=before, wish=wish))
                else:
                    report.take(trail, session, wish)
    if report.failed:
        ending.note(1)
    if as_json:
        say.document(report.document(ending.errors))
    return ending.code


class Report:
    """Restores session after session, tells it as it goes, and keeps what the document says."""

    def __init__(self, *, dry_run: bool, quiet: bool) -> None:
        self._dry_run, self._quiet = dry_run, quiet
        self.planned: list[dict[str, object]] = []
        self.restored: list[dict[str, object]] = []
        self.skipped: list[dict[str, object]] = []
        self.failed: list[dict[str, object]] = []
        self.sessions: list[dict[str, object]] = []
        self.forked: dict[str, object] | None = None

    def take(self, trail: Trail, session: Session, wish: Wish) -> None:
        """One session: its files, then how to go on with it where that is possible."""
        plan = session.plan_restore(wish)
        failed_before = len(self.failed)
        if self._dry_run:
            self._plan(plan.pieces)
        else:
            self._carry_out(carry_out(trail.home, plan, trail.settings.config.retention.restored_hold_ms))
        self._close(session, plan.resume if wish.to is None and len(self.failed) == failed_before else None)

    def fork(self, trail: Trail, session: Session, plan: ForkPlan) -> None:
        """One session up to a moment: the new file, then how to go on with it."""
        if self._dry_run:
            self._plan(plan.needed)
            self._plan_fork(plan)
        else:
            self._carry_out(fork.make(trail.home, plan))
        if self._dry_run or not self.failed:
            self.forked = {
                "from": session.id,
                "at": str(plan.at),
                "id": plan.id,
                "path": str(plan.target),
                "changed_lines": len(plan.changes),
                "newline_added": not plan.ends_line,
            }
        self._close(session, None if self.failed or self._dry_run else plan.resume)  # the next plan has another id

    def _close(self, session: Session, resume: str | None) -> None:
        self.sessions.append({"key": session.key, "id": session.id, "resume": resume})
        if resume is not None:
            self._say(f"resume    {say.printable(resume)}")

    def _plan(self, pieces: Sequence[Piece]) -> None:
        for piece in pieces:
            if piece.action is Action.SKIP:
                self._skip(piece.target, piece.note)
            else:
                entry = {"path": str(piece.target), "bytes": piece.bytes, "mtime": _mtime(piece.mtime_ns), "action": piece.action.value}
                self.planned.append({**entry, "note": piece.note or None})
                self._say(f"would {piece.action.value:<9} {say.folder(str(piece.target))}, {say.size(piece.bytes)}")
                _warn(piece.target, piece.note)

    def _plan_fork(self, plan: ForkPlan) -> None:
        entry = {"path": str(plan.target), "bytes": plan.bytes, "mtime": _mtime(plan.mtime_ns), "action": "fork"}
        self.planned.append({**entry, "note": plan.note or None})
        self._say(f"would fork     {_forked(plan.target, plan.bytes, plan.at, len(plan.changes))}")
        _warn(plan.target, plan.note)

    def _carry_out(self, results: Iterable[Restored | Passed]) -> None:
        for done in results:
            if isinstance(done, Restored):
                self._put_back(done)
            elif done.failed:
                self._fail(done)
            else:
                self._skip(done.path, done.why)

    def _put_back(self, done: Restored) -> None:
        entry = {"path": str(done.path), "bytes": done.bytes, "sha256": done.sha256, "mtime": _mtime(done.mtime_ns)}
        self.restored.append({**entry, "note": done.note or None})
        if isinstance(done, Forked):
            self._say(f"forked    {_forked(done.path, done.bytes, done.at, done.changed_lines)}")
        else:
            self._say(f"restored  {say.folder(str(done.path))}, {say.size(done.bytes)}")
        _warn(done.path, done.note)

    def _fail(self, done: Passed) -> None:
        self.failed.append({"path": str(done.path), "why": done.why, "hint": done.hint})
        self._say(f"failed    {say.folder(str(done.path))}")
        _warn(done.path, done.why, done.hint)

    def _skip(self, path: Path, why: str) -> None:
        self.skipped.append({"path": str(path), "why": why})
        self._say(f"skipped   {say.folder(str(path))}: {say.printable(why)}")

    def _say(self, line: str) -> None:
        if not self._quiet:
            click.echo(line)

    def document(self, errors: list[dict[str, object]]) -> dict[str, object]:
        """All of it; `resume` is of the one session, where it was one."""
        lists = {"restored": self.restored, "skipped": self.skipped, "failed": self.failed, "errors": errors}
        planned = {"planned": self.planned} if self._dry_run else {}
        resume = self.sessions[0]["resume"] if len(self.sessions) == 1 else None
        return {**lists, **planned, "resume": resume, "forked": self.forked, "sessions": self.sessions}


def _forked(path: Path, size: int, at: Position, changed: int) -> str:
    lines = f"{changed} line{'' if changed == 1 else 's'} changed" if changed else "nothing changed"
    return f"{say.folder(str(path))}, {say.size(size)}: up to {at}, {lines}"


def _mtime(ns: int) -> str | None:
    return instant_text(ns // 1_000_000)


def _warn(path: Path, note: str, hint: str = "") -> None:
    if note:
        say.message(note if str(path) in note else f"{path}: {note}", hint=hint)
