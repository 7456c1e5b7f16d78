"""Which folders to watch: those the user named, then every agent's own, each real folder once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Protocol

from coldtrail.agents import agent as agent_named
from coldtrail.agents import agents
from coldtrail.agents.base import Agent, first_existing
from coldtrail.agents.walk import Source
from coldtrail.layout import safe_name


class Named(Protocol):
    """A source as the config names it."""

    @property
    def name(self) -> str:
        """The user's word for it."""

    @property
    def agent(self) -> str:
        """Whose format it has."""

    @property
    def root(self) -> Path:
        """The folder."""


def sources(named: Iterable[Named], env: Mapping[str, str] | None, user_home: Path) -> list[Source]:
    """Every source, the named ones first; `env` None: only those.

    A named folder need not be there yet; of an agent that is not on this machine its usual folder is looked out for.
    """
    found: dict[Path, Source] = {}
    for each in named:
        root = each.root.resolve()
        found.setdefault(root, Source(each.name, agent_named(each.agent), root))
    for agent in agents().values() if env is not None else ():
        roots = agent.roots(env or {}, user_home)
        for root in list(first_existing(roots)) or [root.resolve() for root in roots[:1]]:
            taken = {each.name for each in found.values()}
            found.setdefault(root, Source(_name(agent, root, user_home, taken), agent, root))
    return list(found.values())


def _name(agent: Agent, root: Path, user_home: Path, taken: set[str]) -> str:
    """The agent's name for its usual root (unless a named source has it), else that and a hash of the root: the same at every start."""
    usual = [path.resolve() for path in agent.roots({}, user_home)]
    return agent.name if usual[:1] == [root] and agent.name not in taken else safe_name(f"{agent.name}-{root}")
