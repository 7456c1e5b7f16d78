"""What is known of a stream and of a session besides the bytes: meta.json, the manifest, the stamp behind a frame."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Self

from coldtrail.format import lines
from coldtrail.model import Relation, Role

VERSION = 1


@dataclass(frozen=True, slots=True)
class Stamp:
    """How the agent's file looked when it was last captured up to `end`."""

    end: int  # plain bytes held of the generation
    mode: int  # permission bits
    mtime_ns: int
    at_ms: int  # when it was seen

    def encode(self) -> bytes:
        """As the payload of the skippable frame behind a captured frame."""
        return lines.dumps(asdict(self), sort=True)

    @classmethod
    def decode(cls, payload: bytes) -> Self:
        """Back from `encode`; ValueError for anything else."""
        return cls._from(_object(lines.loads(payload), "a stamp"))

    @classmethod
    def _from(cls, value: Mapping[str, Any]) -> Self:
        return cls(**{f.name: _integer(value, f.name) for f in fields(cls)})


@dataclass(frozen=True, slots=True)
class Generation:
    """One append-only life of a stream's bytes and its link to the life before."""

    number: int
    began_ms: int
    stamp: Stamp
    relation: Relation | None = None  # None: the stream's first
    mixed: bool = False  # may hold bytes of two lives

    @classmethod
    def _from(cls, value: Mapping[str, Any]) -> Self:
        relation = value.get("relation")
        return cls(
            number=_integer(value, "number"),
            began_ms=_integer(value, "began_ms"),
            stamp=Stamp._from(_object(value.get("stamp"), "a stamp")),
            relation=None if relation is None else Relation(relation),
            mixed=bool(value.get("mixed")),
        )


@dataclass(frozen=True, slots=True)
class PathSeen:
    """A path that the stream had, and since when."""

    path: str  # absolute; bytes that are no UTF-8 as surrogate escapes, written \\udcXX
    since_ms: int
    real: str | None = None  # where links led, if they led elsewhere: restore follows them nowhere else

    def to_json(self) -> dict[str, object]:
        """As a JSON object."""
        real = {} if self.real is None else {"real": path_out(self.real)}
        return {"path": path_out(self.path), "since_ms": self.since_ms, **real}

    @classmethod
    def _from(cls, value: Mapping[str, Any]) -> Self:
        real = path_in(_text(value, "real")) if "real" in value else None
        return cls(path_in(_text(value, "path")), _integer(value, "since_ms"), real)


@dataclass(frozen=True, slots=True)
class RestoredMark:
    """A file that coldtrail itself put back: its next capture knows it by this."""

    inode: int
    device: int
    at_ms: int

    @classmethod
    def _from(cls, value: Mapping[str, Any]) -> Self:
        return cls(**{f.name: _integer(value, f.name) for f in fields(cls)})


@dataclass(frozen=True, slots=True)
class StreamMeta:
    """A stream's meta.json: whose it is, where it was, which generations it has."""

    stream: str
    session: str
    host: str
    source: str
    agent: str
    root: str
    session_id: str
    scope: str
    role: Role
    is_log: bool  # records are lines; otherwise the file is rewritten whole
    paths: tuple[PathSeen, ...]  # the current one last
    generations: tuple[Generation, ...]
    gone_ms: int | None = None  # since when the agent's file is gone
    restored: RestoredMark | None = None

    @property
    def path(self) -> str:
        """Where the file is, or was last."""
        return self.paths[-1].path

    @property
    def newest(self) -> Generation:
        """The generation that grows."""
        return self.generations[-1]

    def chain(self, last: int | None = None) -> tuple[Generation, ...]:
        """A generation (the newest unless `last` names one) and those that it continues, oldest first; KeyError for no such."""
        wanted = self.newest if last is None else self.generation(last)
        first = end = self.generations.index(wanted)
        while first > 0 and self.generations[first].relation is Relation.CONTINUES:
            first -= 1
        return self.generations[first : end + 1]

    def generation(self, number: int) -> Generation:
        """The generation of that number; KeyError where there is none."""
        for each in self.generations:
            if each.number == number:
                return each
        raise KeyError(number)

    def with_generation(self, changed: Generation) -> StreamMeta:
        """The same stream with one generation changed or added."""
        kept = tuple(each for each in self.generations if each.number != changed.number)
        return replace(self, generations=tuple(sorted((*kept, changed), key=lambda each: each.number)))

    def to_json(self) -> dict[str, object]:
        """As a JSON object."""
        value = asdict(self)
        value["paths"] = [each.to_json() for each in self.paths]
        value["root"] = path_out(self.root)
        return value

    @classmethod
    def from_json(cls, value: object) -> StreamMeta:
        """Back from `to_json`; ValueError names what is wrong."""
        data = _object(value, "a stream's metadata")
        words = {name: _text(data, name) for name in ("stream", "session", "host", "source", "agent", "session_id", "scope")}
        restored = data.get("restored")
        return cls(
            **words,
            root=path_in(_text(data, "root")),
            role=Role(_text(data, "role")),
            is_log=bool(data.get("is_log")),
            paths=tuple(PathSeen._from(each) for each in _objects(data, "paths", least=1)),
            generations=tuple(Generation._from(each) for each in _objects(data, "generations", least=1)),
            gone_ms=None if data.get("gone_ms") is None else _integer(data, "gone_ms"),
            restored=None if restored is None else RestoredMark._from(_object(restored, "'restored'")),
        )

    def encode(self) -> bytes:
        """The whole of meta.json."""
        return lines.dumps({"version": VERSION, **self.to_json()}, sort=True, indent=True) + b"\n"

    @classmethod
    def decode(cls, data: bytes) -> StreamMeta:
        """Back from `encode`; ValueError for another version or a damaged file."""
        return cls.from_json(_versioned(data))


