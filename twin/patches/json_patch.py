"""JSON Patch (RFC 6902) and JSON Merge Patch (RFC 7386), applied in place to a document the caller owns.

Refusals are those of evanphx/json-patch as the API server reports them: a patch that does not decode is 400, one that
does not apply is 422. Pure.
"""

from __future__ import annotations

import copy
from typing import Any

from twin.registry.status import ApiError, bad_request, status

Json = dict[str, Any]

_END = "-"
"""The index behind the last element."""

MAX_OPERATIONS = 10_000
"""``maxJSONPatchOperations`` of the API server."""


def _rejected(message: str) -> ApiError:
    """422; the real server drops ``message``, here it is the exception's text for logs and tests."""
    body = status(422, "Invalid", "the server rejected our request due to an error in our request")
    del body["code"]
    error = ApiError({**body, "details": {}, "code": 422})
    error.args = (message,)
    return error


def merge_patch(document: Json, patch: Any) -> Json:
    """RFC 7386; ``patch`` must be an object at the top (400 otherwise)."""
    if not isinstance(patch, dict):
        name = "array" if isinstance(patch, list) else "string" if isinstance(patch, str) else "number"
        raise bad_request(
            f"error decoding patch: json: cannot unmarshal {name} into Go value of type map[string]interface {{}}"
        )
    _merge(document, patch)
    return document


def _merge(target: Json, patch: Json) -> None:
    for key, value in patch.items():
        if value is None:
            target.pop(key, None)
        elif isinstance(value, dict):
            child = target.get(key)
            if not isinstance(child, dict):
                child = target[key] = {}
            _merge(child, value)
        else:
            target[key] = value


def _pointer(path: Any) -> list[str]:
    if not isinstance(path, str):
        raise bad_request("unable to decode the patch: path must be a string")
    if path == "":
        return []
    if not path.startswith("/"):
        raise _rejected(f"unexpected path {path}")
    return [part.replace("~1", "/").replace("~0", "~") for part in path[1:].split("/")]


def _index(token: str, length: int) -> int:
    try:
        index = int(token)
    except ValueError:
        raise _rejected(f"invalid array index {token}") from None
    if index < 0:
        index += length
    if not 0 <= index < length:
        raise _rejected(f"array index {token} out of bounds")
    return index


def _step(container: Any, token: str) -> Any:
    if isinstance(container, dict):
        if token not in container:
            raise _rejected(f"missing key {token}")
        return container[token]
    if isinstance(container, list):
        return container[_index(token, len(container))]
    raise _rejected(f"no container at {token}")


def _parent(document: Any, path: list[str]) -> Any:
    for token in path[:-1]:
        document = _step(document, token)
    return document


def _add(document: Any, path: list[str], value: Any) -> Any:
    if not path:
        return value
    parent, token = _parent(document, path), path[-1]
    if isinstance(parent, dict):
        parent[token] = value
    elif isinstance(parent, list):
        parent.insert(len(parent) if token == _END else _insert_at(token, len(parent)), value)
    else:
        raise _rejected(f"no container at {token}")
    return document


def _insert_at(token: str, length: int) -> int:
    return length if token == str(length) else _index(token, length)


def _remove(document: Any, path: list[str]) -> Any:
    if not path:
        return None
    parent, token = _parent(document, path), path[-1]
    taken = _step(parent, token)
    if isinstance(parent, dict):
        del parent[token]
    else:
        del parent[_index(token, len(parent))]
    return taken


def _find(document: Any, path: list[str]) -> Any:
    for token in path:
        document = _step(document, token)
    return document


def json_patch(document: Json, operations: Any) -> Json:
    """RFC 6902: all operations in order; the first that does not apply refuses the whole."""
    if not isinstance(operations, list) or not all(isinstance(one, dict) for one in operations):
        raise bad_request("json: cannot unmarshal object into Go value of type jsonpatch.Patch")
    if len(operations) > MAX_OPERATIONS:
        text = f"The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {len(operations)}"
        raise ApiError(status(413, "RequestEntityTooLarge", text))
    result: Any = document
    for operation in operations:
        result = _apply(result, operation)
    if not isinstance(result, dict):
        raise _rejected("the document is no object any more")
    return result


def _apply(document: Any, operation: Json) -> Any:
    kind, path = operation.get("op"), _pointer(operation.get("path"))
    if kind in ("add", "replace", "test"):
        if kind != "test" and "value" not in operation:
            raise _rejected(f"{kind}: missing value")
        value = operation.get("value")
        if kind == "add":
            return _add(document, path, value)
        if kind == "test":
            _test(document, path, value)
            return document
        if path:
            _step(_parent(document, path), path[-1])
            _replace(document, path, value)
            return document
        return value
    if kind == "remove":
        _remove(document, path)
        return document
    if kind in ("move", "copy"):
        source = _pointer(operation.get("from"))
        value = _remove(document, source) if kind == "move" else copy.deepcopy(_find(document, source))
        return _add(document, path, value)
    raise _rejected(f"unexpected kind: {kind}")


def _replace(document: Any, path: list[str], value: Any) -> None:
    parent, token = _parent(document, path), path[-1]
    if isinstance(parent, dict):
        parent[token] = value
    else:
        parent[_index(token, len(parent))] = value


def _test(document: Any, path: list[str], value: Any) -> None:
    try:
        found = _find(document, path)
    except ApiError:
        if value is None:
            return
        raise
    if found != value or isinstance(found, bool) is not isinstance(value, bool):
        raise _rejected("testing value failed")
