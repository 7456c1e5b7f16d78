"""What can be configured: TOML text to one frozen Config, and back."""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from coldtrail.errors import ConfigError
from coldtrail.format import toml
from coldtrail.format.toml import Kind, key
from coldtrail.model import EventType
from coldtrail.units import parse_size, parse_span, size_text, span_text

AGENTS = ("claude-code", "codex", "gemini-cli", "event-log", "jsonl")
ALARMS = ("fault", "damage", "disk-full", "stale", "missing", "unheld", "job", "clock", "config")  # what the service may find wrong
LOOPBACK = ("127.0.0.1", "::1", "localhost")
MAX_LEVEL = 19  # zstd's levels above it need several times the memory


def _archive_folder(value: object, world: toml.World) -> Path | None:
    if value == "":
        return None
    scheme, _, rest = toml.string(value, world).rpartition("://")
    if scheme not in ("", "file"):
        raise toml.BadValueError(f"archives at {scheme}:// are {toml.LATER}", 'give a folder, or "" for the one in home')
    return toml.folder(rest, world)


def _event_types(value: object, _world: toml.World) -> tuple[EventType, ...]:
    names = toml.typed(value, list, 'a list such as ["tool_completed"]')
    return tuple(EventType(toml.one_of(list(EventType), name)) for name in names)


def _always(value: object, world: toml.World) -> bool:
    if not toml.boolean(value, world):
        raise toml.BadValueError("a pin always holds: it cannot be switched off", "take this key out, or `coldtrail unpin` what may go")
    return True


def _words(value: object, world: toml.World) -> tuple[str, ...]:
    return tuple(toml.pattern(word, world) for word in toml.typed(value, list, 'a list such as ["notify-send", "coldtrail"]'))


def _alarms(value: object, _world: toml.World) -> tuple[str, ...]:
    names = toml.typed(value, list, 'a list such as ["disk-full"]')
    return tuple(toml.one_of(ALARMS, name) for name in names)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A port of this machine that only this machine reaches."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def _metrics(value: object, world: toml.World) -> Endpoint | Path | None:
    if value == "":
        return None
    text = toml.string(value, world)
    if "/" in text:
        return toml.folder(text, world)
    host, _, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if host not in LOOPBACK:
        raise toml.BadValueError(
            f"{toml.seen(text)} is neither a file nor a port that only this machine reaches", 'write "127.0.0.1:9464", or a whole path'
        )
    if not re.fullmatch("[0-9]{1,5}", port) or not 1 <= int(port) <= 65535:
        raise toml.BadValueError(f"{toml.seen(port)} is no port, from 1 to 65535")
    return Endpoint(host, int(port))


_BOOLEAN = Kind(toml.boolean)
_STRING = Kind(toml.string)
_PATTERN = Kind(toml.pattern)
_FOLDER = Kind(toml.folder, str)
_ARCHIVE = Kind(_archive_folder, lambda folder: str(folder or ""))
_AGENT = Kind(lambda value, world: toml.one_of(world.agents, value))
_EVENT_TYPES = Kind(_event_types, list)
_COUNT = toml.whole(1, 10**9)
_LEVEL = toml.whole(1, MAX_LEVEL)
_SPAN = toml.amount(parse_span, span_text)
_SPAN_OR_ZERO = toml.amount(parse_span, span_text, zero=True)
_SPAN_OR_NEVER = toml.amount(parse_span, span_text, never=True)
_SIZE = toml.amount(parse_size, size_text)
_SIZE_OR_NEVER = toml.amount(parse_size, size_text, never=True)
_SHARE = toml.percent(1, 100)
_COUNT_OR_ALL = toml.count_or_all(1, 10**9)
_ALARMS = Kind(_alarms, list)
_WORDS = Kind(_words, list)
_METRICS = Kind(_metrics, lambda place: "" if place is None else str(place))
_FILE_STATE = Kind(lambda value, _world: toml.one_of(("live", "gone"), value))
_KEEP_PINNED = Kind(_always)


@dataclass(frozen=True, slots=True)
class Source:
    """An agent's root folder, named by the user, and the agent whose format it has."""

    name: str = key("name", _STRING)
    agent: str = key("agent", _AGENT)
    root: Path = key("root", _FOLDER)


@dataclass(frozen=True, slots=True)
class Capture:
    """How soon new bytes are taken."""

    debounce_ms: int = key("debounce", _SPAN, 2_000)
    scan_every_ms: int = key("scan_every", _SPAN, 5 * 60_000)


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What proposes a checkpoint of a session's state, and the bounds that decide."""

    every_events: int = key("every_events", _COUNT, 50)
    every_ms: int = key("every", _SPAN, 5 * 60_000)
    on: tuple[EventType, ...] = key("on", _EVENT_TYPES, (EventType.TOOL_COMPLETED,))
    least_bytes: int = key("least", _SIZE, 64 << 10)
    cost_factor: int = key("cost_factor", _COUNT, 50)
    replay_max_bytes: int = key("replay_max", _SIZE, 4 << 20)
    replay_max_records: int = key("replay_max_records", _COUNT, 20_000)


