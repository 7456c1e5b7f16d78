"""Bytes to records: cuts a log into lines, parses each, and finds what is readable in a broken one; the only door to orjson."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import orjson

from coldtrail.model import Record, RecordKind

MAX_LINE_BYTES = 16 << 20  # a longer line, its newline included, is kept but not parsed

# ---- values -----------------------------------------------------------------------------------------------------------

# orjson turns integers beyond 64 bits into floats. The regex alone would take five times as long as the parsing.
_DIGITS_ALIKE = bytes(ord("0") if byte in b"0123456789" else byte for byte in range(256))
_MANY_DIGITS = b"0" * 19
_BIG_INTEGER = re.compile(rb"-[0-9]{19}|[0-9]{20}")


def loads(data: bytes) -> object:
    """Parse one JSON value; ValueError for whatever cannot be parsed, nesting beyond some 1,000 levels included.

    Takes what real agents write though no standard allows it: lone surrogate escapes, NaN, raw control characters in
    strings, a byte order mark. Integers of any size stay exact. Bytes that are not UTF-8 become lone surrogates, as in file
    names, so that no two texts fall together. A NUL is always damage: it is what a crash leaves, and no agent writes one.
    """
    try:
        if _MANY_DIGITS not in data.translate(_DIGITS_ALIKE) or _BIG_INTEGER.search(data) is None:
            return orjson.loads(data)
    except (ValueError, RecursionError):
        pass
    return _loads_leniently(data)


def dumps(value: object, *, sort: bool = False, indent: bool = False) -> bytes:
    r"""Write any value that `loads` gives as UTF-8 JSON; NaN and infinities become null.

    `sort` orders the keys, so that equal values give equal bytes. TypeError for what is not JSON, ValueError for nesting
    beyond reason.

    >>> dumps({"b": 2, "a": "\ud83d"}, sort=True)
    b'{"a":"\\ud83d","b":2}'
    """
    try:
        return _dumps(value, (orjson.OPT_SORT_KEYS if sort else 0) | (orjson.OPT_INDENT_2 if indent else 0))
    except RecursionError as error:
        raise ValueError("nested too deep to be written as JSON") from error


def _integer(digits: str) -> int | float:
    try:
        return int(digits)
    except ValueError:  # more digits than the interpreter converts
        return float(digits)


_LENIENT = json.JSONDecoder(strict=False, parse_int=_integer)


def _loads_leniently(data: bytes) -> object:
    if b"\0" in data:
        raise ValueError("NUL bytes")
    try:
        return _LENIENT.decode(data.decode("utf-8", "surrogateescape").removeprefix("\ufeff"))
    except RecursionError as error:
        raise ValueError("nested too deep") from error


def _dumps(value: object, options: int) -> bytes:
    # What orjson refuses (lone surrogates, big integers, deep nesting) is taken apart until only the odd leaf is left to json.
    # A plain loop: each level costs one frame, so that everything within the depth that `loads` takes can be written.
    try:
        return orjson.dumps(value, option=options)
    except orjson.JSONEncodeError:
        if isinstance(value, str | int):
            return json.dumps(value).encode()
        if isinstance(value, dict):
            items = sorted(value.items()) if options & orjson.OPT_SORT_KEYS else value.items()
            brackets, named = b"{}", [(_key(key), item) for key, item in items]
        elif isinstance(value, list | tuple):
            brackets, named = b"[]", [(b"", item) for item in value]
        else:
            raise
        parts = []
        for name, item in named:
            parts.append(name + _dumps(item, options))
        return brackets[:1] + b",".join(parts) + brackets[1:]


def _key(key: object) -> bytes:
    if not isinstance(key, str):
        raise TypeError(f"a JSON object has no key like {key!r}")
    return json.dumps(key).encode() + b":"


# ---- one line ---------------------------------------------------------------------------------------------------------


def read_line(line: bytes, offset: int) -> list[Record]:
    """The records of one physical line, its newline included where it has one; `offset` is its place in the generation.

    They tile the line. Each DATA record's bytes parse by themselves to its value. In a line that is no JSON value, only whole
    objects that no other object holds are DATA; all between them is DAMAGED.

    >>> [(r.kind.name, r.offset, r.value) for r in read_line(b'{"a":1,"b":"tor{"n":2}', 100)]
    [('DAMAGED', 100, None), ('DATA', 115, {'n': 2})]
    """
    if len(line) > MAX_LINE_BYTES:
        return [Record(offset, len(line), RecordKind.OVERSIZE)]
    try:
        return [Record(offset, len(line), RecordKind.DATA, loads(line))]
    except ValueError:
        return _recover(line, offset) if line.strip() else [Record(offset, len(line), RecordKind.BLANK)] if line else []


def _recover(line: bytes, offset: int) -> list[Record]:
    records, tiled = [], 0
    for start, end, value in _objects(line):
        if start > tiled:
            records.append(Record(offset + tiled, start - tiled, RecordKind.DAMAGED))
        records.append(Record(offset + start, end - start, RecordKind.DATA, value))
        tiled = end
    if tiled < len(line):
        records.append(Record(offset + tiled, len(line) - tiled, RecordKind.DAMAGED))
    return records


_SPACE = re.compile(rb"[ \t\r\n]*+")
_TOKEN = re.compile(
    rb'[ \t\r\n]*+("(?:[^"\\]++|\\.)*+"|[{}\[\],:]|-?[0-9][-+.0-9eE]*+|true|false|null|NaN|-?Infinity)?+',
    re.DOTALL,
)
# An empty object is no start: `{}` is common in torn text, while the quotes that any other needs are escaped there.
_OBJECT_START = re.compile(rb'\{[ \t\r]*+"')
_MOST_TOKENS = 2 << 20  # of one line, four times what 16 MiB of real records have: what lies beyond stays damaged, so garbage takes 2 s

# What a token may begin with, by what came before it.
_VALUE = frozenset(b'"{[-0123456789tfnNI')
_KEY, _COLON = frozenset(b'"'), frozenset(b":")
_FIRST_KEY, _FIRST_ITEM = _KEY | frozenset(b"}"), _VALUE | frozenset(b"]")
_AFTER_MEMBER, _AFTER_ITEM = frozenset(b",}"), frozenset(b",]")


def _objects(line: bytes) -> Iterator[tuple[int, int, object]]:
    """Start, end and value of each object in a broken line that stands for a record of its own.

    Where nothing is broken before it, any whole object is one. Behind damage it may be the inside of a record whose head is
    lost; so there it counts only if what follows could follow a record: the line's end, the next object, or NULs.
    """
    budget = iter(range(_MOST_TOKENS))
    place, sound = 0, True
    while place < len(line):
        if not sound:
            found = _OBJECT_START.search(line, place)
            if found is None:
                return
            place = found.start()
        whole, end = _walk(line, place, budget)
        value = _object(line[place:end]) if whole and (sound or end == len(line) or line[end] in b"{\0") else None
        sound = value is not None
        if sound:
            yield place, end, value
        place = end


def _object(data: bytes) -> object | None:
    try:
        value = loads(data)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def _walk(line: bytes, start: int, budget: Iterator[int]) -> tuple[bool, int]:
    """Walk over the value at `start`: (True, its end with the white space behind it), or (False, where to look on)."""
    open_at: list[int] = []
    allowed = _VALUE
    closed, pos = start, start
    for _ in budget:
        token = _TOKEN.match(line, pos)
        assert token is not None  # it matches the empty string
        at, pos = token.span(1)
        if at < 0 or line[at] not in allowed:
            return False, _glued_at(line, start, token.end() if at < 0 else at, closed)
        first = line[at : at + 1]
        if first in b"{[":
            open_at.append(at)
            allowed = _FIRST_KEY if first == b"{" else _FIRST_ITEM
        elif first == b":":
            allowed = _VALUE
        elif first == b",":
            allowed = _KEY if allowed is _AFTER_MEMBER else _VALUE
        elif first == b'"' and (allowed is _KEY or allowed is _FIRST_KEY):
            allowed = _COLON
        else:  # a value ends here
            closed = open_at.pop() if first in b"}]" else at
            if not open_at:
                return True, _end_of_space(line, pos)
            allowed = _AFTER_MEMBER if line[open_at[-1]] == 0x7B else _AFTER_ITEM
    return False, len(line)


def _glued_at(line: bytes, start: int, wrong: int, closed: int) -> int:
    """Where the next record may begin, if the one that began at `start` is torn and byte `wrong` cannot belong to it.

    `closed` is where the last value before that byte began.
    """
    if wrong == len(line) and line.endswith(b"\n") and line[closed] == 0x7B and closed > start:
        # A torn write brings no newline: it is that of a record glued on where a value was due, `{"a":` + `{"n":2}`.
        return closed
    brace = line.rfind(b"{", start + 1, wrong)
    if brace >= 0 and line[brace + 1 : wrong].strip() == b'"':
        return brace  # torn inside a string, which the first quote of the record glued on then ended
    return max(wrong, start + 1)


def _end_of_space(line: bytes, pos: int) -> int:
    space = _SPACE.match(line, pos)
    return space.end() if space else pos


# ---- many lines -------------------------------------------------------------------------------------------------------


class LineSplitter:
    r"""Cuts a growing log into records, chunk by chunk; holds an unfinished line, of at most `MAX_LINE_BYTES`, for the next.

    >>> splitter = LineSplitter(0)
    >>> [record.value for record in splitter.feed(b'{"n":1}\n{"n"')], splitter.pending_start
    ([{'n': 1}], 8)
    """

    __slots__ = ("_tail", "pending_length", "pending_start")

    def __init__(self, offset: int, pending: bytes = b"") -> None:
        """Begin at `offset` bytes into the generation; `pending` is the unfinished line there, of which no newline is known."""
        if b"\n" in pending:
            raise ValueError("an unfinished line holds no newline")
        self.pending_start = offset  # where the unfinished line begins, in bytes from the start of the generation
        self.pending_length = 0  # its bytes so far, which for an oversize one are counted only
        self._tail = bytearray()
        self._hold(pending)

    def feed(self, chunk: bytes) -> Iterator[Record]:
        """The records of each line that ends in `chunk`, in order; take all of them before the next chunk is fed."""
        begin = 0
        while (newline := chunk.find(b"\n", begin)) >= 0:
            end = newline + 1
            yield from self._end_line(chunk[begin:end])
            begin = end
        self._hold(chunk[begin:])

    def finish(self) -> Iterator[Record]:
        """What the unfinished line is if the log ends here; nothing is consumed, so more may be fed afterwards."""
        yield from self._read_pending()

    def _hold(self, part: bytes) -> None:
        self.pending_length += len(part)
        if self.pending_length > MAX_LINE_BYTES:
            self._tail.clear()
        else:
            self._tail += part

    def _end_line(self, part: bytes) -> list[Record]:
        if self.pending_length:
            self._hold(part)
            records = self._read_pending()
        else:
            self.pending_length = len(part)
            records = read_line(part, self.pending_start)
        self.pending_start += self.pending_length
        self.pending_length = 0
        self._tail.clear()
        return records

    def _read_pending(self) -> list[Record]:
        if self.pending_length > MAX_LINE_BYTES:
            return [Record(self.pending_start, self.pending_length, RecordKind.OVERSIZE)]
        return read_line(bytes(self._tail), self.pending_start)
