"""Small clusters for plans: nodes and pods by builders, as a ``ClusterSituation``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from shared.kube.pods.standing_pods import SourcedPod
from shared.model.cluster_objects import DisruptionBudget
from shared.model.terms.labels import selector_of_labels
from shared.rebalance.limits import Caps
from shared.rebalance.plan import GoalName, MovePlan
from shared.rebalance.planner import ClusterSituation, PlanRequest, plan
from shared.rebalance.residents import resident_from_api
from shared.scheduling.state.cluster_state import ClusterState
from tests.builders import NodeBuilder, PodBuilder, make_pod

NOW = 1_000_000.0


def owned(name: str, node: str, cpu: str = "1", memory: str = "1Gi", *, owner: str = "web", **more: Any) -> PodBuilder:
    """A pod of ours that a ReplicaSet has made, on a node."""
    found = make_pod(name).cpu(cpu).memory(memory).on(node)
    found.json["spec"]["schedulerName"] = "conclave"
    found.json["metadata"]["labels"] = {"app": owner} | more.pop("labels", {})
    found.json["metadata"]["ownerReferences"] = [
        {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": owner, "uid": f"uid-{owner}", "controller": True}
    ]
    found.json["metadata"] |= more
    return found


def budget(name: str, app: str, allowed: int) -> DisruptionBudget:
    return DisruptionBudget("default", name, selector_of_labels({"app": app}), allowed)


def world(
    nodes: Sequence[NodeBuilder],
    pods: Sequence[PodBuilder],
    *,
    waiting: Sequence[PodBuilder] = (),
    budgets: Sequence[DisruptionBudget] = (),
    used: dict[str, tuple[float, float]] | None = None,
) -> ClusterSituation:
    state = ClusterState()
    for node in nodes:
        state.upsert_node(node.node())
    residents = [resident_from_api(msgspec.convert(pod.json, SourcedPod)) for pod in pods]
    for one in residents:
        state.observe(one.pod)
    state.budgets.extend(budgets)
    return ClusterSituation(state, tuple(residents), tuple(pod.pod() for pod in waiting), used or {})


def planned(there: ClusterSituation, goal: GoalName, **more: Any) -> MovePlan:
    """The plan; the cluster must be as it was."""
    caps = more.pop("caps", Caps(at_once=0, workload_part=1.0))
    before = [(one.uid, account_of(there, one.uid)) for one in there.residents]
    found = plan(there, PlanRequest(goal, caps=caps, **more), NOW)
    assert [(one.uid, account_of(there, one.uid)) for one in there.residents] == before
    assert list(there.state.validate()) == []
    return found


def account_of(there: ClusterSituation, uid: str) -> str:
    account = there.state.cache.accounts.get(uid)
    return account.node_name if account else ""


def after(there: ClusterSituation, found: MovePlan) -> ClusterSituation:
    """The cluster with the moves made: the same pods, elsewhere."""
    by_uid = {one.uid: one for one in there.residents}
    for move in found.moves:
        one = by_uid[move.uid]
        pod = msgspec.structs.replace(one.pod, node_name=move.target, devices=())
        there.state.forget(one.uid)
        there.state.observe(pod)
        by_uid[move.uid] = msgspec.structs.replace(one, pod=pod)
    return ClusterSituation(there.state, tuple(by_uid.values()), there.waiting, there.used)


def places(found: MovePlan) -> dict[str, str]:
    """Where each moved pod is in the end."""
    return {move.name: move.target for move in found.moves}
