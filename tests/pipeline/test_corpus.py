"""Every file of the corpus of real logs, from its agent's folder into the archive and back."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from coldtrail import Session
from coldtrail.home import Home
from coldtrail.model import Role
from coldtrail.settings import open_home
from coldtrail.stage.rebuild import rebuild
from coldtrail.stage.restore import Passed, Restored, Wish, carry_out, plan_restore
from coldtrail.stage.scan import Scanner, Tally
from coldtrail.stage.verify import Verdict, verify
from coldtrail.stage.wish import set_pin
from coldtraild import jobs
from pipeline.corpus_home import CORPUS, CorpusHome, Original, digest
from world_of import metas

pytestmark = pytest.mark.skipif(not CORPUS.is_dir(), reason=f"the real logs are missing: {CORPUS}")

Listing = list[dict[str, object]]
HALF_OF_CLAUDES_DAYS_NS = 15 * 86_400_000_000_000
_BATCH = 50


@dataclass(slots=True)
class Story:
    """What was seen on the way."""

    home: CorpusHome
    captured: Tally = field(default_factory=Tally)
    listings: dict[str, tuple[Listing, Listing]] = field(default_factory=dict)  # as it was, and after a rebuild
    compacted: jobs.Compaction = field(default_factory=jobs.Compaction)
    verdict: Verdict = field(default_factory=Verdict)
    gone: Tally = field(default_factory=Tally)
    restored: dict[Path, Restored] = field(default_factory=dict)
    passed: list[Passed] = field(default_factory=list)
    after: Tally = field(default_factory=Tally)
    roles: dict[Path, Role] = field(default_factory=dict)

    def note(self, station: str) -> None:
        """What `ls` says now, and what it says once the catalog was lost."""
        with open_home(self.home.settings) as home:
            before = listed(home)
        for path in self.home.settings.layout.home.glob("catalog.db*"):
            path.unlink()
        with open_home(self.home.settings) as home:
            assert rebuild(home) == []
            self.listings[station] = before, listed(home)

    def scan(self) -> Tally:
        """One full pass of capture, as `run --once` makes it."""
        with open_home(self.home.settings) as home:
            jobs.prepare(home, self.home.settings)
            return Scanner(home).scan(self.home.settings.sources, whole=True)


def listed(home: Home) -> Listing:
    return [Session(home, row).to_json() for row in home.catalog.sessions()]


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    """Captured, compacted, deleted by the agents, pinned, restored."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(os, "fsync", lambda _fd: None)
        story = Story(CorpusHome(tmp_path_factory.mktemp("corpus")))
        story.home.fill()
        story.captured = story.scan()
        story.note("captured")
        with open_home(story.home.settings) as home:
            story.compacted = jobs.compact(home, story.home.settings, lambda: False)
            story.roles = {Path(meta.path): meta.role for meta in metas(home)}
            story.verdict = verify(home)
        story.note("compacted")
        for folder in story.home.agents_folders():
            shutil.rmtree(folder)
            folder.mkdir()
        story.gone = story.scan()
        story.note("gone")
        with open_home(story.home.settings) as home:
            for row in home.catalog.sessions()[::3]:
                set_pin(home, row, pinned=True)
        story.note("pinned")
        with open_home(story.home.settings) as home:
            for row in home.catalog.sessions():
                for done in carry_out(home, plan_restore(home, row, Wish())):
                    if isinstance(done, Restored):
                        story.restored[done.path] = done
                    else:
                        story.passed.append(done)
        story.after = story.scan()
        story.note("restored")
        yield story


def test_every_file_is_captured(story: Story) -> None:
    originals = story.home.originals
    assert (story.captured.found, story.captured.failed) == (len(originals), 0)
    assert story.captured.captured == sum(original.bytes > 0 for original in originals.values())
    assert story.captured.new_bytes == sum(original.bytes for original in originals.values())
    assert set(story.roles) == set(originals)


def test_every_session_is_whole_in_the_archive(story: Story) -> None:
    assert story.compacted.failed == 0
    assert (story.verdict.word, story.verdict.findings) == ("ok", [])
    assert story.verdict.plain_bytes == story.captured.new_bytes
    assert story.verdict.stored_bytes < story.verdict.plain_bytes / 7


