"""A report for who helps: what there is and what is wrong, without any private text."""

from __future__ import annotations

import io
import os
import pwd
import secrets
import socket
import tarfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from coldtrail.config import Config, show
from coldtrail.errors import ColdtrailError, RefusedError
from coldtrail.format import lines
from coldtrail.format.toml import Document, World
from coldtrail.home import Home
from coldtrail.layout import Layout
from coldtrail.settings import Settings, open_home
from coldtrail.stage import doctor, drill
from coldtrail.stage.doctor import Finding
from coldtraild.cli.doctor import machine
from coldtraild.cli.doctor.privacy import Veil, words_of

NAME = "coldtrail-report"


def write(path: Path, settings: Settings | None, findings: Sequence[Finding]) -> None:
    """Write it, 0600; RefusedError where something is there already."""
    data = lines.dumps(report(settings, findings), indent=True) + b"\n"
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        raise RefusedError(f"{path}: is there already", hint="name another file") from None
    with open(fd, "wb") as file, tarfile.open(fileobj=file, mode="w:gz") as bundle:
        about = tarfile.TarInfo(f"{NAME}/report.json")  # no owner, no name of this machine
        about.size, about.mode, about.mtime = len(data), 0o600, int(time.time())
        bundle.addfile(about, io.BytesIO(data))


def report(settings: Settings | None, findings: Sequence[Finding]) -> dict[str, object]:
    """What the report says; every name in it goes through the veil."""
    counts, private = (None, _own_names()) if settings is None else _of_home(settings, findings)
    places = [each.place for each in findings] + ([] if settings is None else _places(settings))
    own = () if settings is None else (str(settings.layout.home), str(settings.layout.archive))
    veil = Veil(Path.home() if settings is None else settings.user_home, secrets.token_bytes(16), places, private, own)
    told = [{"severity": each.severity.value, "place": veil.path(each.place), "what": veil.text(each.what)} for each in findings]
    return {
        "versions": machine.versions(),
        "config": None if settings is None else _config(settings.config, veil),
        "sources": [] if settings is None else _sources(settings, veil),
        "kept": counts,
        "sizes": None if settings is None else _sizes(settings.layout),
        "drill": None if settings is None else _drill(settings),
        "findings": told,
    }


def _own_names() -> frozenset[str]:
    """Of who asks, and of this machine."""
    names = {pwd.getpwuid(os.geteuid()).pw_name, socket.gethostname(), socket.gethostname().partition(".")[0], Path.home().name}
    return frozenset(names - {"root", ""})  # everybody has that one


def _places(settings: Settings) -> list[str]:
    found = [settings.layout.home, settings.layout.archive, settings.user_home, *(each.root for each in settings.sources)]
    return [str(each) for each in found]


def _config(config: Config, veil: Veil) -> object:
    """What differs from the defaults."""
    defaults = Config.defaults(user_home=veil.user_home)
    ours, usual = (Document(show(each), "", World(veil.user_home, ())).top().values for each in (config, defaults))
    return veil.value({name: value for name, value in ours.items() if value != usual.get(name)})


def _sources(settings: Settings, veil: Veil) -> list[dict[str, object]]:
    return [{"agent": each.agent.name, "root": veil.path(str(each.root)), "there": each.root.is_dir()} for each in settings.sources]


def _of_home(settings: Settings, findings: Sequence[Finding]) -> tuple[dict[str, object] | None, frozenset[str]]:
    """The counts, and every name in the catalog, so that none of them gets out."""
    names = _own_names() | words_of(str(each.root) for each in settings.sources) | words_of(each.name for each in settings.config.sources)
    if doctor.can_be_opened(settings.layout, findings):
        with suppress(ColdtrailError), open_home(settings) as home:
            if not home.catalog.wrong():
                return _counts(home), names | frozenset(_names(home))
    return None, names


def _names(home: Home) -> Iterator[str]:
    for row in home.catalog.sessions():
        yield from (each for each in (row.title, row.id) if each)
        yield from words_of([row.project or "", row.source])
    yield from words_of(os.fsdecode(row.path) for row in home.catalog.all_streams())


def _counts(home: Home) -> dict[str, object]:
    sessions, streams = home.catalog.sessions(), list(home.catalog.all_streams())
    return {
        "sessions": Counter(f"{row.agent}, {row.state}" for row in sessions),
        "streams": Counter(f"{row.agent}, {row.role}" for row in streams),
        "generations": sum(row.generation + 1 for row in streams),
        "bytes": sum(row.bytes for row in sessions),
        "stored_bytes": sum(row.stored_bytes for row in sessions),
        "largest_bytes": max((row.bytes for row in sessions), default=0),
        "records": sum(row.records for row in sessions),
        "damaged": sum(row.damaged for row in sessions),
        "pinned": sum(bool(row.pinned) for row in sessions),
        "graves": len(home.catalog.graves()),
        "faults": len(home.catalog.faults()),
        "unsettled": sum(not row.settled for row in streams),
    }


def _sizes(layout: Layout) -> dict[str, object]:
    """How many files there are, by kind, and how large they are together."""
    count: Counter[str] = Counter()
    size: Counter[str] = Counter()
    for path in doctor.ours(layout):
        with suppress(OSError):
            if path.is_file():
                kind = path.name if path.name in {"meta.json", "index", "checkpoints", "journal.jsonl"} else _kind(path.name)
                count[kind] += 1
                size[kind] += path.stat().st_size
    return {kind: {"files": count[kind], "bytes": size[kind]} for kind in sorted(count)}


def _kind(name: str) -> str:
    ends = (".open.jsonl.zst", ".jsonl.zst", ".damaged", ".json", ".compact")
    starts = ("catalog.db", ".tmp-")
    return next((each for each in ends if name.endswith(each)), next((each for each in starts if name.startswith(each)), "other"))


def _drill(settings: Settings) -> Mapping[str, object] | None:
    """The sums of the last one; which session failed is told by the findings."""
    told = drill.last(settings.layout.home)
    return None if told is None else {name: value for name, value in told.items() if name != "failures"}
