"""PreFilter: what is computed once per unit before any node is looked at.

Either no node takes the pod (a rejection), or there are rules that need the whole cluster, prepared, and perhaps a
narrower set of nodes. Order and texts are kube-scheduler's (``framework/runtime``, ``schedule_one.go``): the first
rule that rejects wins; names in required node affinity narrow before the volume rules speak.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from shared.model.constraints import PodClass, left_out
from shared.model.pod import Pod
from shared.model.scheduling_profile import SchedulingProfile
from shared.scheduling.devices import rule as devices
from shared.scheduling.filters import (
    interpod_affinity,
    topology_spread,
    volume_binding,
    volume_limits,
    volume_restrictions,
    volume_zone,
)
from shared.scheduling.framework import ClusterRule, Code, Rejection
from shared.scheduling.numa import rule as numa
from shared.scheduling.reasons import NOT_READY, SCHEDULER_ERROR, UNSCHEDULABLE
from shared.scheduling.state.cluster_state import ClusterState

NODE_AFFINITY = "NodeAffinity"
NOT_NAMED = Rejection(NODE_AFFINITY, Code.UNRESOLVABLE, (f"node(s) didn't satisfy plugin(s) [{NODE_AFFINITY}]",))
CONTRADICTION = Rejection(NODE_AFFINITY, Code.UNRESOLVABLE, ("pod affinity terms conflict",))

Prepare = Callable[[ClusterState, Pod], "ClusterRule | Rejection | None"]

CLUSTER_RULES: tuple[Prepare, ...] = (
    volume_restrictions.prepare,
    volume_limits.prepare,
    volume_binding.prepare,
    volume_zone.prepare,
    topology_spread.prepare,
    interpod_affinity.prepare,
    devices.prepare,
    numa.prepare,
)
"""In kube-scheduler's order, then its plug-in's; all after the node-local filters."""


LEFT_OUT_AS: dict[Prepare, str] = {
    topology_spread.prepare: "PodTopologySpread", interpod_affinity.prepare: "InterPodAffinity",
}  # fmt: skip
"""Those that a profile may leave out, by the names of their plugins."""


@dataclass(frozen=True, slots=True)
class Prefiltered:
    """``rejection``: no node takes the pod. ``named``: the only nodes worth a look, None for all; the others are
    rejected by ``NOT_NAMED``. ``rules``: those that did not skip themselves."""

    pod: Pod
    rules: tuple[ClusterRule, ...] = ()
    rejection: Rejection | None = None
    named: frozenset[str] | None = None

    @property
    def reason(self) -> str:
        """That of the condition PodScheduled, where no node takes the pod."""
        return reason_of(self.rejection, self.rules)


def reason_of(rejection: Rejection | None, rules: Iterable[ClusterRule]) -> str:
    """The reason of the condition PodScheduled of a pod that no node takes: whether a further node would help. What is
    said before any node is looked at would be said with one more as well; so are some verdicts of rules."""
    if rejection is not None:
        return SCHEDULER_ERROR if rejection.code is Code.ERROR else NOT_READY
    return NOT_READY if any(map(_refuses_any, rules)) else UNSCHEDULABLE


def _refuses_any(rule: ClusterRule) -> bool:
    """Whether a node that is not there yet would be refused too: another pod has the claim that one may use, a volume
    is gone, or devices that it has been given are not there."""
    match rule:
        case volume_restrictions.VolumeRestrictions():
            return rule.users > 0
        case volume_binding.VolumeBinding():
            return bool(rule.gone.any())
        case devices.DynamicResources():
            return rule.refuses_any()
    return False


def prefilter(state: ClusterState, pod: Pod) -> Prefiltered:
    """Prepare every rule that needs the whole cluster for ``pod``; nothing is changed."""
    named = named_nodes(pod.pod_class)
    # Told before anything else, in upstream's words: no node, whatever comes, makes such a pod fit.
    if named is not None and not named:
        return Prefiltered(pod, rejection=CONTRADICTION)
    # Before terms are read, below: those of pods that came since would be passed over.
    state.index.sync()
    pod_class = pod.pod_class
    plain = pod.relations is None and pod.asks is None and pod_class.needs is None and not state.index.anti_affinity
    if plain and (pod_class.profile is None or not pod_class.profile.spread):
        return Prefiltered(pod, named=named)  # as of most: there is nothing that a rule would read
    rules = []
    for prepare in CLUSTER_RULES if pod_class.profile is None else _rules_of(pod_class.profile):
        rule = prepare(state, pod)
        # The first that refuses before any node is looked at ends it, as in upstream's PreFilter.
        if isinstance(rule, Rejection):
            return Prefiltered(pod, rejection=rule)
        if rule is not None:
            rules.append(rule)
    return Prefiltered(pod, tuple(rules), named=named)


def _rules_of(profile: SchedulingProfile) -> tuple[Prepare, ...]:
    """Those that the profile does not leave out."""
    return tuple(prepare for prepare in CLUSTER_RULES if LEFT_OUT_AS.get(prepare) not in profile.without)


def named_nodes(pod_class: PodClass) -> frozenset[str] | None:
    """Nodes that required node affinity names (``matchFields`` metadata.name In); None when some term names none.

    Empty when every term contradicts itself.
    """
    if not pod_class.affinity_terms or left_out(pod_class, NODE_AFFINITY):
        return None
    names: set[str] = set()
    for term in pod_class.affinity_terms:
        wanted = [set(f.values) for f in term.fields if f.key == "metadata.name" and f.operator == "In"]
        if not wanted:
            return None
        # Terms are alternatives, fields of one term hold together, as the API has it.
        names |= set.intersection(*wanted)
    return frozenset(names)
