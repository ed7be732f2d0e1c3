"""Units that more than the nodes themselves decides about: what agents are told, and how their answers are dealt.

    PreFilter (guidance_for, per template and offer) --> mask and scores in the offer --> different nodes, best first
        --> per unit, one after the other: judged anew on all that is assumed, the answers' scores corrected, assumed

So rules that span nodes hold with many units in flight: two that keep apart may be offered the same domain, but the
second is judged with the first one counted, and offered again when nothing of what was answered fits any more.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from services.coordinator.core.state import State
from services.coordinator.cycle.losses import Losses
from services.coordinator.cycle.merging import MAX_CONSIDERED, AgentAnswers, Choice, Unit
from services.coordinator.inspect.decisions import Considered
from shared.model.pod import Pod
from shared.scheduling.cycle.conflicts import check_placement, fits
from shared.scheduling.cycle.constraints import Guidance, guidance_for, needs_guidance
from shared.scheduling.cycle.dry_run import DryRun
from shared.scheduling.cycle.feasibility import Diagnosis
from shared.scheduling.cycle.filtering import diagnose, run_filters
from shared.scheduling.cycle.prefilter import NODE_AFFINITY, Prefiltered, prefilter
from shared.scheduling.filters.topology_spread import TopologySpread
from shared.scheduling.framework import ClusterRule
from shared.scheduling.parked_groups import group_key
from shared.scheduling.preemption.resolvable import Openable, openable
from shared.scheduling.state.node_table import BoolArray, IntArray
from shared.wire.messages import SCORE_SCALE, Answer

DISTINCT_SHARE, DISTINCT_SLACK, MOST_DISTINCT = 2, 16, 1024
"""How many different nodes each agent is asked for: so many times the units, and some more, since the best nodes may
all lie in one domain that is full after the first unit."""


KEPT = 1024
"""Templates and groups for which something is kept, some bytes per node each."""


class Guiding:
    """Guidance per template, kept until anything that it rests on changes."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._stamp: tuple[int, int, int] = (-1, -1, -1)
        self._guidance: dict[Hashable, Guidance] = {}
        self._prefiltered: dict[Hashable, Prefiltered] = {}
        self._diagnoses: dict[Hashable, Diagnosis] = {}
        self._openable: dict[Hashable, Openable] = {}
        self._waits: dict[Hashable, frozenset[str]] = {}

    def template(self, pod: Pod) -> Hashable | None:
        """What pods must share to be judged alike; None for a pod that its nodes alone decide about."""
        if not needs_guidance(self._state.cluster, self._state.feasibility, pod):
            return None
        return template_of(pod)

    def judge(self, pod: Pod) -> Guidance:
        """The guidance for the pod as everything stands now, what is assumed included.

        A pod with a nominated node that takes it is guided there alone (kube-scheduler ``schedule_one.go``).
        """
        self._renew()
        key = template_of(pod)
        known = self._guidance.get(key)
        if known is None:
            known = self._guidance[key] = self._nominated_first(pod)
        return known

    def takes_nobody(self, pod: Pod, guidance: Guidance) -> bool:
        """Whether no node at all takes the pod, by the coordinator's own accounting."""
        if guidance.rejection is not None:
            return True
        if guidance.mask is not None:
            return not bool(guidance.mask.any())
        return not bool(self._state.feasibility.of(pod.pod_class).mask.any())

    def fits_nowhere(self, pod: Pod, *, guided: bool) -> bool:
        """Whether no node takes the pod now. ``guided``: more than the nodes themselves may decide about it."""
        if guided:
            return self.takes_nobody(pod, self.judge(pod))
        return not bool(self._state.feasibility.of(pod.pod_class).mask.any())

    def rejecting_at(self, pod: Pod, row: int) -> str:
        """The plugin that keeps the pod from one node now; "" if it takes the pod."""
        state = self._state
        local = check_placement(state.feasibility, pod.pod_class, state.cache.table.names[row])
        if local is not None:
            return local.plugin
        prefiltered = self.prefiltered(pod)
        if prefiltered.rejection is not None:
            return prefiltered.rejection.plugin
        if prefiltered.named is not None and state.cache.table.names[row] not in prefiltered.named:
            return NODE_AFFINITY
        for rule in prefiltered.rules:
            if rule.verdict(row) is not None:
                return rule.name
        if state.cluster.has_nominated and state.cluster.nominated_on(state.cache.table.names[row], pod):
            dry_run = DryRun(state.cluster, state.feasibility, prefiltered, row)
            return "" if dry_run.takes_beside_nominated() else "NodeResourcesFit"
        return ""

    def prefiltered(self, pod: Pod) -> Prefiltered:
        """The rules that need the whole cluster, prepared for the pod as everything stands now."""
        self._renew()
        key = group_key(pod)
        known = self._prefiltered.get(key)
        if known is None:
            known = self._prefiltered[key] = prefilter(self._state.cluster, pod)
        return known

    def openable(self, pod: Pod) -> Openable:
        """The nodes that evicting may open for the pod, which none takes, as everything stands now."""
        prefiltered = self.prefiltered(pod)
        key = _alike(prefiltered)
        known = self._openable.get(key)
        if known is None:
            state = self._state
            known = self._openable[key] = openable(state.cluster, state.feasibility, prefiltered)
        return known

    def waits(self, pod: Pod) -> frozenset[str]:
        """The plugins that only keep the pod until the units on their way have landed; none if more is in its way."""
        guidance = self.judge(pod)
        if guidance.rejection is not None or not self.takes_nobody(pod, guidance):
            return frozenset()
        key = template_of(pod)
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
        mask = run_filters(self._state.cluster, self._state.feasibility, later, explain=False).mask
        return frozenset(waiting) if mask.any() else frozenset()

    def diagnosis(self, pod: Pod) -> Diagnosis:
        """Why no node takes the pod, over all nodes."""
        prefiltered = self.prefiltered(pod)
        key = _alike(prefiltered)
        known = self._diagnoses.get(key)
        if known is None:
            known = self._diagnoses[key] = diagnose(self._state.cluster, self._state.feasibility, prefiltered)
        return known

    def _renew(self) -> None:
        state = self._state
        stamp = (state.cache.table.clock, state.cluster.index.version, state.objects_version)
        kept = len(self._guidance) + len(self._prefiltered)
        if stamp != self._stamp or kept > KEPT:
            self._stamp = stamp
            self._guidance.clear()
            self._prefiltered.clear()
            self._openable.clear()
            self._diagnoses.clear()
            self._waits.clear()

    def _nominated_first(self, pod: Pod) -> Guidance:
        state = self._state
        guidance = guidance_for(state.cluster, state.feasibility, pod)
        row = state.cache.table.row_of.get(pod.nominated_node) if pod.nominated_node else None
        if row is None or guidance.rejection is not None:
            return guidance
        mask = state.feasibility.of(pod.pod_class).mask if guidance.mask is None else guidance.mask
        if not mask[row]:
            return guidance
        alone: BoolArray = np.zeros(len(mask), np.bool_)
        alone[row] = True
        return replace(guidance, mask=alone)


