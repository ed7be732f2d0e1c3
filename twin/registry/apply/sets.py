"""Apply configurations: what they own, how they merge, what they conflict with, what they take away.

The set arithmetic of server-side apply over plain JSON; ``applying.py`` makes requests of it. Sets are those of
``field_owners``. Source: structured-merge-diff (``typed.Merge``, ``fieldpath``). Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from twin.registry.apply.field_owners import (
    ATOMIC,
    OWNED_METADATA,
    SETS,
    FieldSet,
    encode_key,
    items_of,
    list_keys,
)

Json = dict[str, Any]


def _said(value: Any, name: str, holder: str) -> FieldSet:
    """Everything a configuration says: leaves, and list elements with a ``.`` of their own."""
    if isinstance(value, dict):
        if not value or name in ATOMIC:
            return {}
        return {f"f:{key}": _said(child, key, name) for key, child in value.items() if child is not None}
    if isinstance(value, list) and value:
        if name in SETS:
            return {f"v:{encode_key(one).decode()}": {} for one in value}
        keys = list_keys(name, holder)
        items = items_of(value, keys) if keys else None
        if items is not None:
            return {path: {".": {}, **_said(item, "", name)} for path, item in items.items()}
    return {}


def applied_set(config: Json, *, status_only: bool, skip_status: bool) -> FieldSet:
    """What an apply configuration owns."""
    out: FieldSet = {}
    for key, value in config.items():
        if key == "metadata":
            owned = {one: value[one] for one in OWNED_METADATA if value.get(one) is not None}
            part = _said(owned, "metadata", "") if owned and not status_only else {}
            if part:
                out["f:metadata"] = part
        elif value is not None and (key == "status" if status_only else not (skip_status and key == "status")):
            out[f"f:{key}"] = _said(value, key, "")
    return out


def merge_applied(live: Json, config: Json) -> Json:
    """``config`` merged into ``live``, in place: maps and map-like lists merge, everything else is replaced."""
    for key, value in config.items():
        if key == "metadata":
            owned = {one: value[one] for one in OWNED_METADATA if one in value}
            _merge(live["metadata"], owned, "metadata")
        elif value is not None:
            _merge(live, {key: value}, "")
    return live


def _merge(live: Json, config: Mapping[str, Any], holder: str) -> None:
    for key, value in config.items():
        current = live.get(key)
        if isinstance(value, dict) and isinstance(current, dict) and key not in ATOMIC:
            _merge(current, value, key)
        elif isinstance(value, list) and isinstance(current, list):
            live[key] = _merge_list(current, value, key, holder)
        elif value is not None:
            live[key] = value


def _merge_list(current: list[Any], value: list[Any], name: str, holder: str) -> list[Any]:
    if name in SETS:
        return [*current, *(one for one in value if one not in current)]
    keys = list_keys(name, holder)
    known = items_of(current, keys) if keys else None
    said = items_of(value, keys) if keys else None
    if known is None or said is None:
        return value
    for path, item in said.items():
        if path in known:
            _merge(known[path], item, name)
        else:
            current.append(item)
    return current


def common_paths(left: FieldSet, right: FieldSet, at: str = "") -> list[str]:
    """The paths that are in both sets, as conflicts name them."""
    found: list[str] = []
    for key, child in left.items():
        other = right.get(key)
        if key == "." or other is None:
            continue
        where = at + _step(key)
        if not child or not other:
            if not child and not other:
                found.append(where)
        else:
            found.extend(common_paths(child, other, where))
    return found


def _step(key: str) -> str:
    kind, _, text = key.partition(":")
    if kind == "f":
        return f".{text}"
    if kind == "v":
        return f"[={text}]"
    pairs = msgspec.json.decode(text)
    return "[" + ",".join(f"{name}={encode_key(value).decode()}" for name, value in pairs.items()) + "]"


def remove_fields(obj: Json, unsaid: FieldSet, owned: FieldSet) -> None:
    """Take the paths of ``unsaid`` out of ``obj`` where nobody in ``owned`` holds them.

    A field below which nobody holds anything goes whole, with what nobody owns in it: of a node that was created with
    its status an applier that says nothing any more takes all of ``capacity`` (``merge.Updater.prune``, which counts
    the fields on the way to a path as said)."""
    for key, child in unsaid.items():
        held = owned.get(key)
        if not key.startswith("f:"):
            continue
        name = key[2:]
        value = obj.get(name)
        if not child:
            if held is None:
                obj.pop(name, None)
        elif isinstance(value, dict):
            if held is None and key != "f:metadata":  # whose name each configuration says
                obj.pop(name, None)
            else:
                remove_fields(value, child, held or {})
        elif isinstance(value, list):
            obj[name] = [one for one in value if not _unheld(one, child, held or {})]


def _unheld(item: Any, unsaid: FieldSet, owned: FieldSet) -> bool:
    """Whether a list element goes; one that stays loses the fields that nobody says any more."""
    if not isinstance(item, dict):
        key = f"v:{encode_key(item).decode()}"
        return key in unsaid and key not in owned
    for key, child in unsaid.items():
        if key.startswith("k:") and all(item.get(one) == value for one, value in msgspec.json.decode(key[2:]).items()):
            held = owned.get(key)
            if held is None and "." in child:
                return True
            remove_fields(item, child, held or {})
    return False
