"""Can the clock be trusted? What removes bytes by their age waits a day after it has jumped."""

from __future__ import annotations

import contextlib
from dataclasses import asdict, dataclass
from pathlib import Path

from coldtrail import durable
from coldtrail.errors import StoreFullError
from coldtrail.format import lines
from coldtrail.format.fields import integer, json_object, text
from coldtrail.model import instant_text

JUMP_MS = 3_600_000  # more than any correction of a clock that was right
AWAY_MS = 30 * 86_400_000  # a machine that was off for longer may be right: it waits a day all the same
WAIT_MS = 86_400_000


@dataclass(frozen=True, slots=True)
class Uptime:
    """Time that goes by whatever the clock is set to, sleep included."""

    boot: str  # which start of the machine it is counted from; empty where that cannot be told
    ms: int


@dataclass(frozen=True, slots=True)
class _Look:
    """What was seen when somebody last looked."""

    at_ms: int
    boot: str
    up_ms: int
    jumped_ms: int  # when it jumped last, by the clock as it was then; 0: never
    jump: str  # how

    @classmethod
    def decode(cls, data: bytes) -> _Look:
        value = json_object(lines.loads(data), "the file")
        numbers = {name: integer(value, name) for name in ("at_ms", "up_ms", "jumped_ms")}
        return cls(boot=text(value, "boot"), jump=text(value, "jump"), **numbers)


def suspended(path: Path, now_ms: int, uptime: Uptime) -> str:
    """Why nothing may be removed by its age now, in words; empty: the clock is steady. What was seen is kept in the file `path`.

    >>> import tempfile
    >>> path, day = Path(tempfile.mkdtemp()) / "clock", 86_400_000
    >>> suspended(path, 20_000 * day, Uptime("a", 0))
    ''
    >>> suspended(path, 20_400 * day, Uptime("a", day))
    'the clock went ahead by 399 days; nothing is removed before 2025-11-09T00:00:00.000Z'
    """
    look = _look(path, now_ms, uptime)
    with contextlib.suppress(StoreFullError):  # the next look is held against the last one that was kept: a jump is seen then, too
        durable.replace(path, lines.dumps(asdict(look), sort=True) + b"\n")
    return _told(look)


def seems_suspended(path: Path, now_ms: int, uptime: Uptime) -> str:
    """The same, for who changes nothing: the look is not kept."""
    return _told(_look(path, now_ms, uptime))


def _look(path: Path, now_ms: int, uptime: Uptime) -> _Look:
    last = _last(path)
    jump = "" if last is None else _jump(last, now_ms, uptime)
    jumped_ms, how = (now_ms, jump) if jump or last is None else (last.jumped_ms, last.jump)
    return _Look(now_ms, uptime.boot, uptime.ms, jumped_ms, how)


def _told(look: _Look) -> str:
    if not look.jump or look.at_ms >= look.jumped_ms + WAIT_MS:
        return ""
    return f"{look.jump}; nothing is removed before {instant_text(look.jumped_ms + WAIT_MS)}"


def _last(path: Path) -> _Look | None:
    """None on the first look, and where the file is damaged: then nothing is known against the clock."""
    try:
        return _Look.decode(path.read_bytes())
    except (FileNotFoundError, ValueError):
        return None


def _jump(last: _Look, now_ms: int, uptime: Uptime) -> str:
    """How the clock has jumped since the last look; empty: it has not."""
    by_ms = now_ms - last.at_ms
    if last.boot and last.boot == uptime.boot:
        by_ms -= uptime.ms - last.up_ms
        if abs(by_ms) > JUMP_MS:
            return f"the clock went {'ahead' if by_ms > 0 else 'back'} by {_amount(abs(by_ms))}"
    elif by_ms < -JUMP_MS:
        return f"the clock went back by {_amount(-by_ms)}"
    elif by_ms > AWAY_MS:
        return f"the machine was away for {_amount(by_ms)}, or its clock is wrong"
    return ""


def _amount(ms: int) -> str:
    days, hours = ms // 86_400_000, ms // 3_600_000
    return f"{days} days" if days > 1 else f"{hours} hours"