def template_of(pod: Pod) -> Hashable:
    """Everything of a pod that rules beyond the class read. Pods of one template with claims of their own differ."""
    own = pod.uid if pod.nominated_node else ""
    labels = tuple(sorted(pod.labels.items()))
    return pod.namespace, labels, pod.relations, pod.owner, pod.images, pod.priority, own, pod.pod_class


def _alike(prefiltered: Prefiltered) -> Hashable:
    """Pods of which all nodes say the same: where no rule looks at more than the node, whatever their labels are."""
    pod = prefiltered.pod
    if prefiltered.rules or prefiltered.rejection is not None or prefiltered.named is not None or pod.nominated_node:
        return group_key(pod)
    return pod.pod_class, pod.priority


def distinct_for(units: int, extra: int) -> int:
    """Different nodes wanted of each agent for so many units of one template."""
    return min(MOST_DISTINCT, DISTINCT_SHARE * units + DISTINCT_SLACK + extra)


@dataclass(slots=True)
class _Head:
    """One node that an agent answered with, and how many units of this round it was given."""

    answer: Answer
    name: str
    row: int
    policy: str = ""
    place: int = 0
    taken: int = 0


def deal(
    state: State, losses: Losses, guiding: Guiding, offered: Guidance, units: Sequence[Unit],
    lists: Sequence[AgentAnswers],
) -> tuple[list[Choice], list[Unit]]:  # fmt: skip
    """Choices in queue order, each assumed; and the units for which none of the answered nodes is right any more.

    Scores were answered with the offer's guidance; each unit's are corrected to the guidance of its own moment.
    """
    heads = _heads(state, lists)
    choices: list[Choice] = []
    left: list[Unit] = []
    for unit in units:
        guidance = guiding.judge(unit.pod) if state.settings.judge_again else offered
        ranked = [] if guidance.rejection is not None else _ranked(state, losses, unit, guidance, offered, heads)
        chosen = next((head for head in ranked if _takes(state, unit.pod, head)), None)
        if chosen is None:
            state.stats.misfits += bool(heads)
            left.append(unit)
            continue
        generation = int(state.cache.table.generation[chosen.row])
        state.stats.stale_answers += chosen.answer.generation < generation
        state.stats.all_rejected += not chosen.answer.accept
        state.cluster.assume(unit.pod, chosen.name, state.now)
        chosen.taken += 1
        # the binder does not know rules that span nodes: it gets no other node than the one judged here
        others = (
            ()
            if guidance.prefiltered.rules
            else tuple(h.name for h in ranked if h is not chosen and h.name not in state.drained)
        )
        candidates = others[: state.settings.extra_candidates]
        best = [chosen, *(head for head in ranked if head is not chosen)][:MAX_CONSIDERED]
        considered = tuple(Considered(head.name, head.answer.score / SCORE_SCALE, head.answer.accept) for head in best)
        choices.append(Choice(unit, chosen.name, chosen.answer, candidates, considered, policy=chosen.policy))
    return choices, left


