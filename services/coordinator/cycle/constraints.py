"""PreFilter constraints of units about which more than the nodes themselves decides, kept while they hold.

    pod --template--> judged once --> mask and scores in the offer; why no node takes it; what an eviction may open

A pod whose nodes alone decide has none of this. The others are judged as everything stands now, what is assumed
included: by the cycle for its offer, anew for each unit before it is assumed (``assign.py``), and for parked ones
whenever something changed that may help.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, replace

import numpy as np
from msgspec.structs import replace as replace_fields

from services.coordinator.groups.domains import DomainKeeper
from shared.model.pod import Pod
from shared.model.terms.relations import NO_RELATIONS
from shared.scheduling.cycle.conflicts import check_placement
from shared.scheduling.cycle.constraints import Guidance, amounts_behind, guidance_for, in_zones, needs_guidance
from shared.scheduling.cycle.dry_run import DryRun
from shared.scheduling.cycle.feasibility import Diagnosis, FeasibilityCache
from shared.scheduling.cycle.filtering import diagnose, run_filters
from shared.scheduling.cycle.prefilter import NODE_AFFINITY, Prefiltered, prefilter
from shared.scheduling.cycle.scoring import norms_of
from shared.scheduling.filters.topology_spread import TopologySpread
from shared.scheduling.framework import ClusterRule
from shared.scheduling.groups.trial import OUTSIDE
from shared.scheduling.parked_groups import fellows_of, group_key
from shared.scheduling.preemption.resolvable import Openable, openable, resolvable_rows
from shared.scheduling.state.cluster_state import ClusterState
from shared.scheduling.state.node_table import BoolArray, IntArray
from shared.scheduling.state.pod_index import Amounts

KEPT = 1024
"""Templates and groups for which something is kept, some bytes per node each."""


@dataclass(frozen=True, slots=True)
class _Kept:
    """Guidance, and what it rests on: nodes, terms, objects and feasible rows as of ``stamp``, and
    counts of pods, each as it was when it last ``moved``."""

    stamp: tuple[int, int, int, int]
    behind: list[Amounts]
    moved: list[int]
    guidance: Guidance

    def holds(self, stamp: tuple[int, int, int, int]) -> bool:
        """Whether nothing of it changed."""
        return stamp == self.stamp and self.moved == [amounts.moved for amounts in self.behind]


class Constraints:
    """Guidance per template, kept until anything that it rests on changes."""

    def __init__(self, cluster: ClusterState, feasibility: FeasibilityCache, domains: DomainKeeper) -> None:
        self._cluster = cluster
        self._domains = domains
        self._feasibility = feasibility
        self._stamp: tuple[int, ...] = ()
        self._guidance: dict[Hashable, Guidance] = {}
        self._kept: OrderedDict[Hashable, _Kept] = OrderedDict()
        self._prefiltered: dict[Hashable, Prefiltered] = {}
        self._diagnoses: dict[Hashable, Diagnosis] = {}
        self._openable: dict[Hashable, Openable] = {}
        self._waits: dict[Hashable, frozenset[str]] = {}

    def template(self, pod: Pod) -> Hashable | None:
        """What pods must share to be judged alike; None for a pod that its nodes alone decide about."""
        if pod.group and self._domains.of(pod) is not None:
            return self._alike_now(pod)
        return self._template_of(pod) if needs_guidance(self._cluster, self._feasibility, pod) else None

    def _alike_now(self, pod: Pod) -> Hashable:
        """What pods must share to be judged alike as things stand: of members of pod groups their domain too, and often
        nothing else but their class."""
        if not pod.group:
            return self._template_of(pod)
        plain = not needs_guidance(self._cluster, self._feasibility, pod)
        return self._domains.of(pod), pod.pod_class if plain else self._template_of(pod)

    def _template_of(self, pod: Pod) -> Hashable:
        """With claims, by what they are now: what they were may have changed since the pod was taken in."""
        devices = self._cluster.devices
        if pod.asks is None or devices is None:
            return template_of(pod)
        return template_of(pod), devices.alike(pod)

    def judge(self, pod: Pod) -> Guidance:
        """The guidance for the pod as everything stands now, what is assumed included.

        A pod with a nominated node that takes it is guided there alone (kube-scheduler ``schedule_one.go``).
        """
        self._renew()
        key = self._alike_now(pod)
        known = self._guidance.get(key)
        if known is None:
            known = self._guidance[key] = self._as_before(pod, key) or self._nominated_first(pod)
        return known

    def _as_before(self, pod: Pod, key: Hashable) -> Guidance | None:
        """The guidance of a pod about which nodes, objects and pods that stand decide: what was said last where nothing
        of what it rests on changed since, whatever else did. None: more decides about it."""
        cluster, relations = self._cluster, pod.relations
        if pod.nominated_node or cluster.nominated or pod.group or cluster.images.any_known(pod.images):
            return None
        if pod.asks is not None or (relations is not None and (relations.claims or relations.disks)):
            return None
        if in_zones(cluster, pod):
            return None
        stamp = (
            cluster.table.static_stamp, cluster.index.terms_version, cluster.objects_version,
            self._feasibility.of(pod.pod_class).changed,
        )  # fmt: skip
        known = self._kept.pop(key, None)
        if known is None or not known.holds(stamp):
            behind = amounts_behind(cluster, pod)
            moved = [amounts.moved for amounts in behind]
            known = _Kept(stamp, behind, moved, guidance_for(cluster, self._feasibility, pod))
        self._kept[key] = known  # as the last one asked for
        if len(self._kept) > KEPT:
            self._kept.popitem(last=False)
        return known.guidance

    def fits_nowhere(self, pod: Pod, *, guided: bool = True) -> bool:
        """Whether no node takes the pod now, by the coordinator's own accounting. ``guided``: more than the nodes
        themselves may decide about it."""
        mask: BoolArray | None = None
        if guided:
            guidance = self.judge(pod)
            if guidance.rejection is not None:
                return True
            mask = guidance.mask
        return not (self._feasibility.of(pod.pod_class).mask if mask is None else mask).any()

    def finds_room(self, pod: Pod) -> bool:
        """Whether some node takes the pod now; ``judge`` without its scores, for one that is not offered."""
        if not self._feasibility.of(pod.pod_class).mask.any():
            return False
        prefiltered = self.prefiltered(pod)
        if prefiltered.rejection is not None:
            return False
        mask = run_filters(self._cluster, self._feasibility, prefiltered, explain=False).mask
        domain = self._domains.of(pod) if pod.group else None
        return bool((mask if domain is None else mask & self._domains.rows(domain)).any())

    def rejecting_at(self, pod: Pod, row: int) -> str:
        """The plugin that keeps the pod from one node now; "" if it takes the pod."""
        name = self._cluster.table.names[row]
        if pod.group and (domain := self._domains.of(pod)) is not None and not self._domains.rows(domain)[row]:
            return OUTSIDE
        local = check_placement(self._feasibility, pod.pod_class, name)
        if local is not None:
            return local.plugin
        prefiltered = self.prefiltered(pod)
        if prefiltered.rejection is not None:
            return prefiltered.rejection.plugin
        if prefiltered.named is not None and name not in prefiltered.named:
            return NODE_AFFINITY
        for rule in prefiltered.rules:
            if rule.verdict(row) is not None:
                return rule.name
        if self._cluster.nominated_on(name, pod):
            dry_run = DryRun(self._cluster, self._feasibility, prefiltered, row)
            return "" if dry_run.takes_beside_nominated() else "NodeResourcesFit"
        return ""

    def prefiltered(self, pod: Pod) -> Prefiltered:
        """The rules that need the whole cluster, prepared for the pod as everything stands now."""
        self._renew()
        key = self._group_key(pod)
        known = self._prefiltered.get(key)
        if known is None:
            known = self._prefiltered[key] = prefilter(self._cluster, pod)
        return known

    def _group_key(self, pod: Pod) -> Hashable:
        devices = self._cluster.devices
        return group_key(pod) if pod.asks is None or devices is None else (group_key(pod), devices.alike(pod))

    def _alike(self, prefiltered: Prefiltered) -> Hashable:
        """What pods share of which all nodes say the same: where no rule looks at more than the node, little."""
        pod, plain = prefiltered.pod, not prefiltered.rules and prefiltered.rejection is None
        if not plain or prefiltered.named is not None or pod.nominated_node:
            return self._group_key(pod)
        return pod.pod_class, pod.priority

    def openable(self, pod: Pod) -> Openable:
        """The nodes that evicting may open for the pod, which none takes, as everything stands now."""
        prefiltered = self.prefiltered(pod)
        key = self._alike(prefiltered)
        known = self._openable.get(key)
        if known is None:
            known = self._openable[key] = openable(self._cluster, self._feasibility, prefiltered)
        domain = self._domains.of(pod) if pod.group else None
        if domain is not None:
            inside = self._domains.rows(domain)
            return replace(known, rows=[row for row in known.rows if inside[row]])
        return known

    def resolvable(self, pod: Pod) -> IntArray:
        """The nodes that evicting may open for the pod, whoever would have to go, ascending."""
        rows = resolvable_rows(self._cluster, self._feasibility, self.prefiltered(pod))
        domain = self._domains.of(pod) if pod.group else None
        return rows if domain is None else rows[self._domains.rows(domain)[rows]]

    def waits(self, pod: Pod) -> frozenset[str]:
        """The plugins that only keep the pod until the units on their way have landed; none if more is in its way."""
        guidance = self.judge(pod)
        if guidance.rejection is not None or not self.fits_nowhere(pod):
            return frozenset()
        key = self._alike_now(pod)
        known = self._waits.get(key)
        if known is None:
            known = self._waits[key] = self._held_by(guidance)
        return known

    def _held_by(self, guidance: Guidance) -> frozenset[str]:
        prefiltered, waiting = guidance.prefiltered, set[str]()
        rules: list[ClusterRule] = []
        for rule in prefiltered.rules:
            settled = rule.settled() if isinstance(rule, TopologySpread) else None
            if settled is not None:
                waiting.add(rule.name)
            rules.append(settled or rule)
        if not waiting:
            return frozenset()
        later = replace(prefiltered, rules=tuple(rules))
        mask = run_filters(self._cluster, self._feasibility, later, explain=False).mask
        return frozenset(waiting) if mask.any() else frozenset()

    def reason(self, pod: Pod) -> str:
        """That of the condition PodScheduled of a pod that no node takes: whether a further node would help."""
        return self.prefiltered(pod).reason

    def reasons(self, pods: Iterable[Pod]) -> dict[str, str]:
        """The same by uid of those with claims: of the others it never changes."""
        of_claims = (pod for pod in pods if pod.asks is not None or (pod.relations or NO_RELATIONS).claims)
        return {pod.uid: self.reason(unnominated(pod)) for pod in of_claims}

    def diagnosis(self, pod: Pod) -> Diagnosis:
        """Why no node takes the pod, over all nodes."""
        if pod.group and self._domains.of(pod) is not None:
            confined = self._domains.diagnosis(pod)
            if confined is not None:
                return confined
        prefiltered = self.prefiltered(pod)
        key = self._alike(prefiltered)
        known = self._diagnoses.get(key)
        if known is None:
            known = self._diagnoses[key] = diagnose(self._cluster, self._feasibility, prefiltered)
        return known

    def _renew(self) -> None:
        cluster = self._cluster
        devices = cluster.devices.version if cluster.devices is not None else 0
        zones = cluster.zones.version if cluster.zones is not None else 0
        stamp = (cluster.table.clock, cluster.index.version, cluster.objects_version, devices, zones)
        kept = len(self._guidance) + len(self._prefiltered)
        if stamp != self._stamp or kept > KEPT:
            self._stamp = stamp
            self._guidance.clear()
            self._prefiltered.clear()
            self._openable.clear()
            self._diagnoses.clear()
            self._waits.clear()

    def _nominated_first(self, pod: Pod) -> Guidance:
        table = self._cluster.table
        row = table.row_of.get(pod.nominated_node) if pod.nominated_node else None
        if row is None or self.rejecting_at(pod, row):
            guidance = guidance_for(self._cluster, self._feasibility, pod)
            domain = self._domains.of(pod) if pod.group else None
            if domain is not None and guidance.rejection is None:
                inside = self._feasibility.of(pod.pod_class).mask if guidance.mask is None else guidance.mask
                guidance = replace(guidance, mask=inside & self._domains.rows(domain))
            return guidance
        alone: BoolArray = np.zeros(table.rows, np.bool_)
        alone[row] = True
        return Guidance(self.prefiltered(pod), alone, norms=norms_of(self._feasibility, pod.pod_class))


def unnominated(pod: Pod) -> Pod:
    """The pod as if it were nominated nowhere: members that are placed together are told apart where each goes."""
    return replace_fields(pod, nominated_node="") if pod.nominated_node else pod


def template_of(pod: Pod) -> Hashable:
    """Everything of a pod that rules beyond the class read. Pods of one template with claims of their own differ."""
    own = pod.uid if pod.nominated_node else ""
    labels = tuple(sorted(pod.labels.items()))
    return (
        pod.namespace,
        labels,
        pod.relations,
        pod.owner,
        pod.images,
        pod.priority,
        own,
        pod.pod_class,
        fellows_of(pod),
    )
