"""Plays a random game: an agent writes as agents do, coldtrail works in between, and the toy model keeps count."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

from coldtrail.catalog import SessionRow
from coldtrail.format.manifest import StreamMeta
from coldtrail.home import Home
from coldtrail.stage.adopt import adopt
from coldtrail.stage.capture import Capture
from coldtrail.stage.rebuild import differences, rebuild
from coldtrail.stage.restore import Passed, Wish, carry_out, plan_restore
from coldtrail.stage.scan import Scanner
from coldtrail.stage.verify import verify
from model.toy import File
from world_of import Lines, World, assert_tiled, chain_bytes, compact, metas

QUIET_MS = 6_000
PROJECTS = ("-p", "-q", "-r")
COMPANION_SIZES = (1, 40, 900, 5_000)


class Game:
    """One world, two sessions, and what is known of them. Each move is printed into `moves`."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.random = random.Random(seed)
        self.world = World(folder)
        self.home: Home = self.world.open()
        self.moves: list[str] = []
        self.sessions = [Played(self, f"{number:08d}-0000-4000-8000-000000000000") for number in (1, 2)]

    def close(self) -> None:
        """Let the home go."""
        self.home.close()

    def play(self, turns: int) -> None:
        """So many moves of the agent's and coldtrail's, then the last reckoning."""
        for _ in range(turns):
            session = self.random.choice(self.sessions)
            move = self.random.choice(session.moves())
            self._do(move, f"{move.__name__} {session.id[:8]}")
            self.world.clock.tick(self.random.choice((10, 1_000, QUIET_MS)))
            if self.random.random() < 0.5:
                work = self.random.choice(self._works())
                self._do(work, work.__name__)
        self._do(self.scan, "scan")
        self._do(self.scan, "scan")
        self.reckon()

    def _do(self, act: Callable[[], None], name: str) -> None:
        self.moves.append(name)
        act()

    def scan_whole(self) -> None:
        """Everything is held, tails too: what grows while it changes in its middle is told only by a whole comparison."""
        self.scan()
        self.scan()

    def seen_first(self, file: File) -> None:
        """A file that was made again without its head is looked at before it is changed otherwise."""
        if file.life.head and not file.life.was_seen:
            self.scan()

    # ---- coldtrail's moves --------------------------------------------------------------------------------------------

    def _works(self) -> list[Callable[[], None]]:
        passes = [self.scan, self.scan, self.scan, self.look, self.check]
        return [*passes, self.hot, self.cold, self.lose_catalog, self.start_again, self.restore]

    def scan(self) -> None:
        """A pass, some seconds after the last write or right behind it."""
        self._saw(Scanner(self.home).scan(self.world.sources).later)

    def _saw(self, later: list[Path]) -> None:
        faults = self.home.catalog.faults()
        assert not faults, faults
        for session in self.sessions:
            for file in session.files:
                if file.exists:
                    file.seen(with_tail=file.path not in later)

    def look(self) -> None:
        """One file or folder was marked."""
        session = self.random.choice(self.sessions)
        file = self.random.choice(session.files)
        tally = Scanner(self.home).look(self.world.sources, [file.path])
        for other in (other for each in self.sessions for other in each.files if other.exists):
            if other is file or (not file.exists and file.path.parent in other.path.parents):  # for what is gone its folder is looked at
                other.seen(with_tail=other.path not in tally.later)

    def hot(self) -> None:
        """Compaction of what has stopped growing."""
        compact(self.home, cold=False)

    def cold(self) -> None:
        """Compaction of everything."""
        compact(self.home, cold=True)

    def lose_catalog(self) -> None:
        """catalog.db is removed, and made again."""
        self.home.close()
        self.world.forget_catalog()
        self.home = self.world.open()
        assert (rebuild if self.random.random() < 0.5 else adopt)(self.home) == []

    def start_again(self) -> None:
        """The daemon is started anew."""
        self.home.close()
        self.home = self.world.open()
        assert adopt(self.home) == []

    def check(self) -> None:
        """A file is compared whole."""
        rows = [row for row in self.home.catalog.all_streams() if row.is_log and row.gone_ms is None and os.path.exists(row.path)]
        if rows:
            row = self.random.choice(sorted(rows, key=lambda row: row.path))
            Capture(self.home).check(row)
            for file in (file for session in self.sessions for file in session.files):
                if os.fsencode(file.path) == row.path:
                    file.seen(with_tail=False)

    def restore(self) -> None:
        """What is gone comes back, if everything was seen."""
        self.scan()
        for session in self.sessions:
            session.restore()

    # ---- the reckoning ------------------------------------------------------------------------------------------------

    def reckon(self) -> None:
        """Everything that must hold, holds."""
        verdict = verify(self.home)
        assert verdict.word == "ok", verdict.findings + verdict.unverifiable
        streams = {Path(meta.path): meta for meta in metas(self.home)}
        for session in self.sessions:
            for file in session.files:
                if file.life.was_seen:
                    self._reckon_file(file, streams[file.path])
        found, errors = differences(self.home)
        wrong = [each for each in found if each.field not in ("identity", "size", "mtime_ns", "ctime_ns")]
        assert not errors
        assert not wrong, wrong

    def _reckon_file(self, file: File, meta: StreamMeta) -> None:
        held = [chain_bytes(self.home, meta, each.number) for each in meta.generations]
        assert len(held) == sum(life.was_seen for life in file.lives), f"{file.path}: {len(held)} generations"
        for life in file.lives:
            assert any(life.fits(each) for each in held), f"{file.path}: a content that was seen is not held: {life.floor[:200]!r}"
        assert file.life.fits(held[-1]), f"{file.path}: what is restored is not the newest content"
        if file.exists:
            assert held[-1] == file.life.head + file.life.data, f"{file.path}: two scans have not taken everything"
        if file.is_log:
            for each in meta.generations:
                assert_tiled(self.home, meta, each.number)


