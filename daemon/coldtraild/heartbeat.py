"""Does everything that must move still move? Each part says when it has; the service manager hears of it while all have."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from coldtraild.log import NAME
from coldtraild.notify import Manager

HANG_S = 300.0  # so long a part may say nothing
BUSY_S = 3 * 3_600.0  # and so long while its thread computes: a file of many GB is one step, and being ended in it would begin it anew
LOOK_EVERY_S = 10.0
START_S = 120.0  # a start may take so much longer, said anew at each look: the first pass takes as long as there are logs
_COMPUTES_S = 0.001  # of a thread's own time between two looks; one that is stuck has none

log = logging.getLogger(NAME)


@dataclass(slots=True)
class _Beat:
    """When a part last moved, and the clock of the thread that it did so on."""

    at_s: float
    spent_s: Callable[[], float]
    spent_last_s: float


def thread_clock() -> Callable[[], float]:
    """Tells how long the calling thread has computed, whoever asks; 0 for ever where the system does not tell."""
    if not hasattr(time, "pthread_getcpuclockid"):
        return lambda: 0.0
    number = time.pthread_getcpuclockid(threading.get_ident())

    def spent_s() -> float:
        try:
            return time.clock_gettime(number)
        except OSError:  # the thread has ended
            return 0.0

    return spent_s


class Heartbeat:
    """Collects the beats of the parts, and passes them on from a thread of its own.

    `on_hang` is called with the names of the parts that are stuck, at each look; a manager that has a watchdog ends us
    then by itself, for it hears nothing more. `clock_s` counts seconds, and stands still while the machine sleeps.
    """

    def __init__(self, manager: Manager, on_hang: Callable[[list[str]], None], *, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._manager, self._on_hang, self._clock_s = manager, on_hang, clock_s
        self._beats: dict[str, _Beat] = {}
        self._ready = False
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="coldtrail-heartbeat", daemon=True)

    def beat(self, part: str) -> None:
        """This part has moved; from its first beat on it must."""
        spent_s = thread_clock()
        self._beats[part] = _Beat(self._clock_s(), spent_s, spent_s())

    def start(self) -> None:
        """Begin to pass them on."""
        self._thread.start()

    def ready(self) -> None:
        """The start is over: from now on the watchdog counts."""
        self._ready = True

    def stop(self) -> None:
        """Pass on no more; what ends has its own time limit."""
        self._stop.set()

    def stuck(self) -> list[str]:
        """The parts that have not moved for too long."""
        now_s = self._clock_s()
        return [part for part, beat in list(self._beats.items()) if _is_stuck(beat, now_s)]

    def look(self) -> None:
        """Tell the manager how we are."""
        stuck = self.stuck()
        if stuck:
            self._on_hang(stuck)
        elif self._ready:
            self._manager.alive()
        else:
            self._manager.starting("looking at what there is", START_S)

    def _run(self) -> None:
        wanted_s = self._manager.watchdog_s / 3
        every_s = min(wanted_s, LOOK_EVERY_S) if wanted_s else LOOK_EVERY_S
        while not self._stop.is_set():
            self.look()
            self._stop.wait(every_s)


def _is_stuck(beat: _Beat, now_s: float) -> bool:
    spent_s = beat.spent_s()
    computes = spent_s - beat.spent_last_s > _COMPUTES_S
    beat.spent_last_s = spent_s
    silent_s = now_s - beat.at_s
    return silent_s > (BUSY_S if computes else HANG_S)
