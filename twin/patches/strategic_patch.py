"""Kubernetes' strategic merge patch, applied in place to a document the caller owns.

Objects merge; lists merge by their merge key or are replaced whole; directives: ``$patch`` (replace,
merge, delete), ``$deleteFromPrimitiveList/LIST``, ``$setElementOrder/LIST``, ``$retainKeys``. New elements come before
those of the server that the patch does not name, as Go's implementation appends them (it merges *into* the patch's
order). Source: apimachinery ``pkg/util/strategicpatch/patch.go``; its errors are plain Go errors, which the API server
answers with 500. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from twin.registry.status import bad_request, go_value, plain_error

Json = dict[str, Any]

PRIMITIVE = ""
"""Merge key of a list of scalars that is merged as a set."""

_METADATA = {"metadata.ownerReferences": "uid", "metadata.finalizers": PRIMITIVE}
_DIRECTIVE = "$patch"
_DELETE_PRIMITIVES = "$deleteFromPrimitiveList/"
_ORDER = "$setElementOrder/"
_RETAIN = "$retainKeys"


def _go_map(value: Any) -> str:
    if isinstance(value, dict):
        return "map[" + " ".join(f"{k}:{_go_map(v)}" for k, v in sorted(value.items())) + "]"
    if isinstance(value, list):
        return "[" + " ".join(_go_map(one) for one in value) + "]"
    return value if isinstance(value, str) else go_value(value)


def strategic_patch(document: Json, patch: Any, merge_keys: Mapping[str, str]) -> Json:
    """Apply ``patch``. Refused: 400 (no object), 500 (bad directives).

    ``merge_keys``: dotted path of a list (``spec.containers.env``) to its merge key, from the ``patchMergeKey`` tags of
    the Go types; a list without an entry (taints, tolerations) is replaced.
    """
    if not isinstance(patch, dict):
        raise bad_request(
            "error decoding patch: json: cannot unmarshal array into Go value of type map[string]interface {}"
        )
    return _Merger({**_METADATA, **merge_keys}).objects(document, patch, "")


class _Merger:
    """One application; carries the merge table."""

    def __init__(self, keys: Mapping[str, str]) -> None:
        self._keys = keys

    def objects(self, target: Json, patch: Json, path: str) -> Json:
        directive = patch.get(_DIRECTIVE)
        if directive is not None:
            if directive == "replace":
                return {k: _clean(v) for k, v in patch.items() if k != _DIRECTIVE and v is not None}
            if directive == "delete":
                return {}
            if directive != "merge":
                raise plain_error(f"unknown patch type: {directive} in map: {_go_map(patch)}")
        retain = patch.get(_RETAIN)
        if retain is not None:
            if not isinstance(retain, list):
                raise plain_error("$retainKeys should be a list")
            for key in [key for key in target if key not in retain]:
                del target[key]
        for key, value in patch.items():
            if key in (_DIRECTIVE, _RETAIN) or key.startswith((_DELETE_PRIMITIVES, _ORDER)):
                continue
            self._field(target, key, value, f"{path}.{key}" if path else key)
        self._list_directives(target, patch, path)
        return target

    def _field(self, target: Json, key: str, value: Any, path: str) -> None:
        if value is None:
            target.pop(key, None)
        elif isinstance(value, dict):
            child = target.get(key)
            if isinstance(child, dict):
                target[key] = self.objects(child, value, path)
            elif value.get(_DIRECTIVE) != "delete":
                target[key] = self.objects({}, value, path)
        elif isinstance(value, list):
            current = target.get(key)
            target[key] = self._lists(current if isinstance(current, list) else [], value, path)
        else:
            target[key] = value

    def _lists(self, current: list[Any], patch: list[Any], path: str) -> list[Any]:
        key = self._keys.get(path)
        if key is None or (key == PRIMITIVE and any(isinstance(one, dict | list) for one in patch)):
            return _clean_list(patch)
        if key == PRIMITIVE:
            return _in_order([*current, *(one for one in patch if one not in current)], patch, "", current)
        return self._keyed(current, patch, key, path)

    def _keyed(self, current: list[Any], patch: list[Any], key: str, path: str) -> list[Any]:
        elements: list[Json] = []
        replace = False
        deleted: list[Any] = []
        for element in patch:
            if not isinstance(element, dict):
                raise plain_error(f"expected a map in list {path}, got {_go_map(element)}")
            directive = element.get(_DIRECTIVE)
            if directive == "replace":
                replace = True
                if key in element:
                    elements.append({k: v for k, v in element.items() if k != _DIRECTIVE})
                continue
            if isinstance(element.get(key), dict | list):
                raise plain_error(f"merge key {key} of list {path} is no scalar: {_go_map(element)}")
            if key not in element:
                raise plain_error(f"map: {_go_map(element)} does not contain declared merge key: {key}")
            if directive == "delete":
                deleted.append(element[key])
            elif directive is None or directive == "merge":
                elements.append({k: v for k, v in element.items() if k != _DIRECTIVE})
            else:
                raise plain_error(f"unknown patch type: {directive} in map: {_go_map(element)}")
        if replace:
            return [_clean(element) for element in elements]
        kept = [one for one in current if not (isinstance(one, dict) and one.get(key) in deleted)]
        by_key = {one.get(key): one for one in kept if isinstance(one, dict)}
        fresh: list[Json] = []
        for element in elements:
            known = by_key.get(element[key])
            if known is None:
                made = self.objects({}, element, path)
                by_key[element[key]] = made
                fresh.append(made)
            else:
                self.objects(known, element, path)
        order = [element[key] for element in elements]
        return _in_order([*kept, *fresh], order, key, kept)

    def _list_directives(self, target: Json, patch: Json, path: str) -> None:
        for directive, values in patch.items():
            if directive.startswith(_DELETE_PRIMITIVES):
                name = directive[len(_DELETE_PRIMITIVES) :]
                if not isinstance(values, list):
                    raise plain_error(f"{directive} must be a list")
                if isinstance(target.get(name), list):
                    target[name] = [one for one in target[name] if one not in values]
        for directive, values in patch.items():
            if directive.startswith(_ORDER):
                name = directive[len(_ORDER) :]
                if not isinstance(values, list):
                    raise plain_error(f"{directive} must be a list")
                if isinstance(target.get(name), list):
                    key = self._keys.get(f"{path}.{name}" if path else name)
                    wanted = [one.get(key) for one in values] if key and _all_maps(values) else values
                    if any(isinstance(one, dict | list) for one in wanted):
                        raise plain_error(f"{directive} does not name elements: {_go_map(values)}")
                    target[name] = _in_order(target[name], wanted, key or "", target[name])


def _all_maps(values: list[Any]) -> bool:
    return all(isinstance(one, dict) for one in values)


def _in_order(elements: list[Any], order: list[Any], key: str, server: list[Any]) -> list[Any]:
    """Elements named in ``order`` in that order, the others interleaved by their place in ``server``.

    An element that the server did not have counts as "before": it is taken at once (``mergeSortedSlice``).
    """

    def identity(element: Any) -> Any:
        return element.get(key) if key and isinstance(element, dict) else element

    place = [identity(one) for one in server]

    def precedes(left: Any, right: Any) -> bool:
        left_id, right_id = identity(left), identity(right)
        return left_id in place and right_id in place and place.index(left_id) < place.index(right_id)

    named = [one for wanted in dict.fromkeys(order) for one in elements if identity(one) == wanted]
    rest = [one for one in elements if identity(one) not in order]
    merged: list[Any] = []
    for one in named:
        while rest and precedes(rest[0], one):
            merged.append(rest.pop(0))
        merged.append(one)
    return [*merged, *rest]


def _clean(value: Any) -> Any:
    """A patch's value as it is stored: without directives."""
    if isinstance(value, dict):
        return {
            k: _clean(v)
            for k, v in value.items()
            if v is not None and k not in (_DIRECTIVE, _RETAIN) and not k.startswith((_DELETE_PRIMITIVES, _ORDER))
        }
    if isinstance(value, list):
        return _clean_list(value)
    return value


def _clean_list(values: list[Any]) -> list[Any]:
    return [_clean(one) for one in values if not (isinstance(one, dict) and one.get(_DIRECTIVE) == "delete")]
