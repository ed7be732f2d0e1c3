"""The members of a group by what decides where they may run, judged once for all trials of one attempt.

Members without demands on other pods are told apart by their class alone. For the others the rules that need the whole
cluster are prepared once per template, also rules that have nothing to say until a fellow member is placed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from shared.model.constraints import PodClass, fitted
from shared.model.pod import Pod
from shared.model.terms.labels import selects
from shared.model.terms.relations import AffinityTerm
from shared.scheduling.cycle.constraints import in_zones
from shared.scheduling.cycle.prefilter import CONTRADICTION, named_nodes, prefilter
from shared.scheduling.devices.rule import DynamicResources
from shared.scheduling.filters import interpod_affinity, volume_restrictions
from shared.scheduling.framework import ClusterRule, Rejection
from shared.scheduling.matching.pod_terms import anti_affinity_against, means, own_matcher
from shared.scheduling.matching.spread_domains import default_selector
from shared.scheduling.profiles import spreads_by_default
from shared.scheduling.state.cluster_state import ClusterState
from shared.scheduling.state.node_table import IntArray
from shared.scheduling.state.pod_index import Matcher
from shared.scheduling.state.room.nominated_room import NominatedPods, apart


@dataclass(slots=True, eq=False)
class Template:
    """Members that are judged alike. ``rules``: as prepared for the cluster as it stands, never adjusted themselves;
    ``rejection``: no node takes any of them; ``size``: the greatest share of any node's resource that one asks for."""

    pod: Pod
    rules: tuple[ClusterRule, ...]
    rejection: Rejection | None
    size: float


