"""What a server has from its first moment: every kind, system namespaces, system priority classes."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from twin.custom.controller import CustomResources
from twin.kinds.table import KUBERNETES, all_strategies, bootstrap_objects
from twin.registry.access.reviews import review_strategies
from twin.registry.registry import TwinRegistry
from twin.registry.status import Json

_NAMESPACES = ("kube-system", "kube-public", "default", "kube-node-lease")


def _namespace(name: str) -> Json:
    return {
        "metadata": {"name": name, "labels": {"kubernetes.io/metadata.name": name}},
        "spec": {"finalizers": ["kubernetes"]},
        "status": {"phase": "Active"},
    }


def make_registry(
    *, clock: Callable[[], float], rng: Random, window: int = 16384, kubernetes: str = KUBERNETES[0]
) -> TwinRegistry:
    """A registry with every kind of that release and the objects of a fresh cluster."""
    registry = TwinRegistry([*all_strategies(kubernetes), *review_strategies()], clock=clock, rng=rng, window=window)
    registry.kubernetes = kubernetes
    for name in _NAMESPACES:
        registry.bootstrap("namespaces", "", name, _namespace(name))
    for resource, namespace, obj in bootstrap_objects():
        registry.bootstrap(resource, namespace, obj["metadata"]["name"], {**obj, "metadata": dict(obj["metadata"])})
    CustomResources(registry).attach()
    return registry
