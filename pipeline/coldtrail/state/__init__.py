"""The state of a session: a pure fold of what its records mean, bounded by the live conversation, not by the log."""

from coldtrail.state.conversation import Conversation, Past
from coldtrail.state.fold import VERSION, Fold
from coldtrail.state.live import Live, UnreadError
from coldtrail.state.nodes import nodes_of
from coldtrail.state.state import State
from coldtrail.state.values import Early, Grown, Message, Node, Ref, Tool, completed_tool, digest

__all__ = [
    "VERSION",
    "Conversation",
    "Early",
    "Fold",
    "Grown",
    "Live",
    "Message",
    "Node",
    "Past",
    "Ref",
    "State",
    "Tool",
    "UnreadError",
    "completed_tool",
    "digest",
    "nodes_of",
]