def _heads(state: State, lists: Sequence[AgentAnswers]) -> list[_Head]:
    heads = []
    for found in lists:
        for place, (answer, name) in enumerate(zip(found.answers, found.names, strict=True)):
            row = state.cache.table.row_of.get(name)
            if row is not None and row == answer.slot:
                heads.append(_Head(answer, name, row, found.policy, place))
    return heads


def _ranked(
    state: State, losses: Losses, unit: Unit, guidance: Guidance, offered: Guidance, heads: list[_Head]
) -> list[_Head]:
    """The heads that the unit may have, best first: accepted ones, then by score, then the least taken."""
    mask, uid = guidance.mask, unit.pod.uid
    by_place = len({head.policy for head in heads}) > 1  # scores of two policies do not compare (``merging.mixed``)
    keyed = []
    for head in heads:
        if (mask is None or mask[head.row]) and not losses.avoids(uid, head.name):
            own = -SCORE_SCALE * head.place if by_place else head.answer.score
            score = own + SCORE_SCALE * (_at(guidance.scores, head.row) - _at(offered.scores, head.row))
            keyed.append(((not head.answer.accept, -score, head.taken, state.rng.random()), head))
    keyed.sort(key=lambda item: item[0])
    return [head for _, head in keyed]


def _at(scores: IntArray | None, row: int) -> int:
    return 0 if scores is None or row >= len(scores) else int(scores[row])


def _takes(state: State, pod: Pod, head: _Head) -> bool:
    if state.cache.table.nodes[head.row] is None or not state.feasibility.static_mask(pod.pod_class)[head.row]:
        return False
    return fits(state.feasibility, pod.pod_class, head.row)
