"""Services and controllers: what pods are copies of, for rules about pods that nobody gave a constraint."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from shared.model.cluster_objects import Workload
from shared.model.terms.labels import selects
from shared.scheduling.state.by_label import ByLabel, asked_label


class Workloads:
    """Services per namespace and name; controllers by (apiVersion, kind, namespace, name)."""

    def __init__(self) -> None:
        self.controllers: dict[tuple[str, str, str, str], Workload] = {}
        self._services: dict[str, dict[str, Workload]] = {}
        self._asking: dict[str, ByLabel[Workload]] = {}

    def add(self, workload: Workload) -> None:
        """A workload appeared or changed."""
        namespace, name = workload.namespace, workload.name
        if workload.kind != "Service":
            self.controllers[(workload.api_version, workload.kind, namespace, name)] = workload
            return
        self.drop_service(namespace, name)
        self._services.setdefault(namespace, {})[name] = workload
        self._asking.setdefault(namespace, ByLabel()).put(asked_label(workload.selector), name, workload)

    def drop_service(self, namespace: str, name: str) -> None:
        """A Service is gone; an unknown one is fine."""
        there = self._services.get(namespace, {})
        known = there.pop(name, None)
        if known is None:
            return
        self._asking[namespace].drop(asked_label(known.selector), name)
        if not there:
            del self._services[namespace], self._asking[namespace]

    def service(self, namespace: str, name: str) -> Workload | None:
        """One Service."""
        return self._services.get(namespace, {}).get(name)

    def has_services(self, namespace: str) -> bool:
        """Whether there is any in the namespace."""
        return namespace in self._services

    def services_of(self, namespace: str, labels: Mapping[str, str]) -> Iterator[Workload]:
        """Those that select pods with these labels."""
        asking = self._asking.get(namespace)
        for service in asking.among(labels) if asking is not None else ():
            if selects(service.selector, labels):
                yield service