class TriedMembers:
    """``template_of`` by the member's uid; ``ruled``: templates that have rules; ``held``: what pods hold that are
    nominated to nodes and that some member must yield to; None: nobody is nominated. ``own``: to whom none yields of
    those: members, and, where they go ``in_turn``, who comes after them. In turn all members go to the nodes that they
    are nominated to, and nowhere else: elsewhere each yields to those who come after the others."""

    def __init__(self, cluster: ClusterState, members: Sequence[Pod], *, in_turn: bool = False) -> None:
        self.cluster = cluster
        self.members = members
        self._uids = frozenset(pod.uid for pod in members)
        self.template_of: dict[str, Template] = {}
        self._everyone: dict[tuple[AffinityTerm, ...], Matcher] = {}
        carried = {pod.relations for pod in members if pod.relations is not None}
        repelling = list(dict.fromkeys(term for relations in carried for term in relations.anti_affinity))
        known: dict[Hashable, Template] = {}
        for pod in members:
            key = self._key(pod, repelling)
            template = known.get(key)
            if template is None:
                template = known[key] = self._template(pod, repelling)
            self.template_of[pod.uid] = template
        self.templates = tuple(known.values())
        self.ruled = tuple(template for template in self.templates if template.rules)
        self.held: NominatedPods | None = None
        self.own: list[Pod] = []
        self.in_turn = False
        if cluster.nominated and members:
            least = min(pod.priority for pod in members)
            self.held = cluster.held_for(least)
            nominated = ((pod, cluster.nominated_to.get(pod.uid, "")) for pod in members)
            self.own = [cluster.nominated[node][pod.uid] for pod, node in nominated if node]
            behind = cluster.behind(self.own) if in_turn and len(self.own) == len(members) else []
            self.own += behind
            self.in_turn = bool(behind)

    def _key(self, pod: Pod, repelling: Sequence[AffinityTerm]) -> Hashable:
        """What members share that are judged alike."""
        devices, key = self.cluster.devices, self._key_without_devices(pod, repelling)
        if spreads_by_default(pod):
            selector = default_selector(self.cluster.workloads, pod)
            key = pod.namespace, selector, selects(selector, pod.labels), key
        return key if pod.asks is None or devices is None else (devices.alike(pod), key)

    def _key_without_devices(self, pod: Pod, repelling: Sequence[AffinityTerm]) -> Hashable:
        """Of labels only what some rule makes of them: members of one Job differ in their index alone."""
        index, relations = self.cluster.index, pod.relations
        if relations is None and not repelling and not index.anti_affinity:
            return pod.pod_class
        namespaces = self.cluster.namespaces
        own = namespaces.get(pod.namespace, {})
        against = frozenset(term for term, _ in anti_affinity_against(index, pod, own))
        repelled = tuple(means(term, pod, own) for term in repelling)
        if relations is None:
            return pod.pod_class if not against and not any(repelled) else (pod.pod_class, against, repelled)
        everyone = self._everyone.get(relations.affinity)
        if everyone is None:
            everyone = self._everyone[relations.affinity] = own_matcher(relations.affinity, namespaces)
        meant = everyone.matches(pod.namespace, pod.labels)
        spread = tuple(selects(one.selector, pod.labels) for one in relations.spread)
        return pod.namespace, pod.pod_class, relations, meant, spread, against, repelled

    def _template(self, pod: Pod, repelling: Sequence[AffinityTerm]) -> Template:
        cluster, size = self.cluster, self._size(pod)
        plain = pod.relations is None and pod.asks is None and not in_zones(cluster, pod)
        if plain and not repelling and not cluster.index.anti_affinity and not spreads_by_default(pod):
            named = named_nodes(pod.pod_class)
            return Template(pod, (), CONTRADICTION if named is not None and not named else None, size)
        prefiltered = prefilter(cluster, pod)
        if prefiltered.rejection is not None:
            return Template(pod, (), prefiltered.rejection, size)
        rules = [self._among_members(rule) for rule in prefiltered.rules]
        return Template(pod, (*rules, *self._sleeping(pod, repelling, rules)), None, size)

    def _among_members(self, rule: ClusterRule) -> ClusterRule:
        """Devices that one member is given are no other's."""
        return rule.of_members(self._uids) if isinstance(rule, DynamicResources) else rule

    def _sleeping(
        self, pod: Pod, repelling: Sequence[AffinityTerm], rules: Iterable[ClusterRule]
    ) -> Iterable[ClusterRule]:
        """Rules that reject the pod nowhere yet, but may once fellow members are placed."""
        there = {rule.name for rule in rules}
        labels = self.cluster.namespaces.get(pod.namespace, {})
        if interpod_affinity.NAME not in there and any(means(term, pod, labels) for term in repelling):
            yield interpod_affinity.blank(self.cluster, pod)
        if volume_restrictions.NAME not in there and pod.relations is not None and pod.relations.claims:
            claims = volume_restrictions.prepare_alone(self.cluster, pod)
            if isinstance(claims, volume_restrictions.VolumeRestrictions):
                yield claims

    def _size(self, pod: Pod) -> float:
        table, size = self.cluster.table, 0.0
        for name, amount in fitted(pod.pod_class):
            column = table.column_of.get(name)
            most = int(table.allocatable[column, : table.rows].max(initial=0)) if column is not None else 0
            size = max(size, amount / most if most else 1.0)
        return size

    def one_by_one(self) -> Iterator[tuple[Pod, int]]:
        """Those that members yield to and that are counted each, with the row: where members have rules about other
        pods all of them, else those that no sum is made of."""
        if self.held is None:
            return
        cluster, mine = self.cluster, {pod.uid for pod in self.own}
        least = min(pod.priority for pod in self.members)
        for node in cluster.nominated if self.ruled else self.held.apart:
            row = cluster.table.row_of.get(node)
            if row is None:
                continue
            for other in cluster.nominated[node].values():
                if other.priority >= least and other.uid not in mine and (self.ruled or apart(other.pod_class)):
                    yield other, row

    def summed_up(self) -> Iterator[tuple[PodClass, IntArray, IntArray]]:
        """The others, by class: on which rows how many."""
        if self.held is None or self.ruled:
            return
        row_of, own = self.cluster.table.row_of, dict[PodClass, Counter[int]]()
        for pod in self.own:
            row = row_of.get(pod.nominated_node)
            if row is not None and not apart(pod.pod_class):
                own.setdefault(pod.pod_class, Counter())[row] += 1
        for pod_class, copies in self.held.copies.items():
            others = copies - mine if (mine := own.get(pod_class)) else copies
            if others:
                count = len(others)
                yield pod_class, np.fromiter(others, np.int64, count), np.fromiter(others.values(), np.int64, count)
