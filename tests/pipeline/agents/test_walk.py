"""What a walk finds: every real file once, links followed once and only outward, and one bad folder is that folder's alone."""

from __future__ import annotations

import errno
import os
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

from coldtrail.agents import agent
from coldtrail.agents.walk import Candidate, Source, at_path, walk

Problems = list[tuple[Path, int | None]]


class Tree:
    """An agent's root, and what a walk over it gives."""

    def __init__(self, root: Path, name: str = "jsonl") -> None:
        self.root = root
        self.source = Source(name, agent(name), root)
        self.problems: Problems = []

    def file(self, rel: str, data: bytes = b"{}\n") -> Path:
        path = self.root / rel
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        return path

    def link(self, rel: str, to: Path | str) -> Path:
        path = self.root / rel
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to(to)
        return path

    def note(self, path: Path, error: OSError) -> None:
        self.problems.append((path, error.errno))

    def walk(self, below: str | None = None) -> list[Candidate]:
        return list(walk(self.source, self.note, below=None if below is None else PurePosixPath(below)))

    def found(self, below: str | None = None) -> list[str]:
        return [str(each.rel) for each in self.walk(below)]

    def at(self, rel: str) -> Candidate | None:
        return at_path(self.source, self.root / rel, self.note)


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    (tmp_path / "root").mkdir()
    return Tree(tmp_path / "root")


@pytest.fixture
def codex(tmp_path: Path) -> Tree:
    (tmp_path / "root").mkdir()
    return Tree(tmp_path / "root", "codex")


# ---- what is found ----------------------------------------------------------------------------------------------------


def test_every_file_is_found_with_its_path_and_how_it_looks(tree: Tree) -> None:
    tree.file("b.jsonl", b"12345")
    tree.file("a/deep/er/c.jsonl")
    tree.file("a/notes.txt")
    assert tree.found() == ["a/deep/er/c.jsonl", "a/notes.txt", "b.jsonl"]
    one = tree.walk()[-1]
    assert (one.path, one.file, one.stat.st_size, one.is_twin) == (tree.root / "b.jsonl", tree.root / "b.jsonl", 5, False)


def test_names_that_are_no_text_are_found_too(tree: Tree) -> None:
    names = [os.fsdecode(raw) for raw in (b"raw\xff.jsonl", b"line\nfeed.jsonl", b"back\\slash.jsonl", b" .jsonl")]
    for name in names:
        tree.file(name)
    assert sorted(tree.found()) == sorted(names)


def test_what_is_no_regular_file_is_passed_over(tree: Tree) -> None:
    os.mkfifo(tree.root / "pipe.jsonl")
    (tree.root / "folder.jsonl").mkdir()
    tree.link("dangling.jsonl", "nowhere")
    tree.file("a.jsonl")
    assert (tree.found(), tree.problems) == (["a.jsonl"], [])


def test_only_the_folders_that_the_agent_names_are_looked_into(codex: Tree) -> None:
    codex.file("sessions/2026/01/01/a.jsonl")
    codex.file("archived_sessions/b.jsonl")
    codex.file("log/c.jsonl")
    codex.file("d.jsonl")
    codex.file("sessions-old/e.jsonl")
    assert codex.found() == ["sessions/2026/01/01/a.jsonl", "archived_sessions/b.jsonl"]
    assert codex.at("sessions/2026/01/01/a.jsonl") is not None
    assert [codex.at(rel) for rel in ("log/c.jsonl", "d.jsonl", "sessions-old/e.jsonl")] == [None, None, None]


def test_a_root_or_folder_that_is_not_there_is_no_problem(codex: Tree) -> None:
    assert codex.found() == []
    codex.root.rmdir()
    assert codex.found() == []
    assert codex.at("sessions/a.jsonl") is None
    assert codex.problems == []


def test_a_walk_below_a_folder_finds_only_what_is_in_it(tree: Tree) -> None:
    for rel in ("a/1.jsonl", "a/b/2.jsonl", "ab/3.jsonl", "4.jsonl"):
        tree.file(rel)
    assert tree.found("a") == ["a/1.jsonl", "a/b/2.jsonl"]
    assert tree.found("nowhere") == []
    assert tree.found("4.jsonl") == []


# ---- links ------------------------------------------------------------------------------------------------------------


def test_a_folder_is_walked_once_by_its_own_name_though_links_lead_to_it_too(tree: Tree) -> None:
    tree.file("real/a.jsonl")
    tree.link("0-first", "real")
    tree.link("z-last", tree.root / "real")
    assert tree.found() == ["real/a.jsonl"]


def test_a_link_deep_in_an_earlier_folder_does_not_rename_the_folder_it_leads_to(tree: Tree) -> None:
    tree.file("b/a.jsonl")
    tree.file("a/own.jsonl")
    tree.link("a/deep/link", tree.root / "b")
    assert tree.found() == ["a/own.jsonl", "b/a.jsonl"]


@pytest.mark.parametrize("to", [".", "..", "../..", "self"])
def test_a_loop_of_links_ends(tree: Tree, to: str) -> None:
    tree.file("a/b/one.jsonl")
    tree.link("a/b/self", to)
    assert tree.found() == ["a/b/one.jsonl"]


