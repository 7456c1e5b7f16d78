"""meta.json, the manifest, the stamp: written and read back, whatever the paths hold; and what is wrong is named."""

from __future__ import annotations

import copy
import hashlib
import json
import os
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coldtrail.format.manifest import (
    VERSION,
    Aside,
    Generation,
    Manifest,
    PathSeen,
    RestoredMark,
    Sealed,
    Stamp,
    StreamMeta,
    has_checksum,
    path_in,
    path_out,
)
from coldtrail.format.wishes import Act, Buried, Mark, Tombstone
from coldtrail.model import Relation, Role

patient = settings(deadline=None)  # a busy machine is no fault
ID, OTHER = "00112233445566aa", "ffeeddccbbaa9988"

whole = st.integers(0, 2**63 - 1)
texts = st.text(st.characters(exclude_characters="\0"), max_size=20)
paths = st.binary(max_size=30).map(os.fsdecode) | st.text("a/\\u dc80\n\udc80\udcff\N{SNOWMAN}", max_size=30)
stamps = st.builds(Stamp, whole, st.integers(0, 0o7777), st.integers(-(2**63), 2**63 - 1), whole)
metas = st.builds(
    StreamMeta,
    stream=st.just(ID),
    session=st.just(OTHER),
    host=st.just(ID),
    source=texts,
    agent=texts,
    root=paths,
    session_id=texts | paths,
    scope=texts | paths,
    role=st.sampled_from(Role),
    is_log=st.booleans(),
    paths=st.lists(st.builds(PathSeen, paths, whole, st.none() | paths), min_size=1, max_size=3).map(tuple),
    generations=st.lists(
        st.builds(Generation, st.integers(0, 99), whole, stamps, st.none() | st.sampled_from(Relation), mixed=st.booleans()),
        min_size=1,
        max_size=3,
    ).map(tuple),
    gone_ms=st.none() | whole,
    restored=st.none() | st.builds(RestoredMark, whole, whole, whole),
    aside=st.none() | st.builds(Aside, paths, whole, whole, st.integers(0, 99), whole, st.none() | whole),
)
manifests = st.builds(
    Manifest,
    session=st.just(OTHER),
    streams=st.lists(metas, max_size=2).map(tuple),
    sealed=st.lists(st.tuples(st.just(ID), st.builds(Sealed, st.integers(0, 99), whole, texts)), max_size=3).map(tuple),
    pinned=st.booleans(),
    tags=st.lists(texts, max_size=3).map(tuple),
    held_until_ms=st.none() | whole,
    mark=st.none() | st.builds(Mark, whole, texts, st.lists(st.tuples(st.just(ID), st.integers(0, 99), whole), max_size=3).map(tuple)),
    tombstone=st.none()
    | st.builds(
        Tombstone,
        st.sampled_from(Act),
        whole,
        texts,
        texts,
        texts,
        texts,
        st.lists(st.builds(Buried, st.just(ID), texts, st.integers(0, 99), whole, whole, texts, whole, texts), max_size=3).map(tuple),
    ),
)

META = StreamMeta(
    stream=ID,
    session=OTHER,
    host=ID,
    source="claude-code",
    agent="claude-code",
    root="/r",
    session_id="s",
    scope="-p",
    role=Role.MAIN,
    is_log=True,
    paths=(PathSeen("/r/a", 1), PathSeen("/r/b", 2, "/elsewhere/b")),
    generations=(Generation(0, 5, Stamp(10, 0o644, 7, 8)), Generation(1, 9, Stamp(20, 0o600, 7, 9), Relation.REPLACES, mixed=True)),
    gone_ms=11,
    restored=RestoredMark(1, 2, 3),
)
MANIFEST = Manifest(OTHER, (META,), ((ID, Sealed(0, 10, "ab" * 32)),), pinned=True, tags=("t",))


def document_of(made: StreamMeta | Manifest) -> Any:
    """The file as a JSON document that may be changed: without its checksum."""
    value = json.loads(made.encode())
    del value["sha256"]
    return value


# ---- round trips ------------------------------------------------------------------------------------------------------


@patient
@given(metas)
def test_what_is_known_of_a_stream_is_read_back(meta: StreamMeta) -> None:
    assert StreamMeta.decode(meta.encode()) == meta
    assert StreamMeta.decode(meta.encode()).encode() == meta.encode()


@patient
@given(manifests)
def test_a_manifest_is_read_back(manifest: Manifest) -> None:
    assert Manifest.decode(manifest.encode()) == manifest


@patient
@given(stamps)
def test_a_stamp_is_read_back(stamp: Stamp) -> None:
    assert Stamp.decode(stamp.encode()) == stamp


