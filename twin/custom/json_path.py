"""The JSON paths of printer columns, selectable fields and scale: ``.a.b[0].c`` and ``[?(@.type=="Ready")]``. Pure."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

import msgspec

_STEP = re.compile(
    r"\.?(?P<name>[A-Za-z_][-A-Za-z0-9_]*)|\['(?P<quoted>[^']+)'\]|\[(?P<index>\d+)\]"
    r"|\[\?\(@\.(?P<key>[A-Za-z_][A-Za-z0-9_]*)\s*==\s*[\"'](?P<value>[^\"']*)[\"']\)\]"
)

Step = tuple[str, str, str]


@lru_cache(maxsize=1024)
def _steps(path: str) -> tuple[Step, ...] | None:
    """(kind, a, b) per step; None for a path outside the supported form."""
    steps: list[Step] = []
    position = 0
    while position < len(path):
        found = _STEP.match(path, position)
        if found is None or found.end() == position:
            return None
        if found["key"] is not None:
            steps.append(("filter", found["key"], found["value"]))
        elif found["index"] is not None:
            steps.append(("index", found["index"], ""))
        else:
            steps.append(("name", found["name"] or found["quoted"], ""))
        position = found.end()
    return tuple(steps)


def find(obj: Any, path: str) -> Any:
    """The value at ``path``, None where there is none."""
    steps = _steps(path)
    if steps is None:
        return None
    for kind, first, second in steps:
        if kind == "name":
            obj = obj.get(first) if isinstance(obj, dict) else None
        elif kind == "index":
            obj = obj[int(first)] if isinstance(obj, list) and int(first) < len(obj) else None
        else:
            items = obj if isinstance(obj, list) else []
            obj = next((one for one in items if isinstance(one, dict) and one.get(first) == second), None)
        if obj is None:
            return None
    return obj


def text(value: Any) -> str:
    """A value as a selector or a string column sees it."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict | list):
        return msgspec.json.encode(value).decode()
    return str(value)
