"""The live conversation: its nodes in order; those that a checkpoint stands for are read from the log when somebody asks for one."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import overload

from coldtrail.format.checkpoint import Run, ToldElsewhere
from coldtrail.state.values import Node

NO_MESSAGE = bytes(32)  # what the first message is chained to


class UnreadError(ValueError):
    """The log does not give the conversation that a checkpoint refers to."""


@dataclass(frozen=True, slots=True)
class Base:
    """What a checkpoint tells of its live nodes without their being read."""

    count: int
    messages: int  # in them
    chain: bytes  # of these messages' hashes
    runs: tuple[Run, ...]
    loose: tuple[int, ...]
    told: tuple[ToldElsewhere, ...]
    read: Callable[[], list[Node]]  # ValueError where the log does not have them

    def nodes(self) -> list[Node]:
        """The nodes, proven to be those that the checkpoint was made of; UnreadError where they are not."""
        try:
            nodes = self.read()
        except ValueError as error:
            raise UnreadError(str(error)) from error
        if len(nodes) != self.count or chained(nodes, 0, NO_MESSAGE) != (self.messages, self.chain):
            raise UnreadError("the log gives another conversation than it was made of")
        return nodes


class Live(Sequence[Node]):
    """Appending, counting and hashing reads nothing; any look at a node reads them all, once."""

    __slots__ = ("_base", "_chain", "_chained", "_messages", "_nodes", "_otherwise")

    def __init__(self, nodes: Iterable[Node] = (), base: Base | None = None) -> None:
        self._base = base
        self._nodes = list(nodes)  # behind the base
        self._chained = 0  # so many of these are in the chain
        self._messages, self._chain = (0, NO_MESSAGE) if base is None else (base.messages, base.chain)
        self._otherwise: Callable[[], Live] | None = None

    @property
    def base(self) -> Base | None:
        """What has not been read yet; None: nothing."""
        return self._base

    @property
    def tail(self) -> list[Node]:
        """The nodes behind `base`."""
        return self._nodes

    @property
    def nodes(self) -> list[Node]:
        """All nodes; UnreadError where those of the checkpoint cannot be had."""
        if self._base is not None:
            self._load(self._base)
        return self._nodes

    @property
    def last(self) -> tuple[int, bool] | None:
        """Of the last node its generation, and whether it is a part of its record; None where there is none."""
        if self._nodes:
            return self._nodes[-1].ref.generation, self._nodes[-1].part is not None
        if self._base is not None and self._base.runs:
            return self._base.runs[-1][0], len(self._base.runs[-1]) > 3
        return None

    def append(self, node: Node) -> None:
        """One more, the last."""
        self._nodes.append(node)

    def put(self, at: int, node: Node) -> None:
        """Another in the place of the one at `at`."""
        self.nodes[at] = node
        self._chained, self._messages, self._chain = 0, 0, NO_MESSAGE

    def chain(self) -> tuple[int, bytes]:
        """How many messages there are, and their hashes, each taken together with all before it."""
        self._messages, self._chain = chained(self._nodes[self._chained :], self._messages, self._chain)
        self._chained = len(self._nodes)
        return self._messages, self._chain

    def read_by(self, read: Callable[[], list[Node]], otherwise: Callable[[], Live]) -> None:
        """From now on what has not been read is read by `read`, or, where that fails, all is what `otherwise` gives."""
        if (base := self._base) is not None:
            self._base = Base(base.count, base.messages, base.chain, base.runs, base.loose, base.told, read)
            self._otherwise = otherwise

    def _load(self, base: Base) -> None:
        try:
            found = base.nodes()
        except UnreadError:
            if self._otherwise is None:
                raise
            other = self._otherwise()
            self._nodes, self._chained, (self._messages, self._chain) = other.nodes, len(other), other.chain()
        else:
            self._nodes, self._chained = [*found, *self._nodes], len(found) + self._chained
        self._base = None

    @overload
    def __getitem__(self, at: int) -> Node: ...
    @overload
    def __getitem__(self, at: slice) -> list[Node]: ...
    def __getitem__(self, at: int | slice) -> Node | list[Node]:
        return self.nodes[at]

    def __iter__(self) -> Iterator[Node]:
        return iter(self.nodes)

    def __len__(self) -> int:
        return len(self._nodes) + (0 if self._base is None else self._base.count)

    def __eq__(self, other: object) -> bool:
        return self.nodes == other.nodes if isinstance(other, Live) else NotImplemented

    __hash__ = None  # type: ignore[assignment] # it changes

    def __repr__(self) -> str:
        return f"<{len(self)} live nodes>"


def chained(nodes: Iterable[Node], messages: int, chain: bytes) -> tuple[int, bytes]:
    """Count and chain with these nodes' messages behind others."""
    sha256 = hashlib.sha256
    for node in nodes:
        for message in node.messages:
            chain = sha256(chain + message.sha256).digest()
        messages += len(node.messages)
    return messages, chain
