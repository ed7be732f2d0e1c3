"""``--sort-by``: a column's title, or a path into the object as kubectl takes it. Pure.

    NAME    cpu-requested    .metadata.name    {.requested.cpu_millis}    .considered[0].node    ['metadata']['name']
    .metadata.labels.topology\\.kubernetes\\.io/zone

Numbers are compared as numbers, text so that ``node-2`` comes before ``node-10``; what is not there comes first, as in
kubectl. Equal ones keep the list's own order.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from services.cli.listing.kinds import Json, Kind
from shared.errors import ConfigError

Step = str | int

_STEP = re.compile(r"""\.?(?:((?:[^.\[\]{}\\]|\\.)+)|\[(-?[0-9]{1,9})\]|\['([^']*)'\]|\["([^"]*)"\])""")
_RUN = re.compile(r"([0-9]+)")


def sorter(kind: Kind, by: str) -> Callable[[Sequence[Json]], list[Json]]:
    """Puts items in order. ``ConfigError``, also later: ``by`` is no column and no path, or no item has it."""
    title = by.strip().replace("_", "-").upper()
    column = next((column for column in kind.columns if column.title == title), None)
    if column is not None:
        return lambda items: sorted(items, key=lambda item: rank(column.value(item)))
    steps = parse_path(by, kind)

    def in_order(items: Sequence[Json]) -> list[Json]:
        found = [look_up(kind.object(item), steps) for item in items]
        if items and all(value is None for value in found):
            raise ConfigError(f"--sort-by: nothing listed has {by}; {_remedy(kind)}")
        ranks = [rank(value) for value in found]
        return [items[at] for at in sorted(range(len(items)), key=ranks.__getitem__)]

    return in_order


def parse_path(text: str, kind: Kind) -> list[Step]:
    """The steps of a path. ``ConfigError``: it is none."""
    inner = text.strip()
    if inner.startswith("{") and inner.endswith("}"):
        inner = inner[1:-1].strip()
    inner = inner.removeprefix("$")
    steps: list[Step] = []
    at = 0
    while at < len(inner):
        found = _STEP.match(inner, at)
        if found is None:
            break
        name, index, quoted, double = found.groups()
        if index is not None:
            steps.append(int(index))
        else:
            steps.append(re.sub(r"\\(.)", r"\1", name) if name is not None else (quoted or double or ""))
        at = found.end()
    if not steps or at < len(inner) or steps == ["*"]:
        raise ConfigError(f"--sort-by: {text!r} is neither a column nor a path; {_remedy(kind)}")
    return steps


def look_up(value: Any, steps: Sequence[Step]) -> Any:
    """What lies at the end of the steps; None where one leads nowhere."""
    for step in steps:
        if isinstance(step, int):
            if not isinstance(value, list | tuple) or not -len(value) <= step < len(value):
                return None
            value = value[step]
        elif isinstance(value, Mapping):
            value = value.get(step)
        else:
            return None
    return value


def rank(value: Any) -> tuple[int, Any]:
    """What a value is compared by."""
    if value is None or value == "":
        return 0, 0
    if isinstance(value, int | float):
        return 1, value
    if isinstance(value, str):
        # every second part is a run of digits, so that numbers are compared with numbers
        return 2, [int(part) if at % 2 else part for at, part in enumerate(_RUN.split(value))]
    return 3, json.dumps(value, sort_keys=True, default=str)


def _remedy(kind: Kind) -> str:
    return f"give {', '.join(column.title for column in kind.columns)}, or a path such as .metadata.name"
