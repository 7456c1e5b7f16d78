"""Service managers that only listen: what they are told, and what they answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from coldtraild.units.base import Done

Answer = Done | Callable[[], Done]


@dataclass
class Fake:
    """Programs that are not run; the answer is that of the longest beginning of the command."""

    answers: dict[str, Answer] = field(default_factory=dict)
    ran: list[str] = field(default_factory=list)
    shown: list[str] = field(default_factory=list)

    def run(self, command: Sequence[str], /) -> Done:
        words = " ".join(command)
        self.ran.append(words)
        fitting = [beginning for beginning in self.answers if words.startswith(beginning)]
        answer = self.answers[max(fitting, key=len)] if fitting else Done(0)
        return answer if isinstance(answer, Done) else answer()

    def show(self, command: Sequence[str], /) -> int:
        self.shown.append(" ".join(command))
        return 0

    def changed(self) -> list[str]:
        """What was run that is more than a question."""
        questions = ("systemctl --version", "loginctl show-user", "launchctl print")
        return [each for each in self.ran if not each.startswith(questions) and " show " not in each]
