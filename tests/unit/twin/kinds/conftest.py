"""A cluster in memory: the real registry with every kind, a clock that stands still and a seeded generator of uids."""

from __future__ import annotations

import copy
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from twin.bootstrap import make_registry
from twin.registry.registry import TwinRegistry
from twin.registry.status import ApiError
from twin.registry.updating import update

Json = dict[str, Any]
NOW_S = 1_767_225_600.0  # 2026-01-01T00:00:00Z


class Cluster:
    """Requests by name, as a client would send them; refusals are raised as ApiError."""

    def __init__(self, kubernetes: str = "1.36") -> None:
        self.now_s = NOW_S
        self.registry: TwinRegistry = make_registry(clock=lambda: self.now_s, rng=Random(7), kubernetes=kubernetes)
        self.warnings: list[str] = []
        self.create("namespaces", {"metadata": {"name": "ns"}}, namespace="")

    def create(self, resource: str, obj: Json, *, namespace: str = "ns", dry_run: bool = False) -> Json:
        kind = self.registry.kind(resource)
        ctx = self.registry.context("create", kind, namespace if kind.namespaced else "", dry_run=dry_run)
        created = self.registry.create(ctx, resource, namespace, copy.deepcopy(obj))
        self.warnings = ctx.warnings
        return created

    def get(self, resource: str, name: str, *, namespace: str = "ns") -> Json | None:
        kind = self.registry.kind(resource)
        return self.registry.get(resource, namespace if kind.namespaced else "", name)

    def change(self, resource: str, name: str, edit: Callable[[Json], None], *, namespace: str = "ns") -> Json:
        """GET, edit, PUT."""
        kind = self.registry.kind(resource)
        where = namespace if kind.namespaced else ""
        obj = self.registry.stored(kind, where, name).fresh()
        edit(obj)
        ctx = self.registry.context("update", kind, where, name)
        changed = self.registry.update(ctx, resource, where, name, obj)
        self.warnings = ctx.warnings
        return changed

    def change_status(self, resource: str, name: str, edit: Callable[[Json], None], *, namespace: str = "ns") -> Json:
        """GET, edit, PUT of the status subresource."""
        kind = self.registry.kind(resource)
        where = namespace if kind.namespaced else ""
        old = self.registry.stored(kind, where, name)
        obj = old.fresh()
        edit(obj)
        ctx = self.registry.context("update", kind, where, name)
        ctx.subresource = "status"
        return update(self.registry, ctx, kind, old, obj, subresource=kind.subresources["status"]).obj

    def post(self, resource: str, name: str, subresource: str, body: Json, *, dry_run: bool = False) -> Json:
        """POST of a subresource made of functions."""
        kind = self.registry.kind(resource)
        ctx = self.registry.context("create", kind, "ns", name, dry_run=dry_run)
        ctx.subresource = subresource
        handler = kind.subresources[subresource].create
        assert handler is not None
        return handler(ctx, self.registry, name, body).body

    def delete(self, resource: str, name: str, options: Json | None = None, *, namespace: str = "ns") -> Json:
        kind = self.registry.kind(resource)
        where = namespace if kind.namespaced else ""
        return self.registry.delete(
            self.registry.context("delete", kind, where, name), resource, where, name, options or {}
        )


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


@pytest.fixture
def make_pod() -> Callable[..., Json]:
    """A pod with one container; keywords are fields of its spec, ``meta`` of its metadata."""

    def make(name: str = "a", meta: Json | None = None, container: Json | None = None, **spec: Any) -> Json:
        one = {"name": "c", "image": "registry.k8s.io/pause:3.10", **(container or {})}
        return {"metadata": {"name": name, **(meta or {})}, "spec": {"containers": [one], **spec}}

    return make


@pytest.fixture
def causes() -> Callable[[ApiError], list[tuple[str, str]]]:
    """(field, reason without its prefix) of a 422."""

    def read(error: ApiError) -> list[tuple[str, str]]:
        assert error.code == 422
        return [(c["field"], c["reason"].removeprefix("FieldValue")) for c in error.body["details"]["causes"]]

    return read
