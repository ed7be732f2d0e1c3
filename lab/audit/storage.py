"""The audit's rules for volumes: claims bound before their pod, volumes in reach, one pod per claim, attach limits.

Claims, volumes and limits as the API server had them when a Binding arrived. It shares no code with the scheduler.
In-tree disks, storage capacity, and VolumeAttachments that no pod needs are not judged.

Sources: kube-scheduler 1.36 ``plugins/volumebinding``, ``volumerestrictions``, ``nodevolumelimits/csi.go``.
"""

from __future__ import annotations

from collections.abc import Iterator

from lab.audit.ledger import ELIGIBILITY_GRACE_S as GRACE_S
from lab.audit.relations import FOREVER, Stander
from lab.audit.rules import Json, NodeFacts, selector_holds

BIND_COMPLETED = "pv.kubernetes.io/bind-completed"
SELECTED_NODE = "volume.kubernetes.io/selected-node"
NO_PROVISIONER = "kubernetes.io/no-provisioner"
ONCE_PER_POD = "ReadWriteOncePod"
KINDS = ("PersistentVolumeClaim", "PersistentVolume", "StorageClass", "CSINode")


class StorageAudit:
    """Objects by kind and name, and which pods on which node use which claims."""

    def __init__(self) -> None:
        self._objects: dict[str, dict[str, Json]] = {kind: {} for kind in KINDS}
        self._limits: dict[str, tuple[float, dict[str, int]]] = {}
        self._users: dict[str, Stander] = {}

    def change(self, kind: str, key: str, obj: Json | None, time_s: float) -> None:
        """An object came, changed or (None) went. ``key``: ``namespace/name``, or the name."""
        known = self._objects[kind].get(key)
        if kind == "CSINode":
            self._limits[key] = (time_s, _limits(known))
        if obj is None:
            self._objects[kind].pop(key, None)
        else:
            self._objects[kind][key] = obj

    def stand(self, pod: Stander) -> None:
        """A pod stands on its node."""
        if any(_claims_of(pod)):
            self._users[pod.uid] = pod

    def leave(self, uid: str) -> None:
        """A pod finished or is gone."""
        self._users.pop(uid, None)

    def refusal(self, pod: Stander, node: NodeFacts, time_s: float) -> str:
        """The rule by which a pod bound to the node now should not be there; empty when there is none."""
        for key, claim in self._claims(pod):
            if claim is None:
                return f"its claim {key} does not exist"
            if not _bound(claim):
                return f"its claim {key} is not bound"
            volume = self._objects["PersistentVolume"].get(claim["spec"]["volumeName"])
            if volume is None:
                return f"the volume of its claim {key} does not exist"
            if not _reaches(volume, node):
                return f"the node does not reach the volume of its claim {key}"
        return self._in_use(pod) or self._too_many(pod, node.name, time_s)

    def admits(self, pod: Stander, node: NodeFacts) -> bool:
        """Whether its claims are bound there, or can be, and nobody is in the way. A claim that has been given a node
        and is not bound waits for the volume controller, not for a scheduler."""
        for _, claim in self._claims(pod):
            if claim is None or claim["metadata"].get("deletionTimestamp"):
                return False
            if _bound(claim):
                volume = self._objects["PersistentVolume"].get(claim["spec"]["volumeName"])
                if volume is None or not _reaches(volume, node):
                    return False
            elif not self._bindable(claim):
                return False
        return not (self._in_use(pod) or self._too_many(pod, node.name, FOREVER))

    def _bindable(self, claim: Json) -> bool:
        storage_class = self._objects["StorageClass"].get(claim["spec"].get("storageClassName") or "")
        if storage_class is None or storage_class.get("volumeBindingMode") != "WaitForFirstConsumer":
            return False
        if claim["spec"].get("volumeName") or SELECTED_NODE in (claim["metadata"].get("annotations") or {}):
            return False
        # static volumes and topologies are not looked at: then nothing is claimed either way
        return storage_class.get("provisioner") != NO_PROVISIONER and not storage_class.get("allowedTopologies")

    def _in_use(self, pod: Stander) -> str:
        for key, claim in self._claims(pod):
            if claim is None or ONCE_PER_POD not in (claim["spec"].get("accessModes") or ()):
                continue
            for other in self._users.values():
                if other.uid != pod.uid and key in _claims_of(other):
                    return f"its claim {key} is for one pod, and {other.key} uses it"
        return ""

    def _too_many(self, pod: Stander, node: str, time_s: float) -> str:
        """A volume that several pods of a node use is attached once."""
        changed_s, before = self._limits.get(node, (0.0, {}))
        limits = _limits(self._objects["CSINode"].get(node))
        if not limits:
            return ""
        mine = set(self._volumes(pod))
        there = {
            volume
            for other in self._users.values()
            if other.node == node and other.uid != pod.uid
            for volume in self._volumes(other)
        }
        for driver in {driver for driver, _ in mine - there}:
            allowed = limits.get(driver)
            if allowed is not None and time_s - changed_s <= GRACE_S:
                allowed = max(allowed, before.get(driver, allowed))
            attached = sum(1 for one, _ in mine | there if one == driver)
            if allowed is not None and attached > allowed:
                return f"{attached} volumes of {driver} on the node, which takes {allowed}"
        return ""

    def _volumes(self, pod: Stander) -> Iterator[tuple[str, str]]:
        """(driver, handle) of the CSI volumes behind its claims."""
        for _, claim in self._claims(pod):
            volume = self._objects["PersistentVolume"].get((claim or {}).get("spec", {}).get("volumeName") or "")
            source = ((volume or {}).get("spec") or {}).get("csi")
            if source:
                yield source["driver"], source["volumeHandle"]

    def _claims(self, pod: Stander) -> Iterator[tuple[str, Json | None]]:
        for key in _claims_of(pod):
            yield key, self._objects["PersistentVolumeClaim"].get(key)


def _claims_of(pod: Stander) -> list[str]:
    """Keys of the claims that a pod uses."""
    found = []
    for volume in pod.spec.get("volumes") or ():
        if volume.get("persistentVolumeClaim"):
            found.append(f"{pod.namespace}/{volume['persistentVolumeClaim']['claimName']}")
        elif volume.get("ephemeral"):
            found.append(f"{pod.key}-{volume['name']}")
    return found


def _bound(claim: Json) -> bool:
    completed = BIND_COMPLETED in (claim["metadata"].get("annotations") or {})
    return completed and bool(claim["spec"].get("volumeName"))


def _reaches(volume: Json, node: NodeFacts) -> bool:
    needed = ((volume.get("spec") or {}).get("nodeAffinity") or {}).get("required")
    return needed is None or selector_holds(needed, node)


def _limits(csi_node: Json | None) -> dict[str, int]:
    drivers = ((csi_node or {}).get("spec") or {}).get("drivers") or ()
    counts = {driver["name"]: (driver.get("allocatable") or {}).get("count") for driver in drivers}
    return {name: count for name, count in counts.items() if count is not None}
