"""Does the node take the pod, as everything stands now? The binder's check before it commits, and the assuming.

Every node-local filter runs again at the node's current generation, with everybody's pods and everything assumed here
counted; the coordinator's and the agents' verdicts are advice (I2). What had to wait for its Binding is looked at
again. The rule itself is ``scheduling.cycle.conflicts``.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from services.binder.core.in_flight import InFlightBinding
from services.binder.core.state import BinderState
from shared.model.constraints import PodClass, fitted, gpu_milli_of
from shared.model.node import Node
from shared.model.pod import Pod
from shared.model.resources import MILLI_PER_DEVICE, is_extended
from shared.scheduling.cycle.conflicts import check_placement, within
from shared.scheduling.cycle.prefilter import Prepare
from shared.scheduling.devices import rule as devices
from shared.scheduling.devices.dynamic_resources import NAME as DYNAMIC_RESOURCES
from shared.scheduling.filters import volume_binding, volume_limits, volume_restrictions, volume_zone
from shared.scheduling.framework import Code, Rejection
from shared.scheduling.gates import unsupported_text
from shared.scheduling.numa import rule as numa
from shared.scheduling.state.node_table import PODS_COLUMN
from shared.wire.messages import Outcome


@dataclass(frozen=True, slots=True)
class CheckVerdict:
    """What ends a unit before it is committed: its outcome, and where it is or why."""

    outcome: Outcome
    node: str = ""
    reason: str = ""
    full: tuple[str, ...] = ()
    """Candidates that might take the unit if somebody left them."""


def may_bind(state: BinderState, pod: Pod) -> CheckVerdict | None:
    """Whether the pod itself can be bound by us; None when it can."""
    if pod.finished or pod.terminating:
        return CheckVerdict(Outcome.GONE, reason="the pod is finished or terminating")
    if pod.node_name:
        return CheckVerdict(Outcome.ELSEWHERE, pod.node_name)
    if pod.scheduler_name not in state.settings.ours:
        return CheckVerdict(Outcome.REFUSED, reason=f"the pod belongs to scheduler {pod.scheduler_name[:64]!r}")
    if pod.gates:
        return CheckVerdict(Outcome.REFUSED, reason="the pod has scheduling gates")
    if pod.invalid:
        return CheckVerdict(Outcome.REFUSED, reason=pod.invalid)
    if pod.unsupported:
        return CheckVerdict(Outcome.REFUSED, reason=unsupported_text(pod)[:512])
    return None


VOLUME_RULES: tuple[Prepare, ...] = (
    volume_restrictions.prepare,
    volume_limits.prepare,
    volume_binding.prepare,
    volume_zone.prepare,
)


def check_node(state: BinderState, pod: Pod, node_name: str, *, zones: bool = True) -> Rejection | None:
    """Every rule that the node, its pods, the pod's volumes and devices decide: None when the node takes the pod.

    Rules about other pods' labels and domains are the coordinator's alone: it sees all that is on its way. ``zones``
    False: those were looked at otherwise.
    """
    rejection = check_placement(state.feasibility, pod.pod_class, node_name)
    if rejection is not None:
        return rejection
    rules: tuple[Prepare, ...] = ()
    if pod.relations is not None and (pod.relations.claims or pod.relations.disks):
        rules = VOLUME_RULES
    if pod.asks is not None:
        rules = (*rules, devices.prepare)
    if pod.pod_class.needs is not None and zones:
        rules = (*rules, numa.prepare)
    row = state.cache.table.row_of[node_name]
    for prepare in rules:
        rule = prepare(state.cluster, pod)
        if isinstance(rule, Rejection):
            return rule
        verdict = rule.verdict(row) if rule is not None else None
        if rule is not None and verdict is not None:
            return Rejection(rule.name, *verdict)
    return None


def unseen(state: BinderState, binding: InFlightBinding) -> CheckVerdict | None:
    """The reservation whose room the unit is to have is not shown here: that of which nothing is known cannot be
    lifted, and beside it the unit would be counted twice."""
    if binding.reservation in state.cluster.reserved.standing:
        return None
    reason = f"{binding.node}: the reservation that it is to have there is not known to the binder, or is over"
    return CheckVerdict(Outcome.CONFLICT, binding.node, reason)


def may_be_of_class(state: BinderState, binding: InFlightBinding, pod: Pod) -> bool:
    """Whether a candidate offers none of an extended resource of the pod: a device class stands for it, as far as who
    sent the plan knows."""
    placement = binding.placement
    names = [name for name, _ in fitted(pod.pod_class) if is_extended(name)]
    for candidate in (placement.node, *placement.alternatives) if placement is not None else (binding.node,):
        node = _node(state, candidate)
        if node is not None and any(not node.allocatable.get(name) for name in names):
            return True
    return False


def choose(state: BinderState, binding: InFlightBinding, pod: Pod) -> CheckVerdict | None:
    """Assume the pod on the first candidate that takes it, devices picked; None when one did.

    Candidates are the placement's node, then its alternatives. The reason of a refusal is the first candidate's.
    """
    placement = binding.placement
    candidates = (placement.node, *placement.alternatives) if placement is not None else (binding.node,)
    binding.conflicts, binding.reason, full, outcome = 0, "", list[str](), Outcome.CONFLICT
    counts_as = lift(state, binding, pod) if binding.reservation else pod.pod_class
    for node in candidates:
        rejection = check_node(state, pod, node)
        # Last of all: it assumes devices, and what refused after it would leave them held for nobody.
        if rejection is None and pod.asks is not None and (lacks := state.hold_claims(binding, pod, node)):
            rejection = Rejection(DYNAMIC_RESOURCES, Code.UNRESOLVABLE, (lacks,))
            if pod.extended and state.devices.name_taken(pod):
                outcome = Outcome.REFUSED  # nor elsewhere, until somebody has done what it says
        if rejection is None:
            kept = state.cluster.reserved.devices_of(pod.uid, node) if binding.reservation else None
            account = state.cache.assume(pod.uid, node, counts_as, state.now, devices=kept)
            state.hold_volumes(pod, node)
            binding.node, binding.devices, binding.pod_class = node, account.devices, pod.pod_class
            # What was judged is what is bound: whoever changes the pod from here on makes the Binding a 409.
            binding.rv = pod.resource_version
            binding.checked_node = _node(state, node)
            return None
        # Only there somebody's leaving helps: to wait for it elsewhere costs the whole plan its answer.
        if rejection.code is Code.UNSCHEDULABLE:
            full.append(node)
        binding.conflicts += 1
        binding.reason = binding.reason or f"{node}: {', '.join(rejection.reasons)}"[:512]
    state.cluster.leave_room(pod.uid)
    return CheckVerdict(outcome, candidates[0], binding.reason, tuple(full))


def lift(state: BinderState, binding: InFlightBinding, pod: Pod) -> PodClass:
    """Let the pod have the room that its plan or intent names, and say what it counts as; where nothing is kept for it
    any more, or another took it, it goes there as any other pod may."""
    counts_as = state.cluster.take_room(binding.reservation, pod, binding.devices)
    if counts_as is None:
        binding.reservation = ""
        return pod.pod_class
    return counts_as


def borrow(state: BinderState, binding: InFlightBinding, pod: Pod) -> CheckVerdict | None:
    """Assume the pod on the node of another shard that was lent for it; None when that is done.

    Its owner has checked the room and keeps it. Here only what is seen of the node is looked at, and that the pod is
    the very one that was judged there.
    """
    assert binding.loan is not None
    if pod.resource_version != binding.loan.resource_version:
        return CheckVerdict(Outcome.CONFLICT, reason="the pod has changed since room was lent for it")
    if reason := still_fits(state, binding, pod):
        return CheckVerdict(Outcome.CONFLICT, binding.node, reason)
    hold(state, binding, pod)
    return None


def still_fits(state: BinderState, binding: InFlightBinding, pod: Pod, *, zones: bool = True) -> str:
    """Whether the node takes the pod on the devices the intent names, nothing of it being assumed: "" or why not.

    For an inherited intent, and for a pod that changed after it was committed.
    """
    if binding.reservation:
        lift(state, binding, pod)
    rejection = check_node(state, pod, binding.node, zones=zones)
    if rejection is not None:
        return f"{binding.node}: {', '.join(rejection.reasons)}"[:512]
    milli = gpu_milli_of(pod.pod_class)
    if not milli:
        return ""
    row = state.cache.table.row_of.get(binding.node)
    free = state.cache.table.device_free[row] if row is not None else []
    share = min(milli, MILLI_PER_DEVICE)
    enough = len(binding.devices) == max(1, milli // MILLI_PER_DEVICE)
    if enough and all(0 <= device < len(free) and free[device] >= share for device in binding.devices):
        return ""
    return f"{binding.node}: the GPU devices {list(binding.devices)} are taken"


def outdated(state: BinderState, binding: InFlightBinding) -> str:
    """Why the node takes the assumed unit no longer, having changed since it was checked: "" where it still does.

    Asked right before each Binding: a unit may wait for that as long as the API server asks it to, and the node may be
    cordoned, tainted, shrunk or filled by others meanwhile. Cheap while the node is the one that was checked and holds
    no more than it has; otherwise the whole check is made again, the unit itself not counted. Zones are looked at
    with the unit in its turn: it came before others that are assumed there.
    """
    table, pod = state.cache.table, state.pending.get(binding.uid)
    row, pod_class = table.row_of.get(binding.node), binding.pod_class
    if row is None:
        return f"{binding.node}: node does not exist"
    if pod is None or pod_class is None:
        return ""  # the Binding itself will tell what became of the pod
    if pod_class.needs is not None and not state.zones.sits(binding.uid, binding.node):
        return f"{binding.node}: others took its place in the node's zones"
    # `is`: a node that is written as it was keeps its object, any change makes another.
    if table.nodes[row] is binding.checked_node and within(table, pod_class, row):
        return ""
    # Judged without itself, and held again whatever comes out: counted until it is withdrawn (I2).
    state.cluster.forget(binding.uid)
    reason = still_fits(state, binding, pod, zones=False)
    hold(state, binding, pod)
    return reason


def surely_fit(state: BinderState, bindings: Iterable[InFlightBinding]) -> set[str]:
    """Uids of those assumed units that can be bound as they are, found by columns: their nodes are the ones that were
    checked and hold no more than they have, and no volume or device is waited for. Of the others nothing is said."""
    table, pending = state.cache.table, state.pending
    found: dict[PodClass, tuple[list[str], list[int]]] = {}
    for binding in bindings:
        row, pod, pod_class = table.row_of.get(binding.node), pending.get(binding.uid), binding.pod_class
        if row is None or pod is None or pod_class is None or table.nodes[row] is not binding.checked_node:
            continue
        if pod.asks is None and (pod.relations is None or not pod.relations.claims):
            uids, rows = found.setdefault(pod_class, ([], []))
            uids.append(binding.uid)
            rows.append(row)
    sure: set[str] = set()
    for pod_class, (uids, rows) in found.items():
        columns = [PODS_COLUMN, *(table.column_of[name] for name, amount in fitted(pod_class) if amount)]
        at = np.array(rows)
        # <=: the units themselves are among what is requested.
        fits = np.all([table.requested[column, at] <= table.allocatable[column, at] for column in columns], axis=0)
        sure.update(uid for uid, fit in zip(uids, fits.tolist(), strict=True) if fit)
        if pod_class.needs is not None:
            names = (table.names[row] for row in rows)
            sure.difference_update(
                uid for uid, name in zip(uids, names, strict=True) if not state.zones.sits(uid, name)
            )
    return sure


def hold(state: BinderState, binding: InFlightBinding, pod: Pod) -> None:
    """Assume the unit exactly as its intent says."""
    counts_as = lift(state, binding, pod) if binding.reservation else pod.pod_class
    state.cache.assume(pod.uid, binding.node, counts_as, state.now, devices=binding.devices)
    state.hold_volumes(pod, binding.node)
    binding.extended = bool(pod.extended)
    if pod.asks is not None:
        state.hold_claims(binding, pod, binding.node)
    binding.pod_class = pod.pod_class
    binding.checked_node = _node(state, binding.node)


def _node(state: BinderState, name: str) -> Node | None:
    row = state.cache.table.row_of.get(name)
    return state.cache.table.nodes[row] if row is not None else None
