"""Recovering a log that goes on from a part of another one: what was said there comes first, and nothing of it is missed in silence."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from coldtrail import Position, Session
from coldtrail.errors import NotFoundError
from coldtrail.stage.scan import Scanner
from pipeline.following import Stepped, by_itself
from pipeline.stage.forks import forked_of, session_of
from pipeline.threads import LATER, A, B, C, Threads, forked, state, words
from world_of import small_sizes


@pytest.fixture
def threads(tmp_path: Path) -> Iterator[Threads]:
    with small_sizes():
        yield Threads(tmp_path)


def test_a_fork_begins_with_what_was_said_before_it_in_the_other_thread(threads: Threads) -> None:
    forked(threads)
    threads.scan()
    with threads.open() as home:
        found = state(home, B, verify=True)
        assert words(found) == ["one", "two", "three"]
        assert found.gaps == []
        assert found.recovery.verified
        assert str(found.document()["messages"]).count("input_text") == 3
        assert found.state.environment["cwd"] == "/b"
        assert found.state.environment["version"] == "b"
        assert words(state(home, A)) == ["one", "two", "not for the fork"]


def test_its_events_and_its_bytes_are_its_own_alone(threads: Threads) -> None:
    child = forked(threads)
    threads.scan()
    with threads.open() as home:
        session = session_of(home, B)
        assert b"".join(session.raw()) == child.read_bytes()
        assert {event.position.generation for event in session.events()} == {0}
        base = next(session.events(types={"session_start"})).data["base"]
        told = threads.rollout(A).read_bytes()
        assert base == {"log": A, "bytes": told.index(b"\n", told.index(b"two")) + 1, "records": 9}


def test_at_a_moment_in_the_fork_all_that_was_before_it_counts(threads: Threads) -> None:
    child = forked(threads)
    threads.say(child, "four")
    threads.scan()
    with threads.open() as home:
        assert words(state(home, B, at="#2")) == ["one", "two", "three"]
        assert words(state(home, B, at="#1")) == ["one", "two"]
        assert state(home, B, at="#1").position == Position(0, 0)
        with pytest.raises(NotFoundError):
            state(home, B, at=1)


def test_a_fork_of_a_fork_begins_with_both(threads: Threads) -> None:
    child = forked(threads)
    last = threads.begin(C, base=(B, child.stat().st_size), forked_from_id=B)
    threads.say(child, "not for the last one")
    threads.say(last, "four")
    threads.scan()
    with threads.open() as home:
        assert words(state(home, C, verify=True)) == ["one", "two", "three", "four"]


def test_a_reverted_thread_is_one_session_that_goes_on_with_its_newest_rollout(threads: Threads) -> None:
    first = threads.begin(A)
    end = threads.say(first, "one")
    threads.say(first, "taken back")
    later = threads.begin(A, base=(A, end), path=threads.reverted())
    threads.say(later, "two")
    threads.scan()
    with threads.open() as home:
        (row,) = home.catalog.sessions()
        session = Session(home, row)
        assert (session.id, session.state, len(session.streams())) == (A, "live", 2)
        assert words(session.recover(verify=True)) == ["one", "two"]
        assert words(session.recover(stream=str(first))) == ["one", "taken back"]
        assert b"".join(session.raw()) == later.read_bytes()
    first.unlink()
    later.unlink()
    threads.scan()
    with threads.open() as home:
        assert session_of(home, A).state == "gone"
        session_of(home, A).restore()
        assert words(session_of(home, A).recover()) == ["one", "two"]
    assert (first.exists(), later.exists()) == (True, True)


@pytest.mark.parametrize("origin", [A, None], ids=["that names its thread", "that does not"])
def test_a_fork_of_a_reverted_thread_goes_on_from_the_rollout_that_it_names(threads: Threads, origin: str | None) -> None:
    first = threads.begin(A)
    end = threads.say(first, "one")
    threads.say(first, "taken back")
    later = threads.begin(A, base=(A, end), path=threads.reverted())
    fork = threads.begin(B, base=(LATER, threads.say(later, "two")), forked_from_id=origin)
    threads.say(later, "not for the fork")
    threads.say(fork, "three")
    threads.scan()
    with threads.open() as home:
        assert words(state(home, B, verify=True)) == ["one", "two", "three"]
        assert words(state(home, A)) == ["one", "two", "not for the fork"]


def test_a_thread_that_was_reverted_is_forked_with_the_rollout_that_it_goes_on_from(threads: Threads) -> None:
    first = threads.begin(A)
    end = threads.say(first, "one")
    later = threads.begin(A, base=(A, end), path=threads.reverted())
    threads.say(later, "two", "three")
    threads.scan()
    shutil.rmtree(threads.root / "sessions")
    threads.scan()
    with threads.open() as home:
        done = session_of(home, A).restore(at="#2")
        copy = forked_of(done)
        assert [each.path for each in done] == [first, copy.path]
        assert copy.path == threads.rollout(copy.id)
    assert not later.exists()
    threads.scan()
    with threads.open() as home:
        assert words(state(home, copy.id)) == ["one", "two"]


def test_a_part_that_is_not_held_is_a_gap_that_names_it(threads: Threads) -> None:
    forked(threads)
    threads.rollout(A).unlink()
    threads.scan()
    with threads.open() as home:
        found = state(home, B)
        assert words(found) == ["three"]
        (gap,) = found.gaps
        assert (gap.generation, gap.start) == (-1, 0)
        assert A in gap.what


def test_a_part_that_ends_within_a_line_is_not_the_one_that_was_meant(threads: Threads) -> None:
    child = threads.begin(B, base=(A, 100))
    threads.say(threads.begin(A), "something else")
    threads.say(child, "three")
    threads.scan()
    with threads.open() as home:
        assert words(state(home, B)) == ["three"]
        assert "100 bytes" in state(home, B).gaps[0].what


def test_logs_that_name_each_other_end(threads: Threads) -> None:
    first, second = threads.begin(A, base=(B, 300)), threads.begin(B, base=(A, 300))
    sizes = [threads.say(first, "one"), threads.say(second, "two")]
    threads.say(threads.begin(A, base=(B, sizes[1])), "one")
    threads.say(threads.begin(B, base=(A, sizes[0])), "two")
    threads.scan()
    with threads.open() as home:
        found = state(home, B)
        assert words(found)[-1] == "two"
        assert found.gaps


def test_of_another_thread_that_was_rewritten_the_generation_that_was_meant_counts(threads: Threads) -> None:
    forked(threads)
    threads.scan()
    threads.say(threads.begin(A), "quite another one")
    threads.scan()
    with threads.open() as home:
        assert words(state(home, B)) == ["one", "two", "three"]


@pytest.mark.parametrize("long", [0, 200_000])
def test_of_another_thread_that_was_rewritten_with_a_line_that_ends_at_the_same_place_the_one_that_was_meant_counts(
    threads: Threads, long: int
) -> None:
    """Newer rollouts number their lines: that of the other one's last line must be the one that was said."""

    def numbered(*said: str) -> bytes:
        lines = [threads.line("session_meta", {"id": A}), *(threads.line("response_item", message(each)) for each in said)]
        return b"".join(json.dumps({**json.loads(each), "ordinal": at}).encode() + b"\n" for at, each in enumerate(lines))

    def message(said: str) -> dict[str, object]:
        return {"type": "message", "role": "user", "content": [{"type": "input_text", "text": said}]}

    meant, others = numbered("one", "two"), numbered("x" * long)
    another = numbered("y" * (long + max(0, len(meant) - len(others))))
    meant = meant if not long else numbered("one", "z" * (len(another) - len(meant) + 3))
    assert len(meant) == len(another)
    threads.write(threads.rollout(A), meant)
    threads.scan()
    base = {"thread_id": A, "end_ordinal_exclusive": 3, "end_byte_offset": len(meant)}
    threads.say(threads.begin(B, history_base=base, forked_from_id=A), "three")
    threads.scan()
    with threads.open() as home:
        wanted = words(state(home, B))
        assert (wanted[0], wanted[-1], len(wanted)) == ("one", "three", 3)
    threads.write(threads.rollout(A), another)
    threads.scan()
    with threads.open() as home:
        assert words(state(home, B)) == wanted
    threads.say(threads.begin(B, history_base={**base, "end_ordinal_exclusive": 4}, forked_from_id=A), "four")
    threads.scan()
    with threads.open() as home:
        found = state(home, B)
        assert words(found) == ["four"]
        assert "are not held" in found.gaps[0].what


