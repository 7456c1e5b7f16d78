"""The state of a session: a pure fold of what its records mean, bounded by the live conversation, not by the log."""

from coldtrail.state.conversation import Conversation, Past
from coldtrail.state.fold import VERSION, Fold
from coldtrail.state.nodes import nodes_of
from coldtrail.state.values import Early, Grown, Message, Node, Ref, State, Tool, completed_tool, digest

__all__ = [
    "VERSION",
    "Conversation",
    "Early",
    "Fold",
    "Grown",
    "Message",
    "Node",
    "Past",
    "Ref",
    "State",
    "Tool",
    "completed_tool",
    "digest",
    "nodes_of",
]
