"""The cores in virtual time, where a judge who sees everything looks at each placement as its plan comes.

*Regret*: how far the score of the node that a pod got lies below the best of all nodes that would take it then, in
points of 100. The judge has accounting of its own, counts placements in the order in which they are committed, and
scores by the policy that decides, other pods included. 100 points are all that the scores in which nodes can differ
give: of kube-default its weights (``bounds_of``) and those of the rules about other pods that apply; of other
policies their bounds, or their usual scores (``hybrid/scales.py``).
"""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import msgspec
import numpy as np
from msgspec.structs import replace

from bench.saturation.world import CoreWorld
from services.coordinator.core.state import CoreSettings
from shared.kube import objects as api
from shared.kube.pods.convert import node_from_api
from shared.model.cluster_events import ObjectChanged
from shared.model.constraints import Norms, gpu_milli_of
from shared.model.gpu_shares import DEFAULT as GPU_SHARES
from shared.model.node import Node
from shared.model.pod import Pod
from shared.policy.heuristics import KubeDefault
from shared.policy.hybrid.scales import SCALES
from shared.policy.observation import Observation, Policy, Supplies, ToldDemand, supply
from shared.policy.registry import make_policy
from shared.policy.usage.utilisation import UtilisationStore
from shared.scheduling.cycle.feasibility import FeasibilityCache
from shared.scheduling.cycle.filtering import run_filters
from shared.scheduling.cycle.prefilter import prefilter
from shared.scheduling.cycle.scoring import norms_over, relation_scores
from shared.scheduling.devices.claimed import ClaimedDevices
from shared.scheduling.scores import MAX_SCORE, WEIGHTS
from shared.scheduling.state.cluster_state import ClusterState
from shared.scheduling.state.object_changes import put_object
from shared.wire.messages import Offer, Plan, ViewUpdate

Json = dict[str, Any]
ALIKE = {"power": "frag"}
"""Policies whose scores are in the unit of another's."""


class PlacementJudge:
    """Scores every node for one pod after the other, and counts each where it was committed.

    ``regrets``: of each placement; ``misplaced``: pods whose node did not take them at their commit.
    """

    def __init__(self, policy: str) -> None:
        self.state = ClusterState()
        self.devices = ClaimedDevices(self.state.table)
        self.state.devices = self.devices
        self.regrets: list[float] = []
        self.misplaced: list[str] = []
        self.store = UtilisationStore()
        self._policy: Policy = make_policy(policy)
        self.demand = ToldDemand()
        supply(self._policy, Supplies(self.store, demand=self.demand))
        self._feasible = FeasibilityCache(self.state.table)
        self._rng = Random(0)

    def commit(self, pod: Pod, node: str) -> None:
        """One placement."""
        state = self.state
        if pod.asks is not None:
            self.devices.count_free(GPU_SHARES)
            pod = self.devices.described(pod)
        row = state.table.row_of[node]
        rows = np.flatnonzero(run_filters(state, self._feasible, prefilter(state, pod), explain=False).mask)
        where = np.flatnonzero(rows == row)
        if where.size:
            norms = norms_over(state.table, pod.pod_class, rows)
            score = self._policy.decide(Observation(state.table, pod.pod_class, rows, norms), self._rng).score
            relations = relation_scores(state, pod, rows)
            total = score + sum(WEIGHTS[name] * values for name, values in relations.items())
            points = self._range(norms) + MAX_SCORE * sum(WEIGHTS[name] for name in relations)
            self.regrets.append(100.0 * float(total.max() - total[where[0]]) / points)
        else:
            self.misplaced.append(pod.uid)
        state.assume(pod, node, 0.0)
        if pod.asks is None:  # rules of spread take as a domain's least what is seen there, not what is on its way
            state.observe(replace(pod, node_name=node, devices=state.cache.accounts[pod.uid].devices))

    def _range(self, norms: Norms) -> float:
        policy = self._policy
        if isinstance(policy, KubeDefault):
            low, high = policy.bounds_of(norms)
        else:
            low, high = getattr(policy, "bounds", None) or SCALES[ALIKE.get(policy.name, policy.name)]
        return high - low


class QualityWorld(CoreWorld):
    """``agents`` 0: the leader decides itself, as it does while none is registered."""

    def __init__(self, *, policy: str, agents: int, seed: int, settings: CoreSettings | None = None) -> None:
        super().__init__(agents=agents, seed=seed, policy=policy, settings=settings)
        self.judge = PlacementJudge(policy)
        self.allocated = 0
        """Thousandths of a GPU that were given to pods."""
        self.claimed: dict[str, int] = {}
        """By uid: thousandths that a pod asks for by a claim."""
        self.on: Counter[str] = Counter()
        """Pods by the node that they were committed to."""

    def add_node(self, body: Json) -> None:
        """See ``CoreWorld``."""
        super().add_node(body)
        self.judge.state.upsert_node(self._node(body))

    def add_pod(self, body: Json, at: float | None = None) -> str:
        """See ``CoreWorld``."""
        uid = super().add_pod(body, at)
        self.judge.state.observe(self.pods[uid])  # where it stands already
        return uid

    def add_object(self, kind: str, key: str, item: object) -> None:
        """An object beside pods and nodes."""
        put_object(self.judge.state, kind, key, item)
        self.post(ObjectChanged(kind, key, item))

    def _node(self, body: Json) -> Node:
        return node_from_api(msgspec.convert(body, api.KubeNode))

    def _ask(self, agent: str, message: Offer | ViewUpdate) -> None:
        self.overhear(message)
        super()._ask(agent, message)

    def overhear(self, message: Offer | ViewUpdate) -> None:
        """The judge goes by what agents are told of the whole cluster."""
        if isinstance(message, Offer):
            if message.cluster:
                self.judge.store.cluster = np.array(message.cluster)
            if message.demand is not None:
                self.judge.demand.demand = message.demand

    def _bind(self, plan: Plan) -> None:
        for placement in plan.placements:
            if (pod := self.pods.get(placement.uid)) is not None:
                self.judge.commit(pod, placement.node)
                self.on[placement.node] += 1
                self.allocated += gpu_milli_of(pod.pod_class) + self.claimed.get(pod.uid, 0)
                for claim in self.judge.devices.claims(pod):
                    given = replace(claim, reserved_for=(pod.uid,), resource_version=str(len(self.bound) + 2))
                    self.add_object("resourceclaims", claim.key, given)
        super()._bind(plan)

    def _change(self, uid: str, after_s: float = 0.0, **changes: Any) -> None:
        if "node_name" in changes:
            changes["devices"] = self.judge.state.cache.accounts[uid].devices
        super()._change(uid, after_s, **changes)
