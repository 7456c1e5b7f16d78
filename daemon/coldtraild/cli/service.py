"""`coldtrail service`: the daemon under the machine's own service manager."""

from __future__ import annotations

import os
import pwd
import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

import click

from coldtrail import NotFoundError, UsageError
from coldtrail.settings import Settings, settings
from coldtraild.cli import say
from coldtraild.cli.asked import Asked, as_json, epilog, pass_asked
from coldtraild.units import Installed, Manager, Programs, Service, Step
from coldtraild.units.launchd import Launchd, kept_from
from coldtraild.units.programs import Real
from coldtraild.units.systemd import MACHINE_FOLDER, Systemd

# What may have told the shell, but will not tell the service, where things are.
_TOLD_BY_ENV = (
    *("COLDTRAIL_HOME", "COLDTRAIL_CONFIG", "XDG_DATA_HOME", "XDG_CONFIG_HOME"),
    *("CLAUDE_CONFIG_DIR", "CODEX_HOME", "GEMINI_CLI_HOME"),
)
_SYSTEMD_RUNS = Path("/run/systemd/system")
_NO_MANAGER = "neither systemd nor launchd runs this machine"
_BY_HAND = "let your own supervisor keep `coldtrail run` running; if that one restarts whatever the exit code, `coldtrail run --supervised`"
_ALLOW = "if your alarm has to: systemctl edit coldtraild, and there [Service] and IPAddressAllow=any"
_EXITS = {0: "done", 1: "the service manager refused", 2: "usage or config error, or no service manager", 4: "a file there is not ours"}

for_machine = click.option("--system", "system", is_flag=True, help="The one for the whole machine, from boot on; needs root.")


@click.group("service", epilog=epilog("coldtrail service install", "coldtrail service status"))
def command() -> None:
    """Let the machine run the daemon: from boot on, started again when it fails.

    By systemd on Linux and by launchd on macOS. `install` says what it did and how to undo each step; `uninstall` undoes all of it.
    """


@command.command("install", epilog=epilog("coldtrail service install", "sudo coldtrail service install --system --user ann", exits=_EXITS))
@for_machine
@click.option("--user", metavar="NAME", help="With --system: whose agents are kept; the daemon runs as this user.")
@click.option("--print", "only_print", is_flag=True, help="Print what would be written, and change nothing.")
@pass_asked
def install_command(asked: Asked, *, system: bool, user: str | None, only_print: bool) -> None:
    """Write the service's file, and have it started now and from now on.

    Prints each step and how to undo it. --home and --config are passed on to the daemon, and so is what the environment says
    of folders. To be run again after an upgrade, or when coldtrail was moved.
    """
    if system != (user is not None):
        raise UsageError("--system and --user NAME belong together", hint="coldtrail service install --system --user ann")
    found = _settings_of(asked, user)
    service = _service(asked, found, user, supervised=_is_mac())
    manager = _manager(system=system, needs_root=not only_print, even_without=only_print)
    if only_print:
        click.echo(manager.text(service), nl=False)
        return
    for step in manager.install(service):
        _tell(step)
    _tell_of_kept_folders(found)
    if system and found.config.service.alarm:
        say.message(f"from this unit {found.config.service.alarm[0]} reaches nobody over the network", hint=_ALLOW)
    machine = " --system" if system else ""
    click.echo(f"All of it is undone by: coldtrail service uninstall{machine}")
    click.echo(f"How it is: coldtrail service status{machine}. What it keeps: coldtrail status")


@command.command("uninstall", epilog=epilog("coldtrail service uninstall", exits=_EXITS))
@for_machine
@pass_asked
def uninstall_command(asked: Asked, *, system: bool) -> None:
    """Stop the service and take back what `install` did. Everything kept stays, and stays readable."""
    for step in _manager(system=system, needs_root=True).uninstall():
        _tell(step)
    del asked  # what is kept is not even looked at
    click.echo("What was kept is untouched: coldtrail ls")


@command.command(
    "status",
    epilog=epilog("coldtrail service status", exits={0: "it runs", 1: "it does not", 2: "no service manager", 3: "it is not installed"}),
)
@for_machine
@as_json
@pass_asked
def status_command(asked: Asked, *, system: bool, as_json: bool) -> int:
    """How the service is, by the service manager's own word."""
    found = _manager(system=system).installed()
    if as_json:
        say.document({"installed": found is not None, **(asdict(found) if found else {})})
    if found is None:
        hint = f"coldtrail service install{' --system --user NAME' if system else ''}"
        raise NotFoundError("the service is not installed", hint=hint)
    if not as_json:
        _print(found)
    if _is_mac():
        _tell_of_kept_folders(asked.settings())
    return 0 if found.runs else 1


