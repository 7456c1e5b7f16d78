"""Set one file of an agent's aside, put it back, let it go: whatever stops us in between, each byte keeps a name that is known."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import replace
from enum import StrEnum
from pathlib import Path

from coldtrail import checkpoints, durable, holders
from coldtrail.catalog import StreamRow, changed
from coldtrail.errors import ColdtrailError, RefusedError
from coldtrail.format.frames import Compressor
from coldtrail.format.manifest import Aside, Stamp, StreamMeta
from coldtrail.home import Home
from coldtrail.layout import is_id
from coldtrail.sessions import refresh
from coldtrail.stage import placing, prove
from coldtrail.stage.append import FRAME_BYTES, LEVEL
from coldtrail.stage.rebuild import remade_row
from coldtrail.store import OpenSegment

FOLDER = ".coldtrail-aside"  # where the agent's root and our home lie on two devices
_FILES = "files"


class DoubtError(RefusedError):
    """Something speaks against taking a file away, or it cannot be known; nothing is lost."""


class Where(StrEnum):
    """Where a file is that is to be set aside, or was."""

    BACK = "at its place"
    BOTH = "under both names"
    OUT = "set aside, its place empty"
    TAKEN = "set aside, another file in its place"
    GONE = "nowhere"


def is_out(meta: StreamMeta) -> bool:
    """Whether a stream's file may be set aside now."""
    return meta.aside is not None and meta.aside.removed_ms is None


def reclaimed_ms(meta: StreamMeta) -> int | None:
    """Since when the agent's file is gone because coldtrail removed it; None: it is there, or the agent did."""
    return meta.aside.removed_ms if meta.aside is not None and meta.gone_ms is not None else None


def record(meta: StreamMeta) -> Aside:
    """What is noted of a file that may be set aside."""
    if meta.aside is None:
        raise ValueError(f"{meta.path}: nothing of it is set aside")
    return meta.aside


def where(meta: StreamMeta) -> Where:
    """Where the file is now, told by the names alone."""
    aside = record(meta)
    out, there = stat_of(Path(aside.path)), stat_of(Path(meta.path))
    if out is None:
        is_same = there is not None and (there.st_dev, there.st_ino) == (aside.device, aside.inode)
        return Where.BACK if is_same else Where.GONE
    if there is None:
        return Where.OUT
    return Where.BOTH if os.path.samestat(out, there) else Where.TAKEN


def stat_of(path: Path) -> os.stat_result | None:
    """What is at a path itself; None where nothing is."""
    try:
        return os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None


def looks_same(one: os.stat_result, other: os.stat_result) -> bool:
    """Whether a file is the same, and nobody has written to it between two looks, or given it another name."""
    names = ("st_dev", "st_ino", "st_size", "st_mtime_ns", "st_ctime_ns", "st_nlink")
    return all(getattr(one, name) == getattr(other, name) for name in names)


def set_aside(home: Home, meta: StreamMeta, proven: os.stat_result) -> StreamMeta:
    """Take a file that looks as it did when it was `proven` out of the agent's folder, on the same inode; DoubtError leaves it there.

    The caller holds the session's lock.
    """
    target = _place_for(home, meta)
    if os.path.lexists(target):
        raise DoubtError(f"{target}: is in the way")
    noted = replace(meta, aside=Aside(str(target), proven.st_dev, proven.st_ino, meta.newest.number, home.now_ms()))
    home.spending(lambda: _list(home, meta.stream, target))
    home.spending(lambda: home.store.write_meta(noted))
    try:
        _move_out(Path(meta.path), target, proven)
    except (ColdtrailError, OSError) as error:
        put_back(home, noted)
        raise DoubtError(str(error)) from error
    return noted


