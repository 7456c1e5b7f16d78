"""What is known of a stream and of a session besides the bytes: meta.json, the manifest, the stamp behind a frame."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Self

from coldtrail.format import lines
from coldtrail.format.fields import array, integer, json_object, objects, optional_integer, text
from coldtrail.format.wishes import Mark, Tombstone, Wishes
from coldtrail.model import Relation, Role

VERSION = 1
_CHECKSUM = "sha256"  # of all other fields, as compact JSON with sorted keys


class OtherVersionError(ValueError):
    """The file is whole, and another coldtrail's: nobody but that one may write it anew."""


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
        return cls._from(json_object(lines.loads(payload), "a stamp"))

    @classmethod
    def _from(cls, value: Mapping[str, Any]) -> Self:
        return cls(**{f.name: integer(value, f.name) for f in fields(cls)})


@dataclass(frozen=True, slots=True)
class Generation:
    """One append-only life of a stream's bytes and its link to the life before."""

    number: int
    began_ms: int
    stamp: Stamp
    relation: Relation | None = None  # None: the stream's first
    continues: int | None = None  # the generation whose bytes stand before its own: the file was made again without its head
    mixed: bool = False  # may hold bytes of two lives

    @classmethod
    def _from(cls, value: Mapping[str, Any]) -> Self:
        relation = value.get("relation")
        return cls(
            number=integer(value, "number"),
            began_ms=integer(value, "began_ms"),
            stamp=Stamp._from(json_object(value.get("stamp"), "a stamp")),
            relation=None if relation is None else Relation(relation),
            continues=optional_integer(value, "continues"),
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
        real = path_in(text(value, "real")) if "real" in value else None
        return cls(path_in(text(value, "path")), integer(value, "since_ms"), real)


@dataclass(frozen=True, slots=True)
class RestoredMark:
    """A file that coldtrail itself put back: its next capture knows it by this."""

    inode: int
    device: int
    at_ms: int

    @classmethod
    def _from(cls, value: Mapping[str, Any]) -> Self:
        return cls(**{f.name: integer(value, f.name) for f in fields(cls)})


@dataclass(frozen=True, slots=True)
class Aside:
    """The agent's own file, on its way out: set aside under another name until it is sure that nobody missed it."""

    path: str  # absolute, outside the agent's root
    device: int
    inode: int
    generation: int  # whose bytes it had, all of them
    since_ms: int
    removed_ms: int | None = None  # since when it is gone; None: it may still be there

    def to_json(self) -> dict[str, object]:
        """As a JSON object."""
        return {**asdict(self), "path": path_out(self.path)}

    @classmethod
    def _from(cls, value: Mapping[str, Any]) -> Self:
        numbers = {name: integer(value, name) for name in ("device", "inode", "generation", "since_ms")}
        return cls(path_in(text(value, "path")), **numbers, removed_ms=optional_integer(value, "removed_ms"))


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
    aside: Aside | None = None

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
        chain = [self.newest if last is None else self.generation(last)]
        while (before := chain[0].continues) is not None:
            chain.insert(0, self.generation(before))
        return tuple(chain)

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
        if self.aside is None:
            del value["aside"]
        else:
            value["aside"] = self.aside.to_json()
        return value

    @classmethod
    def from_json(cls, value: object) -> StreamMeta:
        """Back from `to_json`; ValueError names what is wrong."""
        data = json_object(value, "a stream's metadata")
        words = {name: text(data, name) for name in ("stream", "session", "host", "source", "agent", "session_id", "scope")}
        restored, aside = data.get("restored"), data.get("aside")
        return cls(
            **words,
            root=path_in(text(data, "root")),
            role=Role(text(data, "role")),
            is_log=bool(data.get("is_log")),
            paths=tuple(PathSeen._from(each) for each in objects(data, "paths", least=1)),
            generations=_linked([Generation._from(each) for each in objects(data, "generations", least=1)]),
            gone_ms=optional_integer(data, "gone_ms"),
            restored=None if restored is None else RestoredMark._from(json_object(restored, "'restored'")),
            aside=None if aside is None else Aside._from(json_object(aside, "'aside'")),
        )

    def encode(self) -> bytes:
        """The whole of meta.json."""
        return _encoded({"version": VERSION, **self.to_json()})

    @classmethod
    def decode(cls, data: bytes, *, unproven: bool = False) -> StreamMeta:
        """Back from `encode`; ValueError for another version or a damaged file. `unproven`: whatever its checksum says."""
        return cls.from_json(_versioned(data, unproven=unproven))


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
    held_until_ms: int | None = None  # until then nothing of it is removed: it was restored
    mark: Mark | None = None
    tombstone: Tombstone | None = None  # it was removed: no streams are left

    @property
    def wishes(self) -> Wishes:
        """What is asked for the session."""
        return Wishes(self.pinned, self.tags, self.held_until_ms, self.mark)

    def encode(self) -> bytes:
        """The whole of the manifest file."""
        value = {
            "version": VERSION,
            "session": self.session,
            "pinned": self.pinned,
            "tags": list(self.tags),
            "held_until_ms": self.held_until_ms,
            "mark": self.mark and self.mark.to_json(),
            "tombstone": self.tombstone and self.tombstone.to_json(),
            "streams": [stream.to_json() for stream in self.streams],
            "sealed": [{"stream": stream, **asdict(held)} for stream, held in self.sealed],
        }
        return _encoded(value)

    @classmethod
    def decode(cls, data: bytes, *, unproven: bool = False) -> Manifest:
        """Back from `encode`; ValueError for another version or a damaged file. `unproven`: whatever its checksum says."""
        value = _versioned(data, unproven=unproven)
        return cls(
            session=text(value, "session"),
            streams=tuple(StreamMeta.from_json(each) for each in objects(value, "streams")),
            sealed=tuple(
                (text(each, "stream"), Sealed(integer(each, "generation"), integer(each, "end"), text(each, "prefix_sha256")))
                for each in objects(value, "sealed")
            ),
            pinned=bool(value.get("pinned")),
            tags=tuple(str(tag) for tag in array(value, "tags")) if "tags" in value else (),
            held_until_ms=optional_integer(value, "held_until_ms"),
            mark=None if value.get("mark") is None else Mark.from_json(value["mark"]),
            tombstone=None if value.get("tombstone") is None else Tombstone.from_json(value["tombstone"]),
        )


def _linked(generations: list[Generation]) -> tuple[Generation, ...]:
    """The same, once it is sure that each continues an earlier one that is there."""
    known: set[int] = set()
    for each in generations:
        if each.continues is not None and each.continues not in known:
            raise ValueError(f"generation {each.number} continues {each.continues}, which is not before it")
        known.add(each.number)
    return tuple(generations)


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


def has_checksum(data: bytes) -> bool:
    """Whether a meta.json or a manifest can be told from a damaged one; those of an earlier coldtrail cannot. ValueError."""
    return _CHECKSUM in json_object(lines.loads(data), "the file")


def _encoded(value: Mapping[str, Any]) -> bytes:
    return lines.dumps({**value, _CHECKSUM: _checksum(value)}, sort=True, indent=True) + b"\n"


def _versioned(data: bytes, *, unproven: bool) -> Mapping[str, Any]:
    value = json_object(lines.loads(data), "the file")
    if not unproven and _CHECKSUM in value and value[_CHECKSUM] != _checksum(value):
        raise ValueError("damaged: it does not match its checksum")
    if value.get("version") != VERSION:
        raise OtherVersionError(f"version {value.get('version')!r}; this coldtrail reads version {VERSION}")
    return value


def _checksum(value: Mapping[str, Any]) -> str:
    return hashlib.sha256(lines.dumps({key: each for key, each in value.items() if key != _CHECKSUM}, sort=True)).hexdigest()
