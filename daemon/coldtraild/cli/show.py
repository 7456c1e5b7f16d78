"""`coldtrail show`: one session, all that is known of it."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from pathlib import PurePath

import click

from coldtrail import Session, Trail, sweeps
from coldtrail.catalog import FaultRow
from coldtrail.errors import ColdtrailError
from coldtrail.format import lines
from coldtrail.format.manifest import Generation, StreamMeta
from coldtrail.model import instant_text
from coldtrail.settings import find_sources
from coldtraild.cli import say
from coldtraild.cli.asked import Asked, as_json, epilog, one_id, pass_asked
from coldtraild.cli.ls import listed
from coldtraild.cli.status import fault_document, fault_lines


@click.command("show", epilog=epilog("coldtrail show ae3d54a6", exits={0: "shown", 3: "no such session, or several"}))
@one_id
@as_json
@pass_asked
def command(asked: Asked, name: str, *, as_json: bool) -> None:
    """Show one session: its files, its faults, how to go on with it.

    Prints its facts, then each of its files with its path and where it was before, the sizes of its generations and how each
    relates to the one before, then the faults that concern it. A generation that is `mixed` may hold bytes of two lives.
    """
    with asked.trail() as trail:
        session = trail.session(name)
        metas = session.streams()
        faults = _faults(trail, metas)
        resume = trail.home.agents[session.agent].resume(session.id, session.project)
        if as_json:
            say.document(_document(trail, session, metas, faults, resume))
        else:
            click.echo("\n".join(_lines(trail, session, metas, faults, resume)))


def _faults(trail: Trail, metas: list[StreamMeta]) -> list[FaultRow]:
    """Those at a file of the session's, at a folder above one, and at what is kept of one."""
    paths = {PurePath(seen.path) for meta in metas for seen in meta.paths}
    concerned = {os.fsencode(place) for path in paths for place in (path, *path.parents)}
    concerned |= {os.fsencode(trail.settings.layout.stream(meta.stream)) for meta in metas}
    return [fault for fault in trail.home.catalog.faults() if fault.place in concerned]


def _held(trail: Trail, meta: StreamMeta, generation: Generation) -> int | None:
    """A generation's bytes; None where its segments cannot be read."""
    try:
        return trail.home.plain(meta, generation.number).end()
    except ColdtrailError:
        return None


def _document(trail: Trail, session: Session, metas: list[StreamMeta], faults: list[FaultRow], resume: str | None) -> dict[str, object]:
    return {
        **listed(session.row, sweeps.look(trail.home, find_sources(trail.settings))),
        "parents": lines.loads(session.row.parents.encode()),
        "resume": resume,
        "streams": [_stream_document(trail, meta) for meta in metas],
        "faults": [fault_document(fault) for fault in faults],
    }


def _stream_document(trail: Trail, meta: StreamMeta) -> dict[str, object]:
    return {
        "stream": meta.stream,
        "role": meta.role.value,
        "is_log": meta.is_log,
        "path": meta.path,
        "paths": [{"path": seen.path, "since": instant_text(seen.since_ms)} for seen in meta.paths],
        "root": meta.root,
        "gone": instant_text(meta.gone_ms),
        "generations": [
            {
                "generation": each.number,
                "relation": each.relation and each.relation.value,
                "mixed": each.mixed,
                "began": instant_text(each.began_ms),
                "bytes": _held(trail, meta, each),
            }
            for each in meta.generations
        ],
    }


def _lines(trail: Trail, session: Session, metas: list[StreamMeta], faults: list[FaultRow], resume: str | None) -> Iterator[str]:
    row = session.row
    damaged = f", {row.damaged} of them damaged when they were captured" if row.damaged else ""
    yield f"key       {row.key}"
    yield f"id        {say.printable(row.id)}"
    yield f"agent     {row.agent}, source {say.printable(row.source)}"
    yield f"title     {say.printable(row.title or '-')}"
    yield f"project   {say.folder(row.project)}"
    yield f"activity  {say.local(row.first_ms)} to {say.local(row.last_ms)}"
    yield f"records   {row.records}{damaged}"
    yield f"size      {say.size(row.bytes)}, stored in {say.size(row.stored_bytes)}"
    yield f"state     {row.state}" + (", pinned" if row.pinned else "") + (", its main log was never seen" if row.orphan else "")
    yield f"resume    {say.printable(resume) if resume else '-'}"
    for meta in metas:
        yield from _stream_lines(trail, meta)
    if faults:
        yield from fault_lines(faults)


def _stream_lines(trail: Trail, meta: StreamMeta) -> Iterator[str]:
    yield f"{meta.role.value:<9} {say.folder(meta.path)}"
    yield f"  stream {meta.stream}" + (f", gone since {say.local(meta.gone_ms)}" if meta.gone_ms is not None else "")
    for seen, moved in itertools.pairwise(meta.paths):
        yield f"  moved {say.local(moved.since_ms)}, was at {say.folder(seen.path)} from {say.local(seen.since_ms)}"
    for each in meta.generations:
        held = _held(trail, meta, each)
        amount = "cannot be read: run `coldtrail verify`" if held is None else say.size(held)
        relation = f", {each.relation.value} the one before" if each.relation is not None else ""
        yield f"  generation {each.number}: {amount}, since {say.local(each.began_ms)}{relation}{', mixed' if each.mixed else ''}"
