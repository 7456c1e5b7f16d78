"""`coldtrail sync`: everything that is on disk now, captured now."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import click

from coldtrail import NotFoundError, Trail, UsageError
from coldtrail.units import parse_span
from coldtraild.cli import say
from coldtraild.cli.asked import Asked, any_ids, as_json, epilog, pass_asked
from coldtraild.cli.ending import Ending
from coldtraild.control import SilentError, ask

_EXITS = {
    0: "it is safe; without --wait: a daemon has taken the order",
    1: "it could not be captured",
    3: "no such session, or several",
    4: "capture is paused",
    5: "not everything is safe after the timeout, or an agent took bytes back before they were captured: each such file is told",
}


@click.command("sync", epilog=epilog("coldtrail sync", "coldtrail sync ae3d54a6 --wait --timeout 10s", exits=_EXITS))
@any_ids
@click.option("--wait", is_flag=True, help="Come back when all of it is in the store, synced, and that is proven.")
@click.option("--timeout", "timeout", metavar="SPAN", default="60s", show_default=True, help="Wait for so long at most.")
@as_json
@pass_asked
def command(asked: Asked, names: tuple[str, ...], timeout: str, *, wait: bool, as_json: bool) -> int:
    """Capture now what the agents have written up to now, unfinished lines too; of these sessions, or of all.

    A running daemon does it. Where none runs this command does, and waits in any case.
    """
    try:
        timeout_s = parse_span(timeout) / 1000
    except ValueError as error:
        raise UsageError(f"--timeout: {error}") from error
    ending = Ending()
    with asked.trail() as trail:
        keys = [_key(trail, name) for name in names]
        by_daemon = _asked(trail, keys)
        if wait or not by_daemon:
            for name in names or ("",):
                with ending.go_on(name):
                    _waited(trail, name, timeout_s)
    done = ending.code == 0
    if as_json:
        say.document({"safe": done and (wait or not by_daemon), "by_daemon": by_daemon, "errors": ending.errors})
    elif done:
        what = say.counted(len(names), "session") if names else "everything"
        click.echo(f"{what}: captured up to now" if wait or not by_daemon else f"{what}: the daemon captures it now")
    return ending.code


def _key(trail: Trail, name: str) -> str:
    """By what the daemon knows it: a key, or the path of a log that nobody has met."""
    try:
        return trail.session(name).key
    except NotFoundError:
        path = Path(name).absolute()
        if not path.is_file():
            raise
        return str(path)


def _asked(trail: Trail, keys: list[str]) -> bool:
    """Whether a daemon has taken the order."""
    with suppress(SilentError):
        ask(trail.settings.layout.control, {"verb": "sync", "names": keys})
        return True
    return False


def _waited(trail: Trail, name: str, timeout_s: float) -> None:
    if name:
        trail.wait_captured(name, timeout_s)
    else:
        trail.wait_all_captured(timeout_s)
