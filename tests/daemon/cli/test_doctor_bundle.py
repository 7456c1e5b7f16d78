"""The report for who helps: nothing that an agent or its user wrote is in it."""

from __future__ import annotations

import json
import os
import re
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from coldtrail.settings import open_home
from coldtrail.stage.scan import Scanner
from coldtraild.cli import coldtrail
from daemon.cli.desk import FIRST, Desk
from pipeline.corpus_home import CORPUS, CorpusHome

LARGEST = 300_000
WORD = re.compile(rb'"(?:text|content|title|summary|cwd|gitBranch|display|prompt|name)"\s*:\s*"((?:[^"\\]|\\.){12,80})')


@pytest.mark.skipif(not CORPUS.is_dir(), reason="the corpus is not on this machine")
def test_a_bundle_of_real_sessions_has_no_text_title_id_or_project_in_it(tmp_path: Path) -> None:
    user = tmp_path / "jane-doe-7"
    user.mkdir()
    home = CorpusHome(user)
    home.fill(lambda path: path.stat().st_size <= LARGEST)
    settings = home.settings
    private: set[str] = {"jane-doe"}
    with open_home(settings) as opened:
        Scanner(opened).scan(settings.sources, whole=True)
        for number, row in enumerate(opened.catalog.sessions()):
            project = os.path.basename(row.project or "")
            private |= {each for each in (row.title, row.id, project if len(project) > 5 else "") if each}
            (path, *_) = json.loads(row.paths)
            if number % 3 == 0:
                what = f"{path}: line 3 of {row.title} in {row.project} cannot be read"
                opened.catalog.note_fault(os.fsencode(path), what, "", opened.now_ms(), 1000)
        assert len(opened.catalog.faults()) > 20
    for path in home.originals:
        private |= {word.decode("utf-8", "replace") for word in WORD.findall(path.read_bytes()[:100_000])}
    assert len(private) > 500
    bundle = tmp_path / "bundle.tgz"
    clean = {name: None for name in os.environ if name.startswith(("XDG_", "COLDTRAIL_", "CLAUDE_", "CODEX_", "GEMINI_"))}
    result = CliRunner().invoke(coldtrail, ["doctor", "--bundle", str(bundle)], env={**clean, "HOME": str(user)}, catch_exceptions=False)
    assert result.exit_code in (0, 1), result.output
    with tarfile.open(bundle) as opened_bundle:
        file = opened_bundle.extractfile("coldtrail-report/report.json")
        assert file is not None
        text = file.read().decode()
    assert '"claude-code, live"' in text
    assert text.count('"warning"') > 15
    told = text.casefold()
    ours = set(re.findall(r"[a-z-]+", " ".join(keys(json.loads(text)))))  # words that the report itself uses may be a session's name, too
    assert sorted(each for each in private if is_in(each, told) and each not in ours) == []


def is_in(each: str, told: str) -> bool:
    """Whether it stands there as such; a short word may be a part of another."""
    return each.casefold() in told and re.search(rf"(?<!\w){re.escape(each.casefold())}(?!\w)", told) is not None


def keys(value: Any) -> Iterator[str]:
    """Every key of a document."""
    if isinstance(value, dict):
        yield from value
    for each in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from keys(each)


SECRETS = ("list the files", "one file", FIRST, FIRST[:8], "somebody", "demo", "Secret Project", "geheim", "mine-own")


def test_the_bundle_has_no_private_text(desk: Desk, tmp_path: Path) -> None:
    desk.configure(
        f'[[source]]\nname = "mine-own"\nagent = "jsonl"\nroot = "{desk.user / "Secret Project" / "geheim"}"\n'
        '[retention]\nmax_total = "5GiB"\n[[retention.rule]]\nproject = "~/Secret Project/*"\ntag = "geheim"\nkeep_within = "2y"\n'
    )
    log = desk.captured()
    desk.write(desk.user / "Secret Project" / "geheim" / "a b.jsonl", {"said": "list the files"})
    desk.capture()
    private = desk.user / "Secret Project" / "x y.jsonl"
    with open_home(desk.settings()) as home:
        for path, what in ((log, "cannot be read"), (private, f"{private}: bad")):
            home.catalog.note_fault(os.fsencode(path), what, f"see {path}", home.now_ms(), 1000)
    desk.damage()
    desk.run("drill", "--sample", "100%", code=1)
    target = tmp_path / "report.tar.gz"
    desk.run("doctor", "--bundle", target, code=1)
    assert oct(target.stat().st_mode & 0o777) == "0o600"
    with tarfile.open(target) as bundle:
        (member,) = bundle.getmembers()
        assert (member.name, member.uname, member.gname, member.uid) == ("coldtrail-report/report.json", "", "", 0)
        file = bundle.extractfile(member)
        assert file is not None
        text = file.read().decode()
    assert [secret for secret in SECRETS if secret.casefold() in text.casefold()] == []
    assert str(desk.user) not in text
    assert '"max_total": "5GiB"' in text
    assert "~/.claude/projects/<" in text


def test_a_bundle_is_never_written_over_a_file(desk: Desk, tmp_path: Path) -> None:
    target = tmp_path / "report.tar.gz"
    target.write_text("mine")
    assert "is there already" in desk.run("doctor", "--bundle", target, code=4).stderr
    assert target.read_text() == "mine"


def test_a_bundle_is_written_of_a_home_that_cannot_be_opened_too(desk: Desk, tmp_path: Path) -> None:
    desk.captured()
    (desk.trail / "catalog.db").write_bytes(b"this is no database at all" * 100)
    desk.run("doctor", "--bundle", tmp_path / "one.tgz", code=1)
    desk.configure("nonsense")
    desk.run("doctor", "--bundle", tmp_path / "two.tgz", code=1)
    assert (tmp_path / "one.tgz").stat().st_size > 100
    assert (tmp_path / "two.tgz").stat().st_size > 100
