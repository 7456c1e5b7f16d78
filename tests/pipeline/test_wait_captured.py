"""The barrier: when it lifts, everything that was written before it is in the store, whoever captured it."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from coldtrail import NotFoundError, Trail, UnverifiableError, durable
from coldtrail.catalog import changed
from coldtrail.settings import open_home, settings
from coldtrail.stage.scan import Scanner
from daemon.cli.desk import FIRST, SECOND, Desk
from world_of import chain_bytes, generation_bytes, held, metas


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    made = Desk(tmp_path)
    made.user.mkdir()
    for name, value in made.env().items():
        monkeypatch.setenv(name, value) if value is not None else monkeypatch.delenv(name, raising=False)
    return made


@pytest.fixture
def trail(desk: Desk) -> Iterator[Trail]:
    with Trail(desk.settings()) as trail:
        yield trail


def kept(desk: Desk) -> dict[Path, bytes]:
    """What another process finds of each file in store and archive."""
    with open_home(desk.settings()) as home:
        return {Path(meta.path): chain_bytes(home, meta) for meta in metas(home)}


@contextmanager
def daemon(desk: Desk, *, works: bool = True) -> Iterator[None]:
    """Something that holds the lock, and scans again and again if it `works`."""
    stopping = threading.Event()

    def work() -> None:
        with open_home(desk.settings()) as home:
            scanner = Scanner(home)
            while not stopping.wait(0.02):
                if works:
                    scanner.scan(desk.settings().sources)

    thread = threading.Thread(target=work)
    with durable.locked(desk.settings().layout.daemon_lock, wait=False):
        thread.start()
        try:
            yield
        finally:
            stopping.set()
            thread.join()


def looked(desk: Desk, log: Path) -> None:
    """The daemon has looked at a file that was touched."""
    with open_home(desk.settings()) as home:
        Scanner(home).look(desk.settings().sources, [log])


def long_log(desk: Desk, fill: int) -> Path:
    """A log with a record `a`; with some thousands of others around it the ends that a look compares do not reach there."""
    return desk.write(desk.converse(), b"{}\n" * fill, {"type": "user", "uuid": "a"}, b"{}\n" * fill)


def test_without_a_daemon_it_captures_by_itself(desk: Desk, trail: Trail) -> None:
    log = desk.converse()
    desk.capture()
    session = trail.session(FIRST)
    desk.write(log, {"type": "user", "uuid": "more"}, b'{"unfinished": ')
    trail.wait_captured(session, timeout_s=0)
    assert kept(desk) == {log: log.read_bytes()}
    assert [event.id for event in session.events()][-1] == "more"


def test_an_unfinished_line_that_the_daemon_leaves_for_later_is_not_safe(desk: Desk, trail: Trail) -> None:
    log = desk.converse()
    desk.capture()
    desk.write(log, b'{"unfinished": ')
    looked(desk, log)
    with daemon(desk, works=False), pytest.raises(UnverifiableError):
        trail.wait_captured(FIRST, timeout_s=0)
    trail.wait_captured(FIRST)
    assert kept(desk)[log] == log.read_bytes()


def test_with_a_daemon_it_waits_for_it(desk: Desk, trail: Trail) -> None:
    log = desk.converse()
    desk.capture()
    with daemon(desk):
        for number in range(5):
            desk.write(log, {"type": "user", "uuid": f"more{number}"})
            before = log.read_bytes()
            trail.wait_captured(FIRST)
            assert kept(desk)[log].startswith(before)


def test_where_everything_is_safe_nobody_waits_and_nothing_is_read(desk: Desk, trail: Trail, monkeypatch: pytest.MonkeyPatch) -> None:
    desk.converse()
    desk.capture()
    with daemon(desk, works=False):
        monkeypatch.setattr(os, "pread", None)
        trail.wait_captured(FIRST, timeout_s=0)


def test_a_new_sub_agents_log_and_a_tools_output_count(desk: Desk, trail: Trail) -> None:
    log = desk.converse()
    desk.capture()
    child = desk.write(log.with_suffix("") / "subagents" / "agent-a1.jsonl", {"type": "user", "uuid": "c1", "sessionId": FIRST})
    output = desk.write(log.with_suffix("") / "tool-results" / "t1.txt", b"output without an end")
    desk.converse(SECOND)
    desk.converse(FIRST, project="/elsewhere")
    trail.wait_captured(trail.session(FIRST))
    assert kept(desk) == {path: path.read_bytes() for path in (log, child, output)}, "only what is the session's"


def test_a_companion_that_was_rewritten_counts(desk: Desk, trail: Trail) -> None:
    log = desk.converse()
    output = desk.write(log.with_suffix("") / "tool-results" / "t1.txt", b"first")
    desk.capture()
    output.write_bytes(b"second, longer")
    trail.wait_captured(FIRST)
    assert kept(desk)[output] == b"second, longer"


def test_a_log_that_nobody_has_met_is_named_by_its_path(desk: Desk, trail: Trail) -> None:
    log = desk.converse()
    child = desk.write(log.with_suffix("") / "subagents" / "agent-a1.jsonl", {"type": "user", "uuid": "c1", "sessionId": FIRST})
    trail.wait_captured(log)
    assert kept(desk) == {log: log.read_bytes(), child: child.read_bytes()}
    second = desk.converse(SECOND)
    with daemon(desk):
        trail.wait_captured(str(second))
    assert kept(desk)[second] == second.read_bytes()


@pytest.mark.parametrize("name", ["no-such", "notes.txt"])
def test_what_is_no_session_is_not_found(desk: Desk, trail: Trail, name: str) -> None:
    desk.converse()
    desk.write(desk.user / "notes.txt", b"not an agent's")
    with pytest.raises(NotFoundError):
        trail.wait_captured(desk.user / name)


def test_a_session_of_which_a_file_was_moved_is_found_where_it_is(desk: Desk, trail: Trail) -> None:
    log = desk.converse()
    desk.capture()
    target = desk.log(project="-elsewhere")
    target.parent.mkdir()
    log.rename(target)
    desk.write(target, {"type": "user", "uuid": "more"})
    trail.wait_captured(FIRST)
    assert kept(desk) == {target: target.read_bytes()}


def test_after_the_time_it_says_what_is_missing(desk: Desk, trail: Trail) -> None:
    log = desk.converse()
    desk.capture()
    size = log.stat().st_size
    desk.write(log, {"type": "user", "uuid": "more"})
    child = desk.write(log.with_suffix("") / "subagents" / "agent-a1.jsonl", {"type": "user", "uuid": "c1", "sessionId": FIRST})
    with daemon(desk, works=False), pytest.raises(UnverifiableError) as told:
        trail.wait_captured(FIRST, timeout_s=0.1)
    assert f"{log}: {size} of {log.stat().st_size} bytes are safe" in str(told.value)
    assert f"{child}: 0 of {child.stat().st_size} bytes are safe" in str(told.value)
    assert told.value.exit_code == 5
    assert kept(desk)[log] == log.read_bytes()[:size]


def test_what_cannot_be_read_is_missing_and_why(desk: Desk, trail: Trail, unreadable: Callable[[Path], None]) -> None:
    log = desk.converse()
    desk.capture()
    desk.write(log, {"type": "user", "uuid": "more"})
    unreadable(log)
    with pytest.raises(UnverifiableError, match="Permission denied"):
        trail.wait_captured(FIRST, timeout_s=0)


def test_a_writer_that_never_stops_is_not_waited_for(desk: Desk, trail: Trail, monkeypatch: pytest.MonkeyPatch) -> None:
    log = desk.converse()
    desk.capture()
    desk.write(log, {"type": "user", "uuid": "before"})
    before = log.read_bytes()
    real = Trail._capture

    def capture(self: Trail, work: object) -> bool:
        done = real(self, work)  # type: ignore[arg-type]
        desk.write(log, {"type": "user", "uuid": "after"})
        return done

    monkeypatch.setattr(Trail, "_capture", capture)
    trail.wait_captured(FIRST, timeout_s=0)
    assert kept(desk)[log] == before


@pytest.mark.parametrize(("fill", "grows"), [(0, False), (0, True), (9_000, False)])
def test_a_rewrite_is_safe_when_the_new_content_is_held(desk: Desk, trail: Trail, fill: int, grows: bool) -> None:
    log = long_log(desk, fill)
    desk.capture()
    stat, data = log.stat(), log.read_bytes()
    log.write_bytes(data.replace(b'"a"', b'"b"') + (b"{}\n" if grows else b""))
    os.utime(log, ns=(stat.st_mtime_ns, stat.st_mtime_ns))
    with daemon(desk, works=False), pytest.raises(UnverifiableError):
        trail.wait_captured(FIRST, timeout_s=0)
    trail.wait_captured(FIRST, timeout_s=0)
    with open_home(desk.settings()) as home:
        (meta,) = metas(home)
        assert generation_bytes(home, meta, meta.newest.number) == log.read_bytes()
        assert next(each.data for each in held(home)[log]) == data


def test_with_a_daemon_that_looks_away_a_touched_file_is_compared_by_the_caller(desk: Desk, trail: Trail) -> None:
    log = long_log(desk, 9_000)
    desk.capture()
    os.utime(log)
    looked(desk, log)
    with open_home(desk.settings()) as home:
        assert home.catalog.streams_to_check()
    with daemon(desk, works=False):
        trail.wait_captured(FIRST, timeout_s=0)
        log.write_bytes(log.read_bytes().replace(b'"a"', b'"b"'))
        looked(desk, log)
        with pytest.raises(UnverifiableError):
            trail.wait_captured(FIRST, timeout_s=0)


def test_a_session_of_a_source_that_is_watched_no_more_is_no_exception(desk: Desk) -> None:
    logs = desk.user / "logs"
    log = desk.write(logs / "mine.jsonl", {"type": "session_start", "event_id": "e1"})
    desk.configure(f'[[source]]\nname = "mine"\nagent = "event-log"\nroot = "{logs}"\n')
    desk.capture()
    desk.config.unlink()
    desk.write(log, {"type": "message_added", "event_id": "e2"})
    with Trail(desk.settings()) as trail:
        with daemon(desk), pytest.raises(UnverifiableError):
            trail.wait_captured("mine", timeout_s=0)
        trail.wait_captured("mine")
    assert kept(desk)[log] == log.read_bytes()


def test_what_is_held_is_safe_though_the_catalog_was_made_again_and_nobody_has_looked_since(desk: Desk, trail: Trail) -> None:
    desk.converse()
    desk.capture()
    with daemon(desk, works=False):
        with open_home(desk.settings()) as home:
            (row,) = home.catalog.all_streams()
            home.catalog.put(changed(row, size=-1, mtime_ns=0, ctime_ns=0, identity=""))
        trail.wait_captured(FIRST, timeout_s=0)


def test_what_was_captured_before_it_was_rewritten_is_safe(desk: Desk, trail: Trail, monkeypatch: pytest.MonkeyPatch) -> None:
    log = desk.converse()
    desk.capture()
    desk.write(log, {"type": "user", "uuid": "more"})
    real = Trail._capture

    def capture(self: Trail, work: object) -> bool:
        real(self, work)  # type: ignore[arg-type]
        log.write_bytes(b'{"type": "user", "uuid": "another life"}\n' * 40)
        return real(self, work)  # type: ignore[arg-type]

    monkeypatch.setattr(Trail, "_capture", capture)
    trail.wait_captured(FIRST, timeout_s=0)
    with open_home(desk.settings()) as home:
        assert [len(each.data) for each in held(home)[log]][1:] == [log.stat().st_size]


def test_what_was_rewritten_before_it_was_captured_is_lost_and_said_to_be_missing(
    desk: Desk, trail: Trail, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = desk.converse()
    desk.capture()
    desk.write(log, {"type": "user", "uuid": "more"})
    real = Trail._capture

    def capture(self: Trail, work: object) -> bool:
        log.write_bytes(b'{"type": "user", "uuid": "another life"}\n' * 40)
        return real(self, work)  # type: ignore[arg-type]

    monkeypatch.setattr(Trail, "_capture", capture)
    with pytest.raises(UnverifiableError):
        trail.wait_captured(FIRST, timeout_s=0)


def test_a_file_that_got_a_second_name_is_known_by_the_first(desk: Desk, trail: Trail) -> None:
    outside = desk.folder / "outside"
    log = desk.write(outside / f"{FIRST}.jsonl", {"type": "user", "uuid": "u", "sessionId": FIRST})
    (desk.log(project="-b").parent.parent).mkdir(parents=True)
    desk.log(project="-b").parent.symlink_to(outside)
    desk.capture()
    desk.log(project="-a").parent.symlink_to(outside)
    with daemon(desk, works=False):
        trail.wait_captured(FIRST, timeout_s=0)
    desk.write(log, {"type": "user", "uuid": "more"})
    trail.wait_captured(FIRST, timeout_s=0)
    assert kept(desk) == {desk.log(project="-b"): log.read_bytes()}


def test_streams_that_a_crash_left_out_of_the_catalog_are_taken_up_not_begun_again(desk: Desk, trail: Trail) -> None:
    log = desk.converse()
    desk.capture()
    with open_home(settings(env={"HOME": str(desk.user)})) as home:
        (row,) = home.catalog.all_streams()
        home.catalog.drop({row.session}, {row.stream})
    trail.wait_captured(log)
    with open_home(desk.settings()) as home:
        assert [meta.stream for meta in metas(home)] == [row.stream]