def test_links_that_lead_in_a_circle_without_end_are_passed_over(tree: Tree) -> None:
    tree.link("x", "y")
    tree.link("y", "x")
    tree.file("a.jsonl")
    assert tree.found() == ["a.jsonl"]


def test_a_linked_folder_outside_the_root_is_walked_under_the_links_name(tree: Tree, tmp_path: Path) -> None:
    elsewhere = Tree(tmp_path / "elsewhere")
    elsewhere.file("sub/a.jsonl")
    elsewhere.link("back", tree.root)
    tree.file("own.jsonl")
    tree.link("linked", elsewhere.root)
    tree.link("linked-again", elsewhere.root)
    assert tree.found() == ["linked/sub/a.jsonl", "own.jsonl"]
    assert tree.walk()[0].path == tree.root / "linked/sub/a.jsonl"


def test_a_root_that_is_a_link_is_walked(tree: Tree, tmp_path: Path) -> None:
    tree.file("a.jsonl")
    (tmp_path / "link").symlink_to(tree.root)
    assert Tree(tmp_path / "link").found() == ["a.jsonl"]


def test_a_linked_file_is_found_only_where_its_content_lies_outside(tree: Tree, tmp_path: Path) -> None:
    """Inside, it is found by its own name."""
    (tmp_path / "outside.jsonl").write_bytes(b"123")
    tree.file("real.jsonl")
    tree.link("to-real.jsonl", "real.jsonl")
    tree.link("out.jsonl", tmp_path / "outside.jsonl")
    assert tree.found() == ["out.jsonl", "real.jsonl"]
    assert tree.walk()[0].stat.st_size == 3
    assert tree.at("to-real.jsonl") is None


def test_a_hard_link_is_a_file_like_any_other(tree: Tree) -> None:
    os.link(tree.file("a.jsonl"), tree.root / "b.jsonl")
    assert tree.found() == ["a.jsonl", "b.jsonl"]


# ---- compressed twins -------------------------------------------------------------------------------------------------


def test_a_compressed_file_stands_for_the_plain_one_that_is_not_there(codex: Tree) -> None:
    codex.file("sessions/a.jsonl.zst")
    (one,) = codex.walk()
    assert one.is_twin
    assert (one.path, one.file) == (codex.root / "sessions/a.jsonl", codex.root / "sessions/a.jsonl.zst")
    assert codex.at("sessions/a.jsonl.zst") == codex.at("sessions/a.jsonl.zst") == one


def test_of_two_twins_the_plain_one_wins(codex: Tree) -> None:
    codex.file("sessions/a.jsonl.zst")
    plain = codex.file("sessions/a.jsonl")
    (one,) = codex.walk()
    assert (one.path, one.file, one.is_twin) == (plain, plain, False)
    for rel in ("sessions/a.jsonl.zst", "sessions/a.jsonl"):
        assert codex.at(rel) == one


def test_a_compressed_file_is_no_twin_where_the_agent_makes_none(tree: Tree) -> None:
    tree.file("a.jsonl")
    tree.file("a.jsonl.zst")
    assert tree.found() == ["a.jsonl", "a.jsonl.zst"]


# ---- trouble ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def _locked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Folders named `locked` cannot be looked into, as for a user without the right to (the superuser has it always)."""
    scandir, stat = os.scandir, os.stat

    def guarded_scandir(path: Path) -> object:
        if Path(path).name == "locked":
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return scandir(path)

    def guarded_stat(path: int | str | os.PathLike[str], **options: Any) -> os.stat_result:
        if not isinstance(path, int) and "locked" in Path(path).parts[:-1]:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return stat(path, **options)

    monkeypatch.setattr(os, "scandir", guarded_scandir)
    monkeypatch.setattr(os, "stat", guarded_stat)


@pytest.mark.usefixtures("_locked")
def test_a_folder_that_cannot_be_read_is_a_problem_and_the_others_are_walked(tree: Tree) -> None:
    for rel in ("a/1.jsonl", "locked/2.jsonl", "z/3.jsonl"):
        (tree.root / rel).parent.mkdir()
        (tree.root / rel).write_bytes(b"")
    assert tree.found() == ["a/1.jsonl", "z/3.jsonl"]
    assert tree.problems == [(tree.root / "locked", errno.EACCES)]


@pytest.mark.usefixtures("_locked")
def test_a_path_in_a_folder_that_cannot_be_read_is_a_problem_and_no_end_of_the_work(tree: Tree) -> None:
    (tree.root / "locked").mkdir()
    assert tree.at("locked/2.jsonl") is None


def test_a_file_that_goes_between_listing_and_looking_is_not_found(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    tree.file("a.jsonl")
    gone = tree.file("b.jsonl")
    stat = Path.stat

    def late(path: Path, **options: bool) -> os.stat_result:
        if path == gone:
            gone.unlink(missing_ok=True)
        return stat(path, **options)

    monkeypatch.setattr(Path, "stat", late)
    assert (tree.found(), tree.problems) == (["a.jsonl"], [])


def test_a_path_outside_the_root_is_none_of_the_sources(tree: Tree, tmp_path: Path) -> None:
    (tmp_path / "other.jsonl").write_bytes(b"")
    assert at_path(tree.source, tmp_path / "other.jsonl", tree.note) is None
    assert at_path(tree.source, tree.root, tree.note) is None