def test_a_sub_agents_copy_of_what_its_parent_was_told_is_told_to_it(threads: Threads) -> None:
    """Its first line says where its own history starts; the model has what stands before that too."""
    child = threads.begin(B, parent_thread_id=A, subagent_history_start_ordinal=3)
    threads.append(child, threads.line("session_meta", {"id": A, "cwd": "/a"}))
    threads.say(child, "to the parent", "to the child")
    threads.scan()
    with threads.open() as home:
        found = state(home, B)
        assert words(found) == ["to the parent", "to the child"]
        assert found.state.environment["cwd"] == "/b"


def test_an_older_generation_of_a_reverted_thread_is_that_of_the_rollout_that_has_it(threads: Threads) -> None:
    first = threads.begin(A)
    end = threads.say(first, "one")
    whole = first.read_bytes()
    later = threads.begin(A, base=(A, end), path=threads.reverted())
    threads.scan()
    threads.begin(A)
    threads.scan()
    first.unlink()
    later.unlink()
    with threads.open() as home:
        newest = home.store.meta(next(row.stream for row in home.catalog.all_streams() if row.path.endswith(first.name.encode())))
        assert newest is not None
        session_of(home, A).restore(to=threads.folder / "old", generation=0)
        done = session_of(home, A).restore(to=threads.folder / "new", generation=1)
        assert len(done) == 2
        old, new = (next((threads.folder / each).rglob(first.name)).read_bytes() for each in ("old", "new"))
        assert old == whole != new
        with pytest.raises(NotFoundError, match="has no generation 2; it has 0 to 1"):
            session_of(home, A).restore(to=threads.folder / "none", generation=2)


