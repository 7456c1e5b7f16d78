"""Pin: what the user wishes for a session stands in its manifest, and so outlives the catalog."""

from __future__ import annotations

from dataclasses import replace

from coldtrail.catalog import SessionRow
from coldtrail.home import Home
from coldtrail.sessions import read_manifest, write_manifest


def set_pin(home: Home, session: SessionRow, *, pinned: bool) -> SessionRow:
    """Pin a session, or lift its pin; the catalog's row follows the manifest."""
    with home.changing(session.key):
        manifest = read_manifest(home, session.source, session.key)
        if manifest.pinned != pinned:
            write_manifest(home, session.source, replace(manifest, pinned=pinned))
        row = replace(home.catalog.session(session.key) or session, pinned=int(pinned))
        home.catalog.put(row)
    return row
