"""The volume controllers of the twin: claims are bound, volumes made for them, reservations completed, remains cleared.

A thin shell: ``twin.model.volumes`` decides, this file has the registry and the clock. It acts on every claim and
volume, whoever made it, and writes no events.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twin.controllers.runtime import Controller, ObjectKey
from twin.model.volumes import (
    CLAIM_PROTECTION,
    SELECTED_NODE,
    VOLUME_PROTECTION,
    Lose,
    Make,
    TakeVolume,
    bound_claim,
    bound_volume,
    claim_names,
    claim_step,
    ephemeral_claims,
    lost_claim,
    reclaimed,
    unselected_claim,
    volume_phase,
)
from twin.registry.registry import TwinRegistry

Json = dict[str, Any]

CLAIMS, VOLUMES, CLASSES = "persistentvolumeclaims", "persistentvolumes", "storageclasses.storage.k8s.io"
FINISHED = ("Succeeded", "Failed")


class VolumeController(Controller[ObjectKey]):
    """Keys are claims, volumes and pods. ``speed``: virtual seconds per second."""

    user = "system:serviceaccount:kube-system:persistent-volume-binder"

    def __init__(self, registry: TwinRegistry, *, speed: float = 1.0) -> None:
        super().__init__(registry)
        self._speed = speed
        self._made_at: dict[str, float] = {}
        """When the volume of a claim (uid) that waits for one will be there, on the loop's clock."""

    def follows(self) -> list[str]:
        return [CLAIMS, VOLUMES, "pods"]

    def concerns(self, resource: str, obj: Json, *, gone: bool) -> None:
        meta, spec = obj["metadata"], obj.get("spec") or {}
        if resource == "nodes":
            if gone:
                self._note_claims(lambda claim: _selected(claim) == meta["name"])
        elif resource == "pods":
            if spec.get("volumes"):
                self.note(("pods", meta["namespace"], meta["name"]))
                for name in claim_names(obj):
                    self.note((CLAIMS, meta["namespace"], name))
        elif resource == CLASSES:
            self._note_claims(lambda claim: claim["spec"].get("storageClassName") == meta["name"])
        elif resource == CLAIMS:
            if gone:
                self._made_at.pop(meta["uid"], None)
            self.note((CLAIMS, meta["namespace"], meta["name"]))
            if spec.get("volumeName"):
                self.note((VOLUMES, "", spec["volumeName"]))
        elif resource == VOLUMES:
            self.note((VOLUMES, "", meta["name"]))
            reference = spec.get("claimRef")
            if reference:
                self.note((CLAIMS, reference.get("namespace", ""), reference.get("name", "")))
            else:
                self._note_claims(lambda claim: not claim["spec"].get("volumeName"))

    def _note_claims(self, wanted: Callable[[Json], bool]) -> None:
        for claim in self.registry.list(CLAIMS):
            if wanted(claim):
                self.note((CLAIMS, claim["metadata"]["namespace"], claim["metadata"]["name"]))

    def reconcile(self, key: ObjectKey) -> None:
        obj = self.registry.get(*key)
        if key[0] == "pods":
            self._sync_pod(key[1], key[2], obj)
        elif obj is not None and key[0] == CLAIMS:
            self._sync_claim(key, obj)
        elif obj is not None:
            self._sync_volume(key, obj)

    def _sync_pod(self, namespace: str, name: str, pod: Json | None) -> None:
        """The claims of its ephemeral volumes come and go with it; a pod of the same name gets new ones."""
        uid = pod["metadata"]["uid"] if pod is not None else ""
        for claim in list(self.registry.list(CLAIMS, namespace)):
            owners = claim["metadata"].get("ownerReferences") or ()
            if any((one["kind"], one["name"]) == ("Pod", name) and one["uid"] != uid for one in owners):
                self.delete(CLAIMS, claim)
        if pod is None or pod["metadata"].get("deletionTimestamp"):
            return
        for claim in ephemeral_claims(pod):
            if self.registry.get(CLAIMS, namespace, claim["metadata"]["name"]) is None:
                self.create(CLAIMS, namespace, claim)

    def _sync_claim(self, key: ObjectKey, claim: Json) -> None:
        if claim["metadata"].get("deletionTimestamp") and not self._used(claim):
            self.release(key, claim, CLAIM_PROTECTION)
            return
        storage_class = self.registry.get(CLASSES, "", claim["spec"].get("storageClassName") or "")
        node = self.registry.get("nodes", "", _selected(claim))
        match claim_step(claim, storage_class, self.registry.list(VOLUMES), node):
            case TakeVolume(name):
                volume = self.change((VOLUMES, "", name), lambda volume: bound_volume(volume, claim))
                self.change(key, lambda found: bound_claim(found, volume))
            case Make(volume, after_s):
                self._make(key, claim["metadata"]["uid"], volume, after_s)
            case Lose():
                self.change(key, lost_claim)
            case None:
                pass
            case _:
                self.change(key, unselected_claim)

    def _make(self, key: ObjectKey, uid: str, volume: Json, after_s: float) -> None:
        """Create the volume when its time has come; what it is to be is asked again then."""
        due = self._made_at.setdefault(uid, self.loop_s() + after_s / self._speed)
        if due > self.loop_s():
            self.again(key, due - self.loop_s())
            return
        if self.registry.get(VOLUMES, "", volume["metadata"]["name"]) is None:
            self.create(VOLUMES, "", volume)
        del self._made_at[uid]

    def _sync_volume(self, key: ObjectKey, volume: Json) -> None:
        reference = volume["spec"].get("claimRef") or {}
        claim = self.registry.get(CLAIMS, reference.get("namespace", ""), reference.get("name", ""))
        phase = volume_phase(volume, claim)
        if volume["metadata"].get("deletionTimestamp"):
            if phase != "Bound":
                self.release(key, volume, VOLUME_PROTECTION)
            return
        if phase == "Released" and reclaimed(volume):
            self.delete(VOLUMES, volume)
            return
        status = volume.get("status") or {}
        if status.get("phase") != phase:
            self.change(key, lambda one: {**one, "status": {**status, "phase": phase}})

    def _used(self, claim: Json) -> bool:
        """Whether a pod that has not finished names the claim (``pvcprotection``)."""
        namespace, name = claim["metadata"]["namespace"], claim["metadata"]["name"]
        return any(
            name in claim_names(pod)
            for pod in self.registry.list("pods", namespace)
            if (pod.get("status") or {}).get("phase") not in FINISHED
        )


def _selected(claim: Json) -> str:
    """The node that the scheduler has chosen for the claim, or ""."""
    return str((claim["metadata"].get("annotations") or {}).get(SELECTED_NODE, ""))
