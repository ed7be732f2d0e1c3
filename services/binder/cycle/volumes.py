"""Volumes that have to be bound before their pod is: what to write to claims and volumes, and what still to wait for.

Source: kube-scheduler 1.36 ``plugins/volumebinding`` (PreBind, ``BindPodVolumes``). A claim that waits for its first
consumer gets the free volume that its node reaches (``claimRef``, which the volume controller completes), or else the
annotation ``volume.kubernetes.io/selected-node``, by which a provisioner makes one. The pod's intent is committed
before; its Binding waits until every claim is bound.

Not its job: choose another node (a wait that takes too long gives the unit back), provision.
"""

from __future__ import annotations

from typing import Any

from services.binder.core.in_flight import InFlightBinding
from services.binder.core.instructions import PatchObject
from services.binder.core.state import BinderState
from shared.kube.cluster_objects import SELECTED_NODE
from shared.model.cluster_objects import PersistentVolume, VolumeClaim
from shared.model.pod import Pod
from shared.scheduling.filters import volume_binding
from shared.scheduling.framework import Rejection
from shared.scheduling.matching.volumes import affinity_mask, usable_volumes

BOUND_BY_CONTROLLER = "pv.kubernetes.io/bound-by-controller"

NOT_IN_TIME = 'running PreBind plugin "VolumeBinding": binding volumes: context deadline exceeded'
"""kube-scheduler's message for volumes that were not bound in time."""

CLAIMS_NAMED = 5


def waiting_text(claims: list[VolumeClaim], node_name: str) -> str:
    """What a pod says while its volumes are being bound. Our own words: kube-scheduler says nothing until the end."""
    named = ", ".join(f'"{claim.name}"' for claim in claims[:CLAIMS_NAMED])
    more = f" and {len(claims) - CLAIMS_NAMED} more" if len(claims) > CLAIMS_NAMED else ""
    return f"waiting for persistentvolumeclaim(s) {named}{more} to be bound for node {node_name}"


def unbound_claims(state: BinderState, pod: Pod) -> list[VolumeClaim]:
    """The pod's claims that are not bound yet, smallest first; none for a pod without volumes."""
    relations = pod.relations
    if relations is None or not relations.claims:
        return []
    known = (state.cluster.storage.claims.get(f"{pod.namespace}/{use.name}") for use in relations.claims)
    return sorted((c for c in known if c is not None and not c.bound), key=lambda claim: claim.storage_bytes)


def in_vain(state: BinderState, binding: InFlightBinding, pod: Pod) -> str:
    """Why the pod cannot have its volumes on the unit's node any more: "" while it can (``checkBindings``).

    A claim was deleted, another took the only volume, the provisioner took the selected node back. A class or a volume
    that is not seen yet is no reason: its watch may lag.
    """
    relations = pod.relations
    if relations is None or not relations.claims:
        return ""
    for claim in unbound_claims(state, pod):
        if claim.selected_node == binding.node:
            binding.selected.add(claim.key)
        # It named our node before: the provisioner takes that off where it cannot make a volume (checkBindings).
        elif claim.key in binding.selected and not claim.volume_name:
            return f'{binding.node}: provisioning failed for PVC "{claim.name}"'
    rule = volume_binding.prepare(state.cluster, pod)
    if isinstance(rule, Rejection):
        reasons = rule.reasons
    else:
        verdict = rule.verdict(state.cache.table.row_of[binding.node]) if rule is not None else None
        reasons = verdict[1] if verdict is not None else ()
    if not reasons or reasons in ((volume_binding.UNBOUND,), (volume_binding.VOLUME_GONE,)):
        return ""
    return f"{binding.node}: {', '.join(reasons)}"[:512]


def writes_for(state: BinderState, claims: list[VolumeClaim], node_name: str) -> list[PatchObject]:
    """What has to be written so that the claims are bound for the node; nothing that is there already."""
    storage, row = state.cluster.storage, state.cache.table.row_of[node_name]
    taken: set[str] = set()
    writes = []
    for claim in claims:
        if claim.volume_name or claim.selected_node == node_name:
            continue
        for volume in usable_volumes(claim, storage.volumes_of_class(claim.class_name)):
            if volume.name not in taken and affinity_mask(state.cache.table, volume.affinity)[row]:
                taken.add(volume.name)
                if volume.claim is None:
                    writes.append(_reserve(volume, claim))
                break
        else:
            writes.append(_select(claim, node_name))
    return writes


def _reserve(volume: PersistentVolume, claim: VolumeClaim) -> PatchObject:
    namespace = claim.key.partition("/")[0]
    reference = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "namespace": namespace,
        "name": claim.name,
        "uid": claim.uid,
    }
    patch: dict[str, Any] = {
        "metadata": {"annotations": {BOUND_BY_CONTROLLER: "yes"}},
        "spec": {"claimRef": reference},
    }
    return PatchObject("persistentvolumes", "", volume.name, _at(patch, volume.resource_version))


def _select(claim: VolumeClaim, node_name: str) -> PatchObject:
    patch: dict[str, Any] = {"metadata": {"annotations": {SELECTED_NODE: node_name}}}
    namespace = claim.key.partition("/")[0]
    return PatchObject("persistentvolumeclaims", namespace, claim.name, _at(patch, claim.resource_version))


def _at(patch: dict[str, Any], resource_version: str) -> dict[str, Any]:
    """The patch with the object's resourceVersion as a precondition: who changed it meanwhile may have bound it."""
    if resource_version:
        patch["metadata"]["resourceVersion"] = resource_version
    return patch
