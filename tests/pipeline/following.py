"""A follower that is stepped, and a process that follows: what they have told so far, what was taken back left out."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from coldtrail import Event, Position, Session
from coldtrail.follow import Follower, Surroundings
from coldtrail.home import Home
from coldtrail.stage import barrier
from coldtrail.tail import TAKEN_BACK
from crash.working import RealClock, id_of
from pipeline.stage.places import the_session
from world_of import Lines, World, small_sizes

QUIET_MS = 6_000
Capture = Callable[[str], bool]


def nobody(_session: str) -> bool:
    """Somebody else holds the daemon's lock."""
    return False


def by_itself(world: World) -> Capture:
    """No daemon runs."""

    def capture(session: str) -> bool:
        with world.open() as home:
            barrier.catch_up(home, world.sources, session)
        return True

    return capture


class Stepped:
    """Follows one session, a look at a time."""

    def __init__(
        self,
        home: Home,
        *,
        after: Position | str | None = None,
        stream: str | None = None,
        session: Session | None = None,
        capture: Capture = nobody,
    ) -> None:
        """Of the only session, unless it is named; `capture` is what it does where it cannot go on without."""
        with (session or the_session(home)).reader(stream) as reader:
            self.follower = Follower.of(home, reader, None, None, after, capture)
        self._events = self.follower.read()
        self.told: list[Event] = []  # without what was taken back
        self._gaps = 0

    def look(self) -> list[Event]:
        """What is new."""
        new: list[Event] = []
        for event in self._events:
            self._take_back(new)
            if event is None:
                self.told += new
                return new
            new.append(event)
        raise AssertionError("it has ended")

    def looks(self, count: int = 4) -> list[Event]:
        """The same, several times: a life that ends, one that begins, and a doubt need a look each."""
        return [event for _ in range(count) for event in self.look()]

    def _take_back(self, new: list[Event]) -> None:
        for gap in self.follower.gaps[self._gaps :]:
            assert gap.what == TAKEN_BACK, gap
            for told in (self.told, new):
                told[:] = [event for event in told if event.position.generation != gap.generation or event.position.offset < gap.start]
        self._gaps = len(self.follower.gaps)


def ids(events: list[Event]) -> list[str | None]:
    """The ids of those that say something."""
    return [event.id for event in events if event.type == "message_added"]


def numbers(lines: Lines, first: int, end: int) -> list[str | None]:
    """The ids of some lines."""
    return [lines.id_of(number) for number in range(first, end)]


def grown(world: World, data: bytes) -> None:
    """The agent has written, and a scan came by."""
    world.append(world.main(), data)
    world.clock.tick(QUIET_MS)
    world.scan()


def generations(events: list[Event]) -> set[int]:
    """In which lives some events stand."""
    return {event.position.generation for event in events}


def main() -> None:
    """`python -m pipeline.following FOLDER`: follows until stdin ends, then until nothing is new; prints how many events came."""
    world = World(Path(sys.argv[1]), RealClock())
    with small_sizes(), world.open() as home:
        (row,) = home.catalog.sessions()
        ended = _Ended()
        session = Session(home, row, Surroundings(ended.wait, lambda _: False))
        count, last = 0, Position(0, -1)
        for event in session.follow(poll_s=0.01, stop=ended):
            assert event.position > last, f"{event.position} behind {last}"
            if event.position.offset != last.offset:
                assert event.id == id_of(count), f"{event.id} where {id_of(count)} was due"
                count += 1
            last = event.position
        assert session.gaps == []
    sys.stdout.write(f"{count}\n")


class _Ended:
    """Whether stdin has ended; waits for that or for the time."""

    def __init__(self) -> None:
        import select

        self._poll = select.poll()
        self._poll.register(sys.stdin.fileno(), select.POLLIN | select.POLLHUP)
        self._pauses = 0

    def wait(self, seconds: float) -> None:
        self._poll.poll(seconds * 1000)

    def __call__(self) -> bool:
        self._pauses = self._pauses + 1 if self._poll.poll(0) else 0
        return self._pauses > 4


if __name__ == "__main__":
    main()
