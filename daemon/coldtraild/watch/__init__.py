"""Tells which files were touched. The only door to watchdog, whose events mark and prove nothing: a scan is the truth."""

from __future__ import annotations

from coldtraild.watch.folders import linked_folders, real_folders
from coldtraild.watch.kernel import Why
from coldtraild.watch.watcher import Fault, Mode, Watched, Watcher

__all__ = ["Fault", "Mode", "Watched", "Watcher", "Why", "linked_folders", "real_folders"]
