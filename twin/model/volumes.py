"""What the volume controllers of a cluster make of claims and volumes, as the twin plays them.

Pure: API JSON in, the next step for one claim or one volume out. Steps are levels, so any may be asked for again:

    claim -- finds a volume, or one is made --> volume reserved (claimRef) --> volume Bound --> claim Bound

Sources: ``pkg/controller/volume/persistentvolume`` (``pv_controller.go``, ``index.go``), ``.../ephemeral``,
``.../pvcprotection`` and sig-storage-lib-external-provisioner of Kubernetes 1.36. It shares no code with the
scheduler's own volume rules, which are tested against it. It does not enlarge volumes, nor look at storage
capacity.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from shared.model.resources import parse_amount
from twin.model.plain_selectors import selects

Json = dict[str, Any]

BIND_COMPLETED = "pv.kubernetes.io/bind-completed"
BOUND_BY_CONTROLLER = "pv.kubernetes.io/bound-by-controller"
PROVISIONED_BY = "pv.kubernetes.io/provisioned-by"
SELECTED_NODE = "volume.kubernetes.io/selected-node"
ZONE = "topology.kubernetes.io/zone"
CLAIM_PROTECTION, VOLUME_PROTECTION = "kubernetes.io/pvc-protection", "kubernetes.io/pv-protection"
NO_PROVISIONER = "kubernetes.io/no-provisioner"

PROVISION_ANNOTATION = "conclave.io/twin-provision-s"
"""On a StorageClass: virtual seconds until a volume of it is made; ``never``: none ever is."""

FOREVER = float("inf")
MAX_PROVISION_S = 86_400.0


@dataclass(frozen=True, slots=True)
class TakeVolume:
    """Bind the claim to the volume of this name, which exists."""

    volume: str


@dataclass(frozen=True, slots=True)
class Make:
    """Create this volume after ``after_s`` virtual seconds; it is reserved for the claim."""

    volume: Json
    after_s: float


@dataclass(frozen=True, slots=True)
class Unselect:
    """Take the selected node back: it is gone, so the scheduler is to choose again."""


@dataclass(frozen=True, slots=True)
class Lose:
    """The claim's volume is gone: phase Lost."""


Step = TakeVolume | Make | Unselect | Lose


def claim_step(claim: Json, storage_class: Json | None, volumes: Iterable[Json], node: Json | None) -> Step | None:
    """What is next for a claim; None: it waits, or nothing is left to do.

    ``volumes``: all there are, by name; ``node``: the one its annotation selects, where it exists.
    """
    meta, spec = claim["metadata"], claim["spec"]
    annotations, by_name = meta.get("annotations") or {}, {volume["metadata"]["name"]: volume for volume in volumes}
    named = spec.get("volumeName") or ""
    if BIND_COMPLETED in annotations:
        phase = (claim.get("status") or {}).get("phase")
        return Lose() if named not in by_name and phase != "Lost" else None
    if meta.get("deletionTimestamp"):
        return None
    if named:
        volume = by_name.get(named)
        free = volume is not None and (is_for(volume, claim) or not volume["spec"].get("claimRef"))
        return TakeVolume(named) if free else None
    delayed = (storage_class or {}).get("volumeBindingMode") == "WaitForFirstConsumer"
    found = _match(claim, by_name.values(), reserved_only=delayed)
    if found:
        return TakeVolume(found)
    selected = annotations.get(SELECTED_NODE, "")
    if storage_class is None or (delayed and not selected):
        return None
    if storage_class.get("provisioner") in ("", None, NO_PROVISIONER) or spec.get("selector"):
        return None
    if delayed and node is None:
        return Unselect()
    after_s = provision_s(storage_class)
    return Make(_made(claim, storage_class, node), after_s) if after_s != FOREVER else None


