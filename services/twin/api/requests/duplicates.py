"""Fields that a JSON body names twice: an error under ``fieldValidation=Strict``, a warning otherwise.

A parser keeps the last one and says nothing, so the body is read a second time, slowly, but only where counting shows
that there can be a duplicate. Source: sigs.k8s.io/json (strict errors).
"""

from __future__ import annotations

import json
from typing import Any


class _Object(list[tuple[str, Any]]):
    """The members of an object as they were written."""


def _count_keys(value: Any) -> int:
    if isinstance(value, dict):
        return len(value) + sum(_count_keys(child) for child in value.values() if isinstance(child, dict | list))
    return sum(_count_keys(child) for child in value if isinstance(child, dict | list))


def _find(value: Any, path: str, found: list[str]) -> None:
    if isinstance(value, _Object):
        seen: set[str] = set()
        for key, child in value:
            where = f"{path}.{key}" if path else key
            if key in seen:
                found.append(f'duplicate field "{where}"')
            seen.add(key)
            _find(child, where, found)
    elif isinstance(value, list):
        for index, child in enumerate(value):
            _find(child, f"{path}[{index}]", found)


def duplicate_fields(raw: bytes, taken_off: int, obj: Any) -> list[str]:
    """Messages about fields that ``raw`` names twice; ``obj`` is what it parsed to, less ``taken_off`` members."""
    if not raw.startswith(b"{") or raw.count(b'":') <= _count_keys(obj) + taken_off:
        return []
    try:
        pairs = json.loads(raw, object_pairs_hook=_Object)
    except ValueError:
        return []
    found: list[str] = []
    _find(pairs, "", found)
    return found
