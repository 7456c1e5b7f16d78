"""What the benchmarks share: real logs laid out as an agent keeps them, work done in a process of its own, stock programs as yardsticks."""

from __future__ import annotations

import itertools
import json
import shutil
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

CORPUS = Path(__file__).resolve().parents[2].parent / "shared" / "corpus" / "claude"
WORK = Path(__file__).with_name("work.py")
MIB = 1 << 20

needs_corpus = pytest.mark.skipif(not CORPUS.is_dir(), reason=f"the real logs are missing: {CORPUS}")
needs_zstd = pytest.mark.skipif(shutil.which("zstd") is None, reason="zstd is not on this machine")


@dataclass(frozen=True)
class Bench:
    """An agent's root and a home beside it."""

    folder: Path

    @property
    def root(self) -> Path:
        return self.folder / "claude"

    @property
    def home(self) -> Path:
        return self.folder / "trail"

    def log(self, name: str) -> Path:
        """A main log's path; its folder is made."""
        path = self.root / "projects" / "-bench" / f"{uuid.uuid5(uuid.NAMESPACE_URL, name)}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def logs(self) -> list[Path]:
        return sorted(self.root.rglob("*.jsonl"))

    def work(self, verb: str, count: int = 0) -> dict[str, float]:
        """Do it in a process of its own; what it took."""
        done = subprocess.run(
            [sys.executable, str(WORK), verb, str(self.root), str(self.home), str(count)], stdout=subprocess.PIPE, check=True
        )
        figures: dict[str, float] = json.loads(done.stdout)
        return figures

    def archived_bytes(self) -> int:
        return sum(path.stat().st_size for path in (self.home / "archive").rglob("*.zst"))

    def stored_bytes(self) -> int:
        return sum(path.stat().st_size for path in (self.home / "store").rglob("*.zst"))


def real_logs() -> list[Path]:
    return sorted(CORPUS.rglob("*.jsonl"))


def one_log(path: Path, size: int) -> None:
    """A log of at least `size` bytes, of real sessions end to end, as often as needed."""
    with path.open("wb") as file:
        for data in itertools.cycle(path.read_bytes() for path in real_logs()):
            file.write(data if data.endswith(b"\n") else data + b"\n")
            if file.tell() >= size:
                return


def zstd(logs: list[Path], *options: str) -> tuple[float, int]:
    """Seconds and bytes of stock zstd, one thread, a file each."""
    began, total = time.perf_counter(), 0
    for path in logs:
        done = subprocess.run(["zstd", "-qc", "--single-thread", *options, str(path)], stdout=subprocess.PIPE, check=True)
        total += len(done.stdout)
    return time.perf_counter() - began, total


def read_seconds(logs: list[Path]) -> float:
    """How long reading takes, and nothing else."""
    began = time.perf_counter()
    for path in logs:
        for _ in pieces(path):
            pass
    return time.perf_counter() - began


def pieces(path: Path) -> Iterator[bytes]:
    with path.open("rb", buffering=0) as file:
        while data := file.read(MIB):
            yield data


def show(title: str, **figures: float | str) -> None:
    """A line for whoever runs the benchmarks."""
    told = ", ".join(
        f"{name.replace('_', ' ')} {value if isinstance(value, str) else format(value, '.4g')}" for name, value in figures.items()
    )
    sys.stdout.write(f"\n  {title}: {told}\n")
