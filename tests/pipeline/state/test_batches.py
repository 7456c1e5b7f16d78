"""The fold can be split anywhere: through a checkpoint and back it gives the same state, whatever the log."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coldtrail.state import Fold, State
from pipeline.state.anything import AGENTS
from pipeline.state.folding import CORPUS, Log

each_agent = pytest.mark.parametrize("name", AGENTS)


@each_agent
@given(data=st.data())
def test_a_fold_through_a_checkpoint_after_every_record_gives_the_same_state(name: str, data: st.DataObject) -> None:
    """Not only what the state says, but all of it, so that nothing that comes after can tell."""
    log = Log(name, data.draw(st.lists(AGENTS[name], min_size=1, max_size=25)))
    straight = Fold(log.agent.ids, log)
    state = State()
    for count, (ref, reading) in enumerate(log.records, 1):
        straight.apply(ref, reading)
        fold = Fold(log.agent.ids, log, state)
        fold.apply(ref, reading)
        state = log.frozen(fold.state, count)
        assert state == straight.state, count
        assert list(state.answers) == list(straight.state.answers)
        assert state.hash() == straight.state.hash()


@each_agent
@given(data=st.data())
def test_what_grows_is_proven_by_count_and_sum_and_can_be_had_whole(name: str, data: st.DataObject) -> None:
    log = Log(name, data.draw(st.lists(AGENTS[name], min_size=1, max_size=25)))
    state, whole = log.fold(), log.fold(state=State.whole())
    assert whole.hash() == state.hash()
    document = whole.document()
    for listed, grown in (("completed_tools", state.completed), ("decisions", state.decisions), ("snapshots", state.snapshots)):
        values = document[listed]
        assert isinstance(values, list)
        assert len(values) == grown.count >= 0


@each_agent
@given(data=st.data())
def test_the_state_of_the_same_records_elsewhere_has_the_same_hash(name: str, data: st.DataObject) -> None:
    values = data.draw(st.lists(AGENTS[name], min_size=1, max_size=20))
    here, there = Log(name, values), Log(name, values, generation=7, start=123_456)
    assert here.fold().hash() == there.fold().hash()
    assert here.fold(state=State.whole()).document() == there.fold(state=State.whole()).document()
    spaced = Log(name, b"".join(json.dumps(each, indent=None, separators=(" ,  ", " : ")).encode() + b"\r\n\n" for each in values))
    assert spaced.fold().hash() == here.fold().hash()


# --- real logs ---

FOLDERS = {"claude": "claude-code", "codex": "codex", "gemini": "gemini-cli"}
SAMPLE = 40  # of the files of a folder
SPLITS = 4  # of a file


def real_logs(folder: str) -> list[Path]:
    found = [path for path in sorted((CORPUS / folder).rglob("*.json*")) if path.is_file() and path.stat().st_size]
    return random.Random(folder).sample(found, min(SAMPLE, len(found)))


@pytest.mark.skipif(not CORPUS.is_dir(), reason=f"the real logs are missing: {CORPUS}")
@pytest.mark.parametrize("folder", FOLDERS)
def test_real_logs_split_anywhere_give_the_same_state(folder: str) -> None:
    checked = 0
    for path in real_logs(folder):
        log = Log(FOLDERS[folder], path.read_bytes())
        chance, count = random.Random(path.name), len(log.records)
        cuts = sorted(chance.randrange(1, count + 1) for _ in range(SPLITS)) if count else []
        straight, state, begin = Fold(log.agent.ids, log), State(), 0
        for cut in cuts:
            for ref, reading in log.records[begin:cut]:
                straight.apply(ref, reading)
            state = log.frozen(log.fold(cut, state=state, begin=begin), cut)
            assert state == straight.state, (path, cut)
            begin, checked = cut, checked + 1
        assert log.fold(state=state, begin=begin).hash() == log.fold().hash(), path
    assert checked > 50 or folder == "gemini"


@pytest.mark.skipif(not CORPUS.is_dir(), reason=f"the real logs are missing: {CORPUS}")
@pytest.mark.parametrize("folder", FOLDERS)
def test_usage_of_real_logs_is_that_of_each_answer_once(folder: str) -> None:
    """However many answers have gone by: told with a table of all of them."""
    for path in real_logs(folder):
        log = Log(FOLDERS[folder], path.read_bytes())
        totals: dict[str, dict[str, int]] = {}
        for _, reading in log.records:
            for meaning in reading.events:
                usage, answer = meaning.data.get("usage"), meaning.data.get("message_id")
                if isinstance(usage, dict) and isinstance(answer, str):
                    known = totals.setdefault(answer, {})
                    for key, value in usage.items():
                        if isinstance(value, int) and not isinstance(value, bool):
                            known[key] = max(known.get(key, 0), value)
        wanted: dict[str, int] = {}
        for known in totals.values():
            for key, value in known.items():
                wanted[key] = wanted.get(key, 0) + value
        if totals:
            assert log.fold().usage == wanted, path
