"""What the policy makes of kube-scheduler's questions. Pure: events and questions in, answers out.

    watches --take--> nodes, and what stands on them --filter--> rules of ours that concern the node alone
                                                     --prioritize--> the policy's scores as 0 to 10

kube-scheduler decides: it has filtered by its own rules before it asks, and accounts what it has assumed, which no
watch shows yet. So nothing is refused here for want of room, only for what a node is or is not; room counts for the
score alone. A policy that fails has no say: every node gets the same score, and it is told.

Not its job: relations between pods, volumes, devices, preemption, binding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from services.extender.protocol import MAX_PRIORITY, QuestionInvalid
from shared.agent.variants import Lanes
from shared.decide.guard import GuardLimits
from shared.errors import ObjectError
from shared.kube import objects as api
from shared.kube.resources import NODES, PODS
from shared.model.cluster_events import ClusterEvent, Listed, NodeDeleted, NodeUpserted, PodDeleted, PodUpserted
from shared.model.constraints import PodClass
from shared.model.pod import Pod
from shared.policy.observation import Need, Policy, Rng, needs_of
from shared.policy.ranking import INFEASIBLE
from shared.policy.usage.kept_views import KeptViews
from shared.policy.usage.load import node_load
from shared.policy.usage.views import NO_POD, summary
from shared.scheduling.cycle.profile import DEFAULT, PluginSet
from shared.scheduling.cycle.scoring import norms_of
from shared.scheduling.state.cluster_load import incoming_pod
from shared.scheduling.state.cluster_state import ClusterState
from shared.scheduling.state.node_table import BoolArray, IntArray
from shared.wire.records import PolicyRef

NEUTRAL = MAX_PRIORITY // 2
"""Every node's score where the policy has none to give."""

MEANS_S = 1.0
"""How old the means over all nodes may be that nodes are compared with."""
MOST_MEAN = 1e6
"""Bound of them: pods on a node that says it has no memory are billions of its share."""


class Priorities(Struct, frozen=True):
    """``scores``: per name. ``fell``: the policy failed, and they are all the same."""

    scores: list[int]
    fell: bool = False


class ExtenderCore:
    """One extender. ``clock`` counts CPU seconds of this thread."""

    def __init__(
        self, ref: PolicyRef, policy: Policy, rng: Rng, *, clock: Callable[[], float], limits: GuardLimits,
        profile: PluginSet = DEFAULT,
    ) -> None:  # fmt: skip
        self.state = ClusterState()
        self._profile = profile
        self.lanes = Lanes(ref, policy, rng, clock=clock, limits=limits, profile=profile)
        self.lanes.rank(self.state.table)
        self._views = KeptViews() if Need.CLUSTER_MEANS in needs_of(policy) else None
        self._means_due_s = 0.0
        self._awaited = {NODES.plural, PODS.plural}
        self.asked = self.fell = self.unknown = 0
        """Pods ranked, by which the policy failed; nodes named that no watch has shown."""

    @property
    def ready(self) -> bool:
        """Whether the cluster is known."""
        return not self._awaited

    def take(self, events: Iterable[ClusterEvent]) -> None:
        """What the watches show."""
        for event in events:
            match event:
                case NodeUpserted():
                    self.state.upsert_node(event.node, event.images)
                case NodeDeleted():
                    self.state.remove_node(event.name)
                case PodUpserted():
                    self.state.observe(event.pod)
                case PodDeleted():
                    self.state.forget(event.uid)
                case Listed():
                    self._awaited.discard(event.kind)
                case _:
                    pass  # kinds that no rule here reads

    def filter(self, raw: api.KubePod, names: Sequence[str]) -> dict[str, str]:
        """Why nodes are refused, by name, whatever else runs there. Raises ``QuestionInvalid``."""
        pod_class = self._read(raw).pod_class
        row_of, feasibility = self.state.table.row_of, self.lanes.feasibility
        mask = feasibility.static_verdict(pod_class).mask
        refused = [(name, row) for name in names if (row := row_of.get(name)) is not None and not mask[row]]
        return {name: self._why(pod_class, row) for name, row in refused}

    def prioritize(self, raw: api.KubePod, names: Sequence[str], now: float) -> Priorities:
        """The policy's scores: the best of these nodes gets 10, the worst 0, the others what lies between; 0 where the
        policy advises against the node, where it has no room by our view, and where no watch has shown it."""
        pod_class = self._read(raw).pod_class
        self.asked += 1
        table, ranker = self.state.table, self.lanes.active.ranker
        self._tell_means(now)
        rows = np.fromiter((table.row_of.get(name, -1) for name in names), np.int64, len(names))
        known = rows >= 0
        self.unknown += int(np.count_nonzero(~known))
        found = ranker.judged(pod_class, norms=norms_of(self.lanes.feasibility, pod_class))
        if found.fallen:
            self.fell += 1
            return Priorities([NEUTRAL] * len(names), fell=True)
        score = np.full(len(names), INFEASIBLE)
        score[known] = found.score[rows[known]]
        takes = np.isfinite(score)
        if found.accept is not None:
            takes[known] &= found.accept[rows[known]]
        return Priorities(_as_priorities(score, takes).tolist())

    def _tell_means(self, now: float) -> None:
        """What nodes are compared with, where the policy compares: as of a moment ago, for every node is judged anew
        when it changes."""
        if self._views is None or now < self._means_due_s:
            return
        self._means_due_s = now + MEANS_S
        table, store = self.state.table, self.lanes.store
        rows = table.live_rows()
        load = node_load(table, rows, self._profile.load_parts)
        means = summary(self._views.of(table, rows, NO_POD, store), load)
        self.lanes.see_cluster(np.clip(np.nan_to_num(means), -MOST_MEAN, MOST_MEAN))

    def _read(self, raw: api.KubePod) -> Pod:
        try:
            return incoming_pod(raw)
        except ObjectError as error:
            raise QuestionInvalid(f"Pod: {error}; correct the pod") from None

    def _why(self, pod_class: PodClass, row: int) -> str:
        rejection = self.lanes.feasibility.rejection(pod_class, row, static_only=True)
        return "; ".join(rejection.reasons) if rejection is not None else "refused by a rule of conclave"


def _as_priorities(score: NDArray[np.float64], takes: BoolArray) -> IntArray:
    """int64 ``[names]``. Of equal scores all get the same."""
    found = np.zeros(len(score), np.int64)
    if takes.any():
        least, most = score[takes].min(), score[takes].max()
        if most > least:
            found[takes] = np.rint((score[takes] - least) * (MAX_PRIORITY / (most - least))).astype(np.int64)
        else:
            found[takes] = NEUTRAL
    return found
