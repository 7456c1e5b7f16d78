"""The command line: one file a command, each loaded only when it is asked for."""

from __future__ import annotations

import gc
import io
import os
import sys
from importlib import import_module
from typing import Any

import click

from coldtraild.cli.asked import Asked
from coldtraild.cli.ending import DEBUG, ended, tell_bug

NAMES = (
    *("run", "sync", "pause", "resume", "reload", "status", "ls", "show", "events", "state", "restore"),
    *("verify", "drill", "doctor", "rebuild"),
    *("plan", "prune", "pin", "unpin", "tag", "purge", "journal", "init", "service", "config", "completion"),
)

_OBJECTS = 500_000  # made before the collector looks: most commands make a list, print it and end; `run` has it look sooner


class Commands(click.Group):
    """The commands by name. Listing sessions must not wait for what only the daemon or a progress bar needs."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """In the order in which one meets them."""
        return list(NAMES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - the same
        """The `command` of the module of that name."""
        if cmd_name not in NAMES:
            return None
        command: click.Command = import_module(f"{__name__}.{cmd_name}").command
        return command

    def invoke(self, ctx: click.Context) -> Any:
        """Run one, and end with the code that belongs to what became of it."""
        inner = super().invoke
        ctx.exit(ended(lambda: inner(ctx)))


def _print_version(ctx: click.Context, _param: click.Parameter, wanted: bool) -> None:
    if not wanted or ctx.resilient_parsing:
        return
    from importlib.metadata import PackageNotFoundError, version

    try:
        found = version("coldtrail")
    except PackageNotFoundError:
        found = "(not installed: run from its source)"
    click.echo(f"coldtrail {found}")
    ctx.exit()


@click.group(
    cls=Commands,
    name="coldtrail",
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="""A session is named by its key, the agent's own id, a unique beginning of either, or the path of its log.

\b
Exit status:
  0  done
  1  it failed, or our copy is damaged
  2  usage or config error
  3  not found, or ambiguous
  4  refused: bytes would be overwritten or lost, or another daemon runs
  5  could not be verified

\b
Examples:
  coldtrail ls
  coldtrail restore ae3d54a6""",
)
@click.option("--home", metavar="DIR", help="Where everything is kept; else COLDTRAIL_HOME, the config, the default.")
@click.option("--config", metavar="FILE", help="The config file; else COLDTRAIL_CONFIG, else ~/.config/coldtrail/config.toml.")
@click.option("--version", is_flag=True, is_eager=True, expose_value=False, callback=_print_version, help="Print the version and exit.")
@click.pass_context
def coldtrail(ctx: click.Context, home: str | None, config: str | None) -> None:
    """Keep the sessions of AI coding agents: captured while they grow, put back byte for byte."""
    ctx.obj = Asked(home, config)


def main() -> None:
    """What the installed command does; ends the process."""
    gc.set_threshold(_OBJECTS)
    if os.environ.get(DEBUG) != "1":
        sys.excepthook = tell_bug
    if isinstance(sys.stdout, io.TextIOWrapper):  # a title may hold what the terminal's encoding lacks
        sys.stdout.reconfigure(errors="backslashreplace")
    coldtrail.main(prog_name="coldtrail")