@pytest.mark.parametrize("station", ["captured", "compacted", "gone", "pinned", "restored"])
def test_a_lost_catalog_says_the_same_when_it_is_made_again(story: Story, station: str) -> None:
    before, after = story.listings[station]
    assert after == before
    assert {each["state"] for each in before} == {"gone" if station in ("gone", "pinned") else "live"}


def test_what_ls_says_of_a_session_does_not_change_on_the_way(story: Story) -> None:
    def lasting(station: str) -> list[dict[str, object]]:
        return [
            {key: value for key, value in each.items() if key not in ("state", "stored_bytes", "pinned")}
            for each in story.listings[station][0]
        ]

    for station in story.listings:
        assert lasting(station) == lasting("captured"), station


def test_when_the_agents_have_deleted_everything_it_is_all_gone_and_nothing_forgotten(story: Story) -> None:
    assert (story.gone.found, story.gone.gone) == (0, len(story.home.originals))


def test_every_file_comes_back_byte_for_byte_with_its_mode(story: Story) -> None:
    assert story.passed == []
    for path, original in story.home.originals.items():
        assert (digest(path), path.stat().st_mode & 0o7777) == (original.sha256, original.mode), path
        assert (story.restored[path].sha256, story.restored[path].bytes) == (original.sha256, original.bytes)
    assert (story.after.new_bytes, story.after.gone, story.after.failed) == (0, 0, 0)


def test_the_mtime_is_the_original_unless_claude_code_would_sweep_the_file_away(story: Story) -> None:
    kept, moved = 0, 0
    for path, original in story.home.originals.items():
        mtime_ns = path.stat().st_mtime_ns
        if mtime_ns == original.mtime_ns:
            kept += 1
        else:
            moved += 1
            assert ".claude" in path.parts
            assert mtime_ns - original.mtime_ns > HALF_OF_CLAUDES_DAYS_NS
            assert "mtime set to now" in story.restored[path].note
        assert ".claude" not in path.parts or story.restored[path].mtime_ns - mtime_ns == 0
    assert kept > 100
    assert moved > 100


def test_sub_agents_are_no_sessions(story: Story) -> None:
    children = [path for path, role in story.roles.items() if role is Role.CHILD]
    assert len(children) > 100
    listed_paths = {path for each in story.listings["captured"][0] if not each["orphan"] for path in _paths(each)}
    assert not {str(path) for path in children} & listed_paths


def _paths(row: dict[str, object]) -> list[str]:
    paths = row["paths"]
    assert isinstance(paths, list)
    return paths


def test_long_sessions_are_listed_with_title_project_and_times(story: Story) -> None:
    rows = [each for each in story.listings["captured"][0] if each["agent"] in ("claude-code", "codex") and _bytes(each) > 100_000]
    assert len(rows) > 80
    for key in ("title", "project", "first_activity", "last_activity"):
        missing = [_paths(each) for each in rows if each[key] is None]
        assert len(missing) <= 3, f"no {key}: {missing}"


def _bytes(row: dict[str, object]) -> int:
    size = row["bytes"]
    assert isinstance(size, int)
    return size


def test_stock_zstd_prints_every_file_from_its_sealed_segments(story: Story) -> None:
    if shutil.which("zstd") is None:
        pytest.skip("zstd is not installed")
    with open_home(story.home.settings) as home:
        segments: dict[Path, list[str]] = {}
        for meta in metas(home):
            key = home.layout.generation_key(meta.host, meta.source, meta.stream, meta.newest.number)
            folder = home.layout.archive / key
            segments[Path(meta.path)] = [str(folder / name) for name in home.archive.names(key)]
    held = [original for original in story.home.originals.values() if original.bytes]
    for at in range(0, len(held), _BATCH):
        _printed(held[at : at + _BATCH], segments)


def _printed(originals: list[Original], segments: dict[Path, list[str]]) -> None:
    """One process prints these files, end to end."""
    names = [name for original in originals for name in segments[original.path]]
    with subprocess.Popen(["zstd", "-dcq", *names], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        for original in originals:
            assert hashlib.sha256(process.stdout.read(original.bytes)).hexdigest() == original.sha256, original.path
        assert process.stdout.read() == b""
    assert process.returncode == 0
