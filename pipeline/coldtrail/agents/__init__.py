"""The agents coldtrail knows: every module of this folder that has an `AGENT`."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping
from functools import cache
from types import MappingProxyType

from coldtrail.agents.base import Agent
from coldtrail.errors import UsageError


@cache
def agents() -> Mapping[str, Agent]:
    """Every agent by its name; looked for once, `agents.cache_clear()` looks again."""
    found: dict[str, Agent] = {}
    for module in pkgutil.iter_modules(__path__):
        one = getattr(importlib.import_module(f"{__name__}.{module.name}"), "AGENT", None)
        if one is not None and found.setdefault(one.name, one) is not one:
            raise UsageError(f"{module.name}.py: a second agent is named {one.name!r}", hint="give it a name of its own")
    return MappingProxyType(found)


def agent(name: str) -> Agent:
    """The agent of that name; UsageError lists the names there are.

    >>> agent("codex").folders
    ('sessions', 'archived_sessions')
    """
    try:
        return agents()[name]
    except KeyError:
        raise UsageError(f"no agent is named {name!r}: there are {', '.join(sorted(agents()))}") from None
