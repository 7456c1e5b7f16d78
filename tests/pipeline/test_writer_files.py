"""The writer and its file: what is durable when, a full disk, a file that goes away, a source that is captured."""

from __future__ import annotations

import errno
import json
import os
import resource
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import coldtrail
from coldtrail.config import load_text
from coldtrail.errors import SourceError, StoreFullError, UsageError
from coldtrail.home import Home
from coldtrail.stage.scan import Scanner
from coldtrail.writer import Writer
from coldtrail.writer.ids import SortableIds
from coldtrail.writer.places import Places
from world_of import START_MS, Clock, compact


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """What the library takes for the time."""
    told = Clock()
    for room in ("settings", "client"):
        monkeypatch.setattr(f"coldtrail.{room}.now_ms", told)
    return told


@pytest.fixture
def trail(tmp_path: Path, clock: Clock) -> Iterator[coldtrail.Trail]:
    """A home with one source for an agent of one's own, behind a link, and one of another agent."""
    (tmp_path / "real").mkdir()
    (tmp_path / "logs").symlink_to("real")
    config = tmp_path / "config.toml"
    config.write_text(
        f"""discover = false
[[source]]
name = "my-agent"
agent = "event-log"
root = "{tmp_path}/logs"
[[source]]
name = "theirs"
agent = "codex"
root = "{tmp_path}/codex"
"""
    )
    with coldtrail.open(home=tmp_path / "home", config=config) as opened:
        yield opened


def records(log: Writer) -> list[dict[str, object]]:
    return [json.loads(line) for line in log.path.read_bytes().split(b"\n")[:-1]]


# --- where ---


def test_a_source_names_the_folder_and_a_session_the_file(trail: coldtrail.Trail, tmp_path: Path) -> None:
    with (
        trail.writer("my-agent", session="s.1") as log,
        trail.writer(root=tmp_path / "else" / "where") as other,
        trail.writer("my-agent") as third,
    ):
        assert (log.path, log.session) == (tmp_path / "real" / "s.1.jsonl", "s.1")
        assert other.path == tmp_path / "else" / "where" / f"{other.session}.jsonl"
        assert {log.session, other.session, third.session} == {"s.1", other.path.stem, third.path.stem}
        assert records(third)[0]["session_id"] == third.session


def test_who_names_no_source_is_told_what_to_put_into_the_config(trail: coldtrail.Trail) -> None:
    for name in ("", "mine", "theirs"):
        with pytest.raises(UsageError, match=name or "neither") as caught:
            trail.writer(name)
        (source,) = load_text(caught.value.hint.partition("\n")[2], user_home=Path("/me")).sources
        assert (source.name, source.agent) == (name or "my-agent", "event-log")


@pytest.mark.parametrize("session", ["", ".hidden", "a/b", "..", "a\nb", "a\0b", "x" * 201, "\ud800"])
def test_a_session_whose_name_is_no_files_is_refused(trail: coldtrail.Trail, session: str) -> None:
    with pytest.raises(UsageError, match="session="):
        trail.writer("my-agent", session=session)


def test_what_is_no_file_or_may_not_be_written_is_told(trail: coldtrail.Trail, tmp_path: Path) -> None:
    (tmp_path / "real" / "folder.jsonl").mkdir()
    os.mkfifo(tmp_path / "real" / "pipe.jsonl")
    for session in ("folder", "pipe"):
        with pytest.raises(SourceError, match=session):
            trail.writer("my-agent", session=session)
    with pytest.raises(SourceError, match=r"config\.toml"):
        trail.writer(root=tmp_path / "config.toml")
    with pytest.raises(UsageError, match="fsync"):
        trail.writer("my-agent", fsync="sometimes")


def test_a_closed_writer_says_so(trail: coldtrail.Trail) -> None:
    log = trail.writer("my-agent")
    log.close()
    log.close()
    with pytest.raises(UsageError, match="closed"):
        log.append("session_end")