@command.command("logs", epilog=epilog("coldtrail service logs", "coldtrail service logs -f"))
@for_machine
@click.option("--follow", "-f", is_flag=True, help="Go on with what is logged from now on, until Ctrl-C.")
@click.option("--lines", "-n", default=100, show_default=True, type=click.IntRange(min=0), help="How many of the last lines.")
def logs_command(*, system: bool, follow: bool, lines: int) -> int:
    """Print what the daemon has logged: paths, counts and times, never any text of a session."""
    return _manager(system=system).logs(lines, follow=follow)


# --- which service, under which manager ---


def programs() -> Programs:
    """How programs are run."""
    return Real.of(os.environ, os.geteuid())


def _manager(*, system: bool, needs_root: bool = False, even_without: bool = False) -> Manager:
    """The service manager of this machine; UsageError where there is none, or who asks may not."""
    if _is_mac():
        if system:
            raise UsageError("--system: on macOS the service is a user's", hint="coldtrail service install")
        library = Path.home() / "Library"
        return Launchd(programs(), library / "LaunchAgents", library / "Logs" / "coldtrail" / "coldtrail.log", os.getuid())
    if not even_without and not _SYSTEMD_RUNS.is_dir():
        raise UsageError(_NO_MANAGER, hint=_BY_HAND)
    if needs_root:
        _check_who(system=system)
    config = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    me = pwd.getpwuid(os.geteuid()).pw_name
    return Systemd(programs(), MACHINE_FOLDER if system else config / "systemd" / "user", me, for_machine=system)


def _check_who(*, system: bool) -> None:
    if system and os.geteuid() != 0:
        raise UsageError("--system: only root may do this", hint=f"sudo {_program()[0]} service ... --system")
    if not system and os.geteuid() == 0 and os.environ.get("SUDO_USER"):
        raise UsageError(
            "this is root's own service, not yours",
            hint=f"do it without sudo; or, for the whole machine: --system --user {os.environ['SUDO_USER']}",
        )


def _settings_of(asked: Asked, user: str | None) -> Settings:
    """As the daemon will find them; ConfigError, before anything is written."""
    if user is None:
        return asked.settings()
    return settings(asked.home, asked.config, env={"HOME": _home_of(user)})


def _home_of(user: str) -> str:
    try:
        return pwd.getpwnam(user).pw_dir
    except KeyError as error:
        raise NotFoundError(f"there is no user {user} on this machine") from error


def _service(asked: Asked, found: Settings, user: str | None, *, supervised: bool) -> Service:
    command = [*_program()]
    if asked.home:
        command += ["--home", str(found.layout.home)]
    if asked.config and found.config_file:
        command += ["--config", str(found.config_file.absolute())]
    command += ["run", *(["--supervised"] if supervised else [])]
    places = {str(found.user_home), str(found.layout.home), str(found.layout.archive), *(str(each.root) for each in found.sources)}
    env = {} if user else _told(os.environ)
    return Service(tuple(command), env, user or "", tuple(sorted(_tops(places))))


def _tops(places: set[str]) -> list[str]:
    """Of folders that lie in each other, the outermost."""
    return [each for each in places if not any(Path(other) in Path(each).parents for other in places)]


def _told(env: Mapping[str, str]) -> dict[str, str]:
    return {name: os.path.abspath(os.path.expanduser(env[name])) for name in _TOLD_BY_ENV if env.get(name)}


def _program() -> tuple[str, ...]:
    """This coldtrail, by a path that holds outside of this shell: the command beside its interpreter, else as a module."""
    beside = Path(sys.executable).with_name("coldtrail")
    return (str(beside),) if os.access(beside, os.X_OK) else (sys.executable, "-P", "-m", "coldtraild.cli")


def _is_mac() -> bool:
    return sys.platform == "darwin"


# --- what is said ---


def _tell(step: Step) -> None:
    click.echo(say.printable(step.done))
    if step.undo:
        click.echo(f"    undo: {say.printable(step.undo)}")


def _print(found: Installed) -> None:
    since = f" since {found.since}" if found.since else ""
    pid = f", process {found.pid}" if found.pid else ""
    click.echo(f"{found.manager} says: {say.printable(found.state)}{since}{pid}")
    for name, value in (
        ("it says", found.says if found.runs else ""),
        ("ended by", found.ended),
        ("started anew", "" if found.restarts is None else say.counted(found.restarts, "time")),
        ("starts by itself", "yes" if found.starts_by_itself else "no: coldtrail service install"),
        ("runs after logout", "yes" if found.outlives_logout else "no" if found.manager == "launchd" else "no: loginctl enable-linger"),
        ("file", found.file),
    ):
        if value:
            click.echo(f"  {name}: {say.printable(value)}")
    click.echo("What it keeps, and how fresh that is: coldtrail status")


def _tell_of_kept_folders(found: Settings) -> None:
    """On macOS, where the privacy settings keep an agent's folder from us."""
    if _is_mac():
        for folder in kept_from(source.root for source in found.sources):
            say.message(
                f"{folder}: macOS does not let coldtrail look into it",
                hint=f"System Settings, Privacy & Security, Full Disk Access: add {os.path.realpath(sys.executable)}, then install again",
            )
