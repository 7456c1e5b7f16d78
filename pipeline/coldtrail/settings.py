"""Where a home is and what holds in it: as it is asked for, else as the surroundings say. The one room that looks at the environment."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path

from coldtrail import durable
from coldtrail.agents import agents
from coldtrail.agents.sources import sources
from coldtrail.agents.walk import Source
from coldtrail.config import Config, load_file
from coldtrail.home import Home
from coldtrail.layout import Layout
from coldtrail.steady import Uptime


@dataclass(frozen=True, slots=True)
class Settings:
    """Where the home is and what holds in it."""

    config: Config
    layout: Layout
    sources: tuple[Source, ...]
    config_file: Path | None  # None: there is none, the defaults hold
    user_home: Path
    env: Mapping[str, str] = field(repr=False)  # as it was then; agents may have been told by it where to keep their sessions


def settings(
    home: str | Path | None = None, config: str | Path | None = None, *, env: Mapping[str, str] | None = None, unread: bool = False
) -> Settings:
    """Find the home and its config: argument, then environment, then config file, then default. ConfigError.

    `unread`: as if there were no config file, whatever is said of one.
    """
    env = dict(os.environ if env is None else env)
    user_home = Path(env.get("HOME") or Path.home())
    file = None if unread else _config_file(config, env, user_home)
    data_home = Path(env["XDG_DATA_HOME"]) if env.get("XDG_DATA_HOME") else None
    said = home or env.get("COLDTRAIL_HOME")
    named = Path(said).expanduser().absolute() if said else None
    if file is not None:
        found = load_file(file, user_home=user_home, data_home=data_home, home=named, agents=tuple(agents()))
    else:
        found = Config.defaults(user_home=user_home, data_home=data_home, home=named)
    layout = Layout.at(found.home, found.archive.folder)
    there = sources(found.sources, env if found.discover else None, user_home)
    return Settings(found, layout, tuple(there), file, user_home, env)


def find_sources(found: Settings) -> list[Source]:
    """The sources as of now, in the surroundings that the settings were found in: an agent may have been installed since."""
    return sources(found.config.sources, found.env if found.config.discover else None, found.user_home)


def open_home(found: Settings) -> Home:
    """The home of these settings, for one thread."""
    return Home.open(found.layout, agents(), now_ms)


def _config_file(config: str | Path | None, env: Mapping[str, str], user_home: Path) -> Path | None:
    place = config_place(config, env, user_home)
    return place if config or env.get("COLDTRAIL_CONFIG") or place.exists() else None


def config_place(config: str | Path | None, env: Mapping[str, str], user_home: Path) -> Path:
    """Where the config file is, or would be: argument, then environment, then the usual place."""
    said = config or env.get("COLDTRAIL_CONFIG")
    if said:
        return Path(said).expanduser()
    return Path(env.get("XDG_CONFIG_HOME") or user_home / ".config") / "coldtrail" / "config.toml"


def alone(found: Settings) -> AbstractContextManager[None]:
    """Hold the lock of the home's one daemon, or of who does its work for a moment; LockedError where somebody else has it."""
    return durable.locked(found.layout.daemon_lock, wait=False, note=f"{os.getpid()}\n".encode())


def now_ms() -> int:
    """The clock that everything below is given."""
    return time.time_ns() // 1_000_000


def uptime() -> Uptime:
    """How long this machine has been up, sleep included, and which start that is counted from, where the system tells."""
    clock = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)  # macOS counts sleep in the latter
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    except OSError:
        boot = ""
    return Uptime(boot, time.clock_gettime_ns(clock) // 1_000_000)
