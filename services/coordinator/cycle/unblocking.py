"""PostFilter of DynamicResources: an allocation that keeps its pod from every node is given back."""

from __future__ import annotations

from services.coordinator.core.instructions import FreeClaim
from services.coordinator.core.state import State
from shared.model.pod import Pod
from shared.scheduling.devices import rule as devices
from shared.scheduling.devices.claims import may_be_freed


def unblock(state: State, pod: Pod, *, fits_nowhere: bool) -> None:
    """Free a claim that was given devices on nodes that do not take the pod, if only this pod would use it, or delete
    one that an attempt has left for its extended resources; the pod is tried again when the watch shows it.
    ``fits_nowhere``: no node takes the pod; else that is asked here, for a member of a group may be kept back by its
    fellows alone."""
    claims = state.devices.claims(pod)
    if not any(one.for_extended or (one.allocation is not None and may_be_freed(one, pod.uid)) for one in claims):
        return
    rule = devices.prepare(state.cluster, pod)
    if not isinstance(rule, devices.DynamicResources):
        return
    mask = state.feasibility.of(pod.pod_class).mask
    if not fits_nowhere and (mask & rule.mask()).any():
        return
    rule.ask_all(mask)
    found = rule.unblock()
    for claim in found.deallocate[:1]:
        state.log("claim_freed", pod_uid=pod.uid, pod=pod.key, claim=claim.key)
        state.out.append(FreeClaim(claim.namespace, claim.name, claim.uid, pod.uid, claim.resource_version))
    if (left := found.delete) is not None and left.uid:
        state.log("claim_deleted", pod_uid=pod.uid, pod=pod.key, claim=left.key)
        state.out.append(FreeClaim(left.namespace, left.name, left.uid, pod.uid, left.resource_version, delete=True))
