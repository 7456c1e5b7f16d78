"""What a command loads: listing is quick because it waits for nothing that it does not need."""

from __future__ import annotations

from coldtraild.cli import NAMES, coldtrail
from daemon.cli.desk import Desk

HEAVY = (
    "apscheduler",
    "watchdog",
    "rich.console",
    "rich.table",
    "rich.progress",
    "logging",
    "asyncio",
    "coldtraild.service",
    "coldtraild.jobs",
)


def loaded(desk: Desk, *arguments: str) -> set[str]:
    """Which modules a command has loaded when it ends."""
    told = "import atexit, sys\natexit.register(lambda: print('\\n'.join(sys.modules), file=sys.stderr))"
    return set(desk.start(*arguments, before=told).stderr.split("\n"))


def test_a_list_loads_nothing_heavy(desk: Desk) -> None:
    desk.captured()
    assert loaded(desk, "ls").isdisjoint(HEAVY)


def test_a_command_loads_no_other_command(desk: Desk) -> None:
    ours = {name.rpartition(".")[2] for name in loaded(desk, "ls", "--json") if name.startswith("coldtraild.cli.")}
    assert ours & set(NAMES) == {"ls"}


def test_only_the_daemon_loads_its_packages(desk: Desk) -> None:
    desk.captured()
    for command in (["status"], ["verify"], ["rebuild"], ["run", "--once"], ["--help"]):
        assert loaded(desk, *command).isdisjoint({"apscheduler", "watchdog"}), command


def test_every_command_is_named_as_its_file() -> None:
    import click

    with click.Context(coldtrail) as context:
        commands = [coldtrail.get_command(context, name) for name in NAMES]
    assert [command and command.name for command in commands] == list(NAMES)