@dataclass(frozen=True, slots=True)
class Compact:
    """After how long without growth a session is cold (0: in the pass that captured it), zstd's level then, and how fast."""

    after_ms: int = key("after", _SPAN_OR_ZERO, 24 * 3_600_000)
    level: int = key("level", _LEVEL, 9)
    rate_bytes: int | None = key("rate", _SIZE_OR_NEVER, None)  # plain bytes a second at most; None: as fast as it goes


@dataclass(frozen=True, slots=True)
class Pack:
    """When very cold sessions share one file; None: never."""

    after_ms: int | None = key("after", _SPAN_OR_NEVER, None, later=True)


@dataclass(frozen=True, slots=True)
class Archive:
    """Where sealed segments rest; None: the folder `archive` in the home."""

    folder: Path | None = key("url", _ARCHIVE, None)


@dataclass(frozen=True, slots=True)
class Rule:
    """Which sessions a rule is about (None: whichever), and what it keeps of them (None: no such bound).

    What none of the rules that are about a session keeps may expire. Newest, days, weeks and months are those of one project.
    """

    agent: str | None = key("agent", _AGENT, None)
    project: str | None = key("project", _PATTERN, None)  # a glob over the project's folder: * within a name, ** over several
    tag: str | None = key("tag", _STRING, None)
    state: str | None = key("state", _FILE_STATE, None)  # "live": the agent's own file is there; "gone"
    larger_than_bytes: int | None = key("larger_than", _SIZE, None)  # stored
    keep_within_ms: int | None = key("keep_within", _SPAN, None)
    keep_last: int | None = key("keep_last", _COUNT, None)
    keep_daily: int | None = key("keep_daily", _COUNT, None)  # the newest of each of the latest days (of UTC) that have one
    keep_weekly: int | None = key("keep_weekly", _COUNT, None)  # weeks begin on Monday
    keep_monthly: int | None = key("keep_monthly", _COUNT, None)
    keep_pinned: bool = key("keep_pinned", _KEEP_PINNED, True)


@dataclass(frozen=True, slots=True)
class Retention:
    """What may expire; without rules and without a budget nothing ever does. Sizes are stored bytes."""

    grace_ms: int = key("grace", _SPAN, 7 * 86_400_000)
    max_total_bytes: int | None = key("max_total", _SIZE_OR_NEVER, None)
    min_free_bytes: int | None = key("min_free", _SIZE_OR_NEVER, None)
    project_floor_bytes: int | None = key("project_floor", _SIZE_OR_NEVER, None)
    most_per_pass_percent: int = key("most_per_pass", _SHARE, 20)  # of all sessions; 100 of them may always be marked
    companion_versions: int | None = key("companion_versions", _COUNT_OR_ALL, None)  # None: all
    restored_hold_ms: int = key("restored_hold", _SPAN, 14 * 86_400_000)  # from expiry, and from reclaim
    rules: tuple[Rule, ...] = ()


@dataclass(frozen=True, slots=True)
class Reclaim:
    """When the agent's own file goes (None: never), once proven safe, and how long it then waits set aside."""

    after_ms: int | None = key("after", _SPAN_OR_NEVER, None)
    wait_ms: int = key("wait", _SPAN, 3_600_000)


@dataclass(frozen=True, slots=True)
class Service:
    """Where the daemon shows its metrics (None: nowhere), and the command that it runs when something is wrong (empty: none)."""

    metrics: Endpoint | Path | None = key("metrics", _METRICS, None)
    alarm: tuple[str, ...] = key("alarm", _WORDS, ())
    alarm_on: tuple[str, ...] = key("alarm_on", _ALARMS, ALARMS)


@dataclass(frozen=True, slots=True)
class Config:
    """Everything that can be configured, complete and checked; spans in milliseconds, sizes in bytes.

    >>> Config.defaults(user_home=Path("/me")).compact
    Compact(after_ms=86400000, level=9, rate_bytes=None)
    """

    home: Path = key("home", _FOLDER)
    discover: bool = key("discover", _BOOLEAN, True)
    sources: tuple[Source, ...] = ()
    capture: Capture = Capture()
    checkpoint: Checkpoint = Checkpoint()
    compact: Compact = Compact()
    pack: Pack = Pack()
    archive: Archive = Archive()
    reclaim: Reclaim = Reclaim()
    service: Service = Service()
    retention: Retention = Retention()

    @classmethod
    def defaults(cls, *, user_home: Path, data_home: Path | None = None, home: Path | None = None) -> Config:
        """What holds with no file at all; `data_home` is `$XDG_DATA_HOME`, where that is set; `home` is where somebody said."""
        return cls(home=home or (data_home or user_home / ".local" / "share") / "coldtrail")


