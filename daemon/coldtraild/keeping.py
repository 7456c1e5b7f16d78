"""The jobs that remove bytes: retention once a day, reclaim now and then; nothing that the config does not ask for."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from coldtrail import steady
from coldtrail.client import plan as planned
from coldtrail.home import Home
from coldtrail.journal import Act
from coldtrail.retention import Verdict
from coldtrail.settings import Settings, uptime
from coldtrail.stage import reclaim as room
from coldtrail.stage import thin
from coldtrail.stage.prune import carry_out
from coldtrail.stage.reclaim import Outcome, Terms
from coldtraild.log import NAME

RETAIN_EVERY_S = 24 * 3_600.0

log = logging.getLogger(NAME)


@dataclass(slots=True)
class Retained:
    """What a pass of retention did."""

    marked: int = 0
    lifted: int = 0
    removed: int = 0
    passed: int = 0  # had changed meanwhile
    freed: int = 0  # bytes


def retain(home: Home, found: Settings, stopping: Callable[[], bool]) -> Retained | None:
    """Carry out what retention plans; None where nothing is asked for."""
    policy = found.config.retention
    bounds = (policy.max_total_bytes, policy.min_free_bytes, policy.companion_versions)
    asked = bool(policy.rules) or any(bound is not None for bound in bounds)
    if not (asked or any(row.mark for row in home.catalog.sessions())):
        return None
    plan, done = planned(home, found), Retained()
    for note in plan.notes:
        log.warning("retention: %(note)s", {"note": note})
    for each in carry_out(home, plan):
        verdict = each.decision.verdict
        done.passed += bool(each.passed)
        done.marked += not each.passed and verdict is Verdict.EXPIRE
        done.lifted += not each.passed and verdict is Verdict.LIFT
        done.removed += not each.passed and verdict is Verdict.REMOVE
        done.freed += each.freed
        if stopping():
            return done
    if policy.companion_versions is not None:
        for thinned in thin.carry_out(home, plan.thin, policy.companion_versions):
            done.freed += thinned.freed
    return done


def reclaim(home: Home, found: Settings, stopping: Callable[[], bool]) -> list[Outcome]:
    """Take the next step with each session whose files may go, and with those that are set aside; gives what was done."""
    wanted = found.config.reclaim
    pending = room.pending(home)
    if wanted.after_ms is None:
        return [room.put_back(home, key, "reclaim was switched off", _noted(home)) for key in pending]
    if why := steady.suspended(home.layout.clock, home.now_ms(), uptime()):  # else a leap ends every wait, and makes everything cold
        log.warning("reclaim waits: %(why)s", {"why": why})
        return []
    keys = pending + [each.session.key for each in room.candidates(home, wanted.after_ms, home.now_ms()) if each.why_not is None]
    done = []
    for key in keys:
        if stopping():
            break
        done.append(room.reclaim(home, key, Terms(wanted.after_ms, wanted.wait_ms), _noted(home)))
    return [each for each in done if each.act is not room.Act.KEPT]


def _noted(home: Home) -> room.Note:
    """Writes what reclaim does into the journal."""

    def note(act: str, session: str, reason: str, size: int) -> None:
        row = home.catalog.session(session)
        home.journal.note(Act(act), session, row.id if row is not None else "", reason, size=size)

    return note
