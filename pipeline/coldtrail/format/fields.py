"""Take typed fields out of parsed JSON; ValueError names the one that is wrong."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def json_object(value: object, what: str) -> Mapping[str, Any]:
    """The value, which must be a JSON object."""
    if not isinstance(value, dict):
        raise ValueError(f"{what} is no JSON object")
    return value


def objects(value: Mapping[str, Any], key: str, *, least: int = 0) -> list[Mapping[str, Any]]:
    """A list of objects, of at least so many."""
    found = array(value, key)
    if len(found) < least:
        raise ValueError(f"{key!r} is empty")
    return [json_object(each, f"an entry of {key!r}") for each in found]


def array(value: Mapping[str, Any], key: str) -> list[Any]:
    """A list."""
    found = value.get(key)
    if not isinstance(found, list):
        raise ValueError(f"{key!r} is no list")
    return found


def text(value: Mapping[str, Any], key: str) -> str:
    """A text."""
    found = value.get(key)
    if not isinstance(found, str):
        raise ValueError(f"{key!r} is no text")
    return found


def integer(value: Mapping[str, Any], key: str) -> int:
    """A whole number."""
    found = value.get(key)
    if not isinstance(found, int) or isinstance(found, bool):
        raise ValueError(f"{key!r} is no whole number")
    return found


def optional_integer(value: Mapping[str, Any], key: str) -> int | None:
    """A whole number, or None where it is null or not there."""
    return None if value.get(key) is None else integer(value, key)