def load_file(
    path: Path, *, user_home: Path, data_home: Path | None = None, home: Path | None = None, agents: Collection[str] = AGENTS
) -> Config:
    """Read a config file, as `load_text` does; ConfigError too where it cannot be read, or is not UTF-8."""
    try:
        text = path.read_bytes().decode()
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}", file=str(path)) from error
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise ConfigError("not UTF-8", file=str(path), line=line, hint="save it as UTF-8") from error
    return load_text(text, file=str(path), user_home=user_home, data_home=data_home, home=home, agents=agents)


def load_text(
    text: str,
    *,
    file: str = "",
    user_home: Path,
    data_home: Path | None = None,
    home: Path | None = None,
    agents: Collection[str] = AGENTS,
) -> Config:
    """Read a config from TOML; what the text does not say keeps its default, so "" is the config of who has no file.

    `file` is for messages only; `user_home` is what `~` stands for, `data_home` is `$XDG_DATA_HOME` where that is set;
    `home` wins over the text's (the flag or the environment said it); `agents` are the names that a source may give.
    ConfigError for bad syntax, unknown keys, wrong types and units, contradictions, and what does not work yet.

    >>> load_text('compact.after = "2d"', user_home=Path("/me")).compact.after_ms
    172800000
    """
    document = toml.Document(text, file, toml.World(user_home, tuple(agents)))
    top = document.top()
    retention = top.table("retention")
    written_home = top.take("home", _FOLDER, Config.defaults(user_home=user_home, data_home=data_home).home)
    config = Config(
        home=home or written_home,
        discover=top.take("discover", _BOOLEAN, True),
        sources=tuple(table.read(Source) for table in top.tables("source")),
        capture=top.table("capture").read(Capture),
        checkpoint=top.table("checkpoint").read(Checkpoint),
        compact=top.table("compact").read(Compact),
        pack=top.table("pack").read(Pack),
        archive=top.table("archive").read(Archive),
        reclaim=top.table("reclaim").read(Reclaim),
        service=top.table("service").read(Service),
        retention=retention.read(Retention, rules=tuple(_rule(table) for table in retention.tables("rule"))),
    )
    top.end()
    for steps, message in _contradictions(config):
        raise document.error(steps, message)
    return config


def show(config: Config) -> str:
    """The whole config as TOML; read again, it is the same config."""
    parts = [toml.write(config)]
    parts += [f"\n[[source]]\n{toml.write(source)}" for source in config.sources]
    for field in dataclasses.fields(config):
        if dataclasses.is_dataclass(section := getattr(config, field.name)):
            parts.append(f"\n[{field.name}]\n{toml.write(section)}")
    parts += [f"\n[[retention.rule]]\n{toml.write(rule)}" for rule in config.retention.rules]
    return "".join(parts)


def _rule(table: toml.Table) -> Rule:
    rule = table.read(Rule)
    if all(keep is None for keep in (rule.keep_within_ms, rule.keep_last, rule.keep_daily, rule.keep_weekly, rule.keep_monthly)):
        hint = 'say what stays, such as keep_within = "2y" (pins always hold); to keep everything that it is about, take the rule out'
        raise table.error("keeps nothing: all that it is about would expire", hint)
    return rule


def _contradictions(config: Config) -> Iterator[tuple[toml.Steps, str]]:
    for (_, one), (at, two) in itertools.combinations(enumerate(config.sources), 2):
        if one.name == two.name:
            yield ("source", at, "name"), f"{toml.seen(two.name)} is the name of another source already"
        if one.root == two.root:
            yield ("source", at, "root"), f"is the root of the source {toml.seen(one.name)} already"
    for at, source in enumerate(config.sources):
        for ours in filter(None, (config.home, config.archive.folder)):  # never write into an agent's folder, nor capture ourselves
            if ours.is_relative_to(source.root) or source.root.is_relative_to(ours):
                yield ("source", at, "root"), f"holds, or lies in, {ours}, where coldtrail keeps its own files"
    floor, total = config.retention.project_floor_bytes, config.retention.max_total_bytes
    if floor is not None and total is not None and floor > total:
        yield ("retention", "project_floor"), f"{size_text(floor)} for each project is more than max_total for all, {size_text(total)}"
