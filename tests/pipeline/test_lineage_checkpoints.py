"""Checkpoints of a log that goes on from another one: those of both are used, and none once the other is another."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from coldtrail.format.checkpoint import Checkpoint
from coldtrail.format.index import RecordIndex, Row
from pipeline.recovering import checkpointed, held
from pipeline.stage.places import the_stream
from pipeline.threads import A, B, C, Threads, long, state, words
from world_of import compact, small_sizes


@pytest.fixture
def threads(tmp_path: Path) -> Iterator[Threads]:
    with small_sizes():
        yield Threads(tmp_path)


@pytest.mark.parametrize("sealed", [False, True], ids=["open", "sealed"])
def test_a_fork_is_recovered_from_the_other_threads_checkpoint_and_later_from_its_own(threads: Threads, *, sealed: bool) -> None:
    parent = threads.begin(A)
    end = long(threads, parent)
    long(threads, parent, 50)
    child = threads.begin(B, base=(A, end), forked_from_id=A)
    threads.say(child, "three")
    threads.scan()
    with threads.open() as home:
        plain = state(home, B)
        document = plain.document()
        checkpointed(home)
        if sealed:
            compact(home, cold=True)
    with threads.open() as home:
        found = state(home, B, verify=True)
        assert found.checkpoint is not None
        assert found.checkpoint.generation == -1
        assert found.replayed < plain.replayed / 3
        assert (found.state_hash, found.gaps, found.recovery.verified) == (plain.state_hash, [], True)
        assert words(found) == words(plain)
        assert found.document() == document
    long(threads, child)
    threads.scan()
    with threads.open() as home:
        plain = state(home, B)
        checkpointed(home)
        if sealed:
            compact(home, cold=True)
    with threads.open() as home:
        found = state(home, B, verify=True)
        assert found.checkpoint is not None
        assert found.checkpoint.generation == 0
        assert (found.state_hash, found.recovery.verified) == (plain.state_hash, True)
        assert words(found) == words(plain)
        assert len(words(found)) == 301


def test_a_checkpoint_of_a_fork_counts_no_more_once_the_other_thread_is_another(threads: Threads) -> None:
    parent = threads.begin(A)
    end = threads.say(parent, "one", "two")
    child = threads.begin(B, base=(A, end), forked_from_id=A)
    long(threads, child)
    threads.scan()
    with threads.open() as home:
        checkpointed(home)
        assert state(home, B).checkpoint is not None
    threads.write(parent, parent.read_bytes().replace(b"two", b"TWO"))
    threads.scan()
    with threads.open() as home:
        found = state(home, B, verify=True)
        assert words(found)[:2] == ["one", "TWO"]
        assert found.checkpoint is None
        assert "other logs came before this one" in found.recovery.notes[0]
        checkpointed(home)


def test_a_checkpoint_that_was_made_without_the_other_thread_counts_no_more_once_that_is_held(threads: Threads) -> None:
    parent = threads.begin(A)
    end = threads.say(parent, "one")
    data = parent.read_bytes()
    parent.unlink()
    child = threads.begin(B, base=(A, end), forked_from_id=A)
    long(threads, child)
    threads.scan()
    with threads.open() as home:
        checkpointed(home)
        assert words(state(home, B))[0].startswith("0 ")
        assert state(home, B).checkpoint is not None
    threads.write(parent, data)
    threads.scan()
    with threads.open() as home:
        assert words(state(home, B, verify=True))[0] == "one"


def test_a_fork_of_a_long_fork_is_read_when_everything_else_is_closed(threads: Threads) -> None:
    parent = threads.begin(A)
    child = threads.begin(B, base=(A, long(threads, parent)), forked_from_id=A)
    last = threads.begin(C, base=(B, long(threads, child)), forked_from_id=B)
    threads.say(last, "the last")
    threads.scan()
    with threads.open() as home:
        plain = state(home, C)
        expected = words(plain)
        checkpointed(home)
    with threads.open() as home:
        found = state(home, C)
        before = state(home, C, at="#1", verify=True)
    assert found.checkpoint is not None
    assert found.checkpoint.generation == -1
    assert (len(expected), words(found), words(before)) == (301, expected, expected[:-1])
    assert found.state_hash == plain.state_hash
    assert before.recovery.verified
    threads.rollout(A).unlink()
    shutil.rmtree(threads.layout.home)
    threads.scan()
    with threads.open() as home:
        without = state(home, C)
        assert (len(words(without)), len(without.gaps)) == (151, 1)
        assert (without.gaps[0].generation, A in without.gaps[0].what) == (-1, True)


def test_an_index_is_cut_where_the_part_that_counts_ends() -> None:
    index = RecordIndex(5, 100)
    for start, length in ((100, 10), (110, 20), (140, 5)):
        index.add(Row(start, length, 0, 0, start, 0))
    for end, kept in ((100, 0), (109, 0), (110, 1), (129, 1), (130, 2), (144, 2), (145, 3), (999, 3)):
        cut = index.keep_before(end)
        assert list(cut.rows()) == list(index.rows())[:kept]
        assert (cut.start, cut.base_ms) == (100, 5)


def test_a_forks_checkpoint_refers_to_the_other_thread_and_below_0_nothing_else_may_be(threads: Threads) -> None:
    parent = threads.begin(A)
    child = threads.begin(B, base=(A, threads.say(parent, "one")), forked_from_id=A)
    long(threads, child)
    threads.scan()
    with threads.open() as home:
        checkpointed(home)
        found = held(home, the_stream(home, child))[-1]
    assert found.runs[0][0] == -1
    assert found.small["base"] == [[str(stream), 0, parent.stat().st_size] for stream, *_ in found.small["base"]]  # type: ignore[attr-defined]
    assert Checkpoint.decode(found.encode()) == found
    wrong: list[dict[str, object]] = [
        {"runs": ((0, -1, 8),)},
        {"runs": ((-1, 0, 8, -1, 0),)},
        {"runs": (("-1", 0, 8),)},
        {"told": ((-1, 0, 0, 8),)},
        {"tools": (("t", 0, -1, 8),)},
        {"live": (found.live[0], -1, 1)},
        {"loose": (-1,)},
        {"generation": -1},
    ]
    for fields in wrong:
        with pytest.raises(ValueError, match="not a checkpoint"):
            Checkpoint.decode(replace(found, **fields).encode())  # type: ignore[arg-type]
