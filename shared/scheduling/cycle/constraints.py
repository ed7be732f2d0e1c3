"""What the coordinator adds to a class when it offers a unit: all that an agent cannot see from its own nodes.

An agent's verdict for a row is: the class's node-local filters AND ``mask``; its score: the policy's, given ``norms``,
plus ``scores``. With kube-default that is kube-scheduler's total exactly. A mask and scores over the rows of one agent
take an eighth of a byte and two bytes per node; most units need neither.

What is assumed must count for the next unit: the coordinator assumes it in the state at once, and judges again before
it takes an answer to an older offer.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from shared.model.constraints import NO_NORMS, Norms
from shared.model.pod import Pod
from shared.model.terms.relations import NO_RELATIONS
from shared.scheduling.cycle.feasibility import FeasibilityCache
from shared.scheduling.cycle.filtering import run_filters
from shared.scheduling.cycle.nominated import yielding
from shared.scheduling.cycle.prefilter import Prefiltered, named_nodes, prefilter
from shared.scheduling.cycle.scoring import norms_of, norms_over, relation_scores
from shared.scheduling.devices.rule import DynamicResources
from shared.scheduling.framework import Rejection
from shared.scheduling.matching.pod_terms import anti_affinity_against, own_matcher, weighted_toward
from shared.scheduling.matching.spread_domains import (
    counted_pods,
    counts_anybody,
    default_selector,
    hard_constraints,
    soft_constraints,
)
from shared.scheduling.numa.rule import NodeResourceTopologyMatch
from shared.scheduling.scores.profiled import weights_of
from shared.scheduling.state.cluster_state import ClusterState
from shared.scheduling.state.node_table import BoolArray, IntArray
from shared.scheduling.state.pod_index import Amounts, Matcher


@dataclass(frozen=True, slots=True)
class Guidance:
    """``mask [rows]``: nodes not ruled out by other pods, volumes or nominated pods; None: all. ``scores [rows]``:
    weighted, 0 where not feasible; None: all 0. ``prefiltered``: the rules it was made from; ``rejection``: no node
    takes the unit, ask no agent."""

    prefiltered: Prefiltered
    mask: BoolArray | None = None
    scores: IntArray | None = None
    norms: Norms = NO_NORMS

    @property
    def rejection(self) -> Rejection | None:
        """Why no node takes the unit, if that is known already."""
        return self.prefiltered.rejection


def guidance_for(state: ClusterState, feasibility: FeasibilityCache, pod: Pod) -> Guidance:
    """The guidance for one pod as things stand; nothing is changed. ``feasibility`` is over the state's table."""
    prefiltered = prefilter(state, pod)
    if prefiltered.rejection is not None:
        return Guidance(prefiltered)
    images = state.images.score(pod.images)
    ruled = bool(prefiltered.rules) or (bool(state.nominated) and yielding(state, feasibility).yields(pod))
    if not ruled and images is None and not may_relate(state, pod):
        return Guidance(prefiltered, norms=norms_of(feasibility, pod.pod_class))
    mask = run_filters(state, feasibility, prefiltered, explain=False).mask
    rows = np.flatnonzero(mask)
    scores: IntArray = np.zeros(state.table.rows, np.int64)
    weights = weights_of(pod.pod_class)
    if images is not None:
        scores[rows] += weights["ImageLocality"] * images[rows]
    for name, values in relation_scores(state, pod, rows).items():
        scores[rows] += weights[name] * values
    for rule in prefiltered.rules if pod.asks is not None or pod.pod_class.needs is not None else ():
        if isinstance(rule, DynamicResources | NodeResourceTopologyMatch) and (own := rule.scores(rows)) is not None:
            scores[rows] += own
    return Guidance(
        prefiltered,
        mask if ruled else None,
        scores if scores.any() else None,
        norms_over(state.table, pod.pod_class, rows),
    )


def amounts_behind(state: ClusterState, pod: Pod) -> list[Amounts]:
    """All counts of pods that stand which the guidance rests on, of a pod without volumes, images and nominated ones to
    yield to: while none of them moved, and terms, objects, the class's feasible nodes and what nodes are stayed, so
    did the guidance."""
    index, relations = state.index, pod.relations or NO_RELATIONS
    own_labels = state.namespaces.get(pod.namespace, {})
    asked: list[Matcher] = []
    for constraint in (*hard_constraints(state, pod), *soft_constraints(state, pod)[0]):
        if counts_anybody(state, constraint):
            asked.append(counted_pods(constraint, pod.namespace))
            if constraint.hard:
                asked.append(counted_pods(constraint, pod.namespace, seen_only=True))
    if relations.affinity:
        asked.append(own_matcher(relations.affinity, state.namespaces))
    wishes = [wish.term for wish in relations.preferences]
    asked += [own_matcher((term,), state.namespaces) for term in (*relations.anti_affinity, *wishes)]
    toward = (*anti_affinity_against(index, pod, own_labels), *weighted_toward(index, pod, own_labels))
    return [*map(index.answer, asked), *(carried for _, carried in toward)]


def needs_guidance(state: ClusterState, feasibility: FeasibilityCache, pod: Pod) -> bool:
    """Whether anything beyond the nodes themselves may decide about the pod. Cheap: asked for every unit of a cycle."""
    if pod.relations is not None or pod.nominated_node or pod.asks is not None:
        return True
    if in_zones(state, pod):
        return True
    if state.nominated and must_yield(state, feasibility, pod):
        return True
    index = state.index
    if index.anti_affinity or index.weighted:
        labels = state.namespaces.get(pod.namespace, {})
        if anti_affinity_against(index, pod, labels) or weighted_toward(index, pod, labels):
            return True
    if pod.images and state.images.any_known(pod.images):
        return True
    if pod.owner[2] or state.workloads.has_services(pod.namespace):
        return bool(default_selector(state.workloads, pod).requirements)
    return bool(pod.pod_class.affinity_terms) and named_nodes(pod.pod_class) is not None


def in_zones(state: ClusterState, pod: Pod) -> bool:
    """Whether a kubelet may refuse the pod for want of room in one zone."""
    needs = pod.pod_class.needs
    return needs is not None and state.zones is not None and state.zones.concerns(needs)


def must_yield(state: ClusterState, feasibility: FeasibilityCache, pod: Pod) -> bool:
    """Whether a node that would take the pod now is kept for a nominated one."""
    return yielding(state, feasibility).yields(pod, feasibility.of(pod.pod_class).mask)


def may_relate(state: ClusterState, pod: Pod) -> bool:
    """Whether other pods may decide its scores; False spares asking."""
    if pod.relations is not None or state.index.weighted:
        return True
    return pod.owner[2] != "" or state.workloads.has_services(pod.namespace)