def _move_out(path: Path, target: Path, proven: os.stat_result) -> None:
    """Rename it while nobody can open it. A rename loses nothing, not even a file that has come to its place just then."""
    with holders.alone(path) as held:
        if not held.nobody:
            raise DoubtError(str(held.found))
        durable.step("set-aside", path)
        if not looks_same(os.fstat(held.fd), proven):
            raise DoubtError("it has changed meanwhile")
        os.rename(path, target)
        durable.step("is-aside", target)
        if not os.path.samestat(os.lstat(target), proven) or not held.intact():
            raise DoubtError("somebody has opened or exchanged it just then")
    durable.sync_folder(target.parent)
    durable.sync_folder(path.parent)


def put_back(home: Home, meta: StreamMeta) -> bool:
    """Let a file have its place again; False where another one has it. The caller holds the session's lock."""
    out, path = Path(record(meta).path), Path(meta.path)
    place = where(meta)
    if place is Where.OUT:
        durable.make_folder(path.parent)
        durable.step("put-back", path)
        try:
            os.link(out, path, follow_symlinks=False)
        except FileExistsError:
            return False
        durable.step("is-back", path)
    if place is Where.TAKEN:
        return False
    if place in (Where.OUT, Where.BOTH):
        durable.sync_folder(path.parent)
    _drop(meta)
    if place is Where.GONE:
        close(home, meta)
    else:
        note(home, replace(meta, aside=None, gone_ms=None))
        _unlist(home, meta.stream)
    return True


def note_gone(home: Home, meta: StreamMeta) -> None:
    """Take down that a file is no longer at its place, before somebody takes it for the agent's doing."""
    note(home, replace(meta, gone_ms=record(meta).since_ms))


def let_go(home: Home, meta: StreamMeta, proven: os.stat_result | None) -> None:
    """Remove a file that looks as it did when it was `proven` for the last time; DoubtError leaves it. The caller holds the lock."""
    if where(meta) is not Where.GONE:
        if proven is None:
            raise DoubtError(f"{meta.path}: has changed meanwhile")
        with holders.alone(Path(record(meta).path)) as held:
            if not held.nobody:
                raise DoubtError(str(held.found))
            durable.step("let-go", held.path)
            if where(meta) is not Where.OUT or not looks_same(os.fstat(held.fd), proven) or not held.intact():
                raise DoubtError("it has changed meanwhile")
            _drop(meta)
    close(home, meta)


def close(home: Home, meta: StreamMeta) -> None:
    """Take down that a file is gone for good, and that it was us."""
    now_ms = home.now_ms()
    gone_ms = None if stat_of(Path(meta.path)) is not None else meta.gone_ms or now_ms
    note(home, replace(meta, aside=replace(record(meta), removed_ms=now_ms), gone_ms=gone_ms))
    _unlist(home, meta.stream)


def absorb(home: Home, meta: StreamMeta) -> None:
    """The place is taken: what the file has that is not held is captured into its own generation, then it goes; DoubtError leaves it.

    The caller holds the session's lock.
    """
    aside = record(meta)
    with holders.alone(Path(aside.path)) as held:
        if not held.nobody:
            raise DoubtError(str(held.found))
        found = os.fstat(held.fd)
        plain = home.plain(meta, aside.generation)
        end = plain.end()
        if not prove.same_bytes(plain, min(end, found.st_size), held.fd):
            raise DoubtError("it was rewritten after it was captured")
        if found.st_size > end:
            _capture_rest(home, meta, held.fd, end)
        _told_anew(home, meta)
        if not looks_same(os.fstat(held.fd), found) or not held.intact():
            raise DoubtError("somebody has opened it just then")
        _drop(meta)
    home.store.write_meta(replace(meta, aside=None))
    _unlist(home, meta.stream)


def _told_anew(home: Home, meta: StreamMeta) -> None:
    """What is told of the generations after the one that was aside may rest on less than is held of that now."""
    later = [each.number for each in meta.generations if each.number > record(meta).generation]
    for number in later:
        checkpoints.drop_file(home.layout.generation(meta.stream, number))
    if later:
        _put(home, remade_row(home, meta, home.catalog.stream(meta.stream)))


