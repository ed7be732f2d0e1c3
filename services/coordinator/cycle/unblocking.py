"""PostFilter of DynamicResources: an allocation that keeps its pod from every node is given back.

What a pod group has for all of its members is given back here alone, never by a binder: only the coordinator knows of
every member whether it stands or is on its way, through whichever shard. Each is written by the resourceVersion that
was judged: a binder that has marked the claim since for a member goes first. A write that comes to nothing is made good
by ``leave_idle``, which goes by what there is and not by what has just happened.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain

from services.coordinator.core.instructions import FreeClaim
from services.coordinator.core.state import CoordinatorState
from shared.model.devices import Consumer, DeviceClaim
from shared.model.pod import Pod
from shared.scheduling.devices import rule as devices
from shared.scheduling.devices.claims import may_be_freed
from shared.scheduling.places import Place

TRIED_SOON = frozenset({Place.ACTIVE, Place.BACKOFF, Place.IN_FLIGHT})


def unblock(state: CoordinatorState, pod: Pod, *, fits_nowhere: bool) -> None:
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
    # One at a time, as upstream's PostFilter: the pod is tried when that is seen, and may need no second.
    for claim in [one for one in found.deallocate if one.key in freeable][:1]:
        _free(state, pod, claim, freeable[claim.key])
    if (left := found.delete) is not None and left.uid:
        state.log("claim_deleted", pod_uid=pod.uid, pod=pod.key, claim=left.key)
        state.out.append(FreeClaim(left.namespace, left.name, left.uid, pod.uid, left.resource_version, delete=True))


def leave(state: CoordinatorState, group: str, pods: Iterable[Pod]) -> bool:
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


def leave_idle(state: CoordinatorState) -> None:
    """Give back what the pod groups have of which something changed, where members wait that nobody is about to try
    (too few are there, a Queue holds them back, they are parked), and none stands or is on its way."""
    looked, state.to_leave = state.to_leave, {}
    for key in looked:
        group = state.cluster.pod_groups.get(key)
        claims = state.sole.get(group.uid) if group is not None and group.claims else None
        if group is None or not claims or _in_use(state, key) or (waits := _idle(state, key)) is None:
            continue
        for name in claims:
            claim, shown = state.devices.inventory.claims.get(name), state.devices.accounts.shown[name]
            if claim is None or not may_be_freed(claim, group.uid):
                continue  # a pod is on its way with it that names it beside the group
            if state.freed_at.get(name) != shown.resource_version:
                state.freed_at[name] = shown.resource_version
                _free(state, waits, claim, Consumer(group.name, group.uid, group=True))


def look_again(state: CoordinatorState) -> None:
    """Once in a while, at every group that has devices: a write may have been lost."""
    state.freed_at.clear()
    state.to_leave.update((key, None) for uid, key in state.claiming.items() if uid in state.sole)


def _idle(state: CoordinatorState, group: str) -> Pod | None:
    """A member that waits, where nobody is about to try any; None too where another scheduler may."""
    members, entries = state.groups.members.get(group), state.queue.entries
    if members is not None and members.foreign:
        return None
    waiting = members.pending if members is not None else {}
    for uid in waiting:
        entry = entries.get(uid)
        if entry is None or entry.place in TRIED_SOON or uid in state.cluster.nominated_to:
            return None
    lacking = (state.gated[uid].pod for uid in state.awaited_claims.of(group) if uid in state.gated)
    return next(chain(waiting.values(), lacking), None)


def give_way(state: CoordinatorState, pod: Pod) -> None:
    """A binder has given the pod back. What its group has serves nobody any more, where it was the last on its way; and
    what was allocated for it, while another claim has a device of that too, is given back where nobody uses it: a
    binder gives back what it wrote itself."""
    leave(state, pod.group, (pod,))
    for claim, user in state.devices.freeable(pod):
        if not user.group and state.devices.contested(claim.key):
            _free(state, pod, claim, user)


def _in_use(state: CoordinatorState, group: str) -> bool:
    """Whether a member of the pod group stands, or is on its way, or may be: no binder has said what became of it."""
    return bool(group) and (bool(state.cluster.members.get(group)) or state.groups.in_doubt(group, state.now))


def _free(state: CoordinatorState, pod: Pod, claim: DeviceClaim, user: Consumer) -> bool:
    shown = state.devices.accounts.shown.get(claim.key)
    if shown is None or shown.allocation is None:
        return False  # assumed alone, or written and not shown yet: which version that makes is not known here
    state.log("claim_freed", pod_uid=pod.uid, pod=pod.key, claim=claim.key)
    state.out.append(FreeClaim(claim.namespace, claim.name, claim.uid, user.uid, shown.resource_version))
    return True
