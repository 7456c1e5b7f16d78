"""`coldtrail config`: what is configured, and what is wrong with it."""

from __future__ import annotations

from pathlib import Path

import click

from coldtrail import ConfigError
from coldtrail.config import show
from coldtrail.format.toml import Document, World
from coldtrail.settings import Settings
from coldtraild.cli import say
from coldtraild.cli.asked import Asked, as_json, epilog, pass_asked
from coldtraild.cli.ending import tell

_EXITS = {0: "it is good", 2: "something is wrong with it"}


@click.group("config", epilog=epilog("coldtrail config check", "coldtrail config show"))
def command() -> None:
    """Show the config in force, or check it."""


@command.command("show", epilog=epilog("coldtrail config show", "coldtrail --config other.toml config show --json", exits=_EXITS))
@as_json
@pass_asked
def show_command(asked: Asked, *, as_json: bool) -> None:
    """Show the config in force: every key, those that the file leaves out too.

    Prints TOML that can be used as a config file.
    """
    found = asked.settings()
    text = show(found.config)
    if as_json:
        values = Document(text, "", World(Path.home(), ())).top().values
        say.document({"file": _file(found), "config": values})
    else:
        click.echo(f"# {say.printable(_file(found) or 'no config file: these are the defaults')}\n{text}", nl=False)


@command.command("check", epilog=epilog("coldtrail config check", exits=_EXITS))
@as_json
@pass_asked
def check_command(asked: Asked, *, as_json: bool) -> int:
    """Check the config file.

    Prints that it is good; else what is wrong goes to stderr, by file, line and key. A source whose folder is not there is
    no error, for a disk may be unmounted: it is said.
    """
    try:
        found = asked.settings()
    except ConfigError as error:
        if as_json:
            wrong = {"message": str(error), "file": error.file or None, "line": error.line, "key": error.key or None, "hint": error.hint}
            say.document({"file": error.file or None, "ok": False, "error": wrong, "missing": []})
        return tell(error)
    missing = [str(source.root) for source in found.config.sources if not source.root.is_dir()]
    for root in missing:
        say.message(f"{root}: this source's folder is not there")
    if as_json:
        say.document({"file": _file(found), "ok": True, "error": None, "missing": missing})
    else:
        click.echo(f"ok: {say.printable(_file(found) or 'no config file, the defaults hold')}")
    return 0


def _file(found: Settings) -> str | None:
    return None if found.config_file is None else str(found.config_file)