# --- durable ---


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How long each file was when it was made durable."""
    sizes: list[int] = []
    fsync = os.fsync

    def noted(fd: int) -> None:
        sizes.append(os.fstat(fd).st_size)
        fsync(fd)

    monkeypatch.setattr(os, "fsync", noted)
    return sizes


def test_always_means_before_append_returns(trail: coldtrail.Trail, synced: list[int]) -> None:
    with trail.writer("my-agent", fsync="always", session="a") as log, trail.writer("my-agent", fsync="never", session="a") as other:
        for _ in range(3):
            log.append("session_end")
            assert synced[-1] == log.path.stat().st_size
        log.append_many([{"type": "session_end"}] * 3)
        assert synced[-1] == log.path.stat().st_size
        other.append("session_end", event_id="theirs")
        assert synced[-1] < log.path.stat().st_size
        log.append("session_end", event_id="theirs")  # acknowledged here too, so it must be durable
        assert synced[-1] == log.path.stat().st_size


def test_interval_means_once_a_second_whatever_the_clock_does(trail: coldtrail.Trail, synced: list[int], clock: Clock) -> None:
    with trail.writer("my-agent") as log:
        due = {1000, 7000, -53_000}
        for waited_ms in (0, 999, 1000, 1000, 1999, 7000, -53_000, -53_000):
            clock.now_ms = START_MS + waited_ms
            log.append("session_end")
            assert (synced[-1] == log.path.stat().st_size) is (waited_ms in due), waited_ms
            due -= {waited_ms}


def test_never_leaves_it_to_flush_and_close(trail: coldtrail.Trail, synced: list[int], clock: Clock) -> None:
    with trail.writer("my-agent", fsync="never") as log:
        begun = len(synced)
        for _ in range(5):
            clock.tick(10_000)
            log.append("session_end")
        assert len(synced) == begun
        log.flush()
        assert synced[begun:] == [log.path.stat().st_size]
        log.flush()
        assert len(synced) == begun + 1, "there is nothing new"
        log.append("session_end")
    assert synced[-1] == log.path.stat().st_size


# --- a disk that is full ---


def fills_up(monkeypatch: pytest.MonkeyPatch, room: int, meanwhile: Callable[[], object] = lambda: None) -> None:
    """From now on a write of more than `room` bytes finds the disk full."""
    write = os.write

    def writing(fd: int, data: bytes) -> int:
        nonlocal room
        taken = write(fd, data[:room]) if room else 0
        room -= taken
        if not taken:
            meanwhile()
            raise OSError(errno.ENOSPC, "No space left on device")
        return taken

    monkeypatch.setattr(os, "write", writing)


@pytest.mark.parametrize("room", [0, 1, 70, 149])
@pytest.mark.parametrize("many", [1, 3])
def test_of_an_event_for_which_there_was_no_room_nothing_is_left(
    trail: coldtrail.Trail, room: int, many: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    with trail.writer("my-agent") as log:
        first = log.append("session_end", event_id="first")
        before = log.path.read_bytes()
        event = {"type": "message_added", "role": "user", "content": "x" * 100, "event_id": "e"}
        with monkeypatch.context() as full:
            fills_up(full, room)
            with pytest.raises(StoreFullError, match="no space"):
                log.append_many([event, *[{"type": "session_end"}] * (many - 1)])
            assert log.path.read_bytes() == before
        assert log.last_event_id == first.event_id
        assert log.append_many([event])[0].is_new, "and with space again it goes on"
        assert records(log)[-1]["content"] == "x" * 100


def test_what_somebody_else_appended_meanwhile_is_never_cut_off(trail: coldtrail.Trail, monkeypatch: pytest.MonkeyPatch) -> None:
    with trail.writer("my-agent") as log:
        size = log.path.stat().st_size

        def theirs() -> None:
            with log.path.open("ab") as file:
                file.write(b'{"type":"session_end","event_id":"theirs"}\n')

        with monkeypatch.context() as full:
            fills_up(full, 20, theirs)
            with pytest.raises(StoreFullError):
                log.append("session_end", event_id="mine")
        assert log.path.read_bytes()[size + 20 :].endswith(b'"theirs"}\n')
        assert not log.append("session_end", event_id="theirs").is_new
        assert log.append("session_end", event_id="mine").is_new


def test_a_file_that_the_system_stops_from_growing_keeps_what_was_acknowledged(trail: coldtrail.Trail) -> None:
    def many() -> None:
        for _ in range(100):
            log.append("message_added", role="user", content="x" * 300)

    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    with trail.writer("my-agent") as log:
        resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, before[1]))
        try:
            with pytest.raises(SourceError, match="File too large"):
                many()
            data = log.path.read_bytes()
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        assert 9_500 < len(data) < 10_000
        assert data.endswith(b"\n"), "the part for which there was room was taken back"
        log.append("session_end")
        assert len(records(log)) > 20


def test_bytes_that_somebody_without_the_lock_put_between_are_seen(trail: coldtrail.Trail, monkeypatch: pytest.MonkeyPatch) -> None:
    """They come after this writer looked and before it writes."""
    with trail.writer("my-agent") as log:
        write = os.write

        def writing(fd: int, data: bytes) -> int:
            monkeypatch.setattr(os, "write", write)
            with log.path.open("ab") as file:
                file.write(b'{"type":"session_end","event_id":"theirs"}\n')
            return write(fd, data)

        monkeypatch.setattr(os, "write", writing)
        told = log.append("session_end", event_id="mine")
        assert log.path.read_bytes()[told.offset :].startswith(b'{"type":"session_end","timestamp"')
        assert [log.append("session_end", event_id=each).is_new for each in ("mine", "theirs")] == [False, False]
        assert log.last_event_id == "mine"


# --- a file that goes away ---


@pytest.mark.parametrize("by", ["removed", "folder removed", "exchanged", "cut"])
def test_a_log_that_goes_away_is_gone_on_with_where_readers_look(trail: coldtrail.Trail, by: str, tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    with trail.writer(root=folder) as log:
        told = [log.append("message_added", role="user", content="x" * 50, event_id=f"m-{n}") for n in range(5)]
        if by == "cut":
            os.truncate(log.path, told[3].offset)
        else:
            log.path.unlink()
        if by == "folder removed":
            folder.rmdir()
        if by == "exchanged":
            log.path.write_bytes(b'{"type":"session_end","event_id":"m-0"}\n')
        assert log.append("session_end", event_id="m-4").is_new
        assert not log.append("session_end", event_id="m-4").is_new
        kept = {"cut": 4, "exchanged": 1}.get(by, 0)
        assert len(records(log)) == kept + 1, "no second session_start: it is the same session"
        assert log.append("session_end", event_id="m-0").is_new is (kept == 0)


# --- processes ---


def test_a_child_process_goes_on_with_its_parents_writer(trail: coldtrail.Trail) -> None:
    """A file opened before the fork would share its lock."""
    with trail.writer("my-agent", fsync="never") as log:
        log.append("session_end", event_id="before")
        children = []
        for child in range(3):
            pid = os.fork()
            if pid == 0:
                code = 1
                try:
                    told = [log.append("message_added", role="user", content=child) for _ in range(200)]
                    code = 0 if not log.append("session_end", event_id="before").is_new and len(told) == 200 else 2
                finally:
                    os._exit(code)
            children.append(pid)
        for _ in range(200):
            log.append("message_added", role="user", content="parent")
        assert [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children] == [0, 0, 0]
    ids = [str(record["event_id"]) for record in records(log)]
    assert len(ids) == 802
    assert ids[2:] == sorted(set(ids[2:]))


# --- memory ---


def test_the_places_of_300_000_ids_take_some_16_bytes_each_and_every_one_is_found() -> None:
    places = Places()
    for n in range(300_000):
        places.add(f"m-{n}", 700 * n)
    held = sum(len(table) * table.itemsize for table in places._tables)
    assert held / 300_000 < 24
    assert all(700 * n in places.of(f"m-{n}") for n in range(0, 300_000, 97))
    assert sum(1 for n in range(3000) for _ in places.of(f"other-{n}")) < 3
    with pytest.raises(ValueError, match="terabyte"):
        places.add("far", 1 << 40)


# --- what may have happened ---


def capture(trail: coldtrail.Trail, *, cold: bool = False) -> Home:
    Scanner(trail.home).scan(list(trail.settings.sources))
    compact(trail.home, cold=cold)
    return trail.home


def test_after_a_crash_the_calls_without_an_answer_are_told(trail: coldtrail.Trail) -> None:
    """Whether nobody has captured the log, or all but its end, or it is archived; with and without a live file that has more."""
    log = trail.writer("my-agent", session="s1")
    log.append("tool_invoked", tool_name="read", input={"path": "a"}, invocation_id="c-1")
    log.append("tool_invoked", tool_name="mail", input={"to": "ann"}, invocation_id="c-2")
    log.append("tool_completed", invocation_id="c-1", output="x")
    with log.path.open("ab") as file:
        file.write(b'{"type":"tool_completed","invocation_id":"c-2","outp')  # it did not come to its end
    expected = {"c-2": {"tool_name": "mail", "input": {"to": "ann"}, "started_at": "2026-01-01T00:00:00.000Z"}}
    for prepare in (lambda: None, lambda: capture(trail), lambda: capture(trail, cold=True)):
        prepare()
        with trail.writer("my-agent", session="s1") as again:
            assert again.pending_tools() == expected
    with trail.writer("my-agent", session="s1") as again:
        again.append("tool_invoked", tool_name="wipe", input={}, invocation_id="c-3")
        assert list(again.pending_tools()) == ["c-2", "c-3"]
        again.append("tool_completed", invocation_id="c-2", output=None)
        assert list(again.pending_tools()) == ["c-3"]
    (session,) = trail.sessions()
    capture(trail)
    assert list(session.recover(verify=True).state.pending) == ["c-3"]
    assert session.row.damaged <= 1


def test_a_log_made_again_since_it_was_captured_is_read_as_it_is(trail: coldtrail.Trail) -> None:
    with trail.writer("my-agent", session="s1") as log:
        log.append("tool_invoked", tool_name="mail", input="x" * 5000, invocation_id="old")
        capture(trail)
        log.path.unlink()
        log.append("tool_invoked", tool_name="mail", input={}, invocation_id="new")
        assert list(log.pending_tools()) == ["new"]
        capture(trail)
        assert list(log.pending_tools()) == ["old", "new"], "coldtrail holds the head that was lost"


def test_ids_have_the_form_of_uuids_of_version_7() -> None:
    import uuid

    made = uuid.UUID(SortableIds().next(1_767_225_600_123))
    assert (made.version, made.variant, made.int >> 80) == (7, uuid.RFC_4122, 1_767_225_600_123)
