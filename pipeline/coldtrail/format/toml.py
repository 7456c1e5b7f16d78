"""A TOML text read key by key into values; what is wrong is told with its file, line and key."""

from __future__ import annotations

import dataclasses
import difflib
import json
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from coldtrail.errors import ConfigError

Steps = tuple[str | int, ...]  # the way to a key: ("source", 1, "root")
LATER = "not available in this version of coldtrail"
_T = TypeVar("_T")


class BadValueError(ValueError):
    """A value that cannot stand; the table that holds it adds where it stands."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


@dataclass(frozen=True, slots=True)
class World:
    """What the text cannot say itself: what `~` stands for, and which agents there are."""

    user_home: Path
    agents: Sequence[str]

    def expand(self, text: str) -> str:
        """The text with a leading `~` replaced."""
        return str(self.user_home) + text[1:] if text == "~" or text.startswith("~/") else text


@dataclass(frozen=True, slots=True)
class Kind:
    """How a value is read (or is `BadValueError`), and what TOML value it is written as (None: left out)."""

    read: Callable[[object, World], Any]
    write: Callable[[Any], object] = lambda value: value


def key(name: str, kind: Kind, default: object = dataclasses.MISSING, *, later: bool = False) -> Any:
    """A dataclass field that a key of the file sets; `later`: any value but the default is refused for now."""
    return dataclasses.field(default=default, metadata={"key": (name, kind, later)})


# --- kinds of values ---


def seen(value: object) -> str:
    """A value as a message shows it: short, on one line."""
    shown = json.dumps(value, ensure_ascii=False, default=str)
    return shown if len(shown) <= 60 else shown[:57] + "..."


def typed(value: object, wanted: type[_T], name: str) -> _T:
    """The value, if it is of exactly this type: `true` is no number."""
    if type(value) is not wanted:
        raise BadValueError(f"{seen(value)} is not {name}")
    return value


def boolean(value: object, _world: World) -> bool:
    """True or false."""
    return typed(value, bool, "true or false")


def string(value: object, _world: World) -> str:
    """Text on one line, not empty."""
    text = typed(value, str, "a string in quotes")
    if not text.strip() or min(text) < " ":
        raise BadValueError(f"{seen(value)} is empty, or holds control characters")
    return text


def pattern(value: object, world: World) -> str:
    """A glob over paths."""
    return world.expand(string(value, world))


def folder(value: object, world: World) -> Path:
    """A whole path."""
    path = Path(pattern(value, world))
    if not path.is_absolute():
        raise BadValueError(f"{seen(value)} is not a whole path", 'begin it with "/" or "~/"')
    return path


def one_of(names: Sequence[str], value: object) -> str:
    """One of these names."""
    name = typed(value, str, "a string in quotes")
    if name not in names:
        raise BadValueError(f"{seen(name)} is not known", suggest(name, names))
    return name


def suggest(name: str, names: Sequence[str]) -> str:
    """A hint for whoever wrote this name where one of `names` belongs."""
    close = difflib.get_close_matches(name, names, 1)
    return (f"did you mean {close[0]}? " if close else "") + f"known here: {', '.join(names)}"


def whole(lowest: int, highest: int) -> Kind:
    """Whole numbers in these bounds, both included."""

    def read(value: object, _world: World) -> int:
        number = typed(value, int, "a whole number")
        if not lowest <= number <= highest:
            raise BadValueError(f"{seen(number)} is not from {lowest} to {highest}")
        return number

    return Kind(read)


def count_or_all(lowest: int, highest: int) -> Kind:
    """Whole numbers in these bounds, or "all", which is None."""
    number = whole(lowest, highest)

    def read(value: object, world: World) -> int | None:
        try:
            return None if value == "all" else number.read(value, world)
        except BadValueError as bad:
            raise BadValueError(str(bad), 'write "all" for no bound') from bad

    return Kind(read, lambda value: "all" if value is None else value)


def percent(lowest: int, highest: int) -> Kind:
    """Whole percentages in these bounds, both included, such as "20%"."""

    def read(value: object, _world: World) -> int:
        text = typed(value, str, 'a share in quotes, such as "20%"')
        match = re.fullmatch(r"([0-9]{1,9})%", text)
        if match is None or not lowest <= int(match[1]) <= highest:
            raise BadValueError(f"{seen(text)} is not from {lowest}% to {highest}%, in whole numbers")
        return int(match[1])

    return Kind(read, lambda value: f"{value}%")


def amount(parse: Callable[[str], int], write: Callable[[int], str], *, never: bool = False, zero: bool = False) -> Kind:
    """Amounts with a unit; `never` may stand for none, and nothing at all only where `zero` says so."""
    way_out = 'write "never" to switch it off' if never else ""

    def read(value: object, _world: World) -> int | None:
        text = typed(value, str, "a string in quotes, with a unit")
        if never and text == "never":
            return None
        try:
            parsed = parse(text)
        except ValueError as error:
            raise BadValueError(str(error), way_out) from error
        if parsed == 0 and not zero:
            raise BadValueError(f"{seen(text)}: zero is not allowed here", way_out)
        return parsed

    return Kind(read, lambda value: ("never" if never else None) if value is None else write(value))


# --- the text, and its tables ---


@dataclass(frozen=True, slots=True)
class Document:
    """The text of a TOML file, which knows where its keys stand."""

    text: str
    file: str
    world: World

    def top(self) -> Table:
        """The table that holds all others; ConfigError where the text is no TOML."""
        try:
            return Table(self, tomllib.loads(self.text))
        except RecursionError as error:
            raise ConfigError("nested too deeply", file=self.file) from error
        except ValueError as error:
            found = re.search(r"\(at line (\d+)", str(error))
            line = int(found[1]) if found else self.text.count("\n") + 1
            raise ConfigError(f"not TOML: {error}", file=self.file, line=line) from error

    def error(self, steps: Steps, message: str, hint: str = "") -> ConfigError:
        """What is wrong with the value that these steps lead to."""
        name = ".".join(step for step in steps if isinstance(step, str))
        line = self._line(steps) or self._line(steps[:-1])  # a missing key: the line of its table
        return ConfigError(message, file=self.file, line=line, key=name, hint=hint)

    def _line(self, steps: Steps) -> int | None:
        # A statement starts right behind the longest beginning of the text that is TOML and lacks its key:
        # so tomllib itself tells the line, and there is no second reader of TOML to be wrong.
        lines, behind = self.text.split("\n"), 0
        for count in range(1, len(lines) + 1):
            try:
                values = tomllib.loads("\n".join(lines[:count]) + "\n")
            except ValueError:
                continue
            if _holds(values, steps):
                return behind + 1
            behind = count
        return None


def _holds(value: Any, steps: Steps) -> bool:
    for step in steps:
        if step not in (range(len(value)) if isinstance(value, list) else value):
            return False
        value = value[step]
    return bool(steps)


@dataclass(frozen=True, slots=True)
class Table:
    """One table of the file, read key by key; at the end, what was not asked for is unknown."""

    document: Document
    values: Mapping[str, object]
    steps: Steps = ()
    known: list[str] = dataclasses.field(default_factory=list)

    def read(self, section: Callable[..., _T], **given: object) -> _T:
        """One section, a dataclass of `key` fields; nothing else may stand in this table."""
        for name, attribute, kind, default, later in _keys(section):
            given[attribute] = self.take(name, kind, default)
            if later and given[attribute] != default:
                raise self.error(LATER, "take it out: nothing would act on it yet", name)
        self.end()
        return section(**given)

    def take(self, name: str, kind: Kind, default: object) -> Any:
        """The value of a key, or the default; MISSING as the default means that the key must be there."""
        self.known.append(name)
        if name not in self.values:
            if default is dataclasses.MISSING:
                raise self.error("is missing", "", name)
            return default
        try:
            return kind.read(self.values[name], self.document.world)
        except BadValueError as bad:
            raise self.error(str(bad), bad.hint, name) from bad

    def table(self, name: str) -> Table:
        """The table `[name]`; empty where there is none."""
        self.known.append(name)
        values = self.values.get(name, {})
        if not isinstance(values, dict):
            raise self.error(f"is not one table, written [{name}]", "", name)
        return Table(self.document, values, (*self.steps, name))

    def tables(self, name: str) -> list[Table]:
        """The tables `[[name]]`, in order."""
        self.known.append(name)
        values = self.values.get(name, [])
        if not isinstance(values, list) or not all(isinstance(value, dict) for value in values):
            raise self.error(f"is not a list of tables, written [[{'.'.join((*map(str, self.steps), name))}]]", "", name)
        return [Table(self.document, value, (*self.steps, name, at)) for at, value in enumerate(values)]

    def end(self) -> None:
        """ConfigError for the first key that nobody asked for."""
        for name in self.values:
            if name not in self.known:
                raise self.error("is not a key that coldtrail knows", suggest(name, self.known), name)

    def error(self, message: str, hint: str = "", *names: str) -> ConfigError:
        """What is wrong with this table, or with a key in it."""
        return self.document.error((*self.steps, *names), message, hint)


def write(section: Any) -> str:
    """A dataclass of `key` fields as the lines of a TOML table."""
    lines = ""
    for name, attribute, kind, *_ in _keys(section):
        value = kind.write(getattr(section, attribute))
        if value is not None:  # DEL is all that JSON's strings may hold and TOML's may not
            lines += f"{name} = {json.dumps(value, ensure_ascii=False)}\n".replace("\x7f", "\\u007f")
    return lines


def _keys(section: Any) -> Iterator[tuple[str, str, Kind, object, bool]]:
    for field in dataclasses.fields(section):
        if "key" in field.metadata:
            name, kind, later = field.metadata["key"]
            yield name, field.name, kind, field.default, later
