"""`coldtrail completion`: what a shell needs to complete commands and options."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from coldtrail import UsageError
from coldtraild.cli.asked import epilog


@click.command(
    "completion",
    epilog=epilog(
        'eval "$(coldtrail completion bash)"',
        'eval "$(coldtrail completion zsh)"',
        "coldtrail completion fish > ~/.config/fish/completions/coldtrail.fish",
    ),
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def command(ctx: click.Context, shell: str) -> None:
    """Print a script for completion in a shell.

    It completes commands and options. Put the line of your shell into its start file.
    """
    completion = get_completion_class(shell)
    if completion is None:
        raise UsageError(f"{shell}: the installed version of click has no completion for it")
    click.echo(completion(ctx.find_root().command, {}, "coldtrail", "_COLDTRAIL_COMPLETE").source())
