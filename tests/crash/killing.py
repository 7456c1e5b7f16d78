"""Run a piece of work in a process that dies at a chosen durable step, as under kill -9."""

from __future__ import annotations

import contextlib
import os
import random
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

from coldtrail import durable
from crash.power import Ledger

KILLED = 137
EVERY = bool(os.environ.get("COLDTRAIL_EVERY_STEP"))
SOME = 4  # steps of a long work, where not every one is asked for
_FAILED = 1


class Disk(Protocol):
    """Stands in for fsync in a folder, and knows what a power cut leaves of it."""

    def sync(self, fd: int) -> None:
        """In place of os.fsync."""

    def sync_all(self, folder: Path) -> None:
        """In place of a sync of everything below a folder."""

    def cut(self) -> None:
        """The power is gone."""


def chosen(count: int, some: int = SOME) -> list[int]:
    """The steps of so many to be killed at, counted from 1: all of a short work, some of a long one, unless all are asked for."""
    every = list(range(1, count + 1))
    return every if EVERY or count <= some else sorted(random.Random(count).sample(every, some))


@contextlib.contextmanager
def noted(what: str) -> Iterator[None]:
    """A failure says what was done to the process."""
    try:
        yield
    except BaseException as error:
        error.add_note(what)
        raise


def dies_at(step: int, work: Callable[[], object], *, power: Path | None = None, disk: Callable[[Path], Disk] = Ledger) -> bool:
    """Do `work` in a child that is gone at its `step`-th durable step, counted from 1; False: it came to its end before.

    `power`: a folder that loses, at that moment, whatever in it was not synced; `disk` tells what that is.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12: other tests may have left threads
        pid = os.fork()
    if pid == 0:
        _run(step, work, None if power is None else disk(power))
    _, status = os.waitpid(pid, 0)
    code = os.waitstatus_to_exitcode(status)
    assert code in (0, KILLED), f"the work failed by itself (exit {code}), see its traceback on stderr"
    return code == KILLED


def _run(step: int, work: Callable[[], object], ledger: Disk | None) -> None:
    """What the child does; it never returns."""
    left = step
    if ledger is not None:
        os.fsync = lambda fd: ledger.sync(fd if isinstance(fd, int) else fd.fileno())

    def hook(name: str, path: Path) -> None:
        nonlocal left
        if name == "synced-all" and ledger is not None:
            ledger.sync_all(path)
        left -= 1
        if left == 0:
            if ledger is not None:
                ledger.cut()
            os._exit(KILLED)

    try:
        durable.fault_hook = hook
        work()
        os._exit(0)
    except BaseException:  # noqa: BLE001 - a child has no caller
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(_FAILED)


def steps_of(work: Callable[[], object]) -> list[str]:
    """The durable steps of a piece of work, done here: their names and the files' names."""
    seen: list[str] = []
    durable.fault_hook = lambda name, path: seen.append(f"{name} {path.name}")
    try:
        work()
    finally:
        durable.fault_hook = None
    return seen


def then_step(work: Callable[[], object], folder: Path) -> Callable[[], None]:
    """The same work with one more step at its end, in which nothing is done: to die there is to die when it is over."""

    def both() -> None:
        work()
        durable.step("the end", folder)

    return both
