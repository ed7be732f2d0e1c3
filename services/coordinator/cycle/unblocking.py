"""PostFilter of DynamicResources: an allocation that keeps its pod from every node is given back.

What a pod group has for all of its members is given back here alone, never by a binder: only the coordinator knows of
every member whether it stands or is on its way, through whichever shard. Each is written by the resourceVersion that
was judged: a binder that has marked the claim since for a member goes first.
"""

from __future__ import annotations

from collections.abc import Iterable

from services.coordinator.core.instructions import FreeClaim
from services.coordinator.core.state import State
from shared.model.devices import Consumer, DeviceClaim
from shared.model.pod import Pod
from shared.scheduling.devices import rule as devices


def unblock(state: State, pod: Pod, *, fits_nowhere: bool) -> None:
    """Free a claim that was given devices on nodes that do not take the pod, if only this pod would use it, or delete
    one that an attempt has left for its extended resources; the pod is tried again when the watch shows it.
    ``fits_nowhere``: no node takes the pod; else that is asked here, for a member of a group may be kept back by its
    fellows alone."""
    freeable = {claim.key: user for claim, user in state.devices.freeable(pod)}
    if _in_use(state, pod.group):
        freeable = {key: user for key, user in freeable.items() if not user.group}
    if not freeable and not any(one.for_extended for one in state.devices.claims(pod)):
        return
    rule = devices.prepare(state.cluster, pod)
    if not isinstance(rule, devices.DynamicResources):
        return
    mask = state.feasibility.of(pod.pod_class).mask
    if not fits_nowhere and (mask & rule.mask()).any():
        return
    rule.ask_all(mask)
    found = rule.unblock()
    for claim in [one for one in found.deallocate if one.key in freeable][:1]:
        _free(state, pod, claim, freeable[claim.key])
    if (left := found.delete) is not None and left.uid:
        state.log("claim_deleted", pod_uid=pod.uid, pod=pod.key, claim=left.key)
        state.out.append(FreeClaim(left.namespace, left.name, left.uid, pod.uid, left.resource_version, delete=True))


def leave(state: State, group: str, pods: Iterable[Pod]) -> bool:
    """Give back what a pod group has for all of its members, ``pods`` among them, while none of them stands or is on
    its way; whether there is something. Those that wait are tried with whatever devices are free then: where a claim
    has some already, there may be no room for all."""
    if not group or _in_use(state, group):
        return False
    found = {
        claim.key: (pod, claim, user)
        for pod in pods
        if pod.asks is not None
        for claim, user in state.devices.freeable(pod)
        if user.group
    }
    freed = [_free(state, *one) for one in found.values()]
    return any(freed)


def give_way(state: State, pod: Pod) -> None:
    """A binder has given the pod back. What its group has serves nobody any more, where it was the last on its way; and
    what was allocated for it, while another claim has a device of that too, is given back where nobody uses it: a
    binder gives back what it wrote itself."""
    leave(state, pod.group, (pod,))
    for claim, user in state.devices.freeable(pod):
        if not user.group and state.devices.contested(claim.key):
            _free(state, pod, claim, user)


def _in_use(state: State, group: str) -> bool:
    """Whether a member of the pod group stands, or is on its way."""
    return bool(group) and bool(state.cluster.members.get(group))


def _free(state: State, pod: Pod, claim: DeviceClaim, user: Consumer) -> bool:
    shown = state.devices.accounts.shown.get(claim.key)
    if shown is None or shown.allocation is None:
        return False  # assumed alone, or written and not shown yet: which version that makes is not known here
    state.log("claim_freed", pod_uid=pod.uid, pod=pod.key, claim=claim.key)
    state.out.append(FreeClaim(claim.namespace, claim.name, claim.uid, user.uid, shown.resource_version))
    return True
