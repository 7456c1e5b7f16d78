"""What every command is asked: on which home it works, for which sessions, and in which form it answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from coldtrail.home import Home
from coldtrail.settings import Settings, open_home, settings

if TYPE_CHECKING:
    from coldtrail import Trail


@dataclass(frozen=True, slots=True)
class Asked:
    """The home and the config file that the command line names, if it does."""

    home: str | None
    config: str | None

    def settings(self) -> Settings:
        """Where the home is and what holds in it; ConfigError."""
        return settings(self.home, self.config)

    def trail(self) -> Trail:
        """The home, opened; close it after use."""
        from coldtrail import Trail  # a list does without, which is read sooner than all of that is loaded

        return Trail(self.settings())


def whole_home(found: Settings) -> Home:
    """The home alone, its catalog made again where there is none: all that a list takes. Close it after use."""
    home = open_home(found)
    if home.owes_rebuild():
        from coldtrail.stage.rebuild import rebuild  # the same

        rebuild(home)
    return home


Decorator = Callable[[Any], Any]

pass_asked: Decorator = click.make_pass_decorator(Asked)
as_json: Decorator = click.option("--json", "as_json", is_flag=True, help="Print one JSON document; messages go to stderr.")
force: Decorator = click.option("--force", is_flag=True, help="Mark more sessions than a pass may (most_per_pass).")
one_id: Decorator = click.argument("name", metavar="ID")
some_ids: Decorator = click.argument("names", metavar="ID...", nargs=-1, required=True)
any_ids: Decorator = click.argument("names", metavar="[ID]...", nargs=-1)


def epilog(*examples: str, exits: Mapping[int, str] | None = None) -> str:
    """The end of a command's help: what its exit codes say, and how it is called."""
    status = ["\b\nExit status:", *(f"  {code}  {what}" for code, what in exits.items()), ""] if exits else []
    return "\n".join([*status, "\b\nExample:" if len(examples) == 1 else "\b\nExamples:", *(f"  {each}" for each in examples)])
