"""Discovery documents, plain and aggregated, made of the served kinds. Pure.

Sources: apiserver ``endpoints/discovery``; version order: apimachinery ``pkg/version`` (GA before beta before alpha).
"""

from __future__ import annotations

import re

from twin.registry.registry import TwinRegistry
from twin.registry.served import ServedKind
from twin.registry.status import Json
from twin.registry.strategy import Subresource

_VERSION = re.compile(r"v(\d+)(?:(alpha|beta)(\d+))?")
_STAGES = {None: 2, "beta": 1, "alpha": 0}


_PROXY = ("create", "delete", "get", "patch", "update")
CONNECTS: dict[str, tuple[Subresource, ...]] = {
    "nodes": (Subresource("proxy", _PROXY, "NodeProxyOptions"),),
    "pods": (
        Subresource("attach", ("create", "get"), "PodAttachOptions"),
        Subresource("exec", ("create", "get"), "PodExecOptions"),
        Subresource("log", ("get",)),
        Subresource("portforward", ("create", "get"), "PodPortForwardOptions"),
        Subresource("proxy", _PROXY, "PodProxyOptions"),
    ),
    "services": (Subresource("proxy", _PROXY, "ServiceProxyOptions"),),
}
"""Subresources that lead to a running container. They are listed, because clients map verbs by them, and answered with
501: nothing runs behind the twin."""


def shown_subresources(kind: ServedKind) -> list[Subresource]:
    """All subresources that discovery lists, by name."""
    found = [*kind.subresources.values(), *CONNECTS.get(kind.resource, ())]
    return sorted(found, key=lambda one: one.name)


def version_rank(version: str) -> tuple[int, int, int]:
    """Sorts the preferred version highest."""
    found = _VERSION.fullmatch(version)
    if found is None:
        return (-1, 0, 0)
    return (_STAGES[found.group(2)], int(found.group(1)), int(found.group(3) or 0))


def versions_of(registry: TwinRegistry, group: str) -> list[str]:
    """The served versions of a group, preferred first."""
    versions = [version for one, version in registry.group_versions() if one == group]
    return sorted(versions, key=version_rank, reverse=True)


def groups(registry: TwinRegistry) -> list[str]:
    """The named groups, in the order in which they were added."""
    return list(dict.fromkeys(group for group, _ in registry.group_versions() if group))


def api_versions() -> Json:
    """``/api``."""
    return {
        "kind": "APIVersions",
        "versions": ["v1"],
        "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": "127.0.0.1"}],
    }


def _group(group: str, versions: list[str]) -> Json:
    listed = [{"groupVersion": f"{group}/{one}", "version": one} for one in versions]
    return {"name": group, "versions": listed, "preferredVersion": listed[0]}


def api_group(registry: TwinRegistry, group: str) -> Json | None:
    """``/apis/GROUP``; None where it is not served. Versions behind a gate are left out (``KindInfo.gated``)."""
    every = versions_of(registry, group)
    if not every:
        return None
    open_ = [one for one in every if not all(kind.info.gated for kind in registry.kinds_of(group, one))]
    return {"kind": "APIGroup", "apiVersion": "v1", **_group(group, open_ or every)}


def api_group_list(registry: TwinRegistry) -> Json:
    """``/apis``."""
    return {
        "kind": "APIGroupList",
        "apiVersion": "v1",
        "groups": [_group(group, versions_of(registry, group)) for group in groups(registry)],
    }


def _resource_entries(kind: ServedKind) -> list[Json]:
    info = kind.info
    entry: Json = {
        "name": info.plural,
        "singularName": info.singular,
        "namespaced": info.namespaced,
        "kind": info.kind,
        "verbs": list(info.verbs),
    }
    if info.short_names:
        entry["shortNames"] = list(info.short_names)
    if info.categories:
        entry["categories"] = list(info.categories)
    if info.storage_version_hash:
        entry["storageVersionHash"] = info.storage_version_hash
    entries = [entry]
    for sub in shown_subresources(kind):
        sub_entry: Json = {
            "name": f"{info.plural}/{sub.name}",
            "singularName": "",
            "namespaced": info.namespaced,
            "kind": sub.kind or info.kind,
            "verbs": list(sub.verbs),
        }
        if sub.group:
            sub_entry["group"] = sub.group
            sub_entry["version"] = sub.version
        entries.append(sub_entry)
    return entries


def resource_list(registry: TwinRegistry, group: str, version: str) -> Json | None:
    """``/api/v1`` and ``/apis/GROUP/VERSION``; None where it is not served."""
    kinds = registry.kinds_of(group, version)
    if not kinds:
        return None
    document: Json = {"kind": "APIResourceList"}
    if group:
        document["apiVersion"] = "v1"
    document["groupVersion"] = f"{group}/{version}" if group else version
    document["resources"] = [entry for kind in kinds for entry in _resource_entries(kind)]
    return document


def _aggregated_resource(kind: ServedKind) -> Json:
    info = kind.info
    # Built-in kinds leave group and version of the kind empty: they are those of the list they stand in.
    group, version = (info.group, info.version) if kind.custom else ("", "")
    entry: Json = {
        "resource": info.plural,
        "responseKind": {"group": group, "version": version, "kind": info.kind},
        "scope": "Namespaced" if info.namespaced else "Cluster",
        "singularResource": info.singular,
        "verbs": list(info.verbs),
    }
    if info.short_names:
        entry["shortNames"] = list(info.short_names)
    if info.categories:
        entry["categories"] = list(info.categories)
    subresources = shown_subresources(kind)
    if subresources:
        entry["subresources"] = [
            {
                "subresource": sub.name,
                "responseKind": {
                    "group": sub.group or group,
                    "version": sub.version or version,
                    "kind": sub.kind or info.kind,
                },
                "verbs": list(sub.verbs),
            }
            for sub in subresources
        ]
    return entry


def aggregated(registry: TwinRegistry, *, core: bool, version: str) -> Json:
    """``/api`` (``core``) or ``/apis`` as an APIGroupDiscoveryList of ``version`` v2 or v2beta1."""
    items: list[Json] = []
    for group in [""] if core else groups(registry):
        meta: Json = {"name": group, "creationTimestamp": None} if group else {"creationTimestamp": None}
        listed = [
            {
                "version": one,
                "resources": [_aggregated_resource(kind) for kind in registry.kinds_of(group, one)],
                "freshness": "Current",
            }
            for one in versions_of(registry, group)
        ]
        items.append({"metadata": meta, "versions": listed})
    return {
        "kind": "APIGroupDiscoveryList",
        "apiVersion": f"apidiscovery.k8s.io/{version}",
        "metadata": {},
        "items": items,
    }