def test_what_is_not_captured_yet_of_either_counts(threads: Threads) -> None:
    parent = threads.begin(A)
    threads.say(parent, "one")
    threads.scan()
    end = threads.say(parent, "two")
    child = threads.begin(B, base=(A, end), forked_from_id=A)
    with threads.open() as home:
        Scanner(home).look(threads.sources, [child])
        threads.say(child, "three")
        assert words(state(home, B)) == ["one", "two", "three"]


def test_who_follows_a_thread_is_told_when_it_is_reverted(threads: Threads) -> None:
    first = threads.begin(A)
    end = threads.say(first, "one")
    threads.scan()
    with threads.open() as home:
        followed = Stepped(home)
        assert len(followed.looks()) == 2
        threads.say(threads.begin(B), "another thread")
        threads.scan()
        followed.looks()
        later = threads.begin(A, base=(A, end), path=threads.reverted())
        threads.scan()
        assert followed.follower.gaps == []
        with pytest.raises(AssertionError, match=str(later)):  # a gap that it did not expect
            followed.looks()
        (gap,) = followed.follower.gaps
        assert str(later) in gap.what
        assert len(Stepped(home, session=session_of(home, A)).looks()) == 1, "who begins now follows the newest"


def test_who_follows_without_a_daemon_looks_for_a_revert_now_and_then(threads: Threads) -> None:
    first = threads.begin(A)
    end = threads.say(first, "one")
    threads.scan()
    with threads.open() as home:
        followed = Stepped(home, capture=by_itself(threads))
        followed.looks()
        later = threads.begin(A, base=(A, end), path=threads.reverted())
        followed.looks()
        threads.clock.tick(5_000)
        with pytest.raises(AssertionError, match=str(later)):
            followed.looks()
