"""Plays a random game of retention: agents write and delete, users wish, retention acts and dies; a naive model keeps count."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from coldtrail.catalog import SessionRow
from coldtrail.config import Retention, Rule
from coldtrail.home import Home
from coldtrail.retention import Plan, Verdict
from coldtrail.stage import expire, prune, purge, thin, wish
from coldtrail.stage.adopt import adopt, adopt_wishes
from coldtrail.stage.rebuild import rebuild
from coldtrail.stage.restore import Passed, Wish, carry_out, plan_restore
from coldtrail.stage.scan import Scanner
from coldtrail.stage.verify import verify
from crash.image import Image
from crash.killing import dies_at
from world_of import Lines, World, chain_bytes, compact, generation_bytes, metas

HOUR, DAY = 3_600_000, 86_400_000
HOLD_MS = 5 * DAY
KEEP = 2  # versions of a companion
PROJECTS = ("-p", "-q")
ACTS = (Verdict.EXPIRE, Verdict.REMOVE, Verdict.LIFT)


@dataclass(slots=True)
class Told:
    """What is known of a session without asking coldtrail."""

    id: str
    project: str
    lines: Lines
    status: str = "unmet"  # then kept, expired, purged
    live: dict[Path, bytes] = field(default_factory=dict)
    seen: dict[Path, list[bytes]] = field(default_factory=dict)  # each content that must be held; of a log only the newest
    gone: dict[Path, bytes] = field(default_factory=dict)  # what was held when it expired
    last_ms: int = 0  # of its lines that were seen
    written_ms: int = 0
    pinned: bool = False
    held_until_ms: int = 0
    marked_ms: int | None = None

    def newest(self) -> dict[Path, bytes]:
        """What a restore must bring."""
        return {path: versions[-1] for path, versions in self.seen.items()}

    def scanned(self) -> None:
        """Two passes have looked at everything."""
        if self.status == "purged" or not self.live:
            return
        if self.status == "expired" and all(self.gone.get(path) == data for path, data in self.live.items()):
            return
        if self.status != "kept":
            self.status, self.seen, self.marked_ms, self.pinned, self.held_until_ms, self.gone = "kept", {}, None, False, 0, {}
        for path, data in self.live.items():
            versions = self.seen.setdefault(path, [])
            if not versions or versions[-1] != data:
                self.marked_ms = None
                self.seen[path] = [*versions, data] if path.suffix == ".txt" else [data]
        self.last_ms = max(self.last_ms, self.written_ms)

    def removed(self, status: str) -> None:
        """Nothing of it is held any more."""
        self.status, self.gone, self.seen, self.marked_ms = status, self.newest(), {}, None
        self.last_ms = 0


class Game:
    """One world, some sessions, a policy that changes, and what must be held."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.random = random.Random(seed)
        self.world = World(folder)
        self.home: Home = self.world.open()
        self.moves: list[str] = []
        self.told: dict[str, Told] = {}
        self.policy = Retention()
        self.away = False
        self.change_policy()
        for _ in range(3):
            self.begin()
        self.scan()

    def close(self) -> None:
        """Let the home go."""
        self.home.close()

    def play(self, turns: int) -> None:
        """So many moves, with a reckoning behind each that could lose something."""
        agents = [self.begin, self.grow, self.grow, self.rewrite, self.delete, self.touch]
        users = [self.pin, self.unpin, self.restore, self.purge, self.change_policy]
        ours = [self.scan, self.scan, self.compact, self.thin, self.prune, self.prune, self.prune, self.dies, self.lose_catalog, self.start]
        for _ in range(turns):
            move: Callable[[], None] = self.random.choice(self.random.choice((agents, users, ours)))
            self.moves.append(move.__name__)
            move()
            self.world.clock.tick(self.random.choice((1_000, HOUR, HOUR, DAY, 4 * DAY)))
            self.reckon()

    # ---- the agents ---------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        if len(self.told) < 8:
            name = f"{len(self.told):08d}-0000-4000-8000-000000000000"
            self.told[name] = Told(name, self.random.choice(PROJECTS), Lines(self.world.clock, name))
            self._grow(self.told[name], self.world.main)
            if self.random.random() < 0.5:
                self._write(self.told[name])

    def grow(self) -> None:
        one = self._any(lambda each: self.world.main(each.project, each.id) in each.live)
        if one is not None:
            self._grow(one, self.random.choice((self.world.main, self.world.main, self.world.child)))

    def _grow(self, one: Told, place: Callable[[str, str], Path]) -> None:
        path, data = place(one.project, one.id), one.lines.some(self.random.randint(1, 8))
        if path not in one.live and path in one.seen:
            return  # made again without its head: another game's
        self.world.append(path, data)
        one.live[path] = one.live.get(path, b"") + data
        one.written_ms = self.world.clock()

    def rewrite(self) -> None:
        one = self._any(lambda each: bool(each.live))
        if one is not None:
            self._write(one)

    def _write(self, one: Told) -> None:
        path = self.world.companion(one.project, one.id)
        one.live[path] = self.random.randbytes(self.random.randint(1, 900))
        self.world.write(path, one.live[path])

    def delete(self) -> None:
        """As the sweep does."""
        one = self._any(lambda each: bool(each.live))
        if one is not None:
            self.scan()
            main = self.world.main(one.project, one.id)
            main.unlink(missing_ok=True)
            shutil.rmtree(main.with_suffix(""), ignore_errors=True)
            one.live = {}

    def touch(self) -> None:
        one = self._any(lambda each: bool(each.live))
        for path in one.live if one is not None else ():
            self.world.stamp(path)

    def _any(self, fits: Callable[[Told], bool]) -> Told | None:
        found = [each for each in self.told.values() if fits(each)]
        return self.random.choice(found) if found else None

    def _kept(self) -> list[Told]:
        return [each for each in self.told.values() if each.status == "kept"]

    # ---- the user -----------------------------------------------------------------------------------------------------

    def row(self, one: Told) -> SessionRow:
        (row,) = self.home.catalog.sessions_with_id(one.id)
        return row

    def pin(self) -> None:
        self._pin(pinned=True)

    def unpin(self) -> None:
        self._pin(pinned=False)

    def _pin(self, *, pinned: bool) -> None:
        one = self._any(lambda each: each.status == "kept")
        if one is not None:
            wish.set_pin(self.home, self.row(one), pinned=pinned)
            one.pinned = pinned

    def restore(self) -> None:
        one = self._any(lambda each: each.status == "kept" and not each.live)
        if one is None:
            return
        done = list(carry_out(self.home, plan_restore(self.home, self.row(one), Wish()), HOLD_MS))
        assert not [each for each in done if isinstance(each, Passed) and each.failed], done
        one.live = {path: path.read_bytes() for path in one.seen}
        assert one.live == one.newest()
        one.held_until_ms, one.marked_ms = self.world.clock() + HOLD_MS, None

    def purge(self) -> None:
        if self.random.random() < 0.3 and (one := self._any(lambda each: each.status == "kept")) is not None:
            done = purge.purge(self.home, self.row(one), "asked for", live=False)
            assert (done.found_in, done.scrubbed) == ((), True)
            one.removed("purged")

    def change_policy(self) -> None:
        """Another rule, another grace; sometimes none at all."""
        draw = self.random
        within = draw.choice((None, HOUR, DAY, 5 * DAY))
        last = draw.choice((None, 1, 2)) if within is not None else draw.choice((1, 2))
        rules = (Rule(keep_within_ms=within, keep_last=last),) if draw.random() < 0.85 else ()
        self.policy = Retention(grace_ms=draw.choice((1_000, DAY, 3 * DAY)), companion_versions=KEEP, rules=rules)
        self.away = draw.random() < 0.1

    # ---- coldtrail ----------------------------------------------------------------------------------------------------

    def scan(self) -> None:
        for _ in range(2):
            Scanner(self.home).scan(self.world.sources, whole=True)
        assert not self.home.catalog.faults()
        for one in self.told.values():
            one.scanned()

    def compact(self) -> None:
        compact(self.home, cold=self.random.random() < 0.6)

    def thin(self) -> None:
        thin.thin(self.home, KEEP)
        for one in self._kept():
            if not one.pinned and one.held_until_ms <= self.world.clock():
                one.seen = {path: versions[-KEEP:] for path, versions in one.seen.items()}

    def lose_catalog(self) -> None:
        self.home.close()
        self.world.forget_catalog()
        self.home = self.world.open()
        assert rebuild(self.home) == []

    def start(self) -> None:
        """As the daemon does."""
        self.home.close()
        self.home = self.world.open()
        if self.home.owes_rebuild():
            assert rebuild(self.home) == []
        expire.finish(self.home)
        assert adopt(self.home) + adopt_wishes(self.home) == []

    def plan(self) -> Plan:
        present = set() if self.away else prune.present(self.home, self.world.sources)
        return prune.plan(self.home, self.policy, present)

    def prune(self) -> None:
        """The plan is what the model expects, is done as it says, and leaves nothing for a second pass."""
        plan = self.plan()
        self._judge(plan)
        for done in prune.carry_out(self.home, plan):
            assert not done.passed, done
        for verdict in ACTS:
            for decision in plan.of(verdict):
                self._done(self.told[decision.id], verdict)
        again = self.plan()
        assert [each for verdict in ACTS for each in again.of(verdict)] == []
        assert list(prune.carry_out(self.home, again)) == []

    def _judge(self, plan: Plan) -> None:
        """What goes is what the rules say, naively; nothing goes before its grace is over."""
        now_ms = self.world.clock()
        decided = {each.id: each.verdict for each in plan.decisions}
        assert set(decided) == {one.id for one in self._kept()}
        going = {name for name, verdict in decided.items() if verdict in (Verdict.EXPIRE, Verdict.EXPIRING, Verdict.REMOVE)}
        assert going == self._going(now_ms), (going, self.policy)
        for name, verdict in decided.items():
            one = self.told[name]
            over = one.marked_ms is not None and now_ms - one.marked_ms >= self.policy.grace_ms and not self._is_away()
            assert (verdict is Verdict.REMOVE) == (name in going and over), (name, verdict)
            assert (verdict is Verdict.LIFT) == (name not in going and one.marked_ms is not None), (name, verdict)

    def _is_away(self) -> bool:
        return self.away or not prune.present(self.home, self.world.sources)

    def _going(self, now_ms: int) -> set[str]:
        if not self.policy.rules:
            return set()
        (rule,) = self.policy.rules
        kept = {one.id for one in self._kept() if rule.keep_within_ms is not None and now_ms - one.last_ms <= rule.keep_within_ms}
        # of one project all: that is the folder which the lines name, and they all name one
        newest = sorted(self._kept(), key=lambda one: (one.last_ms, self.row(one).key), reverse=True)
        kept |= {one.id for one in newest[: rule.keep_last or 0]}
        kept |= {one.id for one in self._kept() if one.pinned or one.held_until_ms > now_ms}
        kept |= {one.id for one in self._kept() if self._is_away() and one.marked_ms is None}
        return {one.id for one in self._kept()} - kept

    def _done(self, one: Told, verdict: Verdict) -> None:
        if verdict is Verdict.REMOVE:
            one.removed("expired")
        else:
            one.marked_ms = self.world.clock() if verdict is Verdict.EXPIRE else None

    def dies(self) -> None:
        """Retention is killed at some step, or loses its power; the next start finds each session as it was, or as the plan says."""
        plan, keys = self.plan(), {one.id: self.row(one).key for one in self._kept()}
        for _ in range(3):
            if not any(map(plan.of, ACTS)):
                self.change_policy()
                plan = self.plan()
        self.home.close()

        def work() -> None:
            with self.world.open() as home:
                list(prune.carry_out(home, plan))
                thin.thin(home, KEEP)

        cut, luck = self.random.random() < 0.5, random.Random(self.random.random())
        dies_at(self.random.randint(1, 30), work, power=self.world.folder if cut else None, disk=lambda folder: Image(folder, luck))
        self.home = self.world.open()
        if self.random.random() < 0.3:
            self.home.close()
            self.world.forget_catalog()
            self.home = self.world.open()
        self.start()
        for verdict in ACTS:
            for decision in plan.of(verdict):
                row = self.home.catalog.session(keys[decision.id])
                is_done = (
                    row is None
                    if verdict is Verdict.REMOVE
                    else (row is not None and (row.state == "expiring") == (verdict is Verdict.EXPIRE))
                )
                assert verdict is Verdict.REMOVE or row is not None
                if is_done:
                    self._done(self.told[decision.id], verdict)
        self.thin()

    # ---- the reckoning ------------------------------------------------------------------------------------------------

    def reckon(self) -> None:
        """Exactly what must be held is held, to the byte, and every wish stands."""
        verdict = verify(self.home)
        assert verdict.word == "ok", verdict.findings + verdict.unverifiable
        rows = {row.id: row for row in self.home.catalog.sessions()}
        assert set(rows) == {one.id for one in self._kept()}
        streams = {Path(meta.path): meta for meta in metas(self.home)}
        wanted = {path for one in self._kept() for path in one.seen}
        assert set(streams) == wanted, (set(streams) - wanted, wanted - set(streams))
        for one in self._kept():
            row = rows[one.id]
            assert (bool(row.pinned), row.held_until_ms or 0) == (one.pinned, one.held_until_ms)
            assert (row.state == "expiring") == (one.marked_ms is not None), (one.id, row.state)
            for path, versions in one.seen.items():
                meta = streams[path]
                assert chain_bytes(self.home, meta) == versions[-1], path
                if path.suffix == ".txt":
                    assert [generation_bytes(self.home, meta, each.number) for each in meta.generations] == versions
        self._reckon_live()

    def _reckon_live(self) -> None:
        """Retention touches none of the agents' own files."""
        there: Iterable[tuple[Path, bytes]] = ((path, data) for one in self.told.values() for path, data in one.live.items())
        assert self.world.live() == dict(there)
