"""Fixtures of the agents' tests: the real logs, parsed as capture parses them, and an agent's readings of made-up records."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from coldtrail.format.lines import LineSplitter, read_line
from coldtrail.model import RecordKind

CORPUS = Path(__file__).resolve().parents[3].parent / "shared" / "corpus"

Logs = Callable[[str], Iterator[tuple[Path, list[object]]]]


def parsed(path: Path) -> list[object]:
    """Every value in a log; a file that is one JSON document is one value."""
    data = path.read_bytes()
    if data.startswith(b"{\n"):  # an indented document
        return [record.value for record in read_line(data, 0) if record.kind is RecordKind.DATA]
    splitter = LineSplitter(0)
    records = [*splitter.feed(data), *splitter.finish()]
    return [record.value for record in records if record.kind is RecordKind.DATA]


@pytest.fixture
def logs() -> Logs:
    """The real logs below a folder of the corpus, each with its values."""
    if not CORPUS.is_dir():
        pytest.skip(f"the real logs are missing: {CORPUS}")

    def of(folder: str) -> Iterator[tuple[Path, list[object]]]:
        for path in sorted((CORPUS / folder).rglob("*.json*")):
            yield path.relative_to(CORPUS), parsed(path)

    return of