class Played:
    """A session that is played with: main log, child, companion."""

    def __init__(self, game: Game, session_id: str) -> None:
        self._game, self.id = game, session_id
        self.world, self.random = game.world, game.random
        self.project = PROJECTS[0]
        self.lines = Lines(self.world.clock, session_id)
        self.child_lines = Lines(self.world.clock, f"c{session_id[1:]}")
        self.main = File(self.world.main(self.project, session_id), is_log=True)
        self.child = File(self.world.child(self.project, session_id), is_log=True)
        self.companion = File(self.world.companion(self.project, session_id), is_log=False)
        self.moved_unseen = False
        for file, data in ((self.main, self.lines.some(3)), (self.child, self.child_lines.line()), (self.companion, b"output\n")):
            file.append(data)
            self.world.write(file.path, data)

    @property
    def files(self) -> tuple[File, File, File]:
        """Its files."""
        return self.main, self.child, self.companion

    def moves(self) -> list[Callable[[], None]]:
        """What the agent may do now."""
        if not self.main.exists:
            return [self.make_headless, self.make_headless_slowly, self.make_unrelated, self.touch]
        growth = [self.append_lines, self.append_lines, self.append_torn, self.glue, self.grow_child, self.rewrite_companion]
        if self.main.torn:
            growth.append(self.finish_torn)
        headless = [self.delete_and_make_headless, self.lose_the_last_and_make_headless]
        other = [self.rewrite_same_size, self.rewrite_longer, self.truncate_and_grow, self.delete]
        return [*growth, *other, *headless, self.move, self.touch, self.truncate]

    def _write_main(self) -> None:
        self.world.write(self.main.path, self.main.life.data)

    def _grow(self, file: File, data: bytes) -> None:
        file.append(data)
        self.world.append(file.path, data)

    def append_lines(self) -> None:
        self._grow(self.main, self.lines.some(self.random.randint(1, 25)) if not self.main.torn else b"}\n" + self.lines.line())

    def append_torn(self) -> None:
        self._grow(self.main, self.lines.line()[: self.random.randint(1, 150)])

    def finish_torn(self) -> None:
        self._grow(self.main, b'"}}\n')

    def glue(self) -> None:
        self._grow(self.main, self.lines.line()[:50] + self.lines.line())

    def grow_child(self) -> None:
        """Or begin another under the same name, where the folder was swept."""
        if not self.child.exists:
            self.child.begin(b"")
            self.child.exists = True
            self._grow(self.child, self.child_lines.line(root=True))
        self._grow(self.child, self.child_lines.some(self.random.randint(1, 4)))

    def rewrite_companion(self) -> None:
        self.companion.begin(self.random.randbytes(self.random.choice(COMPANION_SIZES)))
        self.companion.exists = True
        self.world.write(self.companion.path, self.companion.life.data)

    def rewrite_same_size(self) -> None:
        """In place, with the mtime put back."""
        self._game.scan_whole()
        stat = self.main.path.stat()
        data, at = self.main.life.data, self.random.randrange(len(self.main.life.data) or 1)
        there, other = (b"/there", b"/other") if b"/there" in data[at:] else (b"/other", b"/there")
        rewritten = data[:at] + data[at:].replace(there, other)
        if rewritten != data:
            self.main.begin(rewritten, head=self.main.life.head)
            self.main.path.write_bytes(rewritten)
            os.utime(self.main.path, ns=(stat.st_mtime_ns, stat.st_mtime_ns))
            self._game.scan()  # were it to grow first, only compaction would find out

    def rewrite_longer(self) -> None:
        self._game.seen_first(self.main)
        self.main.begin(self.lines.line(root=True) + self.lines.some(3 + len(self.main.life.data) // 200))
        self._write_main()

    def truncate(self) -> None:
        """To some lines less."""
        self._game.seen_first(self.main)
        lines = self.main.life.data.split(b"\n")
        self._shorten(b"\n".join(lines[: len(lines) // 2]) + b"\n")

    def truncate_and_grow(self) -> None:
        """To three records, then past the old size."""
        self._game.seen_first(self.main)
        data = self.main.life.data
        kept = b"".join(line + b"\n" for line in data.split(b"\n")[:3])
        self._shorten(kept + self.lines.some(1 + len(data) // 200))

    def _shorten(self, data: bytes) -> None:
        """What stood before it in the chain still does."""
        if self.main.is_clear(data):
            self.main.begin(data, head=self.main.life.head)
            self._write_main()

    def delete(self) -> None:
        """As the sweep does: the log, and the folder beside it."""
        self._be_certain()
        for file in self.files:
            if file.exists:
                file.path.unlink()
            file.exists = False
        shutil.rmtree(self.main.path.with_suffix(""), ignore_errors=True)

    def _be_certain(self) -> None:
        """What was there before a log without its head is to be known exactly."""
        if self.main.life.floor != self.main.life.ceiling or (self.main.life.head and not self.main.life.was_seen):
            self._game.scan_whole()

    def _held_id(self) -> str | None:
        """The id of the last record that must be held, whole and by itself on its line."""
        for line in reversed(self.main.union().split(b"\n")[:-1]):
            with contextlib.suppress(ValueError):
                return str(json.loads(line)["uuid"])
        return None

    def make_headless(self) -> None:
        """The writer goes on, and so makes the file again without its head."""
        parent = self._held_id()
        if parent is None:
            self.make_unrelated()
            return
        self._again(self.lines.line(parent=parent) + self.lines.some(2), head=self.main.union())

    def delete_and_make_headless(self) -> None:
        """Both between two looks."""
        self._be_certain()
        if self._held_id() is not None:
            self.main.path.unlink()
            self.make_headless()

    def make_headless_slowly(self) -> None:
        """It is looked at before its first line is whole."""
        parent = self._held_id()
        if parent is not None:
            line = self.lines.line(parent=parent)
            cut = self.random.randrange(len(line))
            self._again(line[:cut], head=self.main.union())
            self._game.scan()
            self._grow(self.main, line[cut:])
            self._game.scan()

    def lose_the_last_and_make_headless(self) -> None:
        """It goes on behind records that nobody has seen."""
        if self.main.life.was_seen:
            self._be_certain()
            self.world.append(self.main.path, b"\n" + self.lines.some(2))
            self.main.path.unlink()
            self._again(self.lines.some(2), head=self.main.union())

    def make_unrelated(self) -> None:
        self._again(self.lines.line(root=True) + self.lines.some(2))

    def _again(self, data: bytes, head: bytes = b"") -> None:
        self.main.begin(data, head=head)
        self.main.exists = True
        self._write_main()

    def move(self) -> None:
        """To another project's folder, companions and all."""
        if not all(file.life.was_seen for file in self.files) or not all(file.exists for file in self.files):
            return
        self._game.scan()
        self.project = self.random.choice([project for project in PROJECTS if project != self.project])
        target = self.world.main(self.project, self.id)
        target.parent.mkdir(exist_ok=True)
        os.rename(self.main.path.with_suffix(""), target.with_suffix(""))
        os.rename(self.main.path, target)
        self.main.path = target
        self.child.path = self.world.child(self.project, self.id)
        self.companion.path = self.world.companion(self.project, self.id)
        if self.random.random() < 0.5:
            self._grow(self.main, self.lines.line())
        self._game.scan()

    def touch(self) -> None:
        for file in self.files:
            if file.exists:
                self.world.stamp(file.path)

    def row(self) -> SessionRow:
        (row,) = [row for row in self._game.home.catalog.sessions() if row.id == self.id]
        return row

    def restore(self) -> None:
        """Put back what is gone: exactly what was held, joined."""
        if all(file.exists for file in self.files) or not all(file.life.was_seen for file in self.files):
            return
        if self.main.exists and (self.main.life.head or not self.main.life.was_seen):
            return  # a live file without its head would have to be overwritten
        home = self._game.home
        before = {Path(meta.path): chain_bytes(home, meta) for meta in metas(home)}
        done = list(carry_out(home, plan_restore(home, self.row(), Wish())))
        assert not [each for each in done if isinstance(each, Passed) and each.failed], done
        for file in self.files:
            data = file.path.read_bytes()
            if not file.exists:
                assert data == before[file.path]
                assert file.life.fits(data)
                file.exists = True
                if file.life.head:  # joined: a life of its own, once it is seen
                    file.begin(data)
                else:
                    file.life.data = file.life.floor = file.life.ceiling = data
