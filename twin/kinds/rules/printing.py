"""What Table cells have in common: ages and empty values, as kubectl shows them.

Source: apimachinery ``pkg/util/duration`` (HumanDuration) and ``pkg/printers/internalversion``.
"""

from __future__ import annotations

import calendar
import time as _time
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from twin.registry.strategy import DEFAULT_COLUMNS, TableColumn

Json = dict[str, Any]

NONE = "<none>"
UNKNOWN = "<unknown>"
UNSET = "<unset>"

NAME, _CREATED = DEFAULT_COLUMNS
AGE = TableColumn("Age", description=_CREATED.description)


def columns(*names: str, wide: tuple[str, ...] = ()) -> tuple[TableColumn, ...]:
    """Columns by name, of a kind that reads its cells all at once; ``NAME:type`` for non-strings."""
    return tuple(_column(name, priority) for priority, some in enumerate((names, wide)) for name in some)


Read = Callable[[Json], Any]
Cell = str | tuple[str, Read]
"""``TITLE[:type][=path[|default]]``, or the title with what reads the value. ``Name`` and ``Age`` are as everywhere."""


@dataclass(frozen=True, slots=True)
class Printed:
    """What a kind prints: its columns, and how each is read."""

    columns: tuple[TableColumn, ...]
    reads: tuple[Callable[[Json, float], Any], ...]

    def cells(self, obj: Json, now_s: float) -> list[Any]:
        """One row."""
        return [read(obj, now_s) for read in self.reads]


def printed(*cells: Cell, wide: tuple[Cell, ...] = ()) -> Printed:
    """A table, one entry per column; ``wide`` for ``-o wide``. An absent value is 0, false or "" by the type."""
    made = [(_column(cell, priority), _reading(cell)) for priority, some in enumerate((cells, wide)) for cell in some]
    return Printed(tuple(column for column, _ in made), tuple(read for _, read in made))


def _column(cell: Cell, priority: int) -> TableColumn:
    name = (cell if isinstance(cell, str) else cell[0]).partition("=")[0]
    if name in ("Name", "Age"):
        return NAME if name == "Name" else AGE
    title, _, type_ = name.partition(":")
    return TableColumn(title, type=type_ or "string", priority=priority)


def _reading(cell: Cell) -> Callable[[Json, float], Any]:
    if not isinstance(cell, str):
        read = cell[1]
        return lambda obj, _now_s: read(obj)
    if cell == "Name":
        return lambda obj, _now_s: obj["metadata"]["name"]
    if cell == "Age":
        return object_age
    title, _, source = cell.partition("=")
    path, given, text = source.partition("|")
    default = (int(text) if text.isdigit() else text) if given else _EMPTY.get(title.partition(":")[2], "")
    keys = path.split(".")

    def value(obj: Json, _now_s: float) -> Any:
        found: Any = obj
        for key in keys:
            found = (found or {}).get(key)
        return default if found is None or (given and not found) else found

    return value


_EMPTY: dict[str, Any] = {"integer": 0, "boolean": False}


def human_duration(seconds: float) -> str:
    """HumanDuration: two units at most."""
    if seconds < -1:
        return "<invalid>"
    total = max(int(seconds), 0)
    minutes, hours, days = total // 60, total // 3600, total // 86400
    if total < 120:
        return f"{total}s"
    if minutes < 10:
        return f"{minutes}m{total % 60}s" if total % 60 else f"{minutes}m"
    if minutes < 180:
        return f"{minutes}m"
    if hours < 8:
        return f"{hours}h{minutes % 60}m" if minutes % 60 else f"{hours}h"
    if hours < 48:
        return f"{hours}h"
    if days < 8:
        return f"{days}d{hours % 24}h" if hours % 24 else f"{days}d"
    if days < 730:
        return f"{days}d"
    years = days // 365
    if years < 8:
        return f"{years}y{days % 365}d" if days % 365 else f"{years}y"
    return f"{years}y"


@lru_cache(maxsize=4096)
def seconds_of(timestamp: str) -> int:
    """Seconds since 1970 of an RFC 3339 time in UTC; decimals are cut off."""
    return calendar.timegm(_time.strptime(timestamp[:19], "%Y-%m-%dT%H:%M:%S"))


def age_of(timestamp: str | None, now_s: float) -> str:
    """Time since ``timestamp``."""
    return human_duration(now_s - seconds_of(timestamp)) if timestamp else UNKNOWN


def object_age(obj: Json, now_s: float) -> str:
    """Time since the object was created."""
    return age_of(obj["metadata"].get("creationTimestamp"), now_s)


def labels_text(labels: Json | None) -> str:
    """``a=b,c=d`` or ``<none>``."""
    return ",".join(f"{key}={value}" for key, value in sorted((labels or {}).items())) or NONE