def _capture_rest(home: Home, meta: StreamMeta, fd: int, end: int) -> None:
    """What the file has behind `end` becomes frames of the generation that it was."""
    aside, found = record(meta), os.fstat(fd)
    if not meta.is_log or aside.generation == meta.newest.number:
        raise DoubtError("it has grown, and so has what is in its place")
    folder = home.layout.generation(meta.stream, aside.generation)
    names = home.store.open_names(meta.stream, aside.generation)
    with OpenSegment.resume(folder, names[-1]) if names else OpenSegment.create(folder, end) as segment:
        if segment.end != end:
            raise DoubtError("what is held of it does not end where it goes on")
        compressor = Compressor(LEVEL)
        for part in _parts(fd, end, found.st_size):
            stamp = Stamp(segment.end + len(part), found.st_mode & 0o7777, found.st_mtime_ns, home.now_ms())
            segment.append([(compressor.frame(part), len(part))], stamp)


def _parts(fd: int, start: int, end: int) -> Iterator[bytes]:
    while start < end:
        part = os.pread(fd, min(FRAME_BYTES, end - start), start)
        if not part:
            raise DoubtError("it was cut while it was read")
        yield part
        start += len(part)


def note(home: Home, meta: StreamMeta) -> None:
    """Let meta.json and the catalog say the same of a stream."""
    home.spending(lambda: home.store.write_meta(meta))
    row = home.catalog.stream(meta.stream)
    if row is not None:
        home.spending(lambda: _put(home, changed(row, gone_ms=meta.gone_ms)))


def _put(home: Home, row: StreamRow) -> None:
    with home.catalog.transaction():
        home.catalog.put(row)
        refresh(home, row.session)


# ---- the folders --------------------------------------------------------------------------------------------------------


def _place_for(home: Home, meta: StreamMeta) -> Path:
    """A name for it on its own device, in a folder that no agent looks into."""
    folder = placing.folder_outside(Path(meta.path).parent, Path(meta.root), home.layout.home)
    place = home.layout.aside / _FILES if folder == home.layout.home else folder / FOLDER
    home.spending(lambda: durable.make_folder(place))
    return place / meta.stream


def _list(home: Home, stream: str, target: Path) -> None:
    """Put it on the list of all that is aside: a link there for each, from before it is noted until after it is noted as over."""
    link = home.layout.aside / stream
    durable.make_folder(link.parent)
    if link.is_symlink():
        durable.remove(link)
    durable.step("list", link)
    with durable.full_disk_told(link):
        os.symlink(target, link)
    durable.sync_folder(link.parent)


def _unlist(home: Home, stream: str) -> None:
    durable.remove(home.layout.aside / stream)


def _drop(meta: StreamMeta) -> None:
    """Remove the name that the file has outside the agent's folder, if it has one."""
    out = Path(record(meta).path)
    durable.remove(out)
    with contextlib.suppress(FileNotFoundError):
        durable.sync_folder(out.parent)


def listed(home: Home) -> list[str]:
    """The streams of which something is set aside, by their ids."""
    with contextlib.suppress(FileNotFoundError), os.scandir(home.layout.aside) as entries:
        return sorted(entry.name for entry in entries if is_id(entry.name))
    return []


def adopted(home: Home, meta: StreamMeta) -> StreamMeta | None:
    """The metadata of a listed stream with what is aside of it in it, also where a meta.json made anew has lost it; None: nothing is."""
    if is_out(meta):
        return meta
    with home.changing(meta.session):
        fresh = home.store.meta(meta.stream) or meta
        if is_out(fresh):
            return fresh
        target = Path(os.readlink(home.layout.aside / meta.stream))
        found = stat_of(target)
        if found is None:
            _unlist(home, meta.stream)
            return None
        fresh = replace(fresh, aside=Aside(str(target), found.st_dev, found.st_ino, fresh.newest.number, home.now_ms()))
        home.store.write_meta(fresh)
        return fresh