def provision_s(storage_class: Json) -> float:
    """Virtual seconds that making a volume takes; ``FOREVER`` where it never ends. What is no number of seconds counts
    as 0, because one bad class must not stop a cluster."""
    given = (storage_class["metadata"].get("annotations") or {}).get(PROVISION_ANNOTATION, "0")
    if given == "never":
        return FOREVER
    try:
        return min(max(float(given), 0.0), MAX_PROVISION_S)
    except ValueError:
        return 0.0


def is_for(volume: Json, claim: Json) -> bool:
    """Whether the volume is reserved for this claim; a reservation without uid is for the name."""
    reference, meta = volume["spec"].get("claimRef") or {}, claim["metadata"]
    same = (reference.get("namespace"), reference.get("name")) == (meta["namespace"], meta["name"])
    return same and reference.get("uid") in (None, "", meta["uid"])


def _match(claim: Json, volumes: Iterable[Json], *, reserved_only: bool) -> str:
    """The volume reserved for the claim, else the smallest that fits; "" for none (``findByClaim``)."""
    spec = claim["spec"]
    asked = _storage((spec.get("resources") or {}).get("requests"))
    fitting = []
    for volume in volumes:
        meta, offered = volume["metadata"], volume["spec"]
        if meta.get("deletionTimestamp") or (offered.get("volumeMode") or "Filesystem") != (
            spec.get("volumeMode") or "Filesystem"
        ):
            continue
        if _storage(offered.get("capacity")) < asked:
            continue
        if offered.get("claimRef"):
            if is_for(volume, claim):
                return str(meta["name"])
            continue
        if (
            not reserved_only
            and (volume.get("status") or {}).get("phase") == "Available"
            and (offered.get("storageClassName") or "") == (spec.get("storageClassName") or "")
            and set(spec.get("accessModes") or ()) <= set(offered.get("accessModes") or ())
            and (spec.get("selector") is None or selects(spec["selector"], meta.get("labels") or {}))
        ):
            fitting.append((_storage(offered.get("capacity")), str(meta["name"])))
    return min(fitting)[1] if fitting else ""


def _made(claim: Json, storage_class: Json, node: Json | None) -> Json:
    """The volume that a CSI provisioner makes: reachable from the selected node's zone, where it has one."""
    meta, spec, provisioner = claim["metadata"], claim["spec"], storage_class["provisioner"]
    name = f"pvc-{meta['uid']}"
    made: Json = {
        "capacity": {"storage": spec["resources"]["requests"]["storage"]},
        "accessModes": list(spec.get("accessModes") or ()),
        "volumeMode": spec.get("volumeMode") or "Filesystem",
        "persistentVolumeReclaimPolicy": storage_class.get("reclaimPolicy") or "Delete",
        "storageClassName": storage_class["metadata"]["name"],
        "claimRef": claim_reference(claim),
        "csi": {"driver": provisioner, "volumeHandle": name},
    }
    zone = ((node or {}).get("metadata", {}).get("labels") or {}).get(ZONE)
    if zone:
        term = {"matchExpressions": [{"key": ZONE, "operator": "In", "values": [zone]}]}
        made["nodeAffinity"] = {"required": {"nodeSelectorTerms": [term]}}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name, "annotations": {PROVISIONED_BY: provisioner}},
        "spec": made,
    }


def claim_reference(claim: Json) -> Json:
    """The ``claimRef`` of a volume that is the claim's."""
    meta = claim["metadata"]
    return {
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": meta["namespace"], "name": meta["name"],
        "uid": meta["uid"],
    }  # fmt: skip


# --- objects after a step: copies, what comes in is never changed ---------------------------------------------------


def bound_volume(volume: Json, claim: Json) -> Json:
    """The volume with the claim as its owner, phase Bound. A reservation that somebody else made stays as it is, but
    for the uid."""
    known, meta = volume["spec"].get("claimRef"), volume["metadata"]
    annotations = meta.get("annotations") or {}
    if not known:
        annotations = {**annotations, BOUND_BY_CONTROLLER: "yes"}
    reference = claim_reference(claim) if not known else {**claim_reference(claim), **_without_empty(known)}
    status = {**(volume.get("status") or {}), "phase": "Bound"}
    meta = {**meta, "annotations": annotations} if annotations else meta
    return {**volume, "metadata": meta, "spec": {**volume["spec"], "claimRef": reference}, "status": status}


