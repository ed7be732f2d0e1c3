"""A registry with a clock that stands still, for tests of the machinery."""

from __future__ import annotations

from random import Random
from typing import Any

from twin.bootstrap import make_registry
from twin.registry import creating, deleting, updating
from twin.registry.registry import TwinRegistry
from twin.registry.stored import StoredObject

NOW_S = 1_795_000_000.0


class Scene:
    """Calls on a registry, short enough for a test."""

    def __init__(self, *, window: int = 1024) -> None:
        self.now_s = NOW_S
        self.registry: TwinRegistry = make_registry(clock=lambda: self.now_s, rng=Random(7), window=window)

    def create(self, resource: str, name: str, *, dry_run: bool = False, **fields: Any) -> StoredObject:
        kind = self.registry.kind(resource)
        ctx = self.registry.context("create", kind, "default" if kind.namespaced else "", dry_run=dry_run)
        metadata = {"name": name, **fields.pop("metadata", {})}
        return creating.create(self.registry, ctx, kind, {"metadata": metadata, **fields})

    def pod(self, name: str, **metadata: Any) -> StoredObject:
        return self.create("pods", name, metadata=metadata, spec={"containers": [{"name": "c", "image": "x"}]})

    def config(self, name: str, **metadata: Any) -> StoredObject:
        return self.create("configmaps", name, metadata=metadata, data={"a": "1"})

    def update(self, resource: str, name: str, obj: dict[str, Any], *, verb: str = "update") -> StoredObject:
        kind = self.registry.kind(resource)
        namespace = "default" if kind.namespaced else ""
        ctx = self.registry.context(verb, kind, namespace, name)
        old = self.registry.stored(kind, namespace, name)
        return updating.update(self.registry, ctx, kind, old, obj, patch=verb == "patch")

    def change(self, resource: str, name: str, **metadata: Any) -> StoredObject:
        """Merge into metadata, as a patch would."""
        kind = self.registry.kind(resource)
        obj = self.registry.stored(kind, "default" if kind.namespaced else "", name).fresh()
        obj["metadata"].update(metadata)
        return self.update(resource, name, obj, verb="patch")

    def delete(self, resource: str, name: str, **options: Any) -> deleting.Deletion:
        kind = self.registry.kind(resource)
        namespace = "default" if kind.namespaced else ""
        ctx = self.registry.context("delete", kind, namespace, name)
        return deleting.delete(self.registry, ctx, kind, self.registry.stored(kind, namespace, name), options)

    def exists(self, resource: str, name: str) -> bool:
        kind = self.registry.kind(resource)
        return self.registry.get(resource, "default" if kind.namespaced else "", name) is not None
