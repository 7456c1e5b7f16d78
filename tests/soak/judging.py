"""What must be held of every life in the ledger, and whether it is."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from coldtrail.format.manifest import StreamMeta
from coldtrail.home import Home
from soak.ledger import Life, Reading
from world_of import generation_bytes, metas

TAIL_S = 13.0  # an unfinished line waits for 5 s of quiet, and is looked at again after 5 s more


@dataclass(slots=True)
class Up:
    """One run of the daemon; seconds on the monotonic clock."""

    spawned_s: float
    ready_s: float = float("inf")
    ended_s: float = float("inf")

    def had_s(self, since_s: float, until_s: float) -> float:
        """How long it could see what stood still between these two; for ever where its first scan lies between them."""
        if since_s <= self.spawned_s and self.ready_s <= min(until_s, self.ended_s):
            return float("inf")
        return min(until_s, self.ended_s) - max(since_s, self.ready_s)


@dataclass(frozen=True, slots=True)
class Kept:
    """One generation as it is held."""

    own: bytes
    chain: bytes  # with what it goes on from
    mixed: bool
    newest: bool


@dataclass(slots=True)
class Judgement:
    """What came out."""

    lives: int = 0
    judged: Counter[str] = field(default_factory=Counter)  # how lives ended that had to be held
    whole: int = 0  # of them, those that had to be held to the last byte
    tails: int = 0  # unfinished lines among those
    bytes: int = 0
    wrong: list[str] = field(default_factory=list)


class Judge:
    """Compares what is held with the ledger."""

    def __init__(self, home: Home, ledger: Reading, ups: Sequence[Up], lines_s: float) -> None:
        self._home, self._ledger, self._ups, self._lines_s = home, ledger, ups, lines_s
        self._lives = {life.name: life for life in ledger.lives()}

    def judge(self, end_s: float, *, passed: Callable[[Life], bool]) -> Judgement:
        """Every life, but those that are `passed`; `end_s` is when the last agent had ended."""
        done, by_path, streams = Judgement(), defaultdict[Path, list[Life]](list), self._streams()
        for life in self._lives.values():
            by_path[life.path].append(life)
        for path, lives in by_path.items():
            if passed(lives[0]):
                continue
            kept = [each for meta in streams.get(str(path), []) for each in self._kept(meta)]
            for life in lives:
                done.lives += 1
                done.wrong += self._held(life, kept, end_s, done)
            done.wrong += self._invented(lives, kept)
        return done

    def _streams(self) -> Mapping[str, list[StreamMeta]]:
        found = defaultdict[str, list[StreamMeta]](list)
        for meta in metas(self._home):
            found[meta.path].append(meta)
        return found

    def _kept(self, meta: StreamMeta) -> Iterator[Kept]:
        own = {each.number: generation_bytes(self._home, meta, each.number) for each in meta.generations}
        for each in meta.generations:
            chain = b"".join(own[link.number] for link in meta.chain(each.number))
            yield Kept(own[each.number], chain, each.mixed, each is meta.generations[-1])

    def _held(self, life: Life, kept: Sequence[Kept], end_s: float, done: Judgement) -> Iterator[str]:
        data = self._ledger.bytes_of(life.name)
        if life.ended_s is None:
            done.judged["live"] += 1
            done.bytes += len(data)
            yield from self._live(life, data, kept, end_s)
            return
        due = self._due(life, data)
        if due is None:
            return
        done.judged[life.how] += 1
        done.whole += due == data
        done.tails += due == data and life.is_log and not data.endswith(b"\n")
        done.bytes += len(due)
        if not any(each.own.startswith(due) for each in kept):
            longest = max((_alike(each.own, due) for each in kept), default=0)
            yield f"{life}: {len(due)} bytes had to be held, {longest} are; held there: {[len(each.own) for each in kept]}"
        elif life.head is not None and self._due(self._lives[life.head], self._ledger.bytes_of(life.head)) is not None:
            joined = self._ledger.bytes_of(life.head) + due
            if not any(each.chain.startswith(joined) for each in kept):
                yield f"{life}: held, but not as what goes on with {life.head}"

    def _live(self, life: Life, data: bytes, kept: Sequence[Kept], end_s: float) -> Iterator[str]:
        """At the end everything has been captured: the newest chain is the file."""
        if life.path.read_bytes() != data:
            yield f"{life}: the ledger itself is wrong"
        newest = [each for each in kept if each.newest]
        head = self._ledger.bytes_of(life.head) if life.head is not None else b""
        sure = life.head is not None and self._due(self._lives[life.head], head) is not None
        if not any(each.own == data and (each.chain == head + data or not sure) and not each.mixed for each in newest):
            yield f"{life}: live with {len(data)} bytes, still for {end_s - life.still_s:.1f} s, held are {[len(e.own) for e in newest]}"

    def _due(self, life: Life, data: bytes) -> bytes | None:
        """What of an ended life had to be held by then; None: it came too fast to be sure of anything."""
        assert life.ended_s is not None
        had_s = max((up.had_s(life.still_s, life.ended_s) for up in self._ups), default=0.0)
        if had_s < self._lines_s:
            return None
        lines = data[: data.rfind(b"\n") + 1] if life.is_log else data
        return data if TAIL_S <= had_s < float("inf") else lines

    def _invented(self, lives: Sequence[Life], kept: Sequence[Kept]) -> Iterator[str]:
        """A generation is the beginning of some life, unless it says itself that it may be of two."""
        written = [self._ledger.bytes_of(life.name) for life in lives]
        for number, each in enumerate(kept):
            if not each.mixed and not any(data.startswith(each.own) for data in written):
                alike = max(_alike(each.own, data) for data in written)
                names = [life.name for life in lives]
                yield f"{lives[0].path}: generation {number} of {len(each.own)} bytes is of no life; {alike} bytes are as in one of {names}"


def _alike(one: bytes, other: bytes) -> int:
    """How many bytes two begin with alike."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if one[:middle] == other[:middle] else (low, middle - 1)
    return low