def bound_claim(claim: Json, volume: Json) -> Json:
    """The claim on the volume, phase Bound."""
    meta, spec, offered = claim["metadata"], claim["spec"], volume["spec"]
    annotations = {**(meta.get("annotations") or {}), BIND_COMPLETED: "yes"}
    if not spec.get("volumeName"):
        annotations[BOUND_BY_CONTROLLER] = "yes"
    status = {
        **(claim.get("status") or {}),
        "phase": "Bound",
        "accessModes": list(offered.get("accessModes") or ()),
        "capacity": dict(offered.get("capacity") or {}),
    }
    meta = {**meta, "annotations": annotations}
    return {**claim, "metadata": meta, "spec": {**spec, "volumeName": volume["metadata"]["name"]}, "status": status}


def lost_claim(claim: Json) -> Json:
    """The claim in phase Lost."""
    return {**claim, "status": {**(claim.get("status") or {}), "phase": "Lost"}}


def unselected_claim(claim: Json) -> Json:
    """The claim without a selected node."""
    kept = {key: value for key, value in claim["metadata"]["annotations"].items() if key != SELECTED_NODE}
    return {**claim, "metadata": {**claim["metadata"], "annotations": kept}}


def volume_phase(volume: Json, claim: Json | None) -> str:
    """The phase a volume should have; ``claim``: the one it is reserved for, if that exists (``syncVolume``)."""
    reference = volume["spec"].get("claimRef") or {}
    if not reference.get("uid"):
        return "Available"
    if claim is None or claim["metadata"]["uid"] != reference["uid"]:
        return "Released"
    if claim["spec"].get("volumeName") == volume["metadata"]["name"]:
        return "Bound"
    return str((volume.get("status") or {}).get("phase") or "Pending")


def reclaimed(volume: Json) -> bool:
    """Whether a released volume is deleted with what it stored."""
    made = PROVISIONED_BY in (volume["metadata"].get("annotations") or {})
    return made and volume["spec"].get("persistentVolumeReclaimPolicy") == "Delete"


def ephemeral_claims(pod: Json) -> Iterable[Json]:
    """The claims of a pod's generic ephemeral volumes, which it owns."""
    meta = pod["metadata"]
    owner = {
        "apiVersion": "v1", "kind": "Pod", "name": meta["name"], "uid": meta["uid"], "controller": True,
        "blockOwnerDeletion": True,
    }  # fmt: skip
    for volume in pod["spec"].get("volumes") or ():
        template: Mapping[str, Any] | None = (volume.get("ephemeral") or {}).get("volumeClaimTemplate")
        if template is None:
            continue
        given = template.get("metadata") or {}
        named = {"name": f"{meta['name']}-{volume['name']}", "namespace": meta["namespace"]}
        kept = {key: dict(given[key]) for key in ("labels", "annotations") if given.get(key)}
        yield {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {**kept, **named, "ownerReferences": [owner]},
            "spec": dict(template["spec"]),
        }


def claim_names(pod: Json) -> Iterable[str]:
    """Names of the claims a pod uses, in its namespace."""
    for volume in pod["spec"].get("volumes") or ():
        if volume.get("persistentVolumeClaim"):
            yield str(volume["persistentVolumeClaim"]["claimName"])
        elif volume.get("ephemeral"):
            yield f"{pod['metadata']['name']}-{volume['name']}"


def _storage(amounts: Mapping[str, str] | None) -> int:
    """Bytes. Admission has checked the quantity."""
    quantity = (amounts or {}).get("storage")
    return parse_amount("storage", quantity) if quantity else 0


def _without_empty(reference: Json) -> Json:
    return {key: value for key, value in reference.items() if value}
