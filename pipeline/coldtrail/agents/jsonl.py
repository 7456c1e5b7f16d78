"""Any folder of JSONL files: each file is a session, and its records are kept without being understood."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path, PurePosixPath

from coldtrail.agents.base import Agent, Fork, Place, RestoreAdvice
from coldtrail.agents.reading import time_ms, unknown
from coldtrail.model import Ids, Reading, Role

_TIME_KEYS = ("timestamp", "ts", "time", "created_at")


class JsonlFolder:
    """A folder that only the config can name, since nothing tells such logs from other files."""

    name = "jsonl"
    folders: tuple[str, ...] = ("",)
    ids = Ids.LOOSE

    def roots(self, env: Mapping[str, str], home: Path) -> Sequence[Path]:
        """None: these folders are named in the config."""
        return ()

    def place(self, path: PurePosixPath, head: Callable[[], bytes]) -> Place | None:
        """Every `*.jsonl` that no dot hides is a session, named by its stem, kept apart by its folder."""
        if path.suffix != ".jsonl" or any(part.startswith(".") for part in path.parts):
            return None
        folder = path.parent.as_posix()
        return Place(path.stem, "" if folder == "." else folder, Role.MAIN)

    def log_id(self, path: PurePosixPath) -> str | None:
        """None: each log holds its whole history."""
        return None

    def plain_path(self, path: PurePosixPath) -> PurePosixPath | None:
        """None: nothing here is compressed by its writer."""
        return None

    def read(self, value: object) -> Reading:
        """One `unknown` event, with the record's time where a usual key says it."""
        when = None
        if isinstance(value, dict):
            when = next((ms for key in _TIME_KEYS if (ms := time_ms(value.get(key))) is not None), None)
        return Reading((unknown(value),), when)

    def continues(self, first: Sequence[Reading], held: Callable[[str], bool]) -> bool:
        """False: nothing in an opaque record tells."""
        return False

    def ordinal(self, value: object) -> int | None:
        """None: its records are not understood."""
        return None

    def sweep_days(self, root: Path) -> float | None:
        """None: its writer is not known to delete."""
        return None

    def sweep_key_is_mtime(self) -> bool:
        """True, of no weight where nothing is swept."""
        return True

    def advise(self, root: Path, mtime_ns: int, last_ms: int | None, now_ns: int) -> RestoreAdvice:
        """The original mtime."""
        return RestoreAdvice(mtime_ns)

    def busy(self, root: Path, session_id: str) -> str | None:
        """None: its writer leaves no mark of itself."""
        return None

    def fork(self, path: PurePosixPath, fresh: str) -> Fork | None:
        """Beside the original, its name with eight digits more."""
        name = f"{path.stem}-{fresh[:8]}"
        return Fork(name, path.with_name(f"{name}.jsonl"))

    def resume(self, session_id: str, cwd: str | None) -> str | None:
        """None: how to go on is the writer's own matter."""
        return None


AGENT: Agent = JsonlFolder()
