"""CustomResourceDefinitions at work: what the apiextensions controllers do, in the same breath as the write.

A new definition is accepted and established at once; a deleted one takes its objects with it. It subscribes to the
registry's changes; its own writes are changes like any other.
"""

from __future__ import annotations

from typing import Any

from twin.custom.strategy import CustomStrategy
from twin.registry.changes import Accepted
from twin.registry.registry import TwinRegistry
from twin.registry.served import ServedKind
from twin.registry.stored import DELETED

Json = dict[str, Any]

DEFINITIONS = "customresourcedefinitions.apiextensions.k8s.io"
CLEANUP = "customresourcecleanup.apiextensions.k8s.io"


class CustomResources:
    """Serves what the definitions define."""

    def __init__(self, registry: TwinRegistry) -> None:
        self._registry = registry
        self._served: dict[str, list[ServedKind]] = {}

    def attach(self) -> None:
        """Start following the definitions."""
        self._registry.subscribe(self._on_change)

    def _on_change(self, accepted: Accepted) -> None:
        if accepted.kind.storage != DEFINITIONS:
            return
        name = accepted.change.new.name
        definition = self._registry.get(DEFINITIONS, "", name)
        if accepted.change.type == DELETED or definition is None:
            self._withdraw(name, accepted.change.new.obj)
        elif definition["metadata"].get("deletionTimestamp"):
            self._finish(name, definition)
        else:
            self._serve(name, definition)

    def _serve(self, name: str, definition: Json) -> None:
        spec = definition["spec"]
        for kind in self._served.pop(name, []):
            self._registry.remove_kind(kind)
        list_kind = spec["names"].get("listKind") or f"{spec['names']['kind']}List"
        # The storage version comes last: it is the one that objects are created through in process.
        versions = sorted(spec.get("versions") or (), key=lambda one: bool(one.get("storage")))
        served = [
            ServedKind(CustomStrategy(definition, version), custom=True, list_kind=list_kind)
            for version in versions
            if version.get("served")
        ]
        for kind in served:
            self._registry.add_kind(kind)
        self._served[name] = served
        self._establish(name)

    def _establish(self, name: str) -> None:
        ctx = self._registry.context("update", DEFINITIONS, "", name, user="system:apiserver")

        def established(definition: Json) -> Json:
            status = definition.get("status") or {}
            accepted = definition["spec"]["names"]
            if status.get("acceptedNames") == accepted and status.get("conditions"):
                return definition
            conditions = [
                {
                    "type": "NamesAccepted",
                    "status": "True",
                    "lastTransitionTime": ctx.now,
                    "reason": "NoConflicts",
                    "message": "no conflicts found",
                },
                {
                    "type": "Established",
                    "status": "True",
                    "lastTransitionTime": ctx.now,
                    "reason": "InitialNamesAccepted",
                    "message": "the initial names have been accepted",
                },
            ]
            stored = [one["name"] for one in definition["spec"].get("versions") or () if one.get("storage")]
            new_status = {
                **status,
                "conditions": conditions,
                "acceptedNames": accepted,
                "storedVersions": status.get("storedVersions") or stored,
            }
            return {**definition, "status": new_status}

        self._registry.guaranteed_update(ctx, DEFINITIONS, "", name, established)

    def _finish(self, name: str, definition: Json) -> None:
        """A terminating definition: its objects go first, then its finalizer, and with it the definition."""
        finalizers = definition["metadata"].get("finalizers") or []
        self._delete_objects(name)
        if finalizers != [CLEANUP]:
            return
        kind = self._registry.kind(DEFINITIONS)
        ctx = self._registry.context("delete", DEFINITIONS, "", name, user="system:apiserver")
        self._registry.remove(ctx, kind, self._registry.stored(kind, "", name))

    def _delete_objects(self, resource: str) -> None:
        for kind in self._served.get(resource, [])[-1:]:
            for stored in self._registry.store.shelf(kind.storage).select():
                ctx = self._registry.context("delete", kind, stored.namespace, stored.name, user="system:apiserver")
                self._registry.remove(ctx, kind, stored)

    def _withdraw(self, name: str, definition: Json) -> None:
        del definition
        self._delete_objects(name)
        for kind in self._served.pop(name, []):
            self._registry.remove_kind(kind)
