"""The device drivers of the twin's nodes: slices are published by the annotation of the node, and changed with it.

Each change is a new generation of the node's pool, written slice by slice, so that who watches sees it incomplete for a
moment. A slice that somebody else changed or deleted is written again. A node whose machine is down publishes nothing
new; with the node its slices go. An annotation that cannot be used leaves what is published, and is told by an event of
the node.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from shared.errors import ConfigError
from twin.controllers.kubelet_objects import FAIL_ANNOTATION
from twin.controllers.runtime import Controller, ObjectKey
from twin.model.devices import DEVICES_ANNOTATION, drivers_of, slice_specs
from twin.model.usage import TWIN_NODE_ANNOTATION
from twin.registry.registry import TwinRegistry
from twin.registry.status import ApiError

Json = dict[str, Any]

SLICES = "resourceslices.resource.k8s.io"
OURS = "conclave.io/twin-driver"
"""Label of the slices that this controller writes."""
_REASON = "TwinDevices"


class _Written(NamedTuple):
    """A slice as we wrote it last. ``content``: its spec without the generation."""

    uid: str
    generation: int
    content: Json


Pool = dict[str, _Written]
"""By the name of the slice."""


class DeviceDrivers(Controller[ObjectKey]):
    """Keys are nodes."""

    user = "system:serviceaccount:kube-system:twin-device-driver"

    def __init__(self, registry: TwinRegistry) -> None:
        super().__init__(registry)
        self._pools: dict[str, dict[str, Pool]] = {}
        """By node and driver."""
        self._told: dict[str, str] = {}
        """By node: what was wrong with its annotation."""

    def follows(self) -> list[str]:
        return ["nodes"]

    def concerns(self, resource: str, obj: Json, *, gone: bool) -> None:
        if resource == "nodes":
            name = obj["metadata"]["name"]
            if gone:
                self._pools.pop(name, None)
                self._told.pop(name, None)
            elif name in self._pools or _annotation(obj):
                self.note(("nodes", "", name))
        elif resource == SLICES and (obj["metadata"].get("labels") or {}).get(OURS):
            self.note(("nodes", "", obj["spec"].get("nodeName") or ""))

    def reconcile(self, key: ObjectKey) -> None:
        node = self.registry.get(*key)
        if node is None or (node["metadata"].get("annotations") or {}).get(FAIL_ANNOTATION) == "true":
            return
        try:
            drivers = {one.driver: one for one in drivers_of(_annotation(node) or "[]")}
            pools = self._pools.setdefault(key[2], {})
            for name in pools.keys() | drivers.keys():
                driver = drivers.get(name)
                self._publish(node, slice_specs(key[2], driver, 0) if driver else [], pools.setdefault(name, {}), name)
                if not pools[name]:
                    del pools[name]
        except (ConfigError, ApiError) as error:
            self._tell(node, str(error))
            return
        self._told.pop(key[2], None)

    def _publish(self, node: Json, specs: list[Json], pool: Pool, driver: str) -> None:
        """Write a pool anew where it is not as it should be."""
        wanted = {f"{node['metadata']['name']}-{driver}-{index}": one for index, one in enumerate(specs)}
        stored = {name: self.registry.get(SLICES, "", name) for name in pool.keys() | wanted.keys()}
        if pool.keys() == wanted.keys() and all(_as_written(stored[name], pool[name], wanted[name]) for name in pool):
            return
        ours = {name: one for name, one in stored.items() if one and _owner(one) == node["metadata"]["uid"]}
        generation = 1 + max((one["spec"]["pool"]["generation"] for one in ours.values()), default=0)
        renewed = {name: one | {"pool": one["pool"] | {"generation": generation}} for name, one in wanted.items()}
        for name, spec in renewed.items():  # all of them can be used, or nothing is changed
            self._write(node, name, spec, exists=stored[name] is not None, dry_run=True)
        for name, one in stored.items():
            if name not in wanted or name not in ours:
                pool.pop(name, None)
                self.delete(SLICES, one)
        for name, spec in renewed.items():
            meta = self._write(node, name, spec, exists=name in ours)
            pool[name] = _Written(meta["uid"], meta["generation"], wanted[name])

    def _write(self, node: Json, name: str, spec: Json, *, exists: bool, dry_run: bool = False) -> Json:
        owner = {
            "apiVersion": "v1", "kind": "Node", "name": node["metadata"]["name"], "uid": node["metadata"]["uid"],
            "controller": True,
        }  # fmt: skip
        obj = {"metadata": {"name": name, "labels": {OURS: "true"}, "ownerReferences": [owner]}, "spec": spec}
        verb = "update" if exists else "create"
        ctx = self.registry.context(verb, SLICES, "", name, user=self.user, dry_run=dry_run)
        if exists:
            written = self.registry.update(ctx, SLICES, "", name, obj)
        else:
            written = self.registry.create(ctx, SLICES, "", obj)
        self.writes += 1
        meta: Json = written["metadata"]
        return meta

    def _tell(self, node: Json, text: str) -> None:
        """Once for each text."""
        meta = node["metadata"]
        if self._told.get(meta["name"]) == text:
            return
        self._told[meta["name"]] = text
        now = self.registry.now_text(self.registry.clock())
        event = {
            "metadata": {"generateName": f"{meta['name']}."},
            "involvedObject": {"apiVersion": "v1", "kind": "Node", "name": meta["name"], "uid": meta["uid"]},
            "reason": _REASON, "message": text[:1024], "type": "Warning", "source": {"component": "twin"},
            "firstTimestamp": now, "lastTimestamp": now, "count": 1,
        }  # fmt: skip
        self.create("events", "default", event)


def _annotation(node: Json) -> str:
    annotations = node["metadata"].get("annotations") or {}
    return annotations.get(DEVICES_ANNOTATION, "") if annotations.get(TWIN_NODE_ANNOTATION) == "true" else ""


def _owner(slice_: Json) -> str:
    """The uid of its node."""
    return next((one["uid"] for one in slice_["metadata"].get("ownerReferences") or ()), "")


def _as_written(stored: Json | None, written: _Written, content: Json) -> bool:
    if stored is None or written.content != content:
        return False
    meta = stored["metadata"]
    return bool(meta["uid"] == written.uid and meta["generation"] == written.generation)
