"""Checkpoints as they are found: the nearest by place, and whatever is wrong with one, the same state in the end and a word about it."""

from __future__ import annotations

import dataclasses
import json
import random
import re
import shutil
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from coldtrail import checkpoints
from coldtrail.checkpoints import Notes
from coldtrail.format import checkpoint
from coldtrail.format.checkpoint import Checkpoint
from coldtrail.format.frames import Compressor
from coldtrail.home import Home
from coldtrail.model import Position
from coldtrail.plain import Plain
from coldtrail.stage.rebuild import rebuild
from pipeline.recovering import EventWorld, checkpointed, file_of, held, places, recovered, replayed
from pipeline.stage.places import flip_bit, sealed_files, the_stream
from pipeline.state.folding import called, gave, line
from world_of import World, compact, metas, small_sizes


@pytest.fixture(params=["open", "sealed", "both"])
def home(request: pytest.FixtureRequest, mine: EventWorld) -> Iterator[Home]:
    """A log with checkpoints, in open segments, in a sealed one, in both."""
    parts = 2 if request.param == "both" else 1
    for part in range(parts):
        mine.append(mine.log, mine.turns(60 // parts))
        mine.scan()
        with mine.open() as home:
            checkpointed(home)
            if request.param != "open" and part == 0:
                compact(home, cold=True)
    with mine.open() as home:
        yield home


# --- the nearest ---


def test_the_nearest_is_the_last_that_stands_before_the_moment(home: Home) -> None:
    meta = the_stream(home)
    offsets = [each.offset for each in held(home, meta)]
    assert len(offsets) > 8
    assert offsets == sorted(set(offsets))
    for place in places(home, meta)[::3]:
        used = recovered(home, meta, place).checkpoint
        before = [offset for offset in offsets if offset <= place.offset]
        assert (used.offset if used else None) == (before[-1] if before else None)


def test_their_order_in_the_file_does_not_matter(mine: EventWorld) -> None:
    mine.append(mine.log, mine.turns(60))
    mine.scan()
    with mine.open() as home:
        checkpointed(home)
        meta = the_stream(home)
        entries = checkpoints.read_file(file_of(home, meta).parent)
        random.Random(1).shuffle(entries)
        file_of(home, meta).write_bytes(checkpoint.pack(entries))
        assert [entry[0] for entry in entries] != sorted(entry[0] for entry in entries)
        used = recovered(home, meta).checkpoint
        assert used is not None
        assert used.offset == max(entry[0] for entry in entries)


# --- one that is of no use ---

Harm = Callable[[Home, EventWorld], None]


def each_entry(change: Callable[[Checkpoint], Checkpoint | bytes]) -> Harm:
    """The last half of all checkpoints are others."""

    def act(home: Home, _: EventWorld) -> None:
        meta = the_stream(home)
        found = held(home, meta)
        entries = []
        for at, each in enumerate(found):
            changed = change(each) if at >= len(found) // 2 else each
            entries.append((each.offset, changed if isinstance(changed, bytes) else changed.encode()))
        put(home, entries)

    return act


def put(home: Home, entries: list[tuple[int, bytes]]) -> None:
    """Have these checkpoints and no others."""
    meta = the_stream(home)
    folder = file_of(home, meta).parent
    folder.mkdir(parents=True, exist_ok=True)
    (folder / checkpoints.FILE_NAME).write_bytes(checkpoint.pack(entries))


def changed(**values: object) -> Callable[[Checkpoint], Checkpoint]:
    return lambda each: dataclasses.replace(each, **values)  # type: ignore[arg-type]


def of_another_log(home: Home, mine: EventWorld) -> None:
    """The checkpoints of a log as long as this one, whose records say other things."""
    other = EventWorld(mine.folder / "other")
    other.clock.tick(5)
    other.append(other.log, other.turns(60))
    other.scan()
    with other.open() as elsewhere:
        checkpointed(elsewhere)
        entries = checkpoints.read_file(file_of(elsewhere, the_stream(elsewhere)).parent)
    put(home, entries)


def of_another_log_by_name(home: Home, mine: EventWorld) -> None:
    """The same, and they say that they are this log's."""
    of_another_log(home, mine)
    meta = the_stream(home)
    entries = checkpoints.read_file(file_of(home, meta).parent)
    put(home, [(offset, dataclasses.replace(Checkpoint.decode(packed), stream=meta.stream).encode()) for offset, packed in entries])


def torn(home: Home, _: EventWorld) -> None:
    path = file_of(home, the_stream(home))
    path.write_bytes(path.read_bytes()[: path.stat().st_size * 2 // 3])


def bit_flipped(home: Home, _: EventWorld) -> None:
    path = file_of(home, the_stream(home))
    flip_bit(path, path.stat().st_size - 50)  # in the last one


def missing(home: Home, _: EventWorld) -> None:
    file_of(home, the_stream(home)).unlink()


def empty(home: Home, _: EventWorld) -> None:
    file_of(home, the_stream(home)).write_bytes(b"")


def of_garbage(home: Home, _: EventWorld) -> None:
    file_of(home, the_stream(home)).write_bytes(random.Random(1).randbytes(5000))


HARM: dict[str, tuple[Harm, str]] = {
    "of an older fold": (each_entry(changed(version=0)), "version 0"),
    "of a newer fold": (each_entry(changed(version=99)), "version 99"),
    "of a fold with other fields": (each_entry(lambda _: Compressor(3).frame(b'{"version":7,"text":"x"}')), "version 7"),
    "of another stream": (each_entry(changed(stream="elsewhere")), "that of stream elsewhere"),
    "of another generation": (each_entry(changed(generation=3)), "generation 3"),
    "of another place": (each_entry(changed(offset=8)), "another place"),
    "with another hash": (each_entry(changed(state_hash="0" * 64)), "another hash"),
    "that refer elsewhere": (each_entry(changed(runs=((0, 0, 100),))), "another conversation"),
    "that refer to too few": (each_entry(changed(runs=(), live=("0" * 64, 0, 0))), "another hash"),
    "that refer beyond the end": (each_entry(changed(tools=(("t", 0, 1 << 40, 10),))), "does not have there"),
    "that refer to another generation": (each_entry(changed(tools=(("t", 9, 0, 10),))), "does not have there"),
    "without their small values": (each_entry(changed(small={})), ""),
    "with small values of another kind": (each_entry(changed(small={"completed": 5})), ""),
    "that left what comes behind it": (
        each_entry(lambda each: dataclasses.replace(each, small={**each.small, "left": [[0, 1 << 40, 1]]})),
        "does not have there",
    ),
    "whose frame is damaged": (each_entry(lambda each: each.encode()[:-3] + b"abc"), "decode"),
    "of another log": (of_another_log, "it is that of stream"),
    "of another log under this one's name": (of_another_log_by_name, "something else right before it"),
    "in a torn file": (torn, ""),
    "in a file with a bit flipped": (bit_flipped, ""),
    "in a file that is missing": (missing, ""),
    "in a file that is empty": (empty, ""),
    "in a file of garbage": (of_garbage, ""),
}


@pytest.mark.parametrize("name", HARM)
def test_one_that_is_of_no_use_is_passed_over_with_a_word_and_the_state_is_the_same(mine: EventWorld, name: str) -> None:
    harm, word = HARM[name]
    mine.append(mine.log, mine.turns(60) + mine.turns(3))  # so that some of the conversation lies before the last checkpoint
    mine.scan()
    with mine.open() as home:
        checkpointed(home)
        meta = the_stream(home)
        moments = [None, *places(home, meta)[::40]]
        wanted = [recovered(home, meta, moment) for moment in moments]
        harm(home, mine)
        for moment, before in zip(moments, wanted, strict=True):
            found = recovered(home, meta, moment)
            assert found.state == before.state
            assert (found.position, found.gaps) == (before.position, [])
            assert found.replayed >= before.replayed
        found = recovered(home, meta, verify=True)
        assert found.verified is True
        assert found.replayed > wanted[0].replayed
        if word:
            assert re.search(word, found.notes[0]), found.notes
            assert len(found.notes) < 5
        checkpointed(home)
        assert recovered(home, meta).state == wanted[0].state


@pytest.mark.parametrize("where", ["table", "entry", "all"])
def test_damage_in_a_sealed_segments_checkpoints_harms_only_these(mine: EventWorld, where: str) -> None:
    mine.append(mine.log, mine.turns(60))
    mine.scan()
    with mine.open() as home:
        checkpointed(home)
        compact(home, cold=True)
        meta = the_stream(home)
        wanted, before = recovered(home, meta), len(held(home, meta))
        (path,) = sealed_files(mine)
        data = path.read_bytes()
        at = data.index(b"CTcp")
        (count,) = struct.unpack_from("<I", data, at + 4)
        table = at + 8
        if where == "table":
            flip_bit(path, table + 3)
        else:
            (length,) = struct.unpack_from("<I", data, table + (count - 1) * 16 + 8)
            begin = table + count * 16 + 4
            total = sum(struct.unpack_from("<I", data, table + n * 16 + 8)[0] for n in range(count))
            flip_bit(path, begin + total - length // 2)
            if where == "all":
                path.write_bytes(path.read_bytes()[:begin] + bytes(total) + path.read_bytes()[begin + total :])
        found = recovered(home, meta)
        assert found.state == wanted.state
        assert len(found.notes) == 1
        assert "passed over" in found.notes[0]
        assert len(held(home, meta)) == {"table": 0, "entry": before - 1, "all": 0}[where]
        assert b"".join(part for _, part in home.plain(meta, 0).read()) == mine.log.read_bytes()


def test_many_of_no_use_are_told_of_in_a_line(mine: EventWorld) -> None:
    notes = Notes()
    for n in range(5):
        notes.passed(f"0:{n}", "made by version 0")
    notes.passed("0:9", "its frame is torn")
    notes.passed("0:8", "made by version 0")
    assert notes == [
        "the checkpoint at 0:0 is passed over (made by version 0); so are 4 before it",
        "the checkpoint at 0:9 is passed over (its frame is torn)",
        "the checkpoint at 0:8 is passed over (made by version 0)",
    ]


def test_segments_that_are_merged_while_their_checkpoints_are_read_lose_none(mine: EventWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("coldtrail.stage.compact.TIER_FACTOR", 2)
    for turns in (90, 15):
        mine.append(mine.log, mine.turns(turns))
        mine.scan()
        with mine.open() as home:
            checkpointed(home)
            compact(home, cold=True)
    mine.append(mine.log, mine.turns(5))
    mine.scan()
    with mine.open() as home:
        meta = the_stream(home)
        before, opened = [each.offset for each in held(home, meta)], Plain.segment
        assert len(sealed_files(mine)) == 2
        monkeypatch.setattr("coldtrail.stage.compact.TIER_FACTOR", 1000)
        left = [None]

        def merged_meanwhile(plain: Plain, piece: object) -> object:
            if left and not piece.name.is_open:  # type: ignore[attr-defined]
                left.clear()
                with monkeypatch.context() as quiet, mine.open() as other:
                    quiet.setattr(Plain, "segment", opened)
                    compact(other, cold=True)
            return opened(plain, piece)  # type: ignore[arg-type]

        monkeypatch.setattr(Plain, "segment", merged_meanwhile)
        assert [each.offset for each in held(home, meta)] == before
        assert left == []
        assert len(sealed_files(mine)) == 1


def test_a_home_put_together_from_the_archive_alone_has_them_too(mine: EventWorld, tmp_path: Path) -> None:
    mine.append(mine.log, mine.turns(60))
    mine.scan()
    with mine.open() as home:
        checkpointed(home)
        compact(home, cold=True)
        wanted = recovered(home, the_stream(home))
    shutil.rmtree(mine.layout.home / "store")
    mine.forget_catalog()
    mine.log.unlink()
    with mine.open() as home:
        rebuild(home)
        (meta,) = metas(home)
        found = recovered(home, meta)
        assert found.state == wanted.state
        assert found.checkpoint == wanted.checkpoint is not None


def test_a_state_recovered_with_them_is_that_recovered_without(home: Home) -> None:
    meta = the_stream(home)
    for place in places(home, meta)[::9]:
        assert recovered(home, meta, place).state.hash() == replayed(home, meta, place)
    assert recovered(home, meta, Position(0, 0)).replayed == 1


def test_a_claude_session_has_them_with_all_that_its_chain_needs(tmp_path: Path) -> None:
    with small_sizes():
        world = World(tmp_path)
        lines, last = [], None
        for n in range(150):
            lines += [
                line(f"p{n}", last),
                called(f"c{n}", f"p{n}", f"t{n}", answer=f"m{n}", text="x" * 50),
                gave(f"r{n}", f"c{n}", f"t{n}"),
            ]
            last = f"r{n}" if n % 11 else f"p{n // 2}"
        world.append(world.main(), b"".join(json.dumps(each).encode() + b"\n" for each in lines))
        world.scan()
        with world.open() as home:
            assert checkpointed(home) > 10
            meta = the_stream(home)
            for place in places(home, meta)[::20]:
                assert recovered(home, meta, place, verify=True).verified is True
