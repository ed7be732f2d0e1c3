"""Who is never moved: descheduler's protections by name, and our own."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from shared.kube.pods.standing_pods import SourcedPod
from shared.rebalance.history import MoveHistory
from shared.rebalance.limits import Caps
from shared.rebalance.plan import GoalName
from shared.rebalance.planner import PlanRequest, movable_in, plan
from shared.rebalance.protections import CoveringBudgets, Protections, protected
from shared.rebalance.residents import resident_from_api
from tests.builders import PodBuilder, make_node
from tests.unit.shared.rebalance.worlds import NOW, budget, owned, world


def reason(pod: PodBuilder, rules: Protections | None = None, *, budgets: Any = ()) -> str:
    one = resident_from_api(msgspec.convert(pod.json, SourcedPod))
    return protected([one], CoveringBudgets(budgets), rules or Protections(), MoveHistory(), NOW).get(one.uid, "")


def test_a_workload_of_which_as_many_are_not_ready_as_move_at_once_stays() -> None:
    pods = [owned(f"w-{number}", "a") for number in range(8)]
    for pod in pods[:2]:
        pod.json["status"] = {"conditions": [{"type": "Ready", "status": "False"}]}
    found = [resident_from_api(msgspec.convert(pod.json, SourcedPod)) for pod in pods]
    stay = protected(found, CoveringBudgets(()), Protections(), MoveHistory(), NOW, 0.25)
    assert set(stay.values()) == {"not Ready: 2 of its workload's 8 pods are not"}
    assert protected(found[1:], CoveringBudgets(()), Protections(), MoveHistory(), NOW, 0.3) == {}


def test_a_replacement_that_stands_nowhere_yet_or_has_said_nothing_counts_as_away() -> None:
    asked = PlanRequest(GoalName.EMPTY_NODES, caps=Caps(workload_part=0.25))
    nodes = [make_node(name).allocatable(cpu="8", memory="16Gi") for name in "ab"]
    pods = [owned("w-1", "a", "2"), owned("w-2", "a", "2"), owned("w-3", "b", "1")]
    assert plan(world(nodes, pods), asked, NOW).moves
    assert not plan(world(nodes, pods, waiting=[owned("w-4", "")]), asked, NOW).moves
    pods[2].json["status"] = {"conditions": [{"type": "PodScheduled", "status": "True"}]}
    assert not plan(world(nodes, pods), asked, NOW).moves
    assert movable_in(world(nodes, pods), asked) == {"default"}, "who is in a canary does not change by a move"


def test_pods_of_owners_that_may_make_no_replacement_stay_unless_somebody_lifts_that() -> None:
    job = kind("Job")
    assert reason(job).startswith("PodsOfOtherOwners: a Job")
    assert reason(job, Protections(lifted=("PodsOfOtherOwners",))) == ""


def changed(**spec: Any) -> PodBuilder:
    found = owned("w", "a")
    found.json["spec"] |= spec
    return found


def kind(name: str) -> PodBuilder:
    found = owned("w", "a")
    found.json["metadata"]["ownerReferences"][0]["kind"] = name
    return found


def bare() -> PodBuilder:
    found = owned("w", "a")
    del found.json["metadata"]["ownerReferences"]
    return found


@pytest.mark.parametrize(
    ("pod", "name"),
    [
        (changed(volumes=[{"name": "v", "emptyDir": {}}]), "PodsWithLocalStorage"),
        (changed(volumes=[{"name": "v", "hostPath": {"path": "/x"}}]), "PodsWithLocalStorage"),
        (kind("DaemonSet"), "DaemonSetPods"),
        (kind("Node"), "mirror pod"),
        (bare(), "BarePods"),
        (changed(priority=2_000_000_000), "SystemCriticalPods"),
        (changed(schedulerName="default-scheduler"), "schedulerName"),
        (changed(resourceClaims=[{"name": "c", "resourceClaimName": "c"}]), "PodsWithResourceClaims"),
        (owned("w", "a", deletionTimestamp="2026-01-01T00:00:00Z"), "terminating"),
        (owned("w", "a", annotations={"karpenter.sh/do-not-disrupt": "true"}), "annotation"),
        (owned("w", "a", annotations={"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}), "annotation"),
        (owned("w", "a", annotations={"conclave.io/preemptible": "false"}), "conclave.io/preemptible"),
    ],
)
def test_who_stays_and_why(pod: PodBuilder, name: str) -> None:
    assert reason(pod).startswith(name)


def test_a_plain_pod_of_a_replica_set_may_move() -> None:
    assert reason(owned("w", "a")) == ""


def test_a_pod_with_gpus_of_a_device_plugin_may_move_and_one_whose_gpus_are_claimed_may_not() -> None:
    pod = owned("w", "a")
    pod.json["spec"]["containers"][0]["resources"] = {"requests": {"nvidia.com/gpu": "1"}}
    assert reason(pod) == ""
    pod.json.setdefault("status", {})["extendedResourceClaimStatus"] = {
        "resourceClaimName": "w-extended", "requestMappings": [],
    }  # fmt: skip
    assert reason(pod).startswith("PodsWithResourceClaims")


def test_what_may_be_lifted_is_lifted_and_the_rest_is_not() -> None:
    lifted = Protections(lifted=("PodsWithLocalStorage", "SystemCriticalPods"))
    assert reason(changed(volumes=[{"name": "v", "emptyDir": {}}]), lifted) == ""
    assert reason(changed(priority=2_000_000_000), lifted) == ""
    assert reason(kind("DaemonSet"), lifted)


def test_what_is_asked_for_in_addition() -> None:
    claim = changed(volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}])
    assert reason(claim) == ""
    assert reason(claim, Protections(extra=("PodsWithPVC",))).startswith("PodsWithPVC")
    assert reason(owned("w", "a"), Protections(extra=("PodsWithoutPDB",))).startswith("PodsWithoutPDB")
    assert reason(changed(priority=10), Protections(priority_threshold=10)).startswith("priorityThreshold")
    assert reason(owned("w", "a"), Protections(min_replicas=2)).startswith("minReplicas")
    young = owned("w", "a", creationTimestamp="1970-01-12T13:46:00Z")
    assert reason(young, Protections(min_age_s=300)).startswith("minPodAge")
    assert reason(owned("w", "a"), Protections(namespaces=("other",))).startswith("namespaces")


def test_two_budgets_over_a_pod_hold_it_since_the_eviction_api_refuses() -> None:
    both = [budget("one", "web", 3), budget("two", "web", 3)]
    assert "no pod of more than one" in reason(owned("w", "a"), budgets=both)


def test_the_evict_annotation_overrides_what_a_person_may_override() -> None:
    asked = {"descheduler.alpha.kubernetes.io/evict": "true"}
    assert reason(owned("w", "a", annotations=asked | {"karpenter.sh/do-not-disrupt": "true"})) == ""
    daemon = owned("w", "a", annotations=asked)
    daemon.json["metadata"]["ownerReferences"][0]["kind"] = "DaemonSet"
    assert reason(daemon)
