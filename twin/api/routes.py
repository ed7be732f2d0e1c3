"""Which paths lead to a resource, and which methods each of them has.

Built-in kinds are served from a route table (Source: apiserver ``endpoints/installer.go``): what no route has is 404, a
route without the method 405. Custom resources have a handler that looks at the verb (Source: apiextensions
``apiserver/customresource_handler.go``) and words its refusals otherwise. Pure.
"""

from __future__ import annotations

from twin.api.documents import is_builtin
from twin.api.requests.paths import ResourcePath
from twin.registry.discovery.discovery import CONNECTS
from twin.registry.registry import TwinRegistry
from twin.registry.served import ServedKind
from twin.registry.status import (
    bad_request,
    method_not_allowed,
    method_not_supported,
    not_found,
    path_not_found,
)

_OF_VERB = {"create": "POST", "get": "GET", "update": "PUT", "patch": "PATCH", "delete": "DELETE"}
_VERBS = {method: verb for verb, method in _OF_VERB.items()} | {"HEAD": "get"}
_OF_COLLECTION = {"list": "GET", "create": "POST", "deletecollection": "DELETE"}
_OF_OBJECT = ("get", "update", "patch", "delete")
_ANY_METHOD = frozenset(("DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT"))


def find_kind(registry: TwinRegistry, target: ResourcePath, method: str) -> ServedKind | None:
    """The kind behind a path that has this method; None where Go's text page says 404. Refused: 400, 404, 405."""
    kind = registry.find(target.group, target.version, target.plural)
    if kind is None:
        if is_builtin(registry, target.group):
            raise path_not_found()
        return None
    if kind.custom:
        return _custom(kind, target, method)
    methods = _methods(kind, target)
    if not methods:
        raise path_not_found()
    if method not in methods:
        raise method_not_allowed()
    return kind


def _methods(kind: ServedKind, target: ResourcePath) -> frozenset[str]:
    """The methods of a path, none where there is no such route."""
    verbs = kind.info.verbs
    across = kind.namespaced and not target.in_namespace
    if (target.in_namespace and not kind.namespaced) or (across and target.name):
        return frozenset()
    if target.watch:
        served = "watch" in verbs and not target.subresource
        return frozenset(("GET",)) if served else frozenset()
    if target.subresource:
        return _of_subresource(kind, target)
    if target.name:
        return frozenset(_OF_VERB[verb] for verb in _OF_OBJECT if verb in verbs)
    if across:
        return frozenset(("GET",)) if "list" in verbs else frozenset()
    return frozenset(method for verb, method in _OF_COLLECTION.items() if verb in verbs)


def _of_subresource(kind: ServedKind, target: ResourcePath) -> frozenset[str]:
    if target.subresource == "proxy" and kind.resource in CONNECTS:
        return _ANY_METHOD
    if target.extra:
        return frozenset()
    view = kind.subresources.get(target.subresource)
    views = [view] if view is not None else [c for c in CONNECTS.get(kind.resource, ()) if c.name == target.subresource]
    return frozenset(_OF_VERB[verb] for one in views for verb in one.verbs)


def _custom(kind: ServedKind, target: ResourcePath, method: str) -> ServedKind | None:
    verb = "get" if target.watch else _VERBS.get(method, "")
    info = kind.info
    if target.in_namespace is not kind.namespaced and (target.in_namespace or target.name or verb != "get"):
        return None
    view = kind.subresources.get(target.subresource) if target.subresource else None
    if target.subresource and view is None:
        raise not_found(info.plural, info.group, target.name)
    if not verb or (view is not None and verb not in view.verbs):
        raise method_not_supported(info.plural, info.group, verb)
    if not target.name and verb in ("update", "patch"):
        raise bad_request("name must be provided")
    return kind