@dataclass(frozen=True, slots=True)
class Sealed:
    """What the archive held of a generation when the manifest was written."""

    generation: int
    end: int
    prefix_sha256: str  # SHA-256 of the hashes of its blocks


@dataclass(frozen=True, slots=True)
class Manifest:
    """A session in the archive: its streams, what is sealed of them, and every wish of the user."""

    session: str
    streams: tuple[StreamMeta, ...] = ()
    sealed: tuple[tuple[str, Sealed], ...] = ()  # stream -> what is held of a generation
    pinned: bool = False
    tags: tuple[str, ...] = ()

    def encode(self) -> bytes:
        """The whole of the manifest file."""
        value = {
            "version": VERSION,
            "session": self.session,
            "pinned": self.pinned,
            "tags": list(self.tags),
            "streams": [stream.to_json() for stream in self.streams],
            "sealed": [{"stream": stream, **asdict(held)} for stream, held in self.sealed],
        }
        return lines.dumps(value, sort=True, indent=True) + b"\n"

    @classmethod
    def decode(cls, data: bytes) -> Manifest:
        """Back from `encode`; ValueError for another version or a damaged file."""
        value = _versioned(data)
        return cls(
            session=_text(value, "session"),
            streams=tuple(StreamMeta.from_json(each) for each in _objects(value, "streams")),
            sealed=tuple(
                (_text(each, "stream"), Sealed(_integer(each, "generation"), _integer(each, "end"), _text(each, "prefix_sha256")))
                for each in _objects(value, "sealed")
            ),
            pinned=bool(value.get("pinned")),
            tags=tuple(str(tag) for tag in _list(value, "tags")) if "tags" in value else (),
        )


def path_out(path: str) -> str:
    r"""A path as JSON can hold it: bytes that are no UTF-8 become `\udcXX`, a backslash doubles."""
    return path.replace("\\", "\\\\").encode("utf-8", "backslashreplace").decode()


def path_in(text: str) -> str:
    """Back from `path_out`."""
    parts = text.split("\\\\")
    return "\\".join(_unescape(part) for part in parts)


def _unescape(part: str) -> str:
    head, *rest = part.split("\\udc")
    return head + "".join(chr(0xDC00 + int(each[:2], 16)) + each[2:] for each in rest)


def _versioned(data: bytes) -> Mapping[str, Any]:
    value = _object(lines.loads(data), "the file")
    if value.get("version") != VERSION:
        raise ValueError(f"version {value.get('version')!r}; this coldtrail reads version {VERSION}")
    return value


def _object(value: object, what: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"{what} is no JSON object")
    return value


def _objects(value: Mapping[str, Any], key: str, *, least: int = 0) -> list[Mapping[str, Any]]:
    found = _list(value, key)
    if len(found) < least:
        raise ValueError(f"{key!r} is empty")
    return [_object(each, f"an entry of {key!r}") for each in found]


def _list(value: Mapping[str, Any], key: str) -> list[Any]:
    found = value.get(key)
    if not isinstance(found, list):
        raise ValueError(f"{key!r} is no list")
    return found


def _text(value: Mapping[str, Any], key: str) -> str:
    found = value.get(key)
    if not isinstance(found, str):
        raise ValueError(f"{key!r} is no text")
    return found


def _integer(value: Mapping[str, Any], key: str) -> int:
    found = value.get(key)
    if not isinstance(found, int) or isinstance(found, bool):
        raise ValueError(f"{key!r} is no whole number")
    return found
