"""How the service is: the document that the daemon writes of itself, and what in it is not well.

The document is JSON; times are milliseconds since 1970 UTC in keys that end in `_ms`, spans are seconds in keys that end in `_s`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from coldtrail import durable

VERSION = 1
WRITE_EVERY_S = 10.0  # whether or not anything has changed
OLD_MS = 60_000  # a document of a running daemon that is older tells that it hangs, or cannot write
STALE_S = 30.0  # what waits for so long should have been captured
ONCE_GOOD_MS = 26 * 3_600_000  # for so long one pass, such as a timer's, counts for a daemon
FAULTS_MAX = 100  # that are written down; their number is

Document = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is not well."""

    state: str  # one of `config.ALARMS`, or "paused", "stopped", "hung"
    what: str
    place: str = ""
    hint: str = ""
    since_ms: int | None = None
    session: str = ""  # coldtrail's key, where it is about one


def freshness(*, there: bool, looked: bool, lag_s: float) -> str:
    """Whether what an agent has written is captured, as far as that is known.

    >>> freshness(there=True, looked=True, lag_s=2.0), freshness(there=False, looked=True, lag_s=0.0)
    ('fresh', 'unknown')
    """
    if lag_s > STALE_S:
        return "stale"
    return "fresh" if there and looked else "unknown"


# --- the file ---


def write(path: Path, document: Document) -> None:
    """Replace the file at once and whole, 0600; it is not worth a sync. OSError."""
    durable.replace_unsynced(path, json.dumps(document, indent=1).encode() + b"\n")


def read(path: Path) -> dict[str, Any] | None:
    """The document that was written last; None where there is none, or one that this version cannot read."""
    with suppress(OSError, ValueError):
        found = json.loads(path.read_bytes())
        if isinstance(found, dict) and found.get("version") == VERSION:
            return found
    return None


# --- what is not well ---


def findings(document: Document) -> list[Finding]:
    """What is not well by a document's own words, the gravest first."""
    return [
        *_full(document),
        *_unheld(document),
        *_faults(document),
        *_sources(document),
        *_drill(document),
        *_jobs(document),
        *_service(document),
    ]


def _full(document: Document) -> Iterator[Finding]:
    full = document["no_space"]
    if full is not None:
        hint = "free some space on that disk; capture goes on by itself"
        yield Finding("disk-full", "paused: no space", full["place"], hint, full["since_ms"])


def _unheld(document: Document) -> Iterator[Finding]:
    for each in document["alarms"]:
        what = f"{each['agent']} deletes it soon: {each['what']}"
        yield Finding("unheld", what, each["path"], "see to its fault, then `coldtrail sync`", None, each["key"] or "")


def _faults(document: Document) -> Iterator[Finding]:
    full = document["no_space"] is not None
    for each in document["faults"]:
        state = _kind(each, document["ours"])
        if not (full and state == "disk-full"):  # told once
            yield Finding(state, each["what"], each["place"], each["hint"], each["since_ms"])


def _kind(fault: Mapping[str, Any], ours: Sequence[str]) -> str:
    """What a fault is of: no space, damage of our copy, or anything else."""
    if str(fault["what"]).startswith("paused: "):
        return "disk-full"
    is_ours = any(str(fault["place"]).startswith(folder + "/") for folder in ours)
    return "damage" if is_ours and not str(fault["place"]).endswith("/checkpoints") else "fault"


def _sources(document: Document) -> Iterator[Finding]:
    for each in document["sources"]:
        if each["freshness"] == "stale":
            what = f"{each['name']}: {each['uncaptured_bytes']} bytes wait to be captured, some for {round(each['lag_s'])} s"
            yield Finding("stale", what, each["root"], "", document["written_ms"] - round(each["lag_s"] * 1000))
        if not each["there"] and each["files"]:
            hint = "what was captured stays; mount it, or take the source out of the config"
            yield Finding("missing", f"{each['name']}: the folder is not there, though sessions were captured from it", each["root"], hint)


def _drill(document: Document) -> Iterator[Finding]:
    drilled = document["drill"]
    if drilled is not None and drilled["verdict"] == "bad":
        what = f"in the drill of {drilled['at']} {drilled['bad']} of {drilled['tried']} sessions did not come back as they were"
        yield Finding("damage", what, "", "`coldtrail verify` tells where, `coldtrail drill` tries again")


def _jobs(document: Document) -> Iterator[Finding]:
    for each in document["jobs"]:
        if each["hung"] is not None:
            what = f"the job {each['name']} does not move: it stands at {each['hung']['place']}"
            yield Finding("job", what, "", "the others go on; a restart ends it, and loses nothing", each["hung"]["since_ms"])
        elif (each["last_error_ms"] or 0) > (each["last_success_ms"] or 0):
            yield Finding("job", f"the job {each['name']} failed: {each['last_error']}", "", "", each["last_error_ms"])


def _service(document: Document) -> Iterator[Finding]:
    if document["clock"]:
        yield Finding("clock", document["clock"], "", "if the clock is right by now, nothing is to be done")
    refused = document["config"]["refused"]
    if refused:
        yield Finding("config", f"the config was not taken, the old one holds: {refused}", "", "mend it, then `coldtrail reload`")
    paused = document["paused"]
    if paused is not None:
        what = "everything is paused, capture too" if paused["capture"] else "compaction and what removes bytes are paused"
        yield Finding("paused", what, "", "`coldtrail resume` ends it", paused["since_ms"])


def outside(document: Document | None, *, running: bool, now_ms: int) -> list[Finding]:
    """What is not well that a daemon cannot say itself: that it is not there, or does not move."""
    if running:
        if document is None or document["written_ms"] + OLD_MS < now_ms:
            since_ms = None if document is None else document["written_ms"]
            return [Finding("hung", "a daemon runs and does not say how it is", "", "if this stays, restart it: nothing is lost", since_ms)]
        return []
    hint = "`coldtrail run` starts one; `coldtrail run --once` is enough for whoever runs it every day"
    if document is None:
        return [Finding("stopped", "no daemon runs, and none ever has", "", hint)]
    if document["mode"] == "once" and now_ms - document["written_ms"] < ONCE_GOOD_MS:
        return []
    ended = document["stopped_ms"] is not None
    what = "no daemon runs" if ended else "no daemon runs, and the last one did not end in order"
    return [Finding("stopped", what, "", hint, document["stopped_ms"] or document["written_ms"])]


def listed(found: Sequence[Finding]) -> list[dict[str, Any]]:
    """Findings as the document holds them."""
    return [asdict(each) for each in found]
