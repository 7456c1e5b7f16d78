"""`coldtrail init`: looks at what is on this machine, and proposes a config."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import click

from coldtrail import durable
from coldtrail.config import Config, load_text
from coldtrail.errors import RefusedError
from coldtrail.model import instant_text
from coldtrail.settings import Settings, config_place, now_ms, settings
from coldtrail.stage import surroundings
from coldtrail.stage.census import Counted, count
from coldtraild.cli import say
from coldtraild.cli.asked import Asked, as_json, epilog, pass_asked
from coldtraild.cli.progress import progress

SERVICE = "coldtrail service install"
_DAY_CHARS = 10
_STORED_SHARE = 5  # sessions take a fifth of their size at most; an eighth is usual
_ROOM_SHARE = 4  # of the free space, more than a quarter is worth a word
_NETWORK_SCAN = "30s"
_EXITS = {0: "done, or only shown", 1: "it could not be written", 4: "there is a config file already"}
_MORE = """
# A folder of your own agents' logs (agent: event-log, or jsonl for any JSONL):
# [[source]]
# name = "mine"
# agent = "event-log"
# root = "~/agents/logs"

# By default everything is kept for ever. To let old sessions go from what is kept here:
# [retention]
# max_total = "50GiB"
"""


@click.command("init", epilog=epilog("coldtrail init", "coldtrail init --yes", "coldtrail init --json", exits=_EXITS))
@click.option("--yes", is_flag=True, help="Write it without a question.")
@click.option("--force", is_flag=True, help="Replace a config file that is there; it is kept beside it, as .bak.")
@as_json
@pass_asked
def command(asked: Asked, *, yes: bool, force: bool, as_json: bool) -> None:
    """Look at what the agents have on this machine, and write a config that fits.

    Prints the agents, how much each has, and what it will delete soon; then the config, which has only what differs from the
    defaults: without one everything works too. It is written after a question, and nothing else is changed. With --json it is
    written only with --yes.
    """
    env = dict(os.environ)
    found = settings(asked.home, env=env, unread=True)
    file = Path(os.path.realpath(config_place(asked.config, env, found.user_home)))  # a link stays one
    with progress("looking at sessions", 0) as done:
        counted = list(count(found.sources, now_ms(), done))
    text = proposal(found, counted)
    load_text(text, file=str(file), user_home=found.user_home)  # a config that cannot be read is never written
    if not as_json:
        click.echo("\n".join([*_lines(counted), "", f"# {say.folder(str(file))}", text]))
    backup, written = None, False
    if yes or not as_json:
        _check_free(file, force=force)
        if yes or _confirmed(file):
            backup, written = _write(file, text)
    if as_json:
        told = {"agents": [_document(each) for each in counted], "file": str(file), "config": text, "written": written}
        say.document({**told, "backup": None if backup is None else str(backup), "service": SERVICE})
    elif written:
        kept = f" (the old one is {say.folder(str(backup))})" if backup else ""
        click.echo(f"wrote    {say.folder(str(file))}{kept}")
        click.echo(f"next     {SERVICE}    # the daemon, from now on and after each start\nor       coldtrail run")


def _check_free(file: Path, *, force: bool) -> None:
    if os.path.lexists(file) and not force:
        raise RefusedError(f"{file}: is there already", hint="--force replaces it, and keeps it beside the new one as .bak")


def _confirmed(file: Path) -> bool:
    try:
        sure = click.confirm(f"Write it to {say.folder(str(file))}?", default=True, err=True)
    except click.Abort:
        sure = False
    if not sure:
        say.message("nothing was written", hint="`coldtrail init --yes` writes it without a question; everything works without it, too")
    return sure


def _write(file: Path, text: str) -> tuple[Path | None, bool]:
    """Put it there; gives where the old one is kept."""
    backup = _kept(file) if os.path.lexists(file) else None
    durable.replace(file, text.encode())
    return backup, True


def _kept(file: Path) -> Path:
    """A second name for a file, one that is not taken."""
    number = 1
    while True:
        backup = file.with_name(f"{file.name}.bak{number if number > 1 else ''}")
        try:
            os.link(file, backup, follow_symlinks=False)
        except FileExistsError:
            number += 1
            continue
        return backup


# ---- the proposal -------------------------------------------------------------------------------------------------------


def proposal(found: Settings, counted: Sequence[Counted]) -> str:
    """The config as TOML: what differs from the defaults, and why."""
    head = ["# What differs from coldtrail's defaults, which do for most. Every key there is: coldtrail config show", "#"]
    head += [f"# Found on {_day(now_ms())}:", *(f"#   {line}" for line in _lines(counted))]
    head += ["# All of it is captured without a word here, and nothing is deleted unless [retention] or [reclaim] say so."]
    return "\n".join([*head, *_settings(found, counted), *_advice(found, counted)]) + "\n" + _MORE


def _settings(found: Settings, counted: Sequence[Counted]) -> Iterator[str]:
    data_home = Path(found.env["XDG_DATA_HOME"]) if found.env.get("XDG_DATA_HOME") else None
    if found.layout.home != Config.defaults(user_home=found.user_home, data_home=data_home).home:
        yield f"\nhome = {json.dumps(str(found.layout.home), ensure_ascii=False)}"
    far = [each for each in counted if surroundings.kind_of(each.source.root) in surroundings.NETWORK]
    if far:
        names = ", ".join(each.source.name for each in far)
        yield f'\n[capture]\nscan_every = "{_NETWORK_SCAN}"  # {names}: on a network disk, of which no events come'


def _advice(found: Settings, counted: Sequence[Counted]) -> Iterator[str]:
    expected, free = sum(each.bytes for each in counted) // _STORED_SHARE, _free(found.layout.home)
    if free is not None and expected > free // _ROOM_SHARE:
        yield f"\n# What was found will take up to {say.size(expected)}, and {say.size(free)} are free. To have it on another disk:"
        yield '# [archive]\n# url = "/mnt/big/coldtrail"'


def _free(folder: Path) -> int | None:
    while not folder.is_dir() and folder != folder.parent:
        folder = folder.parent
    try:
        disk = os.statvfs(folder)
    except OSError:
        return None
    return disk.f_bavail * disk.f_frsize


# ---- telling ------------------------------------------------------------------------------------------------------------


def _lines(counted: Sequence[Counted]) -> Iterator[str]:
    if not counted:
        yield "no agent was found on this machine; each is looked out for"
    for each in counted:
        much = f"{say.counted(each.sessions, 'session')}, {say.counted(each.files, 'file')}, {say.size(each.bytes)}"
        since = f", of {_day(each.oldest_ms)} to {_day(each.newest_ms)}" if each.files else ""
        yield f"{say.printable(each.source.agent.name)} in {say.folder(str(each.source.root))}: {much}{since}"
        if each.sweep_days is not None:
            yield f"  it deletes them after {each.sweep_days:g} days: {each.soon} within a week"
        if each.unreadable:
            yield f"  {len(each.unreadable)} could not be looked at, the first: {say.printable(each.unreadable[0])}"


def _day(ms: int | None) -> str:
    return str(instant_text(ms))[:_DAY_CHARS]


def _document(each: Counted) -> dict[str, object]:
    return {
        "source": each.source.name,
        "agent": each.source.agent.name,
        "root": str(each.source.root),
        "sessions": each.sessions,
        "files": each.files,
        "bytes": each.bytes,
        "oldest": instant_text(each.oldest_ms),
        "newest": instant_text(each.newest_ms),
        "deletes_after_days": each.sweep_days,
        "deletes_within_a_week": each.soon,
        "unreadable": each.unreadable,
    }
