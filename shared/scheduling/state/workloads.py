"""Services and controllers: what pods are copies of, for rules about pods that nobody gave a constraint.

A Service is found by a label that it asks for, so that a pod is held against those alone that ask for one of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from shared.model.cluster_objects import Workload
from shared.model.labels import selects

Label = tuple[str, str]


class Workloads:
    """Services per namespace and name; controllers by (apiVersion, kind, namespace, name)."""

    def __init__(self) -> None:
        self.controllers: dict[tuple[str, str, str, str], Workload] = {}
        self._services: dict[str, dict[str, Workload]] = {}
        self._asking: dict[tuple[str, Label | None], dict[str, Workload]] = {}
        """By namespace and a label: Services that select nothing without it; by None: any others that select."""

    def add(self, workload: Workload) -> None:
        """A workload appeared or changed."""
        if workload.kind != "Service":
            self.controllers[(workload.api_version, workload.kind, workload.namespace, workload.name)] = workload
            return
        self.drop_service(workload.namespace, workload.name)
        self._services.setdefault(workload.namespace, {})[workload.name] = workload
        if workload.selector is not None:
            self._asking.setdefault((workload.namespace, _asked(workload)), {})[workload.name] = workload

    def drop_service(self, namespace: str, name: str) -> None:
        """A Service is gone; an unknown one is fine."""
        there = self._services.get(namespace, {})
        known = there.pop(name, None)
        if known is None:
            return
        if not there:
            del self._services[namespace]
        if known.selector is not None:
            key = namespace, _asked(known)
            del self._asking[key][name]
            if not self._asking[key]:
                del self._asking[key]

    def has_services(self, namespace: str) -> bool:
        """Whether there is any in the namespace."""
        return namespace in self._services

    def services_of(self, namespace: str, labels: Mapping[str, str]) -> Iterator[Workload]:
        """Those that select pods with these labels."""
        for label in (*labels.items(), None):
            for service in self._asking.get((namespace, label), {}).values():
                if selects(service.selector, labels):
                    yield service


def _asked(service: Workload) -> Label | None:
    """One label that a pod must have for the Service to select it; None: no one label."""
    assert service.selector is not None
    plain = (r for r in service.selector.requirements if r.operator == "In" and len(r.values) == 1)
    one = next(plain, None)
    return None if one is None else (one.key, one.values[0])