@patient
@given(st.binary(max_size=30))
def test_any_path_of_the_system_stands_in_json_and_is_read_back(raw: bytes) -> None:
    path = os.fsdecode(raw)
    assert path_in(json.loads(json.dumps(path_out(path)))) == path
    path_out(path).encode("utf-8")  # it is text for every reader


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (b"/plain/\xc3\xa9", "/plain/\N{LATIN SMALL LETTER E WITH ACUTE}"),
        (b"/raw\xff", r"/raw\udcff"),
        (rb"/back\slash", r"/back\\slash"),
        (rb"/looks\udcff", r"/looks\\udcff"),
        (b"/both\\\xff\\", r"/both\\\udcff\\"),
        (b"/line\nfeed", "/line\nfeed"),
    ],
)
def test_a_path_is_written_as_the_format_page_says(raw: bytes, text: str) -> None:
    assert path_out(os.fsdecode(raw)) == text
    assert os.fsencode(path_in(text)) == raw


def test_the_files_are_indented_json_with_a_version_and_a_last_newline() -> None:
    for data in (META.encode(), MANIFEST.encode()):
        assert json.loads(data)["version"] == VERSION
        assert data.startswith(b"{\n  ")
        assert data.endswith(b"}\n")
    assert META.encode() == META.encode()


def test_fields_that_a_later_version_adds_are_passed_over() -> None:
    value = document_of(MANIFEST)
    for holder in (value, value["streams"][0], value["streams"][0]["generations"][0], value["streams"][0]["paths"][0], value["sealed"][0]):
        holder["later"] = {"x": 1}
    assert Manifest.decode(json.dumps(value).encode()) == MANIFEST


def test_fields_that_say_nothing_may_be_left_out() -> None:
    value = document_of(META)
    for name in ("gone_ms", "restored"):
        del value[name]
    for generation in value["generations"]:
        del generation["relation"], generation["mixed"]
    del value["paths"][1]["real"]
    meta = StreamMeta.decode(json.dumps(value).encode())
    assert (meta.gone_ms, meta.restored, meta.paths[1].real) == (None, None, None)
    assert [(each.relation, each.mixed) for each in meta.generations] == [(None, False)] * 2
    bare = Manifest.decode(json.dumps({"version": 1, "session": OTHER, "streams": [], "sealed": []}).encode())
    assert bare == Manifest(OTHER)


@pytest.mark.parametrize("named", [0, 1, 7])
def test_a_generation_continues_an_earlier_one_or_the_file_is_refused(named: int) -> None:
    stamp = Stamp(0, 0o600, 0, 0)
    meta = replace(
        META, generations=(Generation(0, 0, stamp, None, named if named == 0 else None), Generation(1, 0, stamp, None, named or None))
    )
    with pytest.raises(ValueError, match=f"continues {named}, which is not before it"):
        StreamMeta.decode(meta.encode())


# ---- the checksum -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("made", [META, MANIFEST], ids=["meta.json", "manifest"])
def test_a_flipped_bit_is_found_wherever_it_is(made: StreamMeta | Manifest) -> None:
    data = made.encode()
    for at in range(len(data)):
        for bit in range(8):
            flipped = data[:at] + bytes([data[at] ^ 1 << bit]) + data[at + 1 :]
            try:
                found = type(made).decode(flipped)
            except ValueError:
                continue
            assert found == made, f"bit {bit} of byte {at}: {flipped[max(0, at - 20) : at + 20]!r}"


def test_damage_is_called_that_and_what_can_be_read_of_it_is_given_to_who_asks_for_it() -> None:
    for data in (META.encode(), MANIFEST.encode()):
        damaged = data.replace(b'"/elsewhere/b"', b'"/elsewhere/c"')
        kind = StreamMeta if data == META.encode() else Manifest
        with pytest.raises(ValueError, match="damaged: it does not match its checksum"):
            kind.decode(damaged)
        assert b"/elsewhere/c" in kind.decode(damaged, unproven=True).encode()


