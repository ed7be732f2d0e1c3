"""Fields of a custom object's spec, each with its range: what is wrong is noted, and the default taken.

An object that people wrote is never refused whole: what can be read counts, and ``problems`` says the rest, a line for
each field with its remedy.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any, TypeVar

D = TypeVar("D", bound="float | None")
E = TypeVar("E", bound=Enum)

MAX_SECONDS = 31_536_000


class SpecReader:
    """One object's. Each method takes a field's dotted name under ``spec`` and its value, None where it has none."""

    def __init__(self) -> None:
        self.problems: list[str] = []

    def refuse(self, name: str, value: object, remedy: str) -> None:
        """Note what is wrong with a field."""
        self.problems.append(f"spec.{name}: {repr(value)[:64]} {remedy}")

    def text(self, name: str, value: Any, remedy: str = "must be text") -> str:
        """Any text; empty by default."""
        if value is None or isinstance(value, str):
            return value or ""
        self.refuse(name, value, remedy)
        return ""

    def printable(self, name: str, value: Any, *, most: int = 253, default: str = "") -> str:
        """A text that can be shown."""
        if value is None:
            return default
        if isinstance(value, str) and len(value) <= most and value.isprintable():
            return value
        self.refuse(name, value, f"must be a text of at most {most} printable characters")
        return default

    def number(self, name: str, value: Any, low: float, high: float, default: float | None) -> float | None:
        """A number in a range."""
        if value is None:
            return default
        if within(value, low, high):
            return float(value)
        self.refuse(name, value, f"must be a number from {low:g} to {high:g}")
        return default

    def whole(self, name: str, value: Any, low: int, high: int, default: int) -> int:
        """A whole number in a range."""
        if value is None:
            return default
        if isinstance(value, int) and within(value, low, high):
            return value
        self.refuse(name, value, f"must be a whole number from {low} to {high}")
        return default

    def seconds(self, name: str, value: Any, default: D, *, least: int = 0) -> float | D:
        """A time."""
        if value is None:
            return default
        if within(value, least, MAX_SECONDS):
            return float(value)
        self.refuse(name, value, f"must be {least} to {MAX_SECONDS} seconds")
        return default

    def flag(self, name: str, value: Any) -> bool:
        """Yes or no; no by default."""
        if value is None or isinstance(value, bool):
            return bool(value)
        self.refuse(name, value, "must be true or false")
        return False

    def one_of(self, name: str, value: Any, kind: type[E], default: E) -> E:
        """One of a few words."""
        if value is None:
            return default
        try:
            return kind(value)
        except ValueError:
            names = " or ".join(str(item.value) for item in kind)
            self.refuse(name, value, f"is not known; write {names}")
            return default

    def object(self, name: str, value: Any) -> dict[str, Any]:
        """Fields of its own."""
        if value is None or isinstance(value, dict):
            return value or {}
        self.refuse(name, value, "must be an object with fields")
        return {}

    def listed(self, name: str, value: Any) -> list[Any]:
        """A list of anything."""
        if value is None or isinstance(value, list):
            return value or []
        self.refuse(name, value, "must be a list")
        return []


def within(value: Any, low: float, high: float) -> bool:
    """Whether it is a number in the range."""
    # a comparison takes any whole number, be it beyond a float; NaN is in no range
    return isinstance(value, int | float) and not isinstance(value, bool) and low <= value <= high


def field_at(spec: Any, name: str) -> tuple[str, Any]:
    """A dotted path and the value there, None where there is none; as the methods of ``SpecReader`` take them."""
    value: Any = spec
    for part in name.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return name, value
