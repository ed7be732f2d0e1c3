"""What the spread filter and the spread score share: which constraints a pod has, and which nodes belong to domains.

Source: kube-scheduler 1.36 ``plugins/podtopologyspread/{common,plugin}.go`` and ``plugins/helper/spread.go``.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from shared.model.pod import Pod
from shared.model.scheduling_profile import SpreadDefault
from shared.model.terms.labels import LabelSelector, both, selector_of_labels
from shared.model.terms.relations import NO_RELATIONS, SpreadConstraint
from shared.scheduling.matching.selectors import selected_mask, selects_nodes
from shared.scheduling.matching.tolerance import tolerated_mask
from shared.scheduling.state.cluster_state import ClusterState
from shared.scheduling.state.node_table import BoolArray, IntArray
from shared.scheduling.state.pod_index import Matcher
from shared.scheduling.state.releases import Release
from shared.scheduling.state.workloads import Workloads

HOSTNAME = "kubernetes.io/hostname"
ZONE = "topology.kubernetes.io/zone"
SYSTEM_DEFAULTS = ((3, HOSTNAME), (5, ZONE))
"""(maxSkew, key) of the ScheduleAnyway constraints of pods that have none of their own."""


def hard_constraints(state: ClusterState, pod: Pod) -> tuple[SpreadConstraint, ...]:
    """DoNotSchedule constraints; the system default has none."""
    spread, profile = (pod.relations or NO_RELATIONS).spread, pod.pod_class.profile
    if not spread and profile is not None and profile.spread:
        return _defaults(state, pod, profile.spread, hard=True)
    return tuple(c for c in spread if c.hard)


def soft_constraints(state: ClusterState, pod: Pod) -> tuple[tuple[SpreadConstraint, ...], bool]:
    """ScheduleAnyway constraints, and whether they are the pod's own (then nodes without a key are left out)."""
    spread = (pod.relations or NO_RELATIONS).spread
    if spread:
        return tuple(c for c in spread if not c.hard), True
    if (profile := pod.pod_class.profile) is not None and profile.spread is not None:
        return _defaults(state, pod, profile.spread, hard=False), True
    selector = default_selector(state.workloads, pod)
    if not selector.requirements:
        return (), False
    return tuple(SpreadConstraint(skew, key, hard=False, selector=selector) for skew, key in SYSTEM_DEFAULTS), False


def _defaults(
    state: ClusterState, pod: Pod, spread: Iterable[SpreadDefault], *, hard: bool
) -> tuple[SpreadConstraint, ...]:
    """The constraints that a profile gives to pods that have none; none where nobody is to be counted."""
    wanted = [one for one in spread if one.hard is hard]
    selector = default_selector(state.workloads, pod) if wanted else None
    if selector is None or not selector.requirements:
        return ()
    return tuple(SpreadConstraint(one.max_skew, one.topology_key, hard, selector) for one in wanted)


def default_selector(workloads: Workloads, pod: Pod) -> LabelSelector:
    """What the services that select the pod and its controlling owner select; empty when there is none."""
    labels: dict[str, str] = {}
    for service in workloads.services_of(pod.namespace, pod.labels):
        labels.update(_plain(service.selector))
    api_version, kind, name = pod.owner
    owner = workloads.controllers.get((api_version, kind, pod.namespace, name))
    if owner is None:
        return selector_of_labels(labels)
    if kind == "ReplicationController":
        return selector_of_labels(labels | _plain(owner.selector))
    selector = selector_of_labels(labels)
    return selector if owner.selector is None else both(selector, owner.selector)


def counts_anybody(state: ClusterState, constraint: SpreadConstraint) -> bool:
    """Whether a constraint counts pods that stand: no selector counts none; ``{}`` all, but none before 1.38
    (kube-scheduler ``countPodsMatchSelector``)."""
    selector = constraint.selector
    return selector is not None and (bool(selector.requirements) or state.release is not Release.V1_36)


def counted_pods(constraint: SpreadConstraint, namespace: str, *, seen_only: bool = False) -> Matcher:
    """The pods that a constraint which counts anybody counts: of the pod's namespace and not terminating.
    ``seen_only``: without those that are only assumed."""
    assert constraint.selector is not None
    names = frozenset((namespace,))
    return Matcher(((names, constraint.selector),), skip_terminating=True, skip_assumed=seen_only)


def pods_per_row(
    state: ClusterState, constraint: SpreadConstraint, namespace: str, *, seen_only: bool = False
) -> IntArray:
    """``[rows]``: pods that the constraint counts."""
    if not counts_anybody(state, constraint):
        return np.zeros(state.table.rows, np.int64)
    return state.index.counts(counted_pods(constraint, namespace, seen_only=seen_only))


def included(state: ClusterState, pod: Pod, constraint: SpreadConstraint) -> BoolArray | None:
    """``[rows]``: nodes that the constraint's policies count as part of their domain; None: all of them."""
    table, pod_class = state.table, pod.pod_class
    passing: BoolArray | None = None
    if constraint.honor_affinity and selects_nodes(pod_class):
        passing = selected_mask(table, pod_class)
    if constraint.honor_taints and len(table.taint_sets) > 1:
        tolerated = tolerated_mask(table, pod_class.tolerations, slice(None))
        passing = tolerated if passing is None else passing & tolerated
    return passing


def _plain(selector: LabelSelector | None) -> dict[str, str]:
    """The labels that a selector of plain labels asks for."""
    return {} if selector is None else {r.key: r.values[0] for r in selector.requirements}