def test_the_checksum_is_of_the_other_fields_as_the_format_page_says() -> None:
    for made in (META, MANIFEST):
        canonical = json.dumps(document_of(made), sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        assert json.loads(made.encode())["sha256"] == hashlib.sha256(canonical.encode()).hexdigest()


def test_how_the_file_is_laid_out_is_of_no_account() -> None:
    assert StreamMeta.decode(json.dumps(json.loads(META.encode()), indent=7).encode()) == META


def test_a_file_without_a_checksum_is_read_and_known_as_such() -> None:
    for made in (META, MANIFEST):
        bare = json.dumps(document_of(made)).encode()
        assert type(made).decode(bare) == made
        assert (has_checksum(made.encode()), has_checksum(bare)) == (True, False)


# ---- generations ------------------------------------------------------------------------------------------------------


def test_a_chain_is_a_generation_and_those_that_it_continues() -> None:
    stamp = Stamp(0, 0o600, 0, 0)
    goes_on = [(Relation.CONTINUES, 0), (Relation.CONTINUES, 1), (Relation.REPLACES, 1), (Relation.RESTORED, None), (Relation.CONTINUES, 4)]
    meta = StreamMeta.decode(META.encode())
    for number, (relation, continues) in enumerate([(None, None), *goes_on]):
        meta = meta.with_generation(Generation(number, 0, stamp, relation, continues))
    meta = StreamMeta.decode(meta.encode())
    chains = {last: [each.number for each in meta.chain(last)] for last in range(6)}
    assert chains == {0: [0], 1: [0, 1], 2: [0, 1, 2], 3: [0, 1, 3], 4: [4], 5: [4, 5]}
    assert [each.number for each in meta.chain()] == [4, 5]
    for asked in (meta.chain, meta.generation):
        with pytest.raises(KeyError):
            asked(6)


def test_a_generation_is_added_or_changed_in_its_place() -> None:
    changed = META.with_generation(Generation(0, 99, Stamp(1, 1, 1, 1)))
    assert [(each.number, each.began_ms) for each in changed.generations] == [(0, 99), (1, 9)]
    assert META.with_generation(Generation(2, 0, Stamp(1, 1, 1, 1))).newest.number == 2
    assert META.path == "/r/b"


# ---- what is wrong ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("decode", [StreamMeta.decode, Manifest.decode])
@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", ".+"),
        (b"{", ".+"),
        (b"\0" * 500, "NUL"),
        (b"[1]", "no JSON object"),
        (b"{}", "version None"),
        (b'{"version":2}', "version 2; this coldtrail reads version 1"),
        (b'{"version":"1"}', "version '1'"),
    ],
)
def test_a_damaged_file_or_one_of_another_version_is_refused(decode: object, data: bytes, said: str) -> None:
    assert callable(decode)
    with pytest.raises(ValueError, match=said):
        decode(data)


def test_a_file_cut_anywhere_is_refused() -> None:
    for whole_file, decode in ((META.encode(), StreamMeta.decode), (MANIFEST.encode(), Manifest.decode)):
        for length in range(len(whole_file) - 2):
            with pytest.raises(ValueError, match=r".?"):
                decode(whole_file[:length])


def places(value: object, above: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """The way to every value in a JSON document."""
    if above:
        yield above
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in items:
        yield from places(each, (*above, key))


def with_value(document: object, place: tuple[str | int, ...], value: object) -> bytes:
    changed = copy.deepcopy(document)
    holder = changed
    for step in place[:-1]:
        holder = holder[step]  # type: ignore[index]
    holder[place[-1]] = value  # type: ignore[index]
    return json.dumps(changed).encode()


WRONG: list[object] = [None, True, 5, -1.5, "x", [], [5], {}, {"x": 5}]


@pytest.mark.parametrize("place", list(places(document_of(MANIFEST))), ids=str)
def test_a_value_of_the_wrong_kind_is_refused_or_read_as_a_whole_manifest(place: tuple[str | int, ...]) -> None:
    for wrong in WRONG:
        try:
            found = Manifest.decode(with_value(document_of(MANIFEST), place, wrong))
        except ValueError:
            continue
        assert Manifest.decode(found.encode()) == found, wrong
        assert [(meta.path, meta.newest.number) for meta in found.streams] in ([], [("/r/b", 1)], [("x", 1)], [("/r/b", 5)]), wrong


@pytest.mark.parametrize(
    "name", ["stream", "session", "host", "source", "agent", "root", "session_id", "scope", "role", "paths", "generations"]
)
def test_a_field_that_must_be_there_is_named_when_it_is_not(name: str) -> None:
    value = document_of(META)
    del value[name]
    with pytest.raises(ValueError, match=f"'{name}'"):
        StreamMeta.decode(json.dumps(value).encode())


@pytest.mark.parametrize(("name", "value"), [("role", "boss"), ("relation", "cousin"), ("mode", True), ("end", 1.5), ("at_ms", "1")])
def test_a_word_or_number_that_is_none_is_named(name: str, value: object) -> None:
    document = document_of(META)
    holder = {"role": document, "relation": document["generations"][1]}.get(name, document["generations"][0]["stamp"])
    holder[name] = value
    with pytest.raises(ValueError, match=str(value) if isinstance(value, str) and len(value) > 1 else name):
        StreamMeta.decode(json.dumps(document).encode())


@pytest.mark.parametrize(
    "payload", [b"", b"[]", b"{}", b'{"end":1,"mode":2,"mtime_ns":3}', b'{"at_ms":null,"end":1,"mode":2,"mtime_ns":3}', b"\0"]
)
def test_what_is_no_stamp_is_refused(payload: bytes) -> None:
    with pytest.raises(ValueError, match=r".+"):
        Stamp.decode(payload)
