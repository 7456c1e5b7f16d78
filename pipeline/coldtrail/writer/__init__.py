"""For people's own agents: a log that many may append to at once, where an event is whole or not there."""

from coldtrail.writer.ids import SortableIds
from coldtrail.writer.log import Appended, Fsync, Writer, log_path
from coldtrail.writer.recovered import state_of

__all__ = ["Appended", "Fsync", "SortableIds", "Writer", "log_path", "state_of"]
