"""Facts: the same wherever the fold is split, also when the parts were written down in between."""

from __future__ import annotations

from dataclasses import fields

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from coldtrail.facts import PARENTS_MAX, TITLE_MAX_CHARS, Facts, text_of
from coldtrail.format import lines
from coldtrail.model import EventType, Meaning, Reading, Record, RecordKind

patient = settings(deadline=None)  # a busy machine is no fault
Fed = tuple[Record, Reading | None]

words = st.sampled_from(["", " ", "a", "b", "c d", "\ud83d", "line\ntwo", "x" * 500])
data = st.fixed_dictionaries(
    {},
    optional={
        "session_id": words | st.none() | st.integers(),
        "title": words | st.none() | st.integers(),
        "title_rank": st.integers(-1, 3) | st.none(),
        "parents": st.lists(words | st.integers(0, 200).map(str) | st.integers(), max_size=80) | st.none(),
        "role": st.sampled_from(["user", "assistant"]),
        "content": words | st.lists(st.fixed_dictionaries({"text": words}) | words | st.none(), max_size=3) | st.none(),
        "meta": st.booleans(),
    },
)
meanings = st.builds(Meaning, st.sampled_from([EventType.SESSION_START, EventType.MESSAGE_ADDED, EventType.METADATA_CHANGED]), data)
readings = st.builds(
    Reading,
    st.lists(meanings, max_size=3).map(tuple),
    time_ms=st.none() | st.integers(-3, 3) | st.integers(1_700_000_000_000, 1_800_000_000_000),
    cwd=st.none() | words,
)
records = st.builds(Record, st.just(0), st.just(1), st.sampled_from(RecordKind))
fed = st.lists(st.tuples(records, st.none() | readings), max_size=12)


def folded(run: list[Fed]) -> Facts:
    facts = Facts()
    for record, reading in run:
        facts.add(record, reading)
    return facts


def written(facts: Facts) -> Facts:
    """The same, after it stood in a segment or a row."""
    value = lines.loads(lines.dumps(facts.to_json(), sort=True))
    assert isinstance(value, dict)
    return Facts.from_json(value)


def said(*meaning: Meaning, time_ms: int | None = None, cwd: str | None = None) -> Fed:
    return Record(0, 1, RecordKind.DATA), Reading(meaning, time_ms, cwd=cwd)


def start(session_id: str) -> Fed:
    return said(Meaning(EventType.SESSION_START, {"session_id": session_id}))


def titled(title: str, rank: int) -> Fed:
    return said(Meaning(EventType.METADATA_CHANGED, {"title": title, "title_rank": rank}))


def user(content: object, **more: object) -> Fed:
    return said(Meaning(EventType.MESSAGE_ADDED, {"role": "user", "content": content, **more}))


def needing(*parents: str) -> Fed:
    return said(Meaning(EventType.METADATA_CHANGED, {"parents": list(parents)}))


@patient
@given(fed, st.lists(st.integers(0, 12), max_size=4))
@example([start(""), start("s")], [1])
@example([said(time_ms=0), said(time_ms=5)], [1])
@example([titled("a", 0), titled("b", 0)], [1])
@example([needing(*map(str, range(60))), needing(*map(str, range(30, 100)))], [1])
def test_the_fold_is_the_same_wherever_it_is_split(run: list[Fed], cuts: list[int]) -> None:
    whole, joined, at = folded(run), Facts(), 0
    for cut in [*sorted(cuts), len(run)]:
        joined.merge(written(folded(run[at:cut])))
        joined, at = written(joined), max(at, cut)
    assert joined == whole


@patient
@given(fed)
def test_facts_are_read_back_as_they_were_written(run: list[Fed]) -> None:
    assert written(folded(run)) == folded(run)


@patient
@given(fed, fed, fed)
def test_it_does_not_matter_which_neighbours_are_merged_first(a: list[Fed], b: list[Fed], c: list[Fed]) -> None:
    left, right, last = folded(a), folded(b), folded(c)
    left.merge(right)
    left.merge(last)
    right_first = folded(b)
    right_first.merge(folded(c))
    other = folded(a)
    other.merge(right_first)
    assert left == other


def test_no_records_are_no_facts() -> None:
    assert Facts().to_json() == {}
    assert Facts.from_json({}) == Facts()


def test_fields_that_a_later_version_adds_are_passed_over() -> None:
    assert Facts.from_json({"records": 2, "later": [1]}) == Facts(records=2)


def test_blank_lines_are_no_records_and_damaged_ones_are_counted_twice() -> None:
    facts = folded([(Record(0, 1, kind), None) for kind in RecordKind])
    assert (facts.records, facts.damaged) == (3, 1)


def test_the_first_and_the_newest_time_are_found_though_times_run_backwards() -> None:
    facts = folded([said(time_ms=5), said(), said(time_ms=2), said(time_ms=9), said(time_ms=7)])
    assert (facts.first_ms, facts.last_ms) == (2, 9)


def test_the_first_folder_and_the_first_id_hold() -> None:
    facts = folded([said(cwd=""), said(cwd="/one"), said(cwd="/two"), start("s1"), start("s2")])
    assert (facts.project, facts.session_id) == ("/one", "s1")


def test_the_newest_title_of_the_highest_rank_holds() -> None:
    facts = folded([titled("summary", 1), titled("mine", 3), titled("theirs", 2), titled("mine, later", 3), titled(" ", 3)])
    assert (facts.title, facts.title_rank) == ("mine, later", 3)


def test_the_first_prompt_is_the_first_text_of_the_user_that_is_no_meta_message() -> None:
    blocks = [{"type": "image"}, {"type": "text", "text": "two\n"}, {"type": "text", "text": "blocks"}]
    facts = folded([user("caveat", meta=True), user([{"type": "tool_result"}]), user("  "), user(blocks), user("later")])
    assert facts.prompt == "two blocks"


def test_titles_are_one_short_line_that_can_be_written() -> None:
    facts = folded([titled("a\r\n\tb\u2028c \ud83d" + "x" * 10_000, 1)])
    assert facts.title is not None
    assert facts.title.startswith("a b c ?xx")
    assert len(facts.title) == TITLE_MAX_CHARS


def test_the_sessions_that_this_one_needs_are_listed_once_and_not_without_end() -> None:
    facts = folded([needing("p", "q", "p"), needing("q", *map(str, range(500)))])
    assert facts.parents[:4] == ["p", "q", "0", "1"]
    assert len(facts.parents) == PARENTS_MAX


@pytest.mark.parametrize(
    ("content", "text"),
    [("plain", "plain"), ([{"text": "a"}, {"text": 5}, "b", {"text": "c"}], "a c"), (None, ""), (5, ""), ({"text": "a"}, ""), ([], "")],
)
def test_the_text_of_a_message_is_its_string_or_its_blocks_texts(content: object, text: str) -> None:
    assert text_of(content) == text


def test_every_field_is_merged() -> None:
    """A field that `merge` forgets would be lost where a log is compacted."""
    full = Facts(3, 1, 5, 9, "s", "/p", "t", 2, "hello", ["q"])
    for each in fields(Facts):
        assert getattr(full, each.name) != getattr(Facts(), each.name), f"give {each.name} a value here"
    merged = Facts()
    merged.merge(full)
    assert merged == full
