"""The process that is killed while it writes: `python -m crash.writing FOLDER NAME COUNT FSYNC`; says each id once it is acknowledged."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from coldtrail.state import State
from coldtrail.writer import Writer

SESSION = "s1"


def clock_ms() -> int:
    return time.time_ns() // 1_000_000


def opened(folder: Path, fsync: str = "never") -> Writer:
    return Writer(folder / f"{SESSION}.jsonl", clock_ms, state_of=lambda path: State(), fsync=fsync)


def main() -> None:
    folder, name, count, fsync = sys.argv[1:]
    with opened(Path(folder), fsync) as log:
        for n in range(int(count)):
            text = f"{name} {n} " + "x" * (n * 7919 % 3000)
            event_id = f"{name}-{n}" if n % 2 else None  # ids of its own, and ours
            told = log.append("message_added", role="user", content=text, event_id=event_id)
            os.write(1, f"{told.event_id} {name} {n}\n".encode())


if __name__ == "__main__":
    main()
